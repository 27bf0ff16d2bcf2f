// The engine over ranks against the decoder's own, and what ranks send each other.
#include "ropewalk/eval/ranked_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "ropewalk/base/error.h"
#include "ropewalk/plan/method.h"
#include "src/eval/pack.h"
#include "tests/eval/tiny_model.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace ranked_engine_test {

using test::MessageOf;
using testing::HasSubstr;

// Rank 0 measures, the others serve.
template <class Measure>
void OverRanks(int ranks, const Measure& measure, const Decoder& decoder = *test::Tiny().decoder) {
  RunThreadRanks(ranks, 1, [&](RankGroup& group) {
    if (group.rank() != 0) return ServeRankedEngine(decoder, group);
    const RankedEngine engine(decoder, group);
    measure(engine);
  });
}

std::vector<int64_t> Positions(int64_t first, int64_t last) {
  std::vector<int64_t> all(static_cast<size_t>(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

TEST(RankedEngine, ScoresAreThoseOfTheDecoder) {
  // Trained, so that rounding is as small as it is in models.
  const ModelFiles files = OpenModel(ROPEWALK_SOURCE_DIR "/models");
  const auto decoder = Decoder::Load(files);
  const TokenText text = test::RandomText(700, 3);
  const std::span<const int32_t> ids = text.ids;
  std::vector<ScoreRequest> requests(4);
  requests[0] = {.ids = ids, .positions = Positions(1, 699), .entropy_queries = {500, 600, 698}};
  requests[1] = {
      .prefix = ids.first(300), .ids = ids.subspan(400, 50), .positions = {301, 310, 349}};
  requests[2] = {.ids = ids.first(90), .positions = {5}};
  requests[3] = {.ids = ids.first(3)};  // nothing is asked
  const PositionPlan plan = PositionMethod::Parse("yarn").Apply(files.config.plan, 2);
  int64_t ticked = 0;
  EngineCall call{.plan = &plan, .final_length = 700};
  call.tick = [&](int64_t tokens) { ticked += tokens; };
  const Scores expected = DecoderEngine(*decoder).Score(call, requests);
  float largest = 0;
  for (const TokenScore& score : expected.tokens[0]) largest = std::max(largest, -score.log_prob);
  for (const int ranks : {1, 2, 3}) {
    OverRanks(
        ranks,
        [&](const ScoringEngine& engine) {
          EXPECT_EQ(engine.Facts().threads, ranks);
          for (int again = 0; again < 2; ++again) {
            ticked = 0;
            const Scores scores = engine.Score(call, requests);
            EXPECT_EQ(ticked, 699 + 349 + 5);
            EXPECT_EQ(scores.fed_tokens, ticked);
            for (size_t r = 0; r < requests.size(); ++r) {
              ASSERT_EQ(scores.tokens[r].size(), expected.tokens[r].size());
              for (size_t i = 0; i < scores.tokens[r].size(); ++i) {
                EXPECT_NEAR(scores.tokens[r][i].log_prob, expected.tokens[r][i].log_prob,
                            4e-6 * largest);  // of a logit, and of the sum of all
              }
            }
            EXPECT_NEAR(scores.entropy[0].nats, expected.entropy[0].nats, 1e-4);
            EXPECT_NEAR(scores.entropy[0].share, expected.entropy[0].share, 1e-5);
          }
        },
        *decoder);
  }
}

TEST(RankedEngine, WhatEndsInTheMiddleIsBroken) {
  const TokenText text = test::RandomText(200, 3);
  const ScoreRequest request{.ids = text.ids, .positions = {199}};
  const PositionPlan& plan = test::Tiny().files.config.plan;
  EngineCall call{.plan = &plan, .final_length = 200};
  call.tick = [](int64_t) { throw Error(ErrorCode::kIo, "the reader has gone"); };
  EXPECT_EQ(
      MessageOf([&] {
        OverRanks(2, [&](const RankedEngine& engine) {
          EXPECT_EQ(MessageOf([&] { engine.Score(call, {&request, 1}); }), "the reader has gone");
          EXPECT_TRUE(engine.broken());
          throw Error(ErrorCode::kIo, "ended");
        });
      }),
      "ended");
}

TEST(RankedEngine, Refusals) {
  const TokenText text = test::RandomText(20, 3);
  const PositionPlan& plan = test::Tiny().files.config.plan;
  const EngineCall call{.plan = &plan, .final_length = 64};
  const GenerateRequest request{.ids = text.ids, .max_tokens = 3};
  OverRanks(2, [&](const RankedEngine& engine) {
    EXPECT_THAT(MessageOf([&] {
                  engine.Generate(call, {&request, 1});
                }),
                HasSubstr("not generated over ranks"));
    const ScoreRequest both{.ids = text.ids, .positions = {3}, .continue_tokens = 2};
    EXPECT_THAT(MessageOf([&] {
                  engine.Score(call, {&both, 1});
                }),
                HasSubstr("not generated over ranks"));
    EXPECT_FALSE(engine.broken());
    const ModelConfig& config = test::Tiny().decoder->config();
    EXPECT_GT(engine.MemoryBytes(plan, 1 << 20),
              RankedSequence::BytesFor(config, 2, 1 << 20, KvType::kF32));
    EXPECT_LT(RankedSequence::BytesFor(config, 8, 1 << 20, KvType::kF32),
              0.26 * double(RankedSequence::BytesFor(config, 2, 1 << 20, KvType::kF32)));
  });
  EXPECT_THAT(MessageOf([&] {
                RunThreadRanks(2, 1, [&](RankGroup& group) {
                  if (group.rank() == 1) RankedEngine(*test::Tiny().decoder, group);
                });
              }),
              HasSubstr("expected rank 0"));
}

// Plans with something in every member travel whole.
TEST(Pack, PlansOfEveryKind) {
  PositionPlan plan = test::MadeUpPlan(64);
  plan.learned = LearnedPositions{100, 2};
  plan.absolute = ConvolutionalEmbedding{};
  plan.recurrent_layer = RecurrentLayer{};
  plan.other = OtherEncoding::kShaw;
  plan.trained_length = 64, plan.configured_length = 65, plan.stated_length = 66;
  plan.has_dual_chunk_key = plan.yarn_scales_scores = plan.local_unscaled = true;
  plan.notes = {"one", "", "three"};
  std::vector<PositionPlan> plans = {PositionPlan(), plan};
  for (const MethodInfo& method : Methods()) {
    plans.push_back(PositionMethod::Parse(method.name).Apply(test::MadeUpPlan(64), 4));
  }
  for (const char* map : {"rerope", "leaky-rerope", "self-extend", "dual-chunk",
                          "sinks:4,window=40", "string", "lampe", "dpe", "yarn+log-n"}) {
    plans.push_back(PositionMethod::Parse(map).Apply(test::MadeUpPlan(64), 4));
  }
  const auto with_bias = [&](auto method) {
    plans.push_back(test::MadeUpPlan(64));
    LayerBias bias;
    bias.heads = 2;
    bias.method = std::move(method);
    plans.back().layers[1].bias = bias;
    plans.back().layers[0].window_tokens = 9;
    plans.back().layers[0].rotates_values = true;
  };
  AlibiBias alibi;
  alibi.slopes = {0.5f, 0.25f};
  with_bias(alibi);
  T5LayerBias t5;
  t5.bias.embedding = {1, 2, 3};
  t5.per_layer = true;
  with_bias(t5);
  DebertaLayerBias deberta;
  deberta.bias.max_position = 77;
  deberta.shared_keys = true;
  with_bias(deberta);
  TransformerXlBias xl;
  xl.content_bias = {1, 2};
  with_bias(xl);
  KerpleBias kerple;
  kerple.r1 = {3};
  with_bias(kerple);
  with_bias(NezhaLayerBias{32, 16});
  with_bias(FireLayerBias{7});
  with_bias(ShawLayerBias{1, 2, 3, false, true});
  with_bias(TupeLayerBias{9, 8, false, true, 4, 5});
  with_bias(CopeLayerBias{9, 8, true});
  with_bias(GateLayerBias{});
  with_bias(SandwichBias{});
  with_bias(LearnedAlibiLayerBias{false});
  for (const PositionPlan& sent : plans) {
    EXPECT_EQ(internal::Unpack<PositionPlan>(internal::Pack(sent)), sent);
  }
  std::vector<std::byte> bytes = internal::Pack(plan);
  bytes.pop_back();
  EXPECT_THAT(MessageOf([&] { internal::Unpack<PositionPlan>(bytes); }), HasSubstr("ends early"));
  bytes.resize(bytes.size() + 2);
  EXPECT_THAT(MessageOf([&] { internal::Unpack<PositionPlan>(bytes); }),
              HasSubstr("goes on too long"));
}

}  // namespace ranked_engine_test
}  // namespace ropewalk
