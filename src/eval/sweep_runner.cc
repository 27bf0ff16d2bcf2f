// The sweep: runs what the folder does not hold yet, one synced row at a time.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/results.h"
#include "src/eval/cell_json.h"
#include "src/eval/results_file.h"
#include "src/eval/results_text.h"

namespace ropewalk {
namespace {

void CheckSame(const SweepHeader& theirs, const Cell& ours, const std::string& path) {
  const auto there = internal::CommonIdentity(theirs.common);
  const auto here = internal::CommonIdentity(ours);
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

// A row for `task` from the row that computed the same plan at the same length.
Cell SharedCell(const Cell& computed, const SweepTask& task) {
  Cell cell = computed;
  cell.method = task.method;
  cell.factor = task.factor;
  cell.scaling = task.scaling;
  cell.shared_with = computed.shared_with.empty() ? computed.Identity() : computed.shared_with;
  cell.seconds = 0;
  return cell;
}

std::string IdentityOf(const SweepTask& task, const Cell& common) {
  Cell cell = common;
  cell.method = task.method;
  cell.factor = task.factor;
  cell.length = task.length;
  cell.scaling = task.scaling;
  cell.plan_hash = task.plan_hash;
  return cell.Identity();
}

}  // namespace

std::vector<bool> FinishedTasks(const std::vector<SweepTask>& tasks, const SweepHeader& header,
                                const std::string& folder) {
  const std::string path = folder + "/results.jsonl";
  std::ostringstream text;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    text << std::ifstream(path, std::ios::binary).rdbuf();
  }
  const internal::ParsedResults old = internal::ParseResults(text.str(), path);
  if (old.has_header) CheckSame(old.results.header, header.common, path);
  std::set<std::string> finished;
  for (const Cell& cell : old.results.cells) finished.insert(cell.Identity());
  std::vector<bool> out;
  out.reserve(tasks.size());
  for (const SweepTask& task : tasks) {
    out.push_back(finished.contains(IdentityOf(task, header.common)));
  }
  return out;
}

std::vector<Cell> RunSweep(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                           const SweepInputs& inputs, const SweepHeader& header,
                           const std::string& folder, const SweepEvents& events) {
  internal::ResultsFile file(folder);
  internal::ParsedResults old = internal::ParseResults(file.Read(), file.path());
  if (old.results.dropped_bytes > 0) {
    if (events.message) {
      events.message("dropped the last " + std::to_string(old.results.dropped_bytes) +
                     " bytes of " + file.path() + ": a row that was interrupted while written");
    }
    file.Truncate(old.whole_bytes);
  }
  if (old.has_header) {
    CheckSame(old.results.header, header.common, file.path());
  } else {
    file.Append(internal::Line(internal::ToJson(header)));
  }
  std::map<std::string, const Cell*> finished;
  for (const Cell& cell : old.results.cells) finished.emplace(cell.Identity(), &cell);

  std::vector<Cell> cells;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const SweepTask& task = tasks[i];
    const auto found = finished.find(IdentityOf(task, header.common));
    const bool resumed = found != finished.end();
    if (resumed) {
      cells.push_back(*found->second);
    } else {
      if (task.shares >= 0) {
        cells.push_back(SharedCell(cells[static_cast<size_t>(task.shares)], task));
      } else {
        const ProgressFn progress = [&](int64_t done, int64_t all) {
          return !events.progress || events.progress(i, done, all);
        };
        cells.push_back(RunCell(task, spec, inputs, header.common, progress));
      }
      file.Append(internal::Line(internal::ToJson(cells.back())));
    }
    if (events.finished) events.finished(i, cells.back(), resumed);
  }
  return cells;
}

}  // namespace ropewalk
