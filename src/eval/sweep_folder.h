// What is on disk of a sweep, and where more goes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/eval/results.h"
#include "ropewalk/eval/shard.h"
#include "src/eval/cell_work.h"
#include "src/eval/lease.h"
#include "src/eval/results_file.h"
#include "src/eval/sweep_files.h"
#include "src/eval/unit_store.h"

namespace ropewalk::internal {

// What is missing of a cell of which there are `parts`.
CellLeft LeftOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                const Cell& common, const CellParts& parts);

// Reads the files of everybody, writes those of one process. Without a shard there is no other process
// while it lives: each is refused while the other is at work.
class SweepFolder {
 public:
  SweepFolder(const std::string& folder, const SweepSpec& spec, const SweepHeader& header,
              const SweepEvents& events, const std::optional<Shard>& shard);

  // The row that is there; null: none. Until more is read or appended.
  const Cell* Find(const std::string& identity) const { return rows_.Find(identity); }
  const UnitStore& units() const { return units_; }
  void Append(const Cell& cell);
  // All or none of them, as far as the process decides.
  void Append(std::span<const UnitRecord> units);

  const std::optional<Shard>& shard() const { return shard_; }
  // Reads what other shards have appended.
  void Refresh();
  // Empty: another shard has it, whom holder() names; else what it left is read. Without a shard it is
  // always given.
  using Lease = std::optional<LeaseFolder::Lease>;
  Lease Claim(const std::string& name);
  std::string holder() const { return leases_ ? leases_->holder() : std::string(); }

 private:
  void Open(const std::string& folder);
  void Enter(const SweepSpec& spec, const SweepEvents& events);
  void ReadOwn(const SweepHeader& header, const SweepEvents& events);

  std::optional<Shard> shard_;
  Cell common_;
  std::string results_name_, units_name_;
  OthersFiles others_;
  RowStore rows_;
  UnitStore units_;
  std::optional<ResultsFile> rows_file_, units_file_;
  std::optional<LeaseFolder> leases_;
  std::optional<LeaseFolder::Lease> here_;  // says that this shard is at work, and at what
};

}  // namespace ropewalk::internal
