// How long passes take, measured.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/cost.h"
#include "src/eval/work_meter.h"

namespace ropewalk {
namespace {

const std::optional<DistanceMap>& MapOf(const PositionPlan& plan) {
  static const std::optional<DistanceMap> kNone;
  const auto mapped = std::find_if(plan.layers.begin(), plan.layers.end(),
                                   [](const LayerPlan& layer) { return layer.map.has_value(); });
  return mapped == plan.layers.end() ? kNone : mapped->map;
}

// Of a pair of a query and a key at `longest` tokens, for each size of a pass. Large passes are cut
// to what is enough for full tiles of attention.
ByPass PairSeconds(const ScoringEngine& engine, const PositionPlan& plan, int64_t longest) {
  constexpr int64_t kMost = 128;  // tokens
  ByPass seconds = {};
  for (std::size_t i = 0; i < kPassTokens.size(); ++i) {
    const int64_t tokens = std::min({kPassTokens[i], kMost, std::max<int64_t>(1, longest / 2)});
    const EnginePass far{.behind = longest - tokens, .tokens = tokens};
    const double pairs =
        internal::KeysInFront(plan, static_cast<double>(far.behind)) * static_cast<double>(tokens);
    if (pairs == 0) continue;
    const double more =
        engine.PassSeconds(plan, far) - engine.PassSeconds(plan, {.tokens = tokens});
    seconds[i] = std::max(0.0, more) / pairs;
  }
  return seconds;
}

// Seconds per floating-point operation of the first tokens of the text, for a second or two.
double FlopSeconds(const ScoringEngine& engine, const PositionPlan& plan, int64_t longest,
                   const TokenText& text, AnglePrecision angles) {
  constexpr int64_t kFirst = 64;     // tokens: enough to measure matrix products of any model
  constexpr int64_t kMost = 512;     // tokens, of a CPU
  constexpr double kWhole = 0.2;     // seconds of a pass beside which its start is nothing
  constexpr double kLongEnough = 1;  // seconds, to average over other load
  constexpr int kMostRuns = 8;
  const auto all = static_cast<int64_t>(text.ids.size());
  const int64_t longest_here = std::min(longest, all);
  int64_t most = std::min(kMost, longest_here);
  internal::WorkMeter meter(engine);
  const auto time = [&](int64_t tokens) {
    // As many sequences as run side by side; none begins as another does.
    const int64_t lanes = std::min<int64_t>(engine.Facts().lanes, all - tokens + 1);
    std::vector<ScoreRequest> requests;
    for (int64_t i = 0; i < lanes; ++i) {
      requests.push_back(
          {.ids = std::span(text.ids).subspan(i, tokens), .positions = {tokens - 1}});
    }
    const EngineCall call{.plan = &plan, .final_length = std::max(tokens, most), .angles = angles};
    meter.Score(call, requests);
    const auto begin = std::chrono::steady_clock::now();
    engine.Score(call, requests);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const EngineFacts facts = engine.Facts();
  if (!(facts.token_flops > 0)) {
    throw Error(ErrorCode::kUnsupported,
                "the engine '" + facts.name +
                    "' cannot be timed: it says neither how long a pass takes nor how many "
                    "floating-point operations a token takes (token_flops of its facts)");
  }
  double seconds = time(std::min(kFirst, most));
  if (seconds < kLongEnough) {  // the first run includes one-time work
    // On a GPU a pass of few tokens takes what its kernels take to start, whose number of operations
    // says nothing.
    while (most < longest_here && std::min(time(most), time(most)) < kWhole) {
      most = std::min(4 * most, longest_here);
    }
    meter.Take();
    seconds = 0;
    for (int runs = 0; runs < kMostRuns && seconds < kLongEnough; ++runs) seconds += time(most);
  }
  return seconds / meter.Take().flops;
}

}  // namespace

Pace Pace::OfFlops(double seconds_per_flop) {
  Pace pace;
  pace.flop_seconds_ = seconds_per_flop;
  return pace;
}

Pace Pace::Measure(const ScoringEngine& engine, const std::vector<const PositionPlan*>& plans,
                   int64_t longest, const TokenText& text, AnglePrecision angles) {
  const PositionPlan& first = *plans.front();
  Pace pace;
  for (std::size_t i = 0; i < kPassTokens.size(); ++i) {
    const int64_t tokens = std::min(kPassTokens[i], longest);
    const double seconds = engine.PassSeconds(first, {.tokens = tokens});
    if (std::isnan(seconds)) return OfFlops(FlopSeconds(engine, first, longest, text, angles));
    pace.pass_seconds_[i] =
        seconds * static_cast<double>(kPassTokens[i]) / static_cast<double>(tokens);
  }
  const int64_t most = std::min(kPassTokens.back(), longest);
  const double scored = engine.PassSeconds(first, {.tokens = most, .scored = true}) -
                        engine.PassSeconds(first, {.tokens = most});
  pace.scored_seconds_ = std::max(0.0, scored) / static_cast<double>(most);
  for (const PositionPlan* plan : plans) {
    const std::optional<DistanceMap>& map = MapOf(*plan);
    const bool there = std::any_of(pace.pair_seconds_.begin(), pace.pair_seconds_.end(),
                                   [&](const auto& known) { return known.first == map; });
    if (!there) pace.pair_seconds_.emplace_back(map, PairSeconds(engine, *plan, longest));
  }
  return pace;
}

double Pace::Seconds(const CellCost& cost, const PositionPlan& plan) const {
  if (flop_seconds_ > 0) return cost.flops * flop_seconds_;
  double seconds = cost.scored * scored_seconds_;
  for (std::size_t i = 0; i < kPassTokens.size(); ++i) seconds += cost.passes[i] * pass_seconds_[i];
  const auto known = std::find_if(pair_seconds_.begin(), pair_seconds_.end(),
                                  [&](const auto& k) { return k.first == MapOf(plan); });
  if (known == pair_seconds_.end()) return seconds;
  for (std::size_t i = 0; i < kPassTokens.size(); ++i) seconds += cost.pairs[i] * known->second[i];
  return seconds;
}

}  // namespace ropewalk
