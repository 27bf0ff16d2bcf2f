// What the golden models of tests/model/golden_test.cc do not show of families that are not LLaMA's
// kind: names without their first word, the end of a table of learned positions, layouts of qkv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace blocks_test {

using test::MessageOf;
using test::Tensor;
using test::Tensors;
using testing::AllOf;
using testing::HasSubstr;

// Every pair of sizes differs, but for those that the family makes equal.
constexpr int64_t kHidden = 24, kHeads = 3, kDim = 8, kWide = 40, kVocab = 53, kPositions = 90,
                  kLayers = 2;

class Random {
 public:
  Tensor Make(std::vector<int64_t> shape, float scale = 0.3f, float mean = 0) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    Tensor t{std::move(shape), std::vector<float>(n)};
    for (float& v : t.values) v = mean + scale * normal_(engine_);
    return t;
  }

 private:
  std::mt19937 engine_{5};
  std::normal_distribution<float> normal_;
};

Tensors Gpt2(const std::string& root) {
  Random random;
  Tensors all;
  const auto pair = [&](const std::string& name, std::vector<int64_t> shape, float mean = 0) {
    const int64_t last = shape.back();
    all.emplace(root + name + ".weight", random.Make(std::move(shape), 0.3f, mean));
    all.emplace(root + name + ".bias", random.Make({last}));
  };
  all.emplace(root + "wte.weight", random.Make({kVocab, kHidden}));
  all.emplace(root + "wpe.weight", random.Make({kPositions, kHidden}));
  pair("ln_f", {kHidden}, 1);
  for (int64_t l = 0; l < kLayers; ++l) {
    const std::string p = "h." + std::to_string(l) + ".";
    pair(p + "ln_1", {kHidden}, 1);
    pair(p + "attn.c_attn", {kHidden, 3 * kHidden});
    pair(p + "attn.c_proj", {kHidden, kHidden});
    pair(p + "ln_2", {kHidden}, 1);
    pair(p + "mlp.c_fc", {kHidden, kWide});
    pair(p + "mlp.c_proj", {kWide, kHidden});
    // What GPT-2 was published with: the causal mask.
    all.emplace(root + p + "attn.bias", random.Make({1, 1, 4, 4}));
  }
  return all;
}

nlohmann::json Gpt2Config() {
  return {{"model_type", "gpt2"}, {"n_embd", kHidden},         {"n_head", kHeads},
          {"n_layer", kLayers},   {"n_inner", kWide},          {"vocab_size", kVocab},
          {"n_ctx", kPositions},  {"n_positions", kPositions}, {"layer_norm_epsilon", 1e-5}};
}

std::vector<int32_t> Ids(int64_t n) { return test::Tiny{}.Ids(n); }  // of 53 tokens as well

