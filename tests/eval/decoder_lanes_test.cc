// Sequences side by side: the bits of each alone, and how lanes end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/tasks.h"
#include "tests/eval/decoder_cases.h"

namespace ropewalk {
namespace {

using namespace test::cases;
using test::RandomText;
using test::Tiny;

// With 1, 2 and 3 lanes: the numbers of each request alone, its entropy included.
class Lanes : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetNumThreads(GetParam()); }
  void TearDown() override { SetNumThreads(before_); }
  const int before_ = NumThreads();
};

TEST_P(Lanes, AreAsManyAsThreadsAndMemoryAllow) {
  const DecoderEngine& engine = *Tiny().engine;
  const PositionPlan plan = Method("yarn");
  EXPECT_EQ(engine.Facts().lanes, GetParam());
  EXPECT_EQ(engine.Lanes(plan, 4096), GetParam());
  // A cache of 2 layers of 1 head of 16, and a table: 320 bytes a token; 1 GiB for further lanes.
  EXPECT_EQ(engine.Lanes(plan, 1000000), std::min(GetParam(), 3));
  EXPECT_EQ(engine.Lanes(plan, 2000000), std::min(GetParam(), 2));
  EXPECT_EQ(engine.Lanes(plan, 4000000), 1);
  const int64_t least = engine.MemoryBytes(plan, 1000000) - engine.MemoryBytes(plan, 0);
  EXPECT_GE(least, 320000000 * engine.Lanes(plan, 1000000) - (int64_t{256} << 20));
  EXPECT_LT(engine.MemoryBytes(plan, 4000000), 1280000000 + (int64_t{256} << 20));
}

TEST_P(Lanes, DoNotChangeABit) {
  const Case shared(1300, {7, 40, 9});
  const Ids texts = RandomText(9 * 700, 77).ids;
  for (const char* method : {"dynamic", "rerope:30"}) {
    SCOPED_TRACE(method);
    const PositionPlan plan = Method(method);
    std::vector<ScoreRequest> requests = shared.Requests();
    for (int64_t i = 0; i < 9; ++i) {
      ScoreRequest& request = requests.emplace_back(
          ScoreRequest{.ids = std::span(texts).subspan(i * 700, 60 + i * 80)});
      const auto tokens = static_cast<int64_t>(request.ids.size());
      request.positions = {tokens - 40, tokens - 2, tokens - 1};
      request.entropy_queries = {tokens - 20, tokens - 2};
      if (i % 3 == 0) request.continue_tokens = 5;
    }
    requests.push_back({});
    for (const PrefixReuse reuse : {PrefixReuse::kSameBits, PrefixReuse::kWhole}) {
      const EngineCall call{.plan = &plan, .final_length = 1400, .reuse = reuse};
      const Scores together = Tiny().engine->Score(call, requests);
      SetNumThreads(1);
      const Scores one = Tiny().engine->Score(call, requests);
      SetNumThreads(GetParam());
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(i);
        const Scores alone = Tiny().engine->Score(call, std::span(&requests[i], 1));
        ExpectSame(together.tokens[i], alone.tokens[0]);
        ExpectSame(together.tokens[i], one.tokens[i]);
        if (!requests[i].entropy_queries.empty()) {
          EXPECT_EQ(together.entropy[i].nats, alone.entropy[0].nats);
          EXPECT_EQ(together.entropy[i].share, one.entropy[i].share);
        }
        EXPECT_EQ(together.continuations[i].ids, one.continuations[i].ids);
        if (requests[i].continue_tokens == 0) continue;
        EXPECT_EQ(together.continuations[i].ids.size(), 5u);
        EXPECT_EQ(together.continuations[i].ids, alone.continuations[0].ids);
      }
    }
  }
}

TEST_P(Lanes, HoldAtFarPositions) {
  const PositionPlan plan = Windows(64, 200);
  const Ids text = RandomText(3 * 70000, 6).ids;
  std::vector<ScoreRequest> requests;
  for (int64_t i = 0; i < 3; ++i) {
    requests.push_back({.ids = std::span(text).subspan(i * 70000, 70000), .positions = {69999}});
  }
  const EngineCall call{.plan = &plan, .final_length = 70000};
  const Scores together = Tiny().engine->Score(call, requests);
  EXPECT_EQ(together.fed_tokens, 3 * 69999);
  for (size_t i = 0; i < 3; ++i) {
    ExpectSame(together.tokens[i], Alone(*Tiny().engine, call, requests[i]));
  }
}

