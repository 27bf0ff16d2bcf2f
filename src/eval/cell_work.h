// The measurement of one cell in parts: windows, tasks. A sweep writes each part to
// units.jsonl as soon as it is there, and goes on from these.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/eval/results.h"
#include "ropewalk/eval/task.h"
#include "src/eval/window_score.h"

namespace ropewalk::internal {

// What is known of a cell.
struct CellParts {
  std::vector<WindowScore> windows = {};  // the first ones, with the answers behind them
  std::vector<TaskResult> tasks = {};     // the first ones that have prompts of their own
  double seconds = 0;                     // that these took
};

// One line of units.jsonl: a part that was measured, with the identity of its cell.
struct UnitRecord {
  std::string cell = {};
  int64_t window = -1;  // index; -1: one of the others
  WindowScore score = {};
  std::optional<TaskResult> task = {};
  int64_t task_index = -1;  // among those of the cell; -1: the next one, in older files
  double seconds = 0;
};
std::string ToJson(const UnitRecord& unit);
// Throws nlohmann::json::exception.
UnitRecord UnitFromJson(const std::string& line);
// Adds what follows on the parts that are there; others are left out.
void AddUnit(const UnitRecord& unit, CellParts& parts);

// The row of a task without results.
Cell EmptyRow(const SweepTask& task, const Cell& common);

// The windows of a cell, with the questions of the task that shares them.
struct CellWindows {
  std::vector<AskedWindow> windows = {};  // of perplexity
  const SampledTask* shared = nullptr;    // null: none does
};
CellWindows WindowsOf(const SweepSpec& spec, const TokenText* text, int64_t length,
                      int64_t longest_length);
// The protocol of a task that is asked behind windows.
std::string BehindWindows(const Task& task);
// "aligned:512+passkey": the protocol, and the task that shares its windows at lengths that hold it.
std::string ProtocolOf(const SweepSpec& spec);

class CellWork {
 public:
  // All must outlive it. `parts`: what was measured before.
  CellWork(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
           const Cell& common, CellParts parts = {});

  // What new parts are reported to, before the next begin: windows that went to the engine in one call
  // together.
  std::function<void(std::span<const UnitRecord> units)> keep = {};
  ProgressFn progress = {};                    // of the part that runs
  std::vector<ScoredToken>* tokens = nullptr;  // gets the scored tokens

  const CellParts& parts() const { return parts_; }
  int64_t windows() const { return static_cast<int64_t>(plan_.windows.size()); }  // in all
  // What others have measured of the cell as well.
  void Take(CellParts parts) { parts_ = std::move(parts); }
  // Measures what is missing of the first `end` windows.
  void MeasureWindows(int64_t end) {
    MeasureWindows(static_cast<int64_t>(parts_.windows.size()), end);
  }
  // Those alone. parts() has them once there is no gap in front of them.
  void MeasureWindows(int64_t begin, int64_t end);
  int64_t Rest() const;  // tasks with prompts of their own
  int64_t RestLeft() const { return Rest() - static_cast<int64_t>(parts_.tasks.size()); }
  void MeasureRest();           // those that are missing
  void MeasureTask(int64_t i);  // of the Rest() that one, as windows
  Cell Row() const;             // from the parts that are there

 private:
  void AddFromWindows(TaskResult result, std::vector<TaskAnswer> WindowScore::*answers,
                      Cell& row) const;
  RunOptions Options() const;
  template <class Measure>
  void Part(UnitRecord unit, Measure&& measure);

  const SweepTask& task_;
  const SweepSpec& spec_;
  const SweepInputs& inputs_;
  Cell row_;
  CellWindows plan_;
  CellParts parts_;
};

}  // namespace ropewalk::internal
