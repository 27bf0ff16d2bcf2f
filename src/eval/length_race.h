// The cells of one length, measured side by side in rounds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/eval/cell_work.h"

namespace ropewalk::internal {

struct RaceArm {
  const SweepTask* task = nullptr;
  CellWork* work = nullptr;
  bool stays = false;             // it is measured whole whatever its loss: others are judged by it
  std::vector<double> done = {};  // losses of windows measured elsewhere: the row is there already
};

// Measures the windows of all arms in rounds (RoundsOf), each arm until it leaves the race or all
// its windows are there. Returns for each arm why it left. `left` is called when one does. What
// CellWork has already is not measured again, and the result is the same at whatever point an
// earlier run ended.
std::vector<std::optional<RaceExit>> RaceWindows(
    std::vector<RaceArm>& arms, const RaceRule& rule,
    const std::function<void(std::size_t arm, const RaceExit& exit)>& left);

}  // namespace ropewalk::internal