// Neighbours with one prefix stay together: nothing is fed twice, whatever the number of lanes.
TEST_P(Lanes, FeedAPrefixOnce) {
  const PositionPlan plan = Method("none");
  const Unit first({1500}), second({});
  std::vector<ScoreRequest> requests = first.requests;
  requests.insert(requests.end(), second.requests.begin(), second.requests.end());
  const Ids other = RandomText(1700, 99).ids;
  for (size_t i = first.requests.size(); i < requests.size(); ++i) requests[i].prefix = other;
  EngineCall call{.plan = &plan, .final_length = 1740, .reuse = PrefixReuse::kWhole};
  EXPECT_EQ(Tiny().engine->Score(call, requests).fed_tokens, 2 * (1699 + 25 * 21 + 25 * 19));
}

TEST_P(Lanes, EndWithTheFirstException) {
  const PositionPlan plan = Method("none");
  const Ids text = RandomText(6000, 8).ids;
  std::vector<ScoreRequest> requests(
      6, ScoreRequest{.ids = std::span(text).first(5000), .positions = {4999}});
  for (size_t i = 0; i < 6; ++i) requests[i].ids = std::span(text).subspan(i, 5000);
  EngineCall call{.plan = &plan, .final_length = 5000};
  const auto caller = std::this_thread::get_id();
  int64_t ticked = 0;
  struct Stop {};
  call.tick = [&](int64_t tokens) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ticked += tokens;
    if (ticked > 7000) throw Stop();
  };
  EXPECT_THROW(Tiny().engine->Score(call, requests), Stop);
  EXPECT_GT(ticked, 7000);
  EXPECT_LT(ticked, 6 * 4999);
  ticked = INT64_MIN / 2;
  EXPECT_EQ(Tiny().engine->Score(call, requests).fed_tokens, 6 * 4999);
  EXPECT_EQ(ticked, INT64_MIN / 2 + 6 * 4999);
}

// The embedded model, a cell of passkey and one of perplexity, extended.
TEST_P(Lanes, CellsOfTheEmbeddedModelHaveTheBitsOfOneThread) {
  const ModelFiles files = OpenModel(ROPEWALK_SOURCE_DIR "/models");
  const auto decoder = Decoder::Load(files);
  const DecoderEngine engine(*decoder);
  const PositionPlan plan = PositionMethod::Parse("yarn").Apply(files.config.plan, 4, 256);
  const auto passkey = MakePasskeyTask({}, *files.tokenizer);
  const std::vector<TaskPrompt> prompts = passkey->Prompts(1024, 10);
  RunOptions options;
  options.entropy = true;
  Protocol protocol;
  protocol.anchors = 4;
  protocol.scored_per_anchor = 64;
  TokenText text = RandomText(3000, 21);
  const auto measure = [&] {
    const TaskResult keys = MeasureTask(engine, plan, *passkey, prompts, 1024, {}, {});
    const PerplexityResult losses =
        MeasurePerplexity(engine, plan, text, protocol, 700, 700, options);
    std::vector<double> numbers = {losses.mean_nll, losses.entropy, losses.entropy_share};
    for (const TaskAnswer& answer : keys.answers) numbers.push_back(answer.nll);
    for (const ScoredToken& token : losses.tokens) numbers.push_back(token.nll);
    return numbers;
  };
  EXPECT_EQ(engine.Facts().lanes, GetParam());
  const std::vector<double> numbers = measure();
  EXPECT_GE(numbers.size(), size_t{3 + 10 + 4 * 64});
  SetNumThreads(1);
  EXPECT_EQ(numbers, measure());
}

// Just above the bound: one lane, whose products have all threads.
TEST_P(Lanes, ALargerModelHasOne) {
  const auto model = test::MakeTiny({.width = 512, .feed_forward = 512, .layers = 1});
  const ModelConfig& config = model->files.config;
  const int64_t weights =
      config.hidden * (2 * config.heads + 2 * config.kv_heads) * config.head_dim +
      3 * config.hidden * config.feed_forward;
  EXPECT_GE(weights, 4 * DecoderEngine::kLaneWeights);
  EXPECT_EQ(model->engine->Facts().lanes, 1);
  EXPECT_EQ(model->engine->Lanes(config.plan, 100), 1);
  const Case texts(0, {100, 90, 80});
  std::vector<ScoreRequest> requests = texts.Requests();
  for (ScoreRequest& request : requests) request.positions = {50, 70};
  const EngineCall call{.plan = &config.plan, .final_length = 100};
  const Scores together = model->engine->Score(call, requests);
  for (size_t i = 0; i < 3; ++i) {
    ExpectSame(together.tokens[i], Alone(*model->engine, call, requests[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(DecoderEngine, Lanes, testing::Values(1, 2, 3));

}  // namespace
}  // namespace ropewalk
