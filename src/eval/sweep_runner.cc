// The sweep: runs what the folder does not hold yet, one synced row at a time.
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/results.h"
#include "src/eval/cell_json.h"
#include "src/eval/length_race.h"
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

}  // namespace

std::vector<bool> FinishedTasks(const std::vector<SweepTask>& tasks, const SweepHeader& header,
                                const std::string& folder, bool race) {
  const std::string path = folder + "/results.jsonl";
  std::ostringstream text;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    text << std::ifstream(path, std::ios::binary).rdbuf();
  }
  const internal::ParsedResults old = internal::ParseResults(text.str(), path);
  if (old.has_header) CheckSame(old.results.header, header.common, path);
  std::set<std::string> finished;
  for (const Cell& cell : old.results.cells) {
    if (race || !cell.race_exit) finished.insert(cell.Identity());
  }
  std::vector<bool> out;
  out.reserve(tasks.size());
  for (const SweepTask& task : tasks) {
    out.push_back(finished.contains(internal::EmptyRow(task, header.common).Identity()));
  }
  return out;
}

namespace {

// What is on disk of a sweep, and where more goes.
class Folder {
 public:
  Folder(const std::string& folder, const SweepHeader& header, const SweepEvents& events)
      : rows_(folder), units_(folder, "units.jsonl") {
    internal::ParsedResults old = internal::ParseResults(rows_.Read(), rows_.path());
    Cut(rows_, old.results.dropped_bytes, old.whole_bytes, events);
    if (old.has_header) {
      CheckSame(old.results.header, header.common, rows_.path());
    } else {
      rows_.Append(internal::Line(internal::ToJson(header)));
    }
    for (Cell& cell : old.results.cells) {
      std::string identity = cell.Identity();
      finished_.insert_or_assign(std::move(identity), std::move(cell));
    }
    ReadUnits(events);
  }

  // The row that is there; null: none.
  const Cell* Find(const std::string& identity) const {
    const auto found = finished_.find(identity);
    return found == finished_.end() ? nullptr : &found->second;
  }
  internal::CellParts Parts(const std::string& identity) const {
    const auto found = parts_.find(identity);
    return found == parts_.end() ? internal::CellParts() : found->second;
  }
  void Append(const Cell& cell) { rows_.Append(internal::Line(internal::ToJson(cell))); }
  void Append(const internal::UnitRecord& unit) { units_.Append(ToJson(unit)); }

 private:
  static void Cut(internal::ResultsFile& file, int64_t dropped, int64_t whole,
                  const SweepEvents& events) {
    if (dropped == 0) return;
    if (events.message) {
      events.message("dropped the last " + std::to_string(dropped) + " bytes of " + file.path() +
                     ": a row that was interrupted while written");
    }
    file.Truncate(whole);
  }

  void ReadUnits(const SweepEvents& events) {
    const std::string text = units_.Read();
    size_t begin = 0;
    for (int64_t number = 1; begin < text.size(); ++number) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) break;
      try {
        const internal::UnitRecord unit = internal::UnitFromJson(text.substr(begin, end - begin));
        AddUnit(unit, parts_[unit.cell]);
      } catch (const nlohmann::json::exception& e) {
        throw Error(ErrorCode::kInvalidFile,
                    units_.path() + ", line " + std::to_string(number) + ": " + e.what() +
                        "; the file was written or changed by something else: move it away");
      }
      begin = end + 1;
    }
    Cut(units_, static_cast<int64_t>(text.size() - begin), static_cast<int64_t>(begin), events);
  }

  internal::ResultsFile rows_, units_;
  std::map<std::string, Cell> finished_;
  std::map<std::string, internal::CellParts> parts_;
};

// The tasks [begin, end) have one length.
class LengthRun {
 public:
  LengthRun(const std::vector<SweepTask>& tasks, size_t begin, size_t end, const SweepSpec& spec,
            const SweepInputs& inputs, const SweepHeader& header, const SweepEvents& events,
            Folder& folder)
      : tasks_(tasks),
        begin_(begin),
        spec_(spec),
        inputs_(inputs),
        header_(header),
        events_(events),
        folder_(folder),
        works_(end - begin),
        exits_(end - begin) {}

