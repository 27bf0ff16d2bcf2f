// The decoder as an engine: log-probabilities against decoding token by token, shared prefixes
// against a call of each sequence alone.
#include "ropewalk/eval/decoder_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "ropewalk/base/error.h"
#include "tests/eval/decoder_cases.h"

namespace ropewalk {
namespace {

using namespace test::cases;
using test::RandomText;
using test::Tiny;
using testing::HasSubstr;

PositionPlan LongRope() {
  const std::vector<double> near(8, 1.0);
  return WithScaling(Tiny().files.config.plan,
                     LongRopeScaling{near, {1, 1.2, 1.7, 2.5, 4, 6, 9, 14}, 16.0},
                     test::kTinyTrained);
}

PositionPlan Alibi() {
  PositionPlan plan = Tiny().files.config.plan;
  for (LayerPlan& layer : plan.layers) {
    layer.rotation.reset();
    layer.bias = LayerBias{2, AlibiBias{}};
  }
  return plan;
}

// Every way in which what a token computes can depend on where it is and how long the sequence is.
std::map<std::string, PositionPlan> Plans() {
  return {{"none", Method("none")},
          {"yarn", Method("yarn")},
          {"dynamic", Method("dynamic")},
          {"dynamic-yarn", Method("dynamic-yarn")},
          {"longrope", LongRope()},
          {"log-n", Method("log-n")},
          {"rerope", Method("rerope:30")},
          {"leaky-rerope", Method("leaky-rerope:30,factor=6")},
          {"self-extend", Method("self-extend:30,group=6")},
          {"dual-chunk", Method("dual-chunk:48,limit=63")},
          {"sinks", Method("sinks:4,window=40")},
          {"string", Method("string:50,window=10")},
          {"lampe", Method("lampe:head=30,mapped=90,tail=20,length=300")},
          {"dpe", Method("dpe:30,group1=2,group3=8,group5=4,group7=16")},
          {"string+mscale", Method("string+mscale")},
          {"yarn+rerope", Method("yarn+rerope:100")},
          {"windows", Windows(100, 100)},
          {"one window", Windows(0, 700)},
          {"alibi", Alibi()}};
}

// ln softmax(logits)[ids[p]] of one token after the other, in a sequence of `final_length`.
std::vector<double> Decoded(const EngineCall& call, const Ids& ids) {
  Sequence sequence(*Tiny().decoder, *call.plan, call.final_length, call.angles);
  std::vector<float> hidden(static_cast<size_t>(Tiny().decoder->config().hidden));
  std::vector<float> logits(test::kTinyVocab);
  std::vector<double> log_probs(1, 0.0);
  for (size_t p = 1; p < ids.size(); ++p) {
    Tiny().decoder->Forward(sequence, std::span(&ids[p - 1], 1), hidden.data(), 1);
    Tiny().decoder->Logits(hidden.data(), 1, logits.data());
    long double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
    log_probs.push_back(static_cast<double>(logits[static_cast<size_t>(ids[p])] - std::log(sum)));
  }
  return log_probs;
}

// One prefix, any number of suffixes: the bits of a call of each alone, or, the whole prefix kept,
// the same up to rounding. The prefix ends inside a chunk of 512, the declared length lies beyond.
TEST(DecoderEngine, SuffixesOfASharedPrefixHaveTheNumbersOfASequenceAlone) {
  const Case shared(1300, {1, 7, 40, 300});
  for (const auto& [name, plan] : Plans()) {
    SCOPED_TRACE(name);
    EngineCall call{.plan = &plan, .final_length = 1700};
    const std::vector<ScoreRequest> requests = shared.Requests();
    const Scores same = Tiny().engine->Score(call, requests);
    call.reuse = PrefixReuse::kWhole;
    const Scores whole = Tiny().engine->Score(call, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<TokenScore> alone = Alone(*Tiny().engine, call, requests[i]);
      ExpectSame(same.tokens[i], alone);
      ExpectClose(whole.tokens[i], alone);
    }
    const std::vector<double> truth = Decoded(call, shared.Whole(2));
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(same.tokens[2][i].log_prob, truth[1300 + i], 2e-4 * (1 - truth[1300 + i]));
    }
  }
}

// Methods that depend on the length are those of the declared one, however short the sequence.
TEST(DecoderEngine, LengthDependentMethodsArePinnedToTheDeclaredLength) {
  const Case shared(100, {20, 30});
  for (const PositionPlan& plan : {Method("dynamic"), Method("dynamic-yarn"), LongRope()}) {
    std::vector<float> first;
    for (const int64_t length : {130, 4096, 131072, 1048576}) {
      EngineCall call{.plan = &plan, .final_length = length, .reuse = PrefixReuse::kWhole};
      const std::vector<ScoreRequest> requests = shared.Requests();
      const Scores scores = Tiny().engine->Score(call, requests);
      const std::vector<double> truth = Decoded(call, shared.Whole(1));
      for (size_t i = 0; i < 30; ++i) {
        EXPECT_NEAR(scores.tokens[1][i].log_prob, truth[100 + i], 2e-4 * (1 - truth[100 + i]));
      }
      first.push_back(scores.tokens[1][29].log_prob);
    }
    if (plan.layers[0].rotation->scaling.index() == Scaling(LongRopeScaling{}).index()) {
      EXPECT_EQ(first[0], first[3]);  // every length here is beyond the trained one
    } else {
      EXPECT_NE(first[0], first[1]);
      EXPECT_NE(first[2], first[3]);
    }
  }
}

TEST(DecoderEngine, FarPositions) {
  const PositionPlan plan = Windows(64, 200);
  const Case shared(131071, {3, 260});
  EngineCall call{.plan = &plan, .final_length = 131072 + 400};
  const std::vector<ScoreRequest> requests = shared.Requests();
  const std::vector<TokenScore> alone = Alone(*Tiny().engine, call, requests[1]);
  ExpectSame(Tiny().engine->Score(call, requests).tokens[1], alone);
  call.reuse = PrefixReuse::kWhole;
  ExpectClose(Tiny().engine->Score(call, requests).tokens[1], alone);
}

// An error, never other numbers.
TEST(DecoderEngine, WhatTheDecoderCannotComputeIsAnError) {
  PositionPlan plan = Method("none");
  plan.layers[1].map = Rerope{.window = 8};
  plan.layers[1].chunk_tokens = 64;
  const Case shared(20, {3});
  EXPECT_THAT(
      [&] { Tiny().engine->Score({.plan = &plan, .final_length = 100}, shared.Requests()); },
      testing::ThrowsMessage<Error>(HasSubstr("a position map within chunks")));
}

// What stands before or beside a request changes nothing, also where one prefix begins another.
TEST(DecoderEngine, NumbersDoNotDependOnTheOrder) {
  const PositionPlan plan = Method("yarn");
  const Ids text = RandomText(2000, 5).ids;
  const auto request = [&](int64_t prefix, int64_t tokens) {
    const std::span ids(text);
    ScoreRequest r{.prefix = ids.first(prefix), .ids = ids.subspan(prefix, tokens - prefix)};
    r.positions = {tokens - 9, tokens - 2, tokens - 1};
    return r;
  };
  std::vector<ScoreRequest> requests = {
      request(0, 700), request(1024, 1100), request(600, 1100),  request(1500, 1900),
      request(1, 60),  request(512, 700),   request(1025, 1100), request(1500, 1700)};
  for (const PrefixReuse reuse : {PrefixReuse::kSameBits, PrefixReuse::kWhole}) {
    const EngineCall call{.plan = &plan, .final_length = 2000, .reuse = reuse};
    const Scores there = Tiny().engine->Score(call, requests);
    std::reverse(requests.begin(), requests.end());
    const Scores back = Tiny().engine->Score(call, requests);
    std::reverse(requests.begin(), requests.end());
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSame(there.tokens[i], back.tokens[requests.size() - 1 - i]);
      ExpectSame(there.tokens[i], Tiny().engine->Score(call, std::span(&requests[i], 1)).tokens[0]);
    }
  }
}

