// A ladder of factors: for text of each length the smallest factor that is not significantly worse
// than the best measured there. One factor for all lengths costs short text what only long text
// needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/settings.h"
#include "ropewalk/eval/recommend.h"

namespace ropewalk {

// For text of more than `above` and at most `up_to` tokens, the measured length.
struct LadderRung {
  int64_t above = 0, up_to = 0;
  double factor = 1;  // 1: no scaling
  double best_factor = 1;
  double perplexity = 0;              // with `factor`
  std::vector<double> measured = {};  // factors, ascending; 1: no scaling
  // Its loss minus that of the best factor; absent where it is the best.
  std::optional<PairedDifference> behind_best = {};
  // What the largest factor of the ladder costs here: its loss minus that of this rung. Absent
  // where it was not measured, and where it is this rung's.
  std::optional<PairedDifference> static_cost = {};
  std::vector<TaskCost> static_task_costs = {};
};

// From `length` on (at every longer one measured too) the loss with the factor is significantly
// below that without scaling; 0: nowhere.
struct BreakEven {
  double factor = 1;
  int64_t length = 0;
};

struct Ladder {
  std::string method;
  int64_t trained = 0;
  std::vector<LadderRung> rungs = {};      // by length, up to the last one where a factor is usable
  std::vector<BreakEven> break_even = {};  // of each factor of the ladder but 1
  double largest = 1;                      // factor
};

// Of the method recommended at the longest length that has one; absent where that has no factor to
// choose, or follows the length by itself.
std::optional<Ladder> LadderOf(const std::vector<Cell>& cells);
std::string LadderText(const Ladder& ladder);

// The ladder as text to paste: for vLLM and llama.cpp a server or profile for each factor and the
// rule by which requests are routed, for vLLM its flag where one expresses the ladder, for Hugging
// Face transformers the code that chooses for each request. None of these reads the `family` ropewalk.
std::vector<EngineSetting> LadderSettings(const Ladder& ladder, const std::vector<Cell>& cells,
                                          const std::string& family = {});

}  // namespace ropewalk
