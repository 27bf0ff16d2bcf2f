// What a measurement costs: how much goes through the model, and how long that takes on this machine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ropewalk/eval/eval.h"

namespace ropewalk {

// Passes of other sizes are taken to lie between these on straight lines.
inline constexpr std::array<int64_t, 3> kPassTokens = {1, 32, 512};
using ByPass = std::array<double, kPassTokens.size()>;

struct CellCost {
  int64_t tokens = 0;  // through the model: what is kept of a shared prefix once
  double flops = 0;    // of these; a multiplication with an addition counts as 2
  int64_t ticks = 0;   // tokens that calls report as progress: what is kept, each time
  // Of the lane that has most to do in each call, which decides how long it takes:
  ByPass passes = {};  // so many passes over kPassTokens tokens each
  ByPass pairs = {};   // of queries and the keys in front of their pass, in all layers
  double scored = 0;   // positions with logits

  CellCost& operator+=(const CellCost& other);
  CellCost operator*(double count) const;
};

// How fast an engine is on this machine, now.
class Pace {
 public:
  Pace() = default;  // everything takes no time
  // Times a few passes at the beginning of a sequence and at `longest` tokens, the latter for every
  // distance map of `plans` (at least one plan): a second or two each for a large model. Where the
  // engine cannot say how long a pass takes, `text` goes through it instead, and time is taken to go
  // by floating-point operations; throws Error where it does not know these either. `angles` as in
  // the calls of the sweep.
  static Pace Measure(const ScoringEngine& engine, const std::vector<const PositionPlan*>& plans,
                      int64_t longest, const TokenText& text,
                      AnglePrecision angles = AnglePrecision::kExact);
  static Pace OfFlops(double seconds_per_flop);

  double Seconds(const CellCost& cost, const PositionPlan& plan) const;

 private:
  double flop_seconds_ = 0;  // above 0: nothing else is known
  ByPass pass_seconds_ = {};
  std::vector<std::pair<std::optional<DistanceMap>, ByPass>> pair_seconds_;
  double scored_seconds_ = 0;
};

}  // namespace ropewalk