TEST(DecoderEngine, Bf16KeepsItsBitsToo) {
  if (FindBf16Unit() == Bf16Unit::kNone) GTEST_SKIP() << "this CPU multiplies no bf16";
  const auto decoder = Decoder::Load(Tiny().files, {.compute = ComputeType::kBFloat16});
  const DecoderEngine engine(*decoder);
  EXPECT_EQ(engine.Facts().compute, HasBf16Attention() ? "bf16+attention" : "bf16");
  const PositionPlan plan = Method("yarn");
  const Case shared(600, {5, 90});
  const EngineCall call{.plan = &plan, .final_length = 700};
  const Scores same = engine.Score(call, shared.Requests());
  for (size_t i = 0; i < 2; ++i) {
    ExpectSame(same.tokens[i], Alone(engine, call, shared.Requests()[i]));
  }
}

// Ticks come chunk by chunk and count every token once; what is kept comes at once.
TEST(DecoderEngine, APrefixIsComputedOnce) {
  const PositionPlan plan = Method("none");
  const Case shared(1300, {30, 20});
  std::vector<int64_t> ticks;
  EngineCall call{.plan = &plan, .final_length = 1400};
  call.tick = [&](int64_t tokens) { ticks.push_back(tokens); };
  int64_t fed = Tiny().engine->Score(call, shared.Requests()).fed_tokens;
  EXPECT_EQ(ticks, (std::vector<int64_t>{512, 512, 305, 1024, 295}));
  EXPECT_EQ(fed, 512 + 512 + 305 + 295);
  ticks.clear();
  call.reuse = PrefixReuse::kWhole;
  fed = Tiny().engine->Score(call, shared.Requests()).fed_tokens;
  EXPECT_EQ(ticks, (std::vector<int64_t>{512, 512, 275, 30, 1299, 20}));
  EXPECT_EQ(fed, 512 + 512 + 275 + 30 + 20);
  struct Stop {};
  call.tick = [](int64_t) { throw Stop(); };
  EXPECT_THROW(Tiny().engine->Score(call, shared.Requests()), Stop);
}

