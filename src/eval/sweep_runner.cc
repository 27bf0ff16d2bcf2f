// The sweep: measures what the folder does not hold yet, what decides most first.
#include <algorithm>
#include <memory>

#include "ropewalk/eval/results.h"
#include "src/eval/length_run.h"

namespace ropewalk {
namespace {

using internal::LengthRun;

// The least of each length, the shortest first, up to the first that does not fit: then shorter ones
// have their whole least, and none is begun that will not end.
class Schedule {
 public:
  explicit Schedule(internal::SweepRun& run) : run_(run) {
    for (size_t begin = 0; begin < run.tasks.size();) {
      size_t end = begin + 1;
      while (end < run.tasks.size() && run.tasks[end].length == run.tasks[begin].length &&
             run.tasks[end].kv == run.tasks[begin].kv) {
        ++end;
      }
      lengths_.push_back(std::make_unique<LengthRun>(run, begin, end));
      begin = end;
    }
    // What was added behind others is of a length that has its turn before them.
    std::stable_sort(lengths_.begin(), lengths_.end(),
                     [](const auto& a, const auto& b) { return a->length() < b->length(); });
    run.seconds_left = [this] {
      double seconds = 0;
      for (const auto& length : lengths_) seconds += length->AllSeconds();
      return seconds;
    };
  }

  void Run() {
    if (MeasureLeast()) MeasureRounds();
    for (const auto& length : lengths_) {
      length->Finish();
      if (run_.events.left_out && !length->IsWhole()) {
        run_.events.left_out({.length = length->length(),
                              .kv = length->kv(),
                              .windows = length->HasLeast() ? length->windows() : 0,
                              .asked = length->asked(),
                              .seconds = run_.clock.Corrected(length->AllSeconds()),
                              .open = !length->HasLeast() || length->IsOpen()});
      }
    }
  }

 private:
  bool Fits(double seconds) const { return run_.clock.Corrected(seconds) <= run_.clock.Left(); }

  // Whether there may be time for more.
  bool MeasureLeast() {
    for (const auto& length : lengths_) {
      if (!Fits(length->YardstickSeconds()) || !length->MeasureYardstick()) return false;
    }
    for (const auto& length : lengths_) {
      if (!Fits(length->LeastSeconds())) return true;
      if (!length->MeasureLeast()) return false;
    }
    return true;
  }

  // One round after the other, where they decide most: at lengths that are open, with the fewest
  // windows, the shortest.
  void MeasureRounds() {
    for (;;) {
      LengthRun* next = nullptr;
      for (const auto& length : lengths_) {
        if (!length->HasLeast() || !length->HasRound() || !Fits(length->RoundSeconds())) continue;
        if (next == nullptr || Comes(*length, *next)) next = length.get();
      }
      if (next == nullptr || !next->MeasureRound()) return;
    }
  }

  static bool Comes(const LengthRun& a, const LengthRun& b) {
    if (a.IsOpen() != b.IsOpen()) return a.IsOpen();
    return a.windows() < b.windows();
  }

  internal::SweepRun& run_;
  std::vector<std::unique_ptr<LengthRun>> lengths_;
};

}  // namespace

std::vector<Cell> RunSweep(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                           const SweepInputs& inputs, const SweepHeader& header,
                           const std::string& folder, const SweepEvents& events,
                           const SweepBudget& budget) {
  for (const SweepTask& task : tasks) inputs.engine->CheckKv(task.kv);
  internal::SweepFolder there(folder, header, events);
  internal::BudgetClock clock(budget);
  internal::SweepRun run{.tasks = tasks,
                         .spec = spec,
                         .inputs = inputs,
                         .header = header,
                         .events = events,
                         .pace = budget.pace,
                         .folder = there,
                         .clock = clock};
  run.cells.resize(tasks.size());
  Schedule(run).Run();
  std::vector<Cell> cells;
  for (std::optional<Cell>& cell : run.cells) {
    if (cell) cells.push_back(std::move(*cell));
  }
  return cells;
}

}  // namespace ropewalk
