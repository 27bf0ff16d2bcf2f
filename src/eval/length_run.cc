#include "src/eval/length_run.h"

#include <algorithm>

namespace ropewalk::internal {
namespace {

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

LengthRun::LengthRun(SweepRun& run, size_t begin, size_t end)
    : run_(run), begin_(begin), end_(end) {
  int64_t windows = 0;
  for (size_t k = begin; k < end; ++k) {
    const SweepTask& task = run.tasks[k];
    if (task.shares >= 0) continue;
    Arm& arm = arms_.emplace_back(Arm{.task = k});
    arm.races = task.unscaled || !task.added;  // what is added is measured for its cost
    if (IsFinished(k)) {
      windows = std::max(windows, run.folder.Find(Identity(k))->windows);
    } else {
      arm.work = MakeWork(k);
      windows = std::max(windows, arm.work->windows());
      Estimate(arm);
    }
  }
  ends_ = RoundsOf(windows);
}

std::string LengthRun::Identity(size_t task) const {
  return EmptyRow(run_.tasks[task], run_.header.common).Identity();
}

bool LengthRun::IsFinished(size_t task) const {
  const Cell* row = run_.folder.Find(Identity(task));
  return row != nullptr && IsFinishedRow(*row, run_.spec.race.has_value());
}

bool LengthRun::IsYardstick(const Arm& arm) const {
  return Task(arm).unscaled && length() == run_.spec.trained_length;
}

std::unique_ptr<CellWork> LengthRun::MakeWork(size_t task) {
  auto work =
      std::make_unique<CellWork>(run_.tasks[task], run_.spec, run_.inputs, run_.header.common,
                                 run_.folder.units().Parts(Identity(task)));
  work->keep = [this](std::span<const UnitRecord> units) { run_.folder.Append(units); };
  return work;
}

void LengthRun::Estimate(Arm& arm) const {
  const CellLeft left =
      LeftOf(Task(arm), run_.spec, run_.inputs, run_.header.common, arm.work->parts());
  const auto each = [&](const CellCost& cost, int64_t parts) {
    return run_.pace.Seconds(cost, Task(arm).plan) /
           static_cast<double>(std::max<int64_t>(1, parts));
  };
  arm.window_seconds = each(left.of_windows, left.windows);
  arm.rest_seconds = each(left.of_others, left.others);
}

double LengthRun::WindowSeconds(const Arm& arm, int64_t end) const {
  if (arm.work == nullptr || (arm.exit && !IsYardstick(arm))) return 0;
  return static_cast<double>(MissingWindows(arm, end)) * arm.window_seconds;
}

int64_t LengthRun::MissingWindows(const Arm& arm, int64_t end) const {
  int64_t missing = 0;
  for (const auto& [first, last] : run_.folder.units().MissingWindows(
           Identity(arm.task), 0, std::min(end, arm.work->windows()))) {
    missing += last - first;
  }
  return missing;
}

double LengthRun::PartSeconds() const {
  double seconds = 0;
  if (!run_.folder.shard()) return seconds;
  for (const Arm& arm : arms_) {
    if (!IsIn(arm)) continue;
    if (HasRound()) seconds = std::max(seconds, WindowSeconds(arm, ends_[round_]));
    if (arm.work->RestLeft() > 0) seconds = std::max(seconds, arm.rest_seconds);
  }
  return seconds;
}

double LengthRun::RestSeconds(const Arm& arm) const {
  return IsIn(arm) ? static_cast<double>(arm.work->RestLeft()) * arm.rest_seconds : 0;
}

double LengthRun::YardstickSeconds() const {
  double seconds = 0;
  for (const Arm& arm : arms_) {
    if (!IsYardstick(arm)) continue;
    seconds += WindowSeconds(arm, ends_.empty() ? 0 : ends_[0]) + RestSeconds(arm);
  }
  return seconds;
}

double LengthRun::LeastSeconds() const {
  double seconds = 0;
  for (const Arm& arm : arms_) {
    seconds += WindowSeconds(arm, ends_.empty() ? 0 : ends_[0]) + RestSeconds(arm);
  }
  return seconds;
}

double LengthRun::RoundSeconds() const {
  double seconds = 0;
  if (!HasRound()) return seconds;
  for (const Arm& arm : arms_) seconds += WindowSeconds(arm, ends_[round_]);
  return seconds;
}

double LengthRun::AllSeconds() const {
  double seconds = 0;
  for (const Arm& arm : arms_) seconds += WindowSeconds(arm, asked()) + RestSeconds(arm);
  return seconds;
}

bool LengthRun::Measure(Arm& arm, double expected, const std::function<void()>& part) {
  if (run_.clock.Expired() && !run_.Begins()) return false;
  ++run_.parts;
  const double left = run_.seconds_left();
  arm.work->progress = [&](int64_t done, int64_t all) {
    if (!run_.events.progress) return true;
    const double share =
        all > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(all)) : 0;
    const double seconds = run_.clock.Corrected(left - expected * share);
    return run_.events.progress({.index = arm.task,
                                 .done_tokens = done,
                                 .all_tokens = all,
                                 .seconds_left = std::min(seconds, run_.clock.Left())});
  };
  run_.clock.Run(expected, part);
  arm.work->progress = {};
  return true;
}

Outcome LengthRun::MeasureArms(const std::function<Outcome(Arm& arm)>& measure) {
  Outcome all = Outcome::kDone;
  const std::optional<Shard>& shard = run_.folder.shard();
  const size_t first = shard ? arms_.size() * static_cast<size_t>(shard->index - 1) /
                                   static_cast<size_t>(shard->count)
                             : 0;
  for (size_t i = 0; i < arms_.size(); ++i) {
    const Outcome one = measure(arms_[(first + i) % arms_.size()]);
    if (one == Outcome::kNoTime) return one;
    if (one == Outcome::kWait) all = one;
  }
  return all;
}

Outcome LengthRun::MeasureWindows(Arm& arm, int64_t end) {
  if (!IsIn(arm)) return Outcome::kDone;
  end = std::min(end, arm.work->windows());
  const std::string identity = Identity(arm.task);
  const UnitStore& units = run_.folder.units();
  if (!units.MissingWindows(identity, 0, end).empty()) {
    const SweepFolder::Lease lease = run_.folder.Claim(identity + ".w" + std::to_string(end));
    if (!lease) return Outcome::kWait;
    for (const auto& [first, last] : units.MissingWindows(identity, 0, end)) {
      const double seconds = static_cast<double>(last - first) * arm.window_seconds;
      const auto part = [&, first = first, last = last] { arm.work->MeasureWindows(first, last); };
      if (!Measure(arm, seconds, part)) return Outcome::kNoTime;
    }
  }
  arm.work->Take(units.Parts(identity));
  return Outcome::kDone;
}

Outcome LengthRun::MeasureRest(Arm& arm) {
  if (!IsIn(arm)) return Outcome::kDone;
  const std::string identity = Identity(arm.task);
  Outcome outcome = Outcome::kDone;
  for (int64_t i = 0; i < arm.work->Rest(); ++i) {
    if (run_.folder.units().HasTask(identity, i)) continue;
    const SweepFolder::Lease lease = run_.folder.Claim(identity + ".t" + std::to_string(i));
    if (!lease) {
      outcome = Outcome::kWait;
      continue;
    }
    if (run_.folder.units().HasTask(identity, i)) continue;
    if (!Measure(arm, arm.rest_seconds, [&] { arm.work->MeasureTask(i); })) {
      return Outcome::kNoTime;
    }
  }
  arm.work->Take(run_.folder.units().Parts(identity));
  return outcome;
}

Outcome LengthRun::MeasureYardstick() {
  return MeasureArms([this](Arm& arm) {
    if (!IsYardstick(arm)) return Outcome::kDone;
    const Outcome windows = ends_.empty() ? Outcome::kDone : MeasureWindows(arm, ends_[0]);
    return windows == Outcome::kDone ? MeasureRest(arm) : windows;
  });
}

Outcome LengthRun::MeasureLeast() {
  if (!ends_.empty() && round_ == 0) {
    const Outcome windows = MeasureArms([this](Arm& arm) { return MeasureWindows(arm, ends_[0]); });
    if (windows != Outcome::kDone) return windows;
    round_ = 1;
    Race();
  }
  const Outcome rest = MeasureArms([this](Arm& arm) { return MeasureRest(arm); });
  if (rest != Outcome::kDone) return rest;
  least_ = true;
  SettleRows(false);
  return IsWhole() ? Finish() : rest;
}

Outcome LengthRun::MeasureRound() {
  const Outcome windows =
      MeasureArms([this](Arm& arm) { return MeasureWindows(arm, ends_[round_]); });
  if (windows != Outcome::kDone) return windows;
  ++round_;
  Race();
  SettleRows(false);
  return IsWhole() ? Finish() : windows;
}

std::vector<double> LengthRun::Losses(const Arm& arm) const {
  if (arm.work == nullptr) return run_.folder.Find(Identity(arm.task))->window_nll;
  std::vector<double> losses;
  for (const WindowScore& window : arm.work->parts().windows) {
    losses.push_back(window.nats / static_cast<double>(window.tokens));
  }
  return losses;
}

RaceState LengthRun::RaceOf(const RaceRule& rule, std::vector<size_t>& racers) const {
  std::vector<std::vector<double>> losses;
  for (size_t i = 0; i < arms_.size(); ++i) {
    if (!arms_[i].races) continue;
    racers.push_back(i);
    losses.push_back(Losses(arms_[i]));
  }
  return RunRace(losses, std::span(ends_).first(round_), rule);
}

void LengthRun::Race() {
  if (!run_.spec.race) return;
  std::vector<size_t> racers;
  const RaceState state = RaceOf(*run_.spec.race, racers);
  for (const RaceDrop& drop : state.drops) {
    Arm& arm = arms_[racers[static_cast<size_t>(drop.arm)]];
    if (arm.exit || arm.work == nullptr || IsYardstick(arm)) continue;
    arm.exit = RaceExit{.round = drop.round + 1};
    if (drop.against >= 0) {
      const SweepTask& against = Task(arms_[racers[static_cast<size_t>(drop.against)]]);
      arm.exit->against = against.method;
      arm.exit->against_factor = against.factor;
      arm.exit->difference = drop.difference;
      arm.exit->standard_error = drop.standard_error;
      arm.exit->at_least = drop.at_least;
    }
    if (run_.events.left) run_.events.left(arm.task, *arm.exit);
  }
}

bool LengthRun::IsOpen() const {
  const bool decides = kv() == run_.spec.kv.front();  // what is recommended
  if (!decides || length() <= run_.spec.trained_length || !least_) return false;
  std::vector<size_t> racers;
  RaceRule rule = run_.spec.race.value_or(RaceRule{});
  rule.margin = 0;
  const RaceState state = RaceOf(rule, racers);
  return std::count(state.alive.begin(), state.alive.end(), true) > 1;
}

bool LengthRun::IsWhole() const {
  return std::all_of(arms_.begin(), arms_.end(),
                     [this](const Arm& arm) { return !IsIn(arm) || IsWhole(arm); });
}

bool LengthRun::IsWhole(const Arm& arm) const {
  return static_cast<int64_t>(arm.work->parts().windows.size()) >= arm.work->windows() &&
         arm.work->RestLeft() == 0;
}

void LengthRun::Settle(size_t task, Cell row) {
  if (run_.events.finished) run_.events.finished(task, row, IsThere(task, row));
  run_.cells[task] = std::move(row);
}

bool LengthRun::IsThere(size_t task, Cell row) const {
  const Cell* found = run_.folder.Find(Identity(task));
  if (found == nullptr) return false;
  Cell there = *found;
  // Of two processes that measured one part, each goes by its own time.
  there.seconds = row.seconds = 0;
  there.place = row.place = -1;
  return ropewalk::ToJson(there) == ropewalk::ToJson(row);
}

void LengthRun::SettleRows(bool all) {
  for (const Arm& arm : arms_) {
    if (run_.cells[arm.task]) continue;
    if (arm.work == nullptr) {
      Cell row = *run_.folder.Find(Identity(arm.task));
      row.place = -1;
      Settle(arm.task, std::move(row));
    } else if (all || arm.exit || IsWhole(arm)) {
      Cell row = arm.work->Row();
      row.race_exit = arm.exit;
      row.unfinished = !arm.exit && !IsWhole(arm);
      Settle(arm.task, std::move(row));
    }
  }
  for (size_t k = begin_; k < end_; ++k) {
    const SweepTask& task = run_.tasks[k];
    if (task.shares < 0 || run_.cells[k]) continue;
    const std::optional<Cell>& computed = run_.cells[static_cast<size_t>(task.shares)];
    if (computed) Settle(k, SharedCell(*computed, task));
  }
}

Outcome LengthRun::Finish() {
  if (!least_ || written_) return Outcome::kDone;
  SettleRows(true);
  const SweepFolder::Lease lease =
      run_.folder.Claim("rows-" + std::to_string(length()) + "-" + Name(kv()));
  if (!lease) return Outcome::kWait;
  for (size_t k = begin_; k < end_; ++k) {
    if (!run_.cells[k] || IsThere(k, *run_.cells[k])) continue;
    Cell row = *run_.cells[k];
    if (run_.folder.shard()) row.place = static_cast<int64_t>(k);
    run_.folder.Append(row);
  }
  written_ = true;
  return Outcome::kDone;
}

}  // namespace ropewalk::internal