// Any ascending positions, and none.
TEST(DecoderEngine, ScoresThePositionsThatAreAsked) {
  const PositionPlan plan = Method("none");
  const Ids ids = RandomText(1200, 9).ids;
  const EngineCall call{.plan = &plan, .final_length = 1200};
  ScoreRequest all{.ids = ids};
  all.positions.resize(1199);
  std::iota(all.positions.begin(), all.positions.end(), 1);
  const std::vector<ScoreRequest> requests = {
      all,
      {.ids = ids, .positions = {1, 2, 511, 512, 513, 514, 900, 1024, 1025, 1199}},
      {.ids = ids}};
  const Scores scores = Tiny().engine->Score(call, requests);
  std::vector<TokenScore> some;
  for (const int64_t p : requests[1].positions) some.push_back(scores.tokens[0][p - 1]);
  ExpectClose(scores.tokens[1], some);
  EXPECT_TRUE(scores.tokens[2].empty());
  const Ids best = test::ReferenceArgmax(*Tiny().decoder, plan, ids);
  for (const int64_t p : {1, 255, 256, 257, 600, 1199}) {
    EXPECT_EQ(scores.tokens[0][p - 1].top, best[p]) << p;
  }
}

TEST(DecoderEngine, EntropyOfAskedQueriesAlone) {
  const PositionPlan plan = Method("rerope:30");
  Case shared(600, {40, 60});
  std::vector<ScoreRequest> requests = shared.Requests();
  const EngineCall call{.plan = &plan, .final_length = 700};
  EXPECT_TRUE(std::isnan(Tiny().engine->Score(call, requests).entropy[1].nats));
  requests[1].entropy_queries = {610, 640};
  const Scores both = Tiny().engine->Score(call, requests);
  const Ids whole = shared.Whole(1);
  const ScoreRequest alone{.ids = whole,
                           .positions = requests[1].positions,
                           .entropy_queries = requests[1].entropy_queries};
  EXPECT_TRUE(std::isnan(both.entropy[0].nats));
  EXPECT_EQ(both.entropy[1].nats, Tiny().engine->Score(call, std::span(&alone, 1)).entropy[0].nats);
  EXPECT_GT(both.entropy[1].nats, 0);
  EXPECT_LT(both.entropy[1].share, 1);
}

