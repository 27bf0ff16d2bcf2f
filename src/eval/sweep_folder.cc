#include "src/eval/sweep_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
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

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    text << std::ifstream(path, std::ios::binary).rdbuf();
  }
  return text.str();
}

}  // namespace

void CheckSame(const SweepHeader& theirs, const Cell& ours, const std::string& path) {
  const auto there = CommonIdentity(theirs.common);
  const auto here = CommonIdentity(ours);
  std::string differences;
  for (size_t i = 0; i < here.size(); ++i) {
    if (there[i].second == here[i].second) continue;
    if (!differences.empty()) differences += "; ";
    differences += here[i].first + " there " + there[i].second + ", here " + here[i].second;
  }
  if (differences.empty()) return;
  throw Error(ErrorCode::kMismatch,
              path + " holds results of another sweep (" + differences +
                  "); choose another folder with -o, or give the options it was made with");
}

bool IsFinishedRow(const Cell& row, bool race) {
  return !row.unfinished && (race || !row.race_exit);
}

CellRows RowsOf(std::vector<Cell>&& cells) {
  CellRows rows;
  for (Cell& cell : cells) {
    std::string identity = cell.Identity();
    rows.insert_or_assign(std::move(identity), std::move(cell));
  }
  return rows;
}

CellPartsOf ParseUnits(const std::string& text, const std::string& path, int64_t& whole) {
  CellPartsOf parts;
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    try {
      const UnitRecord unit = UnitFromJson(text.substr(begin, end - begin));
      AddUnit(unit, parts[unit.cell]);
    } catch (const nlohmann::json::exception& e) {
      throw Error(ErrorCode::kInvalidFile,
                  path + ", line " + std::to_string(number) + ": " + e.what() +
                      "; the file was written or changed by something else: move it away");
    }
    begin = end + 1;
  }
  whole = static_cast<int64_t>(begin);
  return parts;
}

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

SweepFolder::SweepFolder(const std::string& folder, const SweepHeader& header,
                         const SweepEvents& events)
    : rows_(folder), units_(folder, "units.jsonl") {
  ParsedResults old = ParseResults(rows_.Read(), rows_.path());
  Cut(rows_, old.results.dropped_bytes, old.whole_bytes, events);
  if (old.has_header) {
    CheckSame(old.results.header, header.common, rows_.path());
  } else {
    rows_.Append(ropewalk::ToJson(header));
  }
  cells_ = RowsOf(std::move(old.results.cells));
  const std::string units = units_.Read();
  int64_t whole = 0;
  parts_ = ParseUnits(units, units_.path(), whole);
  Cut(units_, static_cast<int64_t>(units.size()) - whole, whole, events);
}

const Cell* SweepFolder::Find(const std::string& identity) const {
  const auto found = cells_.find(identity);
  return found == cells_.end() ? nullptr : &found->second;
}

CellParts SweepFolder::Parts(const std::string& identity) const {
  const auto found = parts_.find(identity);
  return found == parts_.end() ? CellParts() : found->second;
}

void SweepFolder::Append(const Cell& cell) { rows_.Append(ropewalk::ToJson(cell)); }
void SweepFolder::Append(const UnitRecord& unit) { units_.Append(ToJson(unit)); }

}  // namespace internal

std::vector<CellLeft> WhatIsLeft(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                                 const SweepInputs& inputs, const SweepHeader& header,
                                 const std::string& folder) {
  for (const SweepTask& task : tasks) inputs.engine->CheckKv(task.kv);
  const std::string path = folder + "/results.jsonl", units = folder + "/units.jsonl";
  internal::ParsedResults old = internal::ParseResults(internal::TextOf(path), path);
  if (old.has_header) internal::CheckSame(old.results.header, header.common, path);
  const internal::CellRows rows = internal::RowsOf(std::move(old.results.cells));
  int64_t whole = 0;
  const internal::CellPartsOf parts = internal::ParseUnits(internal::TextOf(units), units, whole);
  std::vector<CellLeft> left;
  for (const SweepTask& task : tasks) {
    const std::string identity = internal::EmptyRow(task, header.common).Identity();
    const auto row = rows.find(identity);
    const auto known = parts.find(identity);
    if (row != rows.end() && internal::IsFinishedRow(row->second, spec.race.has_value())) {
      left.push_back({.finished = true, .asked = row->second.windows});
    } else if (task.shares >= 0) {
      left.emplace_back();
    } else {
      left.push_back(
          internal::LeftOf(task, spec, inputs, header.common,
                           known == parts.end() ? internal::CellParts() : known->second));
    }
  }
  return left;
}

}  // namespace ropewalk
