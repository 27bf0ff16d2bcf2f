// What is on disk of a sweep, and where more goes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ropewalk/eval/results.h"
#include "src/eval/cell_work.h"
#include "src/eval/results_file.h"

namespace ropewalk::internal {

// Throws Error(kMismatch) that names what differs between a header and the sweep `ours`.
void CheckSame(const SweepHeader& theirs, const Cell& ours, const std::string& path);

// Whether a sweep, with or without a race, has nothing to add to this row.
bool IsFinishedRow(const Cell& row, bool race);

// The rows of results.jsonl and the parts of units.jsonl, by the identity of their cells.
using CellRows = std::map<std::string, Cell>;
using CellPartsOf = std::map<std::string, CellParts>;
CellRows RowsOf(std::vector<Cell>&& cells);  // of rows with one identity the last
// `whole` gets the bytes up to the end of the last whole line. Throws Error(kInvalidFile).
CellPartsOf ParseUnits(const std::string& text, const std::string& path, int64_t& whole);

// What is missing of a cell of which there are `parts`.
CellLeft LeftOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                const Cell& common, const CellParts& parts);

class SweepFolder {
 public:
  SweepFolder(const std::string& folder, const SweepHeader& header, const SweepEvents& events);

  // The row that is there; null: none.
  const Cell* Find(const std::string& identity) const;
  CellParts Parts(const std::string& identity) const;
  void Append(const Cell& cell);
  void Append(const UnitRecord& unit);

 private:
  ResultsFile rows_, units_;
  CellRows cells_;
  CellPartsOf parts_;
};

}  // namespace ropewalk::internal