TEST(DecoderEngine, RefusesWhatItCannotAnswer) {
  const PositionPlan plan = Method("none");
  const Ids ids = {1, 2, 3, 4, 5};
  const auto message = [&](const EngineCall& call, const ScoreRequest& request) -> std::string {
    try {
      Tiny().engine->Score(call, std::span(&request, 1));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const EngineCall call{.plan = &plan, .final_length = 5};
  const std::span all(ids);
  EXPECT_EQ(message(call, {.ids = ids, .positions = {1, 4}}), "no error");
  EXPECT_THAT(message(call, {.ids = ids, .positions = {0}}), HasSubstr("from 1 to 4, got 0"));
  EXPECT_THAT(message(call, {.ids = ids, .positions = {5}}), HasSubstr("from 1 to 4, got 5"));
  EXPECT_THAT(message(call, {.ids = ids, .positions = {3, 3}}), HasSubstr("ascending"));
  EXPECT_EQ(message(call, {.prefix = all.first(2), .ids = all.subspan(2), .positions = {1}}),
            "no error");
  EXPECT_THAT(message(call, {.ids = ids, .positions = {2, 4}, .entropy_queries = {0}}),
              HasSubstr("entropy_queries: expected ascending indices from 1 to 3, got 0"));
  EXPECT_THAT(message(call, {.ids = ids, .entropy_queries = {0}}), HasSubstr("no position"));
  EXPECT_THAT(message({.plan = &plan, .final_length = 4}, {.ids = ids, .positions = {1}}),
              HasSubstr("a sequence of 5 tokens passes the declared final length of 4"));
  EXPECT_THAT(message({.final_length = 5}, {.ids = ids}), HasSubstr("no plan"));
  EXPECT_THAT(message({.plan = &plan}, {.ids = ids}), HasSubstr("at least 1 token, got 0"));
  const Ids foreign = {1, test::kTinyVocab};
  EXPECT_THAT(message(call, {.ids = foreign, .positions = {1}}),
              HasSubstr("token id 260 is outside the model's vocabulary of 260"));
  EXPECT_THAT(message(call, {.ids = ids, .continue_tokens = -1}),
              HasSubstr("continue_tokens: expected at least 0, got -1"));
  EXPECT_THAT(message(call, {.continue_tokens = 1}), HasSubstr("at least one token"));
  EXPECT_THAT(message(call, {.ids = all.first(3), .continue_tokens = 3}),
              HasSubstr("a sequence of 6 tokens passes the declared final length of 5"));
  EXPECT_THAT(message(call, {.ids = ids, .continue_tokens = INT64_MAX}),
              HasSubstr("a sequence of 9223372036854775812 tokens passes"));
  EXPECT_EQ(message(call, {.ids = all.first(3), .continue_tokens = 2}), "no error");
  const auto generate = [&](const GenerateRequest& request) {
    Tiny().engine->Generate(call, std::span(&request, 1));
  };
  EXPECT_THROW(generate({.max_tokens = 3}), Error);
  EXPECT_THROW(generate({.ids = ids, .max_tokens = -1}), Error);
  EXPECT_THROW(generate({.ids = ids, .max_tokens = 1}), Error);  // 6 tokens
  EXPECT_NO_THROW(generate({.ids = all.first(3), .max_tokens = 2}));
}

}  // namespace
}  // namespace ropewalk
