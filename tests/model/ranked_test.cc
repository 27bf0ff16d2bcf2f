// One sequence over ranks against one rank without a ring: every form of a bias, every distance map,
// what stands in front of the layers, and the types of the KV cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "ropewalk/base/error.h"
#include "ropewalk/plan/method.h"
#include "tests/model/ranked_support.h"
#include "tests/model/ropewalk_bias_cases.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace ranked_test {

using nlohmann::json;
using test::Difference;
using test::MessageOf;
using test::RankedLogits;
using test::Tensors;
using test::Tiny;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kLimit = 2e-6;   // of the largest logit
constexpr int64_t kTokens = 700;  // more than a chunk; no multiple of a run

// Scores of the size that trained models have: sharp ones make ten times as much of any rounding.
Tensors Calm(Tensors weights) {
  for (auto& [name, tensor] : weights) {
    if (name.find("q_proj") == std::string::npos) continue;
    for (float& v : tensor.values) v *= 0.25f;
  }
  return weights;
}

struct Model {
  explicit Model(const json& config = Tiny().Config(), const Tensors& weights = Tiny().Weights(),
                 ComputeType compute = ComputeType::kFloat32) {
    Tiny::WriteFolder(folder.path(), config, Calm(weights));
    files = OpenModel(folder.path());
    decoder = Decoder::Load(files, {.compute = compute});
  }
  const PositionPlan& plan() const { return files.config.plan; }
  std::vector<float> Alone(const PositionPlan& plan, const std::vector<int32_t>& ids,
                           KvType kv = KvType::kF32) const {
    const auto n = static_cast<int64_t>(ids.size());
    Sequence sequence(*decoder, plan, n, AnglePrecision::kExact, kv);
    std::vector<float> states(n * decoder->config().hidden), logits(n * decoder->config().vocab);
    decoder->Forward(sequence, ids, states.data(), n);
    decoder->Logits(states.data(), n, logits.data());
    return logits;
  }
  test::TempFolder folder;
  ModelFiles files;
  std::unique_ptr<Decoder> decoder;
};

void ExpectSame(const Model& model, const PositionPlan& plan, int64_t tokens = kTokens,
                KvType kv = KvType::kF32, double limit = kLimit) {
  const std::vector<int32_t> ids = Tiny().Ids(tokens);
  const std::vector<float> alone = model.Alone(plan, ids, kv);
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<float> logits = RankedLogits(ranks, *model.decoder, plan, ids, kv);
    EXPECT_LE(Difference(logits, alone), limit) << ranks << " ranks";
    if (ranks % 2 == 0) {
      EXPECT_EQ(RankedLogits(ranks, *model.decoder, plan, ids, kv), logits) << ranks << " ranks";
    }
  }
}

// Positions of learned tables, and their tensors, for as many tokens as the test has.
test::biases::Case Longer(test::biases::Case c) {
  if (c.bias.contains("positions")) {
    c.bias["positions"] = kTokens;
    for (auto& parameter : c.parameters) {
      if (std::string(parameter.name) == "embedding") parameter.shape[0] = kTokens;
    }
  }
  return c;
}

class RankedBias : public testing::TestWithParam<test::biases::Case> {};

TEST_P(RankedBias, IsThatOfOneRank) {
  const test::biases::Case c = Longer(GetParam());
  const Model model(test::biases::ConfigOf(test::biases::kTiny, c.bias),
                    test::biases::WeightsOf(test::biases::kTiny, c));
  // A gate makes 2.9e-6 of AVX2's rounding; every other bias keeps the limit there too.
  const bool gate = std::string(c.name) == "gate";
  ExpectSame(model, model.plan(), kTokens, KvType::kF32, gate ? 4e-6 : kLimit);
}

