// The files of a sweep's folder: results.jsonl and units.jsonl of a process without a shard,
// results.3-of-16.jsonl and units.3-of-16.jsonl of a shard.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/results.h"
#include "ropewalk/eval/shard.h"
#include "src/eval/unit_store.h"

namespace ropewalk::internal {

inline constexpr char kResults[] = "results", kUnits[] = "units";
std::string NameOfFile(const char* kind, const std::optional<Shard>& shard);
// Those of the kind that are in the folder, as names: that without a shard first, then by count and
// number.
std::vector<std::string> FilesOf(const std::string& folder, const char* kind);

// Throws Error(kMismatch) that names what differs between a header and the sweep `ours`.
void CheckSame(const SweepHeader& theirs, const Cell& ours, const std::string& path);

// Whether a sweep, with or without a race, has nothing to add to this row.
bool IsFinishedRow(const Cell& row, bool race);

// The rows of a sweep by the identity of their cells.
class RowStore {
 public:
  // Those of one file: of two with one identity the later one counts, and of two in different files the
  // one that measured more.
  void Add(std::vector<Cell>&& cells);
  void Put(Cell cell);  // replaces what is there
  const Cell* Find(const std::string& identity) const;
  // By length, then in the order in which a sweep without shards writes them.
  std::vector<Cell> Take() &&;

 private:
  std::map<std::string, size_t> index_;
  std::vector<Cell> cells_;
};

// What a file of another process has, also while that one appends to it: lines without an end are
// left for later. It is never changed.
class OthersFile {
 public:
  explicit OthersFile(std::string path) : path_(std::move(path)) {}

  // What was added to units since the last time.
  void ReadUnits(UnitStore& units);
  // The rows, where the file has changed; throws Error(kMismatch) for results of another sweep.
  void ReadRows(const Cell& common, RowStore& rows);

 private:
  std::string path_;
  int64_t bytes_ = 0, lines_ = 0;  // that are known
};

// Everything of a folder that is in files of others than `shard`; without locks.
class OthersFiles {
 public:
  OthersFiles(std::string folder, std::string own_results, std::string own_units)
      : folder_(std::move(folder)), own_{std::move(own_results), std::move(own_units)} {}
  void Read(const Cell& common, RowStore& rows, UnitStore& units);

 private:
  std::vector<OthersFile*> Files(const char* kind, const std::string& own);

  std::string folder_;
  std::string own_[2];
  std::map<std::string, OthersFile> files_;
};

}  // namespace ropewalk::internal