  // Appends the rows of the tasks to `cells`, which holds those of all tasks before.
  void Run(std::vector<Cell>& cells) {
    for (size_t k = 0; k < works_.size(); ++k) {
      if (tasks_[begin_ + k].shares < 0 && !IsFinished(k)) works_[k] = MakeWork(k);
    }
    if (spec_.race && spec_.perplexity) Race();
    for (size_t k = 0; k < works_.size(); ++k) Finish(k, cells);
  }

 private:
  const SweepTask& Task(size_t k) const { return tasks_[begin_ + k]; }
  std::string Identity(size_t k) const {
    return internal::EmptyRow(Task(k), header_.common).Identity();
  }

  // A row that left a race is not finished for a sweep without one.
  bool IsFinished(size_t k) const {
    const Cell* row = folder_.Find(Identity(k));
    return row != nullptr && (spec_.race || !row->race_exit);
  }

  std::unique_ptr<internal::CellWork> MakeWork(size_t k) {
    auto work = std::make_unique<internal::CellWork>(Task(k), spec_, inputs_, header_.common,
                                                     folder_.Parts(Identity(k)));
    work->keep = [this](const internal::UnitRecord& unit) { folder_.Append(unit); };
    work->progress = [this, k](int64_t done, int64_t all) {
      return !events_.progress || events_.progress(begin_ + k, done, all);
    };
    return work;
  }

  // Without scaling at the trained length: everything is judged by it.
  bool IsYardstick(size_t k) const {
    return Task(k).unscaled && Task(k).length == spec_.trained_length;
  }

  void Race() {
    std::vector<internal::RaceArm> arms;
    std::vector<size_t> index;
    for (size_t k = 0; k < works_.size(); ++k) {
      if (Task(k).shares >= 0) continue;
      internal::RaceArm arm{.task = &Task(k), .work = works_[k].get(), .stays = IsYardstick(k)};
      if (works_[k] == nullptr) arm.done = folder_.Find(Identity(k))->window_nll;
      arms.push_back(std::move(arm));
      index.push_back(k);
    }
    const auto exits =
        internal::RaceWindows(arms, *spec_.race, [&](size_t arm, const RaceExit& exit) {
          if (events_.left && works_[index[arm]] != nullptr) {
            events_.left(begin_ + index[arm], exit);
          }
        });
    for (size_t i = 0; i < exits.size(); ++i) exits_[index[i]] = exits[i];
  }

  void Finish(size_t k, std::vector<Cell>& cells) {
    const SweepTask& task = Task(k);
    const bool resumed = IsFinished(k);
    if (resumed) {
      cells.push_back(*folder_.Find(Identity(k)));
    } else if (task.shares >= 0) {
      cells.push_back(SharedCell(cells[static_cast<size_t>(task.shares)], task));
    } else {
      internal::CellWork& work = *works_[k];
      if (!exits_[k]) {
        work.MeasureWindows(work.windows());
        work.MeasureRest();
      }
      cells.push_back(work.Row());
      cells.back().race_exit = exits_[k];
    }
    if (!resumed) folder_.Append(cells.back());
    works_[k].reset();
    if (events_.finished) events_.finished(begin_ + k, cells.back(), resumed);
  }

  const std::vector<SweepTask>& tasks_;
  size_t begin_;
  const SweepSpec& spec_;
  const SweepInputs& inputs_;
  const SweepHeader& header_;
  const SweepEvents& events_;
  Folder& folder_;
  std::vector<std::unique_ptr<internal::CellWork>> works_;
  std::vector<std::optional<RaceExit>> exits_;
};

}  // namespace

std::vector<Cell> RunSweep(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                           const SweepInputs& inputs, const SweepHeader& header,
                           const std::string& folder, const SweepEvents& events) {
  Folder there(folder, header, events);
  std::vector<Cell> cells;
  for (size_t begin = 0; begin < tasks.size();) {
    size_t end = begin + 1;
    while (end < tasks.size() && tasks[end].length == tasks[begin].length) ++end;
    LengthRun(tasks, begin, end, spec, inputs, header, events, there).Run(cells);
    begin = end;
  }
  return cells;
}

}  // namespace ropewalk