TEST(Blocks, Gpt2WithAndWithoutTheWordTransformer) {
  std::vector<std::vector<float>> logits;
  for (const char* root : {"transformer.", ""}) {
    const test::TempFolder folder;
    test::Tiny::WriteFolder(folder.path(), Gpt2Config(), Gpt2(root));
    const ModelFiles files = OpenModel(folder.path());
    EXPECT_THAT(files.config.harmless_keys,
                testing::Contains("tensor " + std::string(root) + "h.0.attn.bias"));
    const auto decoder = Decoder::Load(files);
    logits.push_back(test::LogitsOf(*decoder, files.config.plan, Ids(kPositions)));
    for (const int64_t chunk : {1, 7}) {
      const auto pieces =
          test::LogitsOf(*decoder, files.config.plan, Ids(kPositions), {.chunk = chunk});
      EXPECT_LT(test::Difference(pieces, logits.back()), 1e-5) << "chunk " << chunk;
    }
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST(Blocks, LearnedPositionsEndWhereTheTableEnds) {
  const test::TempFolder folder;
  test::Tiny::WriteFolder(folder.path(), Gpt2Config(), Gpt2(""));
  const ModelFiles files = OpenModel(folder.path());
  const auto decoder = Decoder::Load(files);
  const PositionPlan& plan = files.config.plan;
  const auto sequence = [&](int64_t length) {
    return Sequence(*decoder, plan, length, AnglePrecision::kExact);
  };
  EXPECT_EQ(sequence(kPositions).final_length(), kPositions);
  for (const int64_t length : {kPositions + 1, 4 * kPositions, int64_t{131072}, int64_t{1048576}}) {
    EXPECT_THAT(MessageOf([&] { sequence(length); }),
                AllOf(HasSubstr("position " + std::to_string(length - 1)),
                      HasSubstr("0 to " + std::to_string(kPositions - 1))));
  }
  Sequence moved = sequence(10);
  moved.OffsetPositions(kPositions - 9);
  const auto ids = Ids(10);
  EXPECT_THAT(MessageOf([&] { decoder->Forward(moved, ids, nullptr, 0); }),
              AllOf(HasSubstr("position 90"), HasSubstr("0 to 89")));
  EXPECT_EQ(moved.tokens(), 0);
  decoder->Forward(moved, {ids.data(), 9}, nullptr, 0);
  // The same tokens one later: other vectors.
  const auto here = test::LogitsOf(*decoder, plan, Ids(10));
  const auto later = test::LogitsOf(*decoder, plan, Ids(10), {.offset = 1});
  EXPECT_GT(test::Difference(later, here), 0.02);
  // A plan that was made for a longer table, or for none.
  PositionPlan other = plan;
  other.learned->positions *= 2;
  const auto mismatch = [&] { Sequence(*decoder, other, 4, AnglePrecision::kExact); };
  EXPECT_THAT(MessageOf(mismatch), HasSubstr("not those of the model"));
  other.learned.reset();
  EXPECT_THAT(MessageOf(mismatch), HasSubstr("not those of the model"));
  // What the model does not have is not left out in silence.
  other = plan;
  other.absolute = SinusoidalEmbedding{};
  EXPECT_THAT(MessageOf(mismatch),
              HasSubstr("encoding of the embeddings is not that of the model"));
  other = plan;
  other.recurrent_layer = RecurrentLayer{};
  EXPECT_THAT(MessageOf(mismatch),
              HasSubstr("encoding of the embeddings is not that of the model"));
}

TEST(Blocks, NothingToScaleWithoutRotation) {
  const PositionPlan plan = ParseHfConfig(Gpt2Config().dump(), "config.json").plan;
  EXPECT_THAT(MessageOf([&] { WithScaling(plan, YarnScaling{4}); }),
              AllOf(HasSubstr("yarn"), HasSubstr("no layer of this model rotates"),
                    HasSubstr("learned vectors")));
  EXPECT_THAT(MessageOf([&] {
                ParseRopeDictionary(R"({"rope_type": "linear", "factor": 4})", "--rope-scaling",
                                    plan);
              }),
              HasSubstr("no layer of this model rotates"));
  EXPECT_EQ(Resolve(WithScaling(plan, NoScaling{}), 64).hash, Resolve(plan, 64).hash);
}

TEST(Blocks, TensorsOfAnotherShapeOrNone) {
  const auto opened = [](const Tensors& tensors, const nlohmann::json& config) {
    const test::TempFolder folder;
    test::Tiny::WriteFolder(folder.path(), config, tensors);
    return MessageOf([&] { OpenModel(folder.path()); });
  };
  Tensors tensors = Gpt2("transformer.");
  tensors.erase("transformer.h.1.mlp.c_fc.bias");
  EXPECT_THAT(opened(tensors, Gpt2Config()),
              AllOf(HasSubstr("transformer.h.1.mlp.c_fc.bias"), HasSubstr("missing")));
  // Stored as other models store it.
  tensors = Gpt2("");
  tensors["h.0.mlp.c_fc.weight"].shape = {kWide, kHidden};
  EXPECT_THAT(opened(tensors, Gpt2Config()), AllOf(HasSubstr("h.0.mlp.c_fc.weight"),
                                                   HasSubstr("[40, 24]"), HasSubstr("[24, 40]")));
  nlohmann::json config = Gpt2Config();
  config["n_positions"] = config["n_ctx"] = kPositions + 1;
  EXPECT_THAT(opened(Gpt2(""), config), HasSubstr("wpe.weight"));
  tensors = Gpt2("");
  tensors["h.0.crossattention.c_attn.weight"] = Random().Make({2, 2});
  EXPECT_THAT(opened(tensors, Gpt2Config()), HasSubstr("has no place"));
}

// The rows of one tensor reach the heads that they are meant for, with one, two and three key
// heads.
TEST(Blocks, GroupsOfOneTensor) {
  const auto falcon = [](int64_t kv_heads, const std::vector<int64_t>& order) {
    Random random;
    Tensors all;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape, float mean = 0) {
      all.emplace("transformer." + name, random.Make(std::move(shape), 0.3f, mean));
    };
    add("word_embeddings.weight", {kVocab, 48});
    for (const char* name : {"ln_f", "h.0.ln_attn", "h.0.ln_mlp"}) {
      add(std::string(name) + ".weight", {48}, 1);
      add(std::string(name) + ".bias", {48});
    }
    // Blocks of kDim rows in the order of the file: q0 .. q5, k0 .., v0 .. by number.
    const Tensor plain = random.Make({(6 + 2 * kv_heads) * kDim, 48});
    Tensor stored = plain;
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::copy_n(plain.values.begin() + order[i] * kDim * 48, kDim * 48,
                  stored.values.begin() + static_cast<int64_t>(i) * kDim * 48);
    }
    all.emplace("transformer.h.0.self_attention.query_key_value.weight", stored);
    add("h.0.self_attention.dense.weight", {48, 48});
    add("h.0.mlp.dense_h_to_4h.weight", {192, 48});
    add("h.0.mlp.dense_4h_to_h.weight", {48, 192});
    return std::pair{all, plain};
  };
  // q by key head, then the key, then the value.
  const std::vector<std::pair<int64_t, std::vector<int64_t>>> orders = {
      {1, {0, 1, 2, 3, 4, 5, 6, 7}},
      {2, {0, 1, 2, 6, 8, 3, 4, 5, 7, 9}},
      {3, {0, 1, 6, 9, 2, 3, 7, 10, 4, 5, 8, 11}},
  };
  for (const auto& [kv_heads, order] : orders) {
    SCOPED_TRACE(kv_heads);
    const auto [tensors, plain] = falcon(kv_heads, order);
    const test::TempFolder folder;
    test::Tiny::WriteFolder(folder.path(),
                            {{"model_type", "falcon"},
                             {"hidden_size", 48},
                             {"num_attention_heads", 6},
                             {"num_hidden_layers", 1},
                             {"vocab_size", kVocab},
                             {"new_decoder_architecture", true},
                             {"num_kv_heads", kv_heads}},
                            tensors);
    const ModelFiles files = OpenModel(folder.path());
    const auto decoder = Decoder::Load(files);
    // The queries and keys of one token before they rotate are the normed embedding times the rows
    // of q and k, typed here again.
    std::vector<float> q, k;
    Sequence sequence(*decoder, files.config.plan, 1, AnglePrecision::kExact);
    sequence.Observe([&, count = kv_heads](int64_t, const TensorView& qs, const TensorView& ks) {
      q.assign(static_cast<float*>(qs.data), static_cast<float*>(qs.data) + 6 * kDim);
      k.assign(static_cast<float*>(ks.data), static_cast<float*>(ks.data) + count * kDim);
    });
    const int32_t id = 17;
    decoder->Forward(sequence, {&id, 1}, nullptr, 0);
    const auto& x = tensors.at("transformer.word_embeddings.weight").values;
    const auto& weight = tensors.at("transformer.h.0.ln_attn.weight").values;
    const auto& bias = tensors.at("transformer.h.0.ln_attn.bias").values;
    double mean = 0, variance = 0;
    for (int i = 0; i < 48; ++i) mean += x[id * 48 + i] / 48.0;
    for (int i = 0; i < 48; ++i) variance += std::pow(x[id * 48 + i] - mean, 2) / 48;
    for (int64_t row = 0; row < (6 + kv_heads) * kDim; ++row) {
      double expected = 0;
      for (int i = 0; i < 48; ++i) {
        const double normed =
            (x[id * 48 + i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i];
        expected += normed * plain.values[row * 48 + i];
      }
      const double got = row < 6 * kDim ? q[row] : k[row - 6 * kDim];
      EXPECT_NEAR(got, expected, 1e-5) << "row " << row;
    }
  }
}

}  // namespace blocks_test
}  // namespace ropewalk
