// The cells of one length and one type of KV cache, measured side by side in rounds of windows.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/eval/budget_clock.h"
#include "src/eval/cell_work.h"
#include "src/eval/sweep_folder.h"

namespace ropewalk::internal {

// How far a part of a sweep is.
enum class Outcome : uint8_t {
  kDone,
  kWait,    // what is missing others are measuring
  kNoTime,  // the budget ended before
};

// What all lengths of a sweep share. All must outlive it.
struct SweepRun {
  const std::vector<SweepTask>& tasks;
  const SweepSpec& spec;
  const SweepInputs& inputs;
  const SweepHeader& header;
  const SweepEvents& events;
  const Pace& pace;
  SweepFolder& folder;
  BudgetClock& clock;
  std::function<double()> seconds_left = {};    // that are expected of everything that is missing
  std::vector<std::optional<Cell>> cells = {};  // the rows of `tasks` that are there
  int64_t parts = 0;                            // that this process measured
  bool begins_anyway = false;                   // the first part is measured whatever time is left

  bool Begins() const { return begins_anyway && parts == 0; }

  int64_t shards() const { return folder.shard() ? folder.shard()->count : 1; }
};

// Its least are the windows of the first round (with a race, and without one, under a budget) and
// the tasks of every method that is not out behind it; more are further rounds. What the folder has
// is not measured again, and the rows are the same at whatever points earlier runs ended.
class LengthRun {
 public:
  // The tasks [begin, end) have one length and one type of KV cache.
  LengthRun(SweepRun& run, size_t begin, size_t end);

  int64_t length() const { return run_.tasks[begin_].length; }
  KvType kv() const { return run_.tasks[begin_].kv; }
  // Seconds that are missing of what no scaling at the trained length needs at least, which all
  // else is judged by; 0 at other lengths.
  double YardstickSeconds() const;
  double LeastSeconds() const;
  double RoundSeconds() const;  // of the next round; 0: there is none
  double AllSeconds() const;    // of everything that is missing
  double PartSeconds() const;   // of the longest part that shards do not divide
  // Each measures what its price is for.
  Outcome MeasureYardstick();
  Outcome MeasureLeast();
  Outcome MeasureRound();

  bool HasLeast() const { return least_; }
  bool HasRound() const { return round_ < ends_.size(); }
  int64_t windows() const { return round_ == 0 ? 0 : ends_[round_ - 1]; }  // of all that are in
  int64_t asked() const { return ends_.empty() ? 0 : ends_.back(); }
  bool IsWhole() const;  // nothing is missing
  // Whether more windows may still decide between methods: beyond the trained length, and the best
  // is not told apart from all others. Only the first KV type is recommended by.
  bool IsOpen() const;

  // Writes the rows, in the order of the tasks, but those that another shard has written; none where
  // its least is not there.
  Outcome Finish();

 private:
  struct Arm {
    size_t task = 0;
    std::unique_ptr<CellWork> work = {};  // null: its row is there
    bool races = true;
    double window_seconds = 0, rest_seconds = 0;  // of each
    std::optional<RaceExit> exit = {};
  };

  const SweepTask& Task(const Arm& arm) const { return run_.tasks[arm.task]; }
  std::string Identity(size_t task) const;
  bool IsFinished(size_t task) const;
  bool IsYardstick(const Arm& arm) const;
  bool IsIn(const Arm& arm) const { return arm.work != nullptr && !arm.exit; }
  std::unique_ptr<CellWork> MakeWork(size_t task);
  void Estimate(Arm& arm) const;

  double WindowSeconds(const Arm& arm, int64_t end) const;
  double RestSeconds(const Arm& arm) const;
  // Of each arm, from another one on in each shard, so that they rarely meet.
  Outcome MeasureArms(const std::function<Outcome(Arm& arm)>& measure);
  Outcome MeasureWindows(Arm& arm, int64_t end);
  Outcome MeasureRest(Arm& arm);
  bool Measure(Arm& arm, double expected, const std::function<void()>& part);
  int64_t MissingWindows(const Arm& arm, int64_t end) const;
  std::vector<double> Losses(const Arm& arm) const;
  // Lets the arms leave that are clearly behind after the rounds so far.
  void Race();
  // `racers` gets the index of each arm of the race.
  RaceState RaceOf(const RaceRule& rule, std::vector<size_t>& racers) const;
  bool IsWhole(const Arm& arm) const;
  bool IsThere(size_t task, Cell row) const;  // in the folder
  void Settle(size_t task, Cell row);
  // Makes the rows of arms that are whole or out, or of all, and of tasks that share theirs.
  void SettleRows(bool all);

  SweepRun& run_;
  size_t begin_, end_;
  std::vector<Arm> arms_;
  std::vector<int64_t> ends_;  // of the rounds
  size_t round_ = 0;           // the next one
  bool least_ = false, written_ = false;
};

}  // namespace ropewalk::internal
