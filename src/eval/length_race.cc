#include "src/eval/length_race.h"

#include <algorithm>

namespace ropewalk::internal {
namespace {

std::vector<double> LossesOf(const RaceArm& arm) {
  if (arm.work == nullptr) return arm.done;
  std::vector<double> losses;
  for (const WindowScore& window : arm.work->parts().windows) {
    losses.push_back(window.nats / static_cast<double>(window.tokens));
  }
  return losses;
}

RaceExit ExitOf(const RaceDrop& drop, const std::vector<RaceArm>& arms) {
  RaceExit exit{.round = drop.round + 1};
  if (drop.against >= 0) {
    const SweepTask& against = *arms[static_cast<std::size_t>(drop.against)].task;
    exit.against = against.method;
    exit.against_factor = against.factor;
    exit.difference = drop.difference;
    exit.standard_error = drop.standard_error;
    exit.at_least = drop.at_least;
  }
  return exit;
}

}  // namespace

std::vector<std::optional<RaceExit>> RaceWindows(
    std::vector<RaceArm>& arms, const RaceRule& rule,
    const std::function<void(std::size_t arm, const RaceExit& exit)>& left) {
  std::vector<std::optional<RaceExit>> exits(arms.size());
  int64_t windows = 0;
  for (const RaceArm& arm : arms) {
    windows = std::max(
        windows, arm.work != nullptr ? arm.work->windows() : static_cast<int64_t>(arm.done.size()));
  }
  const std::vector<int64_t> ends = RoundsOf(windows);
  for (std::size_t round = 0; round < ends.size(); ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) {
      const bool measured = arms[i].work != nullptr && (!exits[i] || arms[i].stays);
      if (measured) arms[i].work->MeasureWindows(ends[round]);
    }
    std::vector<std::vector<double>> losses;
    losses.reserve(arms.size());
    for (const RaceArm& arm : arms) losses.push_back(LossesOf(arm));
    const RaceState state = RunRace(losses, std::span(ends).first(round + 1), rule);
    for (const RaceDrop& drop : state.drops) {
      const auto i = static_cast<std::size_t>(drop.arm);
      if (exits[i]) continue;
      exits[i] = ExitOf(drop, arms);
      if (!arms[i].stays) left(i, *exits[i]);
    }
  }
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (arms[i].stays) exits[i].reset();
  }
  return exits;
}

}  // namespace ropewalk::internal
