// Perplexity window by window, so that a measurement can go on where another ended.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ropewalk/eval/task.h"

namespace ropewalk::internal {

// What one window adds to a PerplexityResult.
struct WindowScore {
  double nats = 0;     // sum over the scored tokens
  int64_t tokens = 0;  // scored
  double bytes = 0;    // of their text; 0: unknown
  // By bucket of positions, of all positions; empty without RunOptions::by_position.
  std::vector<double> bucket_nats;
  std::vector<int64_t> bucket_tokens;
  // Of attention (MeanEntropy).
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double entropy_share = std::numeric_limits<double>::quiet_NaN();
  std::vector<TaskAnswer> answers;  // to the questions behind it
  // Of RunOptions::key_tokens: "exact" is whether the token was the most probable one.
  std::vector<TaskAnswer> key_answers;
};

// Windows without questions.
std::vector<AskedWindow> Unasked(std::vector<EvalWindow> windows);

// The windows from `begin` up to `end` with their questions, in one call of the engine. `tokens`
// (may be null) gets the scored tokens.
std::vector<WindowScore> ScoreWindows(const ScoringEngine& engine, const PositionPlan& plan,
                                      const TokenText& text, const Protocol& protocol,
                                      std::span<const AskedWindow> windows, int64_t begin,
                                      int64_t end, int64_t length, const RunOptions& options,
                                      std::vector<ScoredToken>* tokens);

// All but PerplexityResult::tokens.
PerplexityResult Summarise(std::span<const WindowScore> windows, int64_t length);

}  // namespace ropewalk::internal
