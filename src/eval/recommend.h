// The judgement behind Recommend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/recommend.h"
#include "src/eval/statistics.h"

namespace ropewalk::internal {

constexpr double kSignificance = 0.05;      // of every test here
constexpr double kUsablePerplexity = 1.25;  // times that of no scaling at the trained length
constexpr double kUsablePasskey = 0.5;      // accuracy

// Of the passkey task; null where it was not measured.
const TaskResult* PasskeyOf(const Cell& cell);

// The cells that a sweep is judged by; pointers into its cells.
struct Yardstick {
  // No scaling at the trained length; null: not measured, so nothing can be judged.
  const Cell* baseline = nullptr;
  bool passkey_measured = false;
  // No scaling at the shortest length or at the trained one, where the model fails the passkey task
  // already: then passkey is not considered. Null: it is.
  const Cell* passkey_fails = nullptr;
};
Yardstick FindYardstick(const std::vector<Cell>& cells);
// Why passkey is not considered; empty where it is, or was not measured.
std::string PasskeyNote(const Yardstick& yardstick);
// False without a baseline.
bool IsUsable(const Cell& cell, const Yardstick& yardstick);

// The judgement of one length, for its paragraph. Pointers into the cells.
struct Verdict {
  int64_t length = 0, trained = 0;
  size_t measured = 0;  // cells at this length
  Yardstick yardstick;
  const Cell* unscaled = nullptr;      // no scaling at this length
  const Cell* chosen = nullptr;        // null: none good enough
  const Cell* nearest = nullptr;       // the best by the rule, usable or not
  const Cell* best_passkey = nullptr;  // highest accuracy at this length
  const Cell* runner_up = nullptr;
  std::vector<const Cell*> vetoed;  // lower perplexity than `nearest`, but retrieval too bad
  std::vector<const Cell*> same;    // compute the same frequencies as `chosen`
  // Of `chosen` at the trained length against no scaling; absent as in MethodReach.
  std::optional<PairedDifference> cost;
};
Verdict Judge(const std::vector<Cell>& cells, int64_t length);
// The paragraph. `reaches` are those of all cells.
std::string VerdictText(const Verdict& verdict, const std::vector<MethodReach>& reaches);

}  // namespace ropewalk::internal
