// The sweep: measures what the folder does not hold yet, what decides most first.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "ropewalk/eval/results.h"
#include "src/eval/length_run.h"

namespace ropewalk {
namespace {

using internal::LengthRun;
using internal::Outcome;

// The least of each length, the shortest first, up to the first that does not fit: then shorter ones
// have their whole least, and none is begun that will not end; but where nothing fits, the next one is
// begun all the same, since a run that measures nothing brings nobody further.
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
      return Shared(seconds);
    };
  }

  void Run(bool begins) {
    MeasureAll();
    if (begins && run_.parts == 0) {
      run_.begins_anyway = true;
      MeasureAll();
      if (run_.parts > 0 && run_.events.message) {
        run_.events.message(
            "the budget is shorter than what comes next; a part of that was measured all the same, "
            "so that the same command goes on from there");
      }
    }
    for (const auto& length : lengths_) {
      while (length->Finish() == Outcome::kWait) Pause();
      if (run_.events.left_out && !length->IsWhole()) {
        run_.events.left_out({.length = length->length(),
                              .kv = length->kv(),
                              .windows = length->HasLeast() ? length->windows() : 0,
                              .asked = length->asked(),
                              .seconds = run_.clock.Corrected(Shared(length->AllSeconds())),
                              .open = !length->HasLeast() || length->IsOpen()});
      }
    }
  }

 private:
  void MeasureAll() {
    for (int64_t parts = run_.parts; Pass() == Outcome::kWait; parts = run_.parts) {
      if (run_.parts > parts) continue;  // there may be more already
      if (run_.clock.Expired()) break;
      Pause();
    }
  }
  // Of what all shards do together.
  double Shared(double seconds) const { return seconds / static_cast<double>(run_.shards()); }
  bool Fits(double seconds, double longest_part) const {
    return run_.Begins() ||
           run_.clock.Corrected(std::max(Shared(seconds), longest_part)) <= run_.clock.Left();
  }

  // Measures what this process can; kWait where others have to end something first.
  Outcome Pass() {
    run_.folder.Refresh();
    bool waits = false;
    if (!MeasureLeast(waits) || !MeasureRounds(waits)) return Outcome::kNoTime;
    for (const auto& length : lengths_) {
      if (length->IsWhole() && length->Finish() == Outcome::kWait) waits = true;
    }
    return waits ? Outcome::kWait : Outcome::kDone;
  }

  // Whether there may be time for more.
  bool MeasureLeast(bool& waits) {
    const auto go_on = [&](Outcome outcome) {
      if (outcome == Outcome::kWait) waits = true;
      return outcome != Outcome::kNoTime;
    };
    for (const auto& length : lengths_) {
      const double seconds = length->YardstickSeconds();
      const double part = seconds > 0 ? length->PartSeconds() : 0;
      if (!Fits(seconds, part) || !go_on(length->MeasureYardstick())) return false;
    }
    for (const auto& length : lengths_) {
      if (length->HasLeast()) continue;
      if (!Fits(length->LeastSeconds(), length->PartSeconds())) return true;
      if (!go_on(length->MeasureLeast())) return false;
    }
    return true;
  }

  // One round after the other, where they decide most: at lengths that are open, with the fewest
  // windows, the shortest.
  bool MeasureRounds(bool& waits) {
    std::vector<const LengthRun*> held;
    for (;;) {
      LengthRun* next = nullptr;
      for (const auto& length : lengths_) {
        if (!length->HasLeast() || !length->HasRound()) continue;
        if (!Fits(length->RoundSeconds(), length->PartSeconds())) continue;
        if (std::ranges::find(held, length.get()) != held.end()) continue;
        if (next == nullptr || Comes(*length, *next)) next = length.get();
      }
      if (next == nullptr) return true;
      const Outcome outcome = next->MeasureRound();
      if (outcome == Outcome::kNoTime) return false;
      if (outcome == Outcome::kDone) continue;
      held.push_back(next);
      waits = true;
    }
  }

  void Pause() {
    if (run_.events.waiting && !run_.events.waiting(run_.folder.holder())) throw Interrupted();
    constexpr std::chrono::milliseconds kPause(200);
    std::this_thread::sleep_for(kPause);
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
                           const SweepBudget& budget, const std::optional<Shard>& shard) {
  for (const SweepTask& task : tasks) inputs.engine->CheckKv(task.kv);
  internal::SweepFolder there(folder, spec, header, events, shard);
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
  Schedule(run).Run(budget.begins);
  std::vector<Cell> cells;
  for (std::optional<Cell>& cell : run.cells) {
    if (cell) cells.push_back(std::move(*cell));
  }
  return cells;
}

}  // namespace ropewalk
