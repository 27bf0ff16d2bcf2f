#include "src/eval/sweep_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/eval/cell_json.h"
#include "src/eval/results_text.h"
#include "src/eval/work_meter.h"

namespace ropewalk {
namespace internal {
namespace {

void Cut(ResultsFile& file, int64_t dropped, int64_t whole, const SweepEvents& events) {
  if (dropped == 0) return;
  if (events.message) {
    events.message("dropped the last " + std::to_string(dropped) + " bytes of " + file.path() +
                   ": a row that was interrupted while written");
  }
  file.Truncate(whole);
}

// What decides who races against whom, and is in no header.
std::string AskedText(const SweepSpec& spec) {
  std::vector<std::string> methods, kv;
  for (const SweepMethod& method : spec.methods) {
    const auto* fixed = std::get_if<FixedPlan>(&method);
    methods.push_back(NameOf(method) + (fixed == nullptr ? "" : " " + fixed->dictionary));
  }
  for (const KvType type : spec.kv) kv.emplace_back(Name(type));
  const std::string race =
      spec.race ? fmt::format("alpha {}, margin {}", spec.race->alpha, spec.race->margin) : "none";
  return fmt::format("methods {}; lengths {}; factors {}; kv {}; race {}", fmt::join(methods, ","),
                     fmt::join(spec.lengths, ","), fmt::join(spec.factors, ","), fmt::join(kv, ","),
                     race);
}

constexpr char kStart[] = "start", kHere[] = "shard";

}  // namespace

CellLeft LeftOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                const Cell& common, const CellParts& parts) {
  const WorkMeter meter(*inputs.engine);
  SweepInputs metered = inputs;
  metered.engine = &meter;
  CellWork work(task, spec, metered, common, parts);
  CellLeft left{.asked = work.windows(),
                .windows = work.windows() - static_cast<int64_t>(parts.windows.size()),
                .others = work.RestLeft()};
  work.MeasureWindows(work.windows());
  left.of_windows = meter.Take();
  work.MeasureRest();
  left.of_others = meter.Take();
  return left;
}

SweepFolder::SweepFolder(const std::string& folder, const SweepSpec& spec,
                         const SweepHeader& header, const SweepEvents& events,
                         const std::optional<Shard>& shard)
    : shard_(shard),
      common_(header.common),
      results_name_(NameOfFile(kResults, shard)),
      units_name_(NameOfFile(kUnits, shard)),
      others_(folder, results_name_, units_name_) {
  if (!shard) {
    Open(folder);
    ReadOwn(header, events);
    return;
  }
  // One after the other, so that each sees with what options the others began. Results of another
  // sweep are refused before there is a file of one's own.
  LeaseFolder gate(folder, *shard, "", false);
  const LeaseFolder::Lease start = gate.Wait(kStart, events.waiting);
  others_.Read(common_, rows_, units_);
  Open(folder);
  leases_.emplace(folder, *shard, AskedText(spec), true, events.message);
  Enter(spec, events);
  ReadOwn(header, events);
}

// The locks of files tell who is at work: that of results.jsonl a process without a shard, those of the
// other files a shard.
void SweepFolder::Open(const std::string& folder) {
  rows_file_.emplace(folder, results_name_);
  for (const std::string& name : FilesOf(folder, kResults)) {
    const bool without = name == NameOfFile(kResults, {});
    if (without != shard_.has_value() || !IsLocked(fmt::format("{}/{}", folder, name))) continue;
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("another ropewalk, {} --shard, is writing to {}/{}; wait for it, or choose "
                    "another folder with -o",
                    without ? "without" : "with", folder, name));
  }
  units_file_.emplace(folder, units_name_);
}

// Says that this shard is at work, unless another one that is alive races other methods.
void SweepFolder::Enter(const SweepSpec& spec, const SweepEvents& events) {
  const std::string asked = AskedText(spec);
  const auto begin = std::chrono::steady_clock::now();
  constexpr std::chrono::milliseconds kPause(200);
  for (bool first = true;; first = false) {
    std::vector<LeaseHolder> others = leases_->Holders(kHere);
    std::erase_if(others, [&](const LeaseHolder& other) {
      return other.asked == asked || other.asked.empty() || other.shard == shard_->Name();
    });
    if (others.empty()) break;
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (others.front().alive || waited.count() > shard_->stale_seconds + 1) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("{} is at work in this folder with other options ({} there, {} "
                              "here); shards of one sweep get the same options",
                              others.front().Text(), others.front().asked, asked));
    }
    if (first && events.message) {
      events.message("looking whether " + others.front().Text() +
                     " is still at work, with other options");
    }
    if (events.waiting && !events.waiting(others.front().Text())) throw Interrupted();
    std::this_thread::sleep_for(kPause);
  }
  here_ = leases_->Wait(fmt::format("{}-{}-of-{}", kHere, shard_->index, shard_->count),
                        events.waiting);
}

void SweepFolder::ReadOwn(const SweepHeader& header, const SweepEvents& events) {
  ParsedResults old = ParseResults(rows_file_->Read(), rows_file_->path());
  Cut(*rows_file_, old.results.dropped_bytes, old.whole_bytes, events);
  if (old.has_header) {
    CheckSame(old.results.header, common_, rows_file_->path());
  } else {
    rows_file_->Append(ropewalk::ToJson(header));
  }
  rows_.Add(std::move(old.results.cells));
  const std::string units = units_file_->Read();
  int64_t line = 0;
  const int64_t whole = units_.AddLines(units, units_file_->path(), line);
  Cut(*units_file_, static_cast<int64_t>(units.size()) - whole, whole, events);
  others_.Read(common_, rows_, units_);
}

void SweepFolder::Refresh() {
  if (shard_) others_.Read(common_, rows_, units_);
}

SweepFolder::Lease SweepFolder::Claim(const std::string& name) {
  if (!shard_) return LeaseFolder::Lease();
  LeaseFolder::Lease lease = leases_->Claim(name);
  if (!lease) return {};
  Refresh();
  return lease;
}

void SweepFolder::Append(const Cell& cell) {
  rows_file_->Append(ropewalk::ToJson(cell));
  rows_.Put(cell);
}

void SweepFolder::Append(std::span<const UnitRecord> units) {
  std::string lines;
  for (const UnitRecord& unit : units) lines += (lines.empty() ? "" : "\n") + ToJson(unit);
  units_file_->Append(lines);
  for (const UnitRecord& unit : units) units_.Add(unit);
}

}  // namespace internal

std::vector<CellLeft> WhatIsLeft(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                                 const SweepInputs& inputs, const SweepHeader& header,
                                 const std::string& folder) {
  for (const SweepTask& task : tasks) inputs.engine->CheckKv(task.kv);
  internal::RowStore rows;
  internal::UnitStore units;
  internal::OthersFiles(folder, "", "").Read(header.common, rows, units);
  std::vector<CellLeft> left;
  for (const SweepTask& task : tasks) {
    const std::string identity = internal::EmptyRow(task, header.common).Identity();
    const Cell* row = rows.Find(identity);
    if (row != nullptr && internal::IsFinishedRow(*row, spec.race.has_value())) {
      left.push_back({.finished = true, .asked = row->windows});
    } else if (task.shares >= 0) {
      left.emplace_back();
    } else {
      left.push_back(internal::LeftOf(task, spec, inputs, header.common, units.Parts(identity)));
    }
  }
  return left;
}

}  // namespace ropewalk
