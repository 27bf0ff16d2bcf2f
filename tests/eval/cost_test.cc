// What a measurement is expected to cost, on an engine whose passes take a known time.
#include "ropewalk/eval/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "ropewalk/base/error.h"
#include "src/eval/work_meter.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using internal::WorkMeter;
using test::MadeUpPlan;
using test::RandomText;

constexpr int64_t kLongest = 4096;

// 1 ms for a pass, 2 for each of its tokens, 10 us for each key in front of each of them in a layer
// (40 under a distance map), 3 ms for logits.
class TimedEngine : public ScoringEngine {
 public:
  mutable int passes = 0;
  mutable int64_t most_scored = 0;  // tokens of a request
  bool says = true;
  std::chrono::milliseconds takes{0};

  EngineFacts Facts() const override {
    return {.name = "timed", .vocab = 300, .token_flops = 2, .pair_flops = 1, .head_flops = 5};
  }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }
  double PassSeconds(const PositionPlan& plan, const EnginePass& pass) const override {
    ++passes;
    if (!says) return std::nan("");
    const auto tokens = static_cast<double>(pass.tokens), front = static_cast<double>(pass.behind);
    const double pair = plan.layers[0].map ? 40e-6 : 10e-6;
    return 1e-3 + 2e-3 * tokens + pair * tokens * front * static_cast<double>(plan.layers.size()) +
           (pass.scored ? 3e-3 * tokens : 0);
  }

 private:
  Scores DoScore(const EngineCall&, std::span<const ScoreRequest> requests) const override {
    Scores scores;
    for (const ScoreRequest& request : requests) {
      scores.tokens.emplace_back(request.positions.size());
      most_scored = std::max(most_scored, static_cast<int64_t>(request.ids.size()));
    }
    std::this_thread::sleep_for(takes);
    return scores;
  }
};

// A context of 1000 tokens with two questions of 10 behind it, of which the last two are scored.
CellCost TwoQuestions(const ScoringEngine& engine, const PositionPlan& plan) {
  const TokenText text = RandomText(1020, 3);
  std::vector<ScoreRequest> requests;
  for (int64_t q = 0; q < 2; ++q) {
    requests.push_back({.prefix = std::span(text.ids).first(1000),
                        .ids = std::span(text.ids).subspan(1000 + 10 * q, 10),
                        .positions = {1008, 1009}});
  }
  const WorkMeter meter(engine);
  meter.Score({.plan = &plan, .final_length = kLongest, .reuse = PrefixReuse::kWhole}, requests);
  return meter.Take();
}

TEST(WorkMeter, CountsWhatIsComputed) {
  const TimedEngine engine;
  const PositionPlan plan = MadeUpPlan(128);
  const CellCost cost = TwoQuestions(engine, plan);
  // The context once but for its last token, which goes with each question.
  EXPECT_EQ(cost.tokens, 999 + 2 * 10);
  EXPECT_EQ(cost.ticks, 2 * 1009);
  EXPECT_EQ(cost.scored, 4);
  // Passes of 512, 487, 10 and 10 tokens.
  EXPECT_NEAR(cost.passes[0] + cost.passes[1] + cost.passes[2], 4, 1e-12);
  EXPECT_NEAR(cost.pairs[0] + cost.pairs[1] + cost.pairs[2], 2 * (487 * 512 + 20 * 999), 1e-6);
}

TEST(Pace, IsThatOfTheEngine) {
  const TimedEngine engine;
  PositionPlan plan = MadeUpPlan(128), mapped = plan, again = plan;
  for (LayerPlan& layer : mapped.layers) layer.map = Rerope{.window = 64};
  const Pace pace = Pace::Measure(engine, {&plan, &mapped, &again}, kLongest, RandomText(600, 1));
  // Pairs are timed once for each distance map.
  const int passes = engine.passes;
  Pace::Measure(engine, {&plan, &mapped}, kLongest, RandomText(600, 1));
  EXPECT_EQ(engine.passes, 2 * passes);
  const CellCost cost = TwoQuestions(engine, plan);
  const double pairs = 2 * (487 * 512 + 20 * 999);
  const double rest = 4 * 1e-3 + (999 + 20) * 2e-3 + 4 * 3e-3;
  EXPECT_NEAR(pace.Seconds(cost, plan), rest + pairs * 10e-6, 1e-6);
  EXPECT_NEAR(pace.Seconds(cost, mapped), rest + pairs * 40e-6, 1e-6);
  EXPECT_NEAR(pace.Seconds(cost * 3, plan), 3 * pace.Seconds(cost, plan), 1e-9);
}

TEST(Pace, OfAnEngineThatCannotSayGoesByOperations) {
  TimedEngine engine;
  engine.says = false;
  const PositionPlan plan = MadeUpPlan(128);
  const Pace pace = Pace::Measure(engine, {&plan}, kLongest, RandomText(600, 1));
  const CellCost cost = TwoQuestions(engine, plan);
  EXPECT_GT(pace.Seconds(cost, plan), 0);
  EXPECT_NEAR(Pace::OfFlops(2).Seconds(cost, plan), 2 * cost.flops, 1e-9);
  EXPECT_EQ(Pace().Seconds(cost, plan), 0);
}

// Where passes are short, as on a GPU, few tokens say little about many.
TEST(Pace, OfOperationsIsMeasuredOverPassesThatTakeTime) {
  TimedEngine fast, slow;
  fast.says = slow.says = false;
  slow.takes = std::chrono::milliseconds(250);
  const PositionPlan plan = MadeUpPlan(128);
  Pace::Measure(fast, {&plan}, kLongest, RandomText(5000, 1));
  EXPECT_EQ(fast.most_scored, kLongest);
  Pace::Measure(fast, {&plan}, 2 * kLongest, RandomText(5000, 1));
  EXPECT_EQ(fast.most_scored, 5000);
  Pace::Measure(slow, {&plan}, kLongest, RandomText(5000, 1));
  EXPECT_EQ(slow.most_scored, 512);
}

TEST(Pace, OfAnEngineThatKnowsNothingIsRefused) {
  class Silent : public TimedEngine {
   public:
    EngineFacts Facts() const override { return {.name = "silent", .vocab = 300}; }
  };
  Silent engine;
  engine.says = false;
  const PositionPlan plan = MadeUpPlan(128);
  EXPECT_THROW(Pace::Measure(engine, {&plan}, kLongest, RandomText(600, 1)), Error);
}

// A window or sinks bound what a query sees.
TEST(Pace, LayersWithAWindowSeeItsKeys) {
  PositionPlan plan = MadeUpPlan(128);
  EXPECT_EQ(internal::KeysInFront(plan, 1000), 2000);
  plan.layers[0].window_tokens = 100;
  EXPECT_EQ(internal::KeysInFront(plan, 1000), 1100);
  plan.layers[1].map = AttentionSinks{.sinks = 4, .window = 60};
  EXPECT_EQ(internal::KeysInFront(plan, 1000), 164);
}

}  // namespace
}  // namespace ropewalk