INSTANTIATE_TEST_SUITE_P(All, RankedBias, testing::ValuesIn(test::biases::Cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Ranked, MapsTemperaturesAndScalings) {
  const Model model;
  for (const char* method :
       {"none", "yarn", "log-n", "rerope:20", "rerope:60+log-n", "leaky-rerope:50,factor=15",
        "self-extend:window=30,group=40", "dual-chunk:40,limit=50", "sinks:4,window=40",
        "sinks:20,window=40", "string:20", "lampe:30", "dpe:30,group3=5,group7=9"}) {
    SCOPED_TRACE(method);
    ExpectSame(model, PositionMethod::Parse(method).Apply(model.plan(), 12));
  }
}

TEST(Ranked, WindowsChunksAndLayersWithoutRotation) {
  json config = Tiny().Config();
  config["model_type"] = "smollm3";
  config["sliding_window"] = 17;
  config["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  config["no_rope_layers"] = {1, 1, 0};
  const Model model(config);
  ExpectSame(model, model.plan());
  for (const int64_t chunk : {50, 64, 300}) {  // of Llama 4
    SCOPED_TRACE(chunk);
    PositionPlan plan = model.plan();
    plan.layers[1].window_tokens = 0;
    plan.layers[1].chunk_tokens = chunk;
    plan.layers[2].temperature = QueryTemperature{.period = 100};
    plan.layers[0].rotates_values = true;
    ExpectSame(model, plan);
  }
}

// A model of the family ropewalk with tensors of its own, of these shapes.
struct Native {
  const char* name;
  json positions;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
};

std::vector<Native> Natives() {
  const Tiny tiny;
  const int64_t d = tiny.hidden;
  const auto cell = [d](int64_t gates) -> decltype(Native::tensors) {
    return {{"model.recurrent_layer.weight_ih", {gates * d, d}},
            {"model.recurrent_layer.weight_hh", {gates * d, d}},
            {"model.recurrent_layer.bias_ih", {gates * d}},
            {"model.recurrent_layer.bias_hh", {gates * d}}};
  };
  std::vector<Native> all = {
      {"sinusoidal", {{"absolute", {{"type", "sinusoidal"}}}}, {}},
      {"learned",
       {{"absolute", {{"type", "learned"}, {"rows", kTokens}}}},
       {{"model.positions.table", {kTokens, d}}}},
      {"convolutional",
       {{"absolute", {{"type", "convolutional"}, {"kernel", 8}, {"groups", 4}}}},
       {{"model.positions.v", {d, d / 4, 8}}, {"model.positions.bias", {d}}}},
      {"rnn", {{"recurrent_layer", {{"cell", "tanh"}}}}, cell(1)},
      {"convolution_then_gru",
       {{"absolute", {{"type", "convolutional"}}}, {"recurrent_layer", {{"cell", "gru"}}}},
       cell(3)},
      {"pope", {{"rotation", {{"rope_type", "pope"}, {"rope_theta", 500.0}}}}, {}},
      {"fope", {{"rotation", {{"rope_type", "fope"}, {"rope_theta", 500.0}}}}, {}},
      {"xpos", {{"rotation", {{"rope_theta", 500.0}, {"xpos", {{"scale_base", 200.0}}}}}}, {}},
  };
  all[4].tensors.emplace_back("model.positions.v", std::vector<int64_t>{d, 1, 3});
  all[4].tensors.emplace_back("model.positions.bias", std::vector<int64_t>{d});
  for (int64_t l = 0; l < tiny.layers; ++l) {
    const std::string name = "model.layers." + std::to_string(l) + ".self_attn.rotation.";
    all[5].tensors.emplace_back(name + "phase", std::vector<int64_t>{tiny.kv_heads, tiny.head_dim});
    for (const char* part : {"cosines", "sines"}) {
      all[6].tensors.emplace_back(name + part, std::vector<int64_t>{2, 2});
    }
  }
  return all;
}

TEST(Ranked, EncodingsInFrontOfTheLayersAndOfQueries) {
  for (const Native& native : Natives()) {
    SCOPED_TRACE(native.name);
    json config = Tiny().Config();
    config.erase("rope_theta");
    config["model_type"] = "ropewalk";
    config["positions"] = native.positions;
    Tensors weights = Tiny().Weights();
    std::mt19937 engine(3);
    std::normal_distribution<float> normal;
    for (const auto& [name, shape] : native.tensors) {
      int64_t n = 1;
      for (const int64_t size : shape) n *= size;
      test::Tensor tensor{shape, std::vector<float>(n)};
      for (float& v : tensor.values) v = 0.2f * normal(engine);
      weights.emplace(name, std::move(tensor));
    }
    const Model model(config, weights);
    ExpectSame(model, model.plan());
  }
}

// Attention and MLP beside one another read one norm, of which nothing is left when the ring is round.
TEST(Ranked, ParallelBlocksOfOneNorm) {
  const Tiny tiny{.hidden = 32};
  json config = tiny.Config();
  config["model_type"] = "stablelm";
  config["use_parallel_residual"] = true;
  config["partial_rotary_factor"] = 0.5;
  config["layer_norm_eps"] = 1e-5;
  for (const char* key : {"rms_norm_eps", "head_dim"}) config.erase(key);
  Tensors weights = tiny.Weights();
  const test::Tensor bias{{tiny.hidden}, std::vector<float>(tiny.hidden, 0.1f)};
  for (int64_t l = 0; l < tiny.layers; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".";
    weights.erase(p + "post_attention_layernorm.weight");
    weights[p + "input_layernorm.bias"] = bias;
  }
  weights["model.norm.bias"] = bias;
  const Model model(config, weights);
  ASSERT_EQ(model.files.config.layer.residual, Residual::kParallel);
  ASSERT_FALSE(model.files.config.layer.pre_mlp.exists());
  ExpectSame(model, model.plan());
}

// Values are narrower than f32: a rounding that turns is as large as one of the type.
TEST(Ranked, TypesOfTheCache) {
  const Model model;
  ExpectSame(model, model.plan(), kTokens, KvType::kBf16, 5e-3);
  Tiny wide;
  wide.head_dim = 32;
  const Model blocks(wide.Config(), wide.Weights());
  ExpectSame(blocks, blocks.plan(), kTokens, KvType::kQ8_0, 2e-2);
}

TEST(Ranked, ShortSequencesLeaveRanksWithoutTokens) {
  const Model model;
  for (const int64_t tokens : {1, 2, 63, 64, 65, 129}) {
    SCOPED_TRACE(tokens);
    ExpectSame(model, model.plan(), tokens);
  }
}

TEST(Ranked, RowsFromSomeTokenOn) {
  const Model model;
  const std::vector<int32_t> ids = Tiny().Ids(kTokens);
  const std::vector<float> whole = model.Alone(model.plan(), ids);
  for (const int64_t first : {1, 400, 699}) {
    const std::vector<float> expected(whole.begin() + first * Tiny().vocab, whole.end());
    const auto rows = RankedLogits(3, *model.decoder, model.plan(), ids, KvType::kF32, first);
    EXPECT_LE(Difference(rows, expected), kLimit) << first;
  }
}

TEST(Ranked, EntropyIsThatOfOneRank) {
  const Model model;
  const std::vector<int32_t> ids = Tiny().Ids(kTokens);
  const std::vector<int64_t> asked = {3, 300, 301, 511, 640, 699};
  for (const char* method : {"none", "sinks:4,window=40", "rerope:20"}) {
    const PositionPlan plan = PositionMethod::Parse(method).Apply(model.plan(), 12);
    std::map<std::pair<int64_t, int64_t>, std::vector<float>> alone;  // by layer and query
    Sequence sequence(*model.decoder, plan, kTokens, AnglePrecision::kExact);
    sequence.ObserveAttention([&](int64_t layer, const AttentionArgs& args) {
      const int64_t first = args.cache->tokens() - args.q.shape[0];
      for (const int64_t at : asked) {
        if (at < first || at >= args.cache->tokens()) continue;
        const auto from = args.entropy.begin() + (at - first) * args.q.shape[1];
        alone[{layer, at}] = {from, from + args.q.shape[1]};
      }
    });
    std::vector<float> states(kTokens * Tiny().hidden);
    model.decoder->Forward(sequence, ids, states.data(), kTokens);
    std::mutex mutex;
    std::map<int64_t, std::vector<std::vector<float>>> found;  // by query, in the order of layers
    RunThreadRanks(3, 1, [&](RankGroup& group) {
      RankedSequence ranked(*model.decoder, plan, kTokens, AnglePrecision::kExact, KvType::kF32,
                            group);
      ranked.Forward(ids, 0,
                     {.states = [](int64_t, float*, int64_t) {},
                      .entropy_queries = asked,
                      .entropy =
                          [&](int64_t at, int64_t seen, std::span<const float> entropy) {
                            const std::lock_guard lock(mutex);
                            found[at].emplace_back(entropy.begin(), entropy.end());
                            const bool all = std::string(method) != "sinks:4,window=40";
                            EXPECT_EQ(seen, all ? at + 1 : std::min<int64_t>(at + 1, 44)) << at;
                          }});
    });
    ASSERT_EQ(found.size(), asked.size()) << method;
    for (const auto& [at, layers] : found) {
      ASSERT_EQ(layers.size(), size_t(Tiny().layers));
      for (size_t l = 0; l < layers.size(); ++l) {
        for (size_t h = 0; h < layers[l].size(); ++h) {
          EXPECT_NEAR(layers[l][h], alone.at({int64_t(l), at})[h], 2e-5) << method << at;
        }
      }
    }
  }
}

TEST(Ranked, TicksAllTokensAndMayEnd) {
  const Model model;
  const std::vector<int32_t> ids = Tiny().Ids(kTokens);
  std::atomic<int64_t> ticked = 0;
  const auto run = [&](bool end) {
    RunThreadRanks(2, 1, [&](RankGroup& group) {
      RankedSequence ranked(*model.decoder, model.plan(), kTokens, AnglePrecision::kExact,
                            KvType::kF32, group);
      ranked.Forward(ids, 0,
                     {.states = [](int64_t, float*, int64_t) {},
                      .tick =
                          [&](int64_t tokens) {
                            if (group.rank() == 0) ticked += tokens;
                            if (end && group.rank() == 0) {
                              throw Error(ErrorCode::kIo, "the reader has gone");
                            }
                          }});
    });
  };
  run(false);
  EXPECT_EQ(ticked, kTokens);
  EXPECT_EQ(MessageOf([&] { run(true); }), "the reader has gone");  // and the other rank ends
}

TEST(Ranked, Refusals) {
  const Model model;
  const auto forward = [&](const std::vector<int32_t>& ids, int64_t first, int64_t length) {
    return MessageOf([&] {
      RunThreadRanks(2, 1, [&](RankGroup& group) {
        RankedSequence(*model.decoder, model.plan(), length, AnglePrecision::kExact, KvType::kF32,
                       group)
            .Forward(ids, first, {.states = [](int64_t, float*, int64_t) {}});
      });
    });
  };
  EXPECT_THAT(forward({1, 2, 3}, 0, 2), AllOf(HasSubstr("1 to 2 tokens"), HasSubstr("got 3")));
  EXPECT_THAT(forward({1, 2, 3}, 3, 4), HasSubstr("first_row"));
  EXPECT_THAT(forward({1, 53, 3}, 0, 4),
              AllOf(HasSubstr("token id 53 at index 1"), HasSubstr("vocabulary of 53")));
}

}  // namespace ranked_test
}  // namespace ropewalk
