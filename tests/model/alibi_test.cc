// BLOOM, MPT and Falcon with ALiBi: one number however the text is cut, at any length and offset;
// what their configurations say and what of it is refused. Agreement with transformers is in
// golden_test.cc and in make parity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace alibi_test {

using test::MessageOf;
using test::fs::path;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

const path kGoldens = path(ROPEWALK_SOURCE_DIR) / "tests" / "golden" / "hf_models";
const char* const kModels[] = {"bloom",      "bloom_bare", "mpt",
                               "mpt_max_16", "falcon_rw",  "falcon_alibi"};

nlohmann::json ConfigOf(const std::string& model) {
  std::ifstream in(kGoldens / model / "default.json");
  return nlohmann::json::parse(in);
}

// A copy with another configuration, where `change` makes one.
ModelFiles Open(const test::TempFolder& folder, const std::string& model,
                const std::function<void(nlohmann::json&)>& change = {}) {
  test::fs::create_symlink(kGoldens / model / "model.safetensors", folder / "model.safetensors");
  nlohmann::json config = ConfigOf(model);
  if (change) change(config);
  test::WriteFile(folder / "config.json", config.dump());
  return OpenModel(folder.path());
}

std::vector<int32_t> Ids(int64_t n) { return test::Tiny{}.Ids(n); }

// Four times what MPT was "trained" at and past 257, where bfloat16 counts by twos.
TEST(AlibiModels, OneNumberHoweverTheTextIsCut) {
  const auto ids = Ids(300);
  for (const char* model : kModels) {
    SCOPED_TRACE(model);
    const test::TempFolder folder;
    const ModelFiles files = Open(folder, model);
    const auto decoder = Decoder::Load(files);
    const PositionPlan& plan = files.config.plan;
    for (const AnglePrecision angles : {AnglePrecision::kExact, AnglePrecision::kFloat32}) {
      const auto whole = test::LogitsOf(*decoder, plan, ids, {.angles = angles});
      for (const int64_t chunk : {1, 37, 256}) {
        const auto cut = test::LogitsOf(*decoder, plan, ids, {.chunk = chunk, .angles = angles});
        EXPECT_LT(test::Difference(cut, whole), 1e-5) << "chunk " << chunk;
      }
      // Distances are all there is: the same bits wherever the text begins.
      for (const int64_t offset : {1, 257, 131071, 1048575}) {
        EXPECT_EQ(test::LogitsOf(*decoder, plan, ids, {.offset = offset, .angles = angles}), whole)
            << "offset " << offset;
      }
      // A longer declared length changes nothing either.
      EXPECT_EQ(test::LogitsOf(*decoder, plan, ids, {.final_length = 4096, .angles = angles}),
                whole);
    }
  }
}

// Falcon's slopes are no straight line in transformers; of the others both modes are one.
TEST(AlibiModels, ExactAndFloat32) {
  for (const char* model : kModels) {
    SCOPED_TRACE(model);
    const test::TempFolder folder;
    const ModelFiles files = Open(folder, model);
    const auto decoder = Decoder::Load(files);
    const bool falcon = std::string(model).starts_with("falcon");
    for (const auto& [tokens, differs] :
         {std::pair{250, std::string(model) == "falcon_rw"}, std::pair{300, falcon}}) {
      const auto exact = test::LogitsOf(*decoder, files.config.plan, Ids(tokens));
      const auto theirs = test::LogitsOf(*decoder, files.config.plan, Ids(tokens),
                                         {.angles = AnglePrecision::kFloat32});
      const double difference = test::Difference(exact, theirs);
      EXPECT_LT(difference, differs ? 0.5 : 1e-5) << tokens << " tokens";
      if (differs) {
        EXPECT_GT(difference, 1e-4) << tokens << " tokens";
      }
    }
  }
}

// The bias is what makes the order of tokens known; each part of it is seen in the logits.
TEST(AlibiModels, NegativeControls) {
  for (const char* model : kModels) {
    SCOPED_TRACE(model);
    const test::TempFolder folder;
    const ModelFiles files = Open(folder, model);
    const auto decoder = Decoder::Load(files);
    const auto right = test::LogitsOf(*decoder, files.config.plan, Ids(64));
    PositionPlan plan = files.config.plan;
    const auto difference = [&](auto change) {
      for (std::size_t l = 0; l < plan.layers.size(); ++l) {
        plan.layers[l].bias = files.config.plan.layers[l].bias;
        change(plan.layers[l]);
      }
      return test::Difference(test::LogitsOf(*decoder, plan, Ids(64)), right);
    };
    const auto alibi = [](LayerPlan& l) -> AlibiBias& { return std::get<0>(l.bias->method); };
    EXPECT_GT(difference([](LayerPlan& l) { l.bias.reset(); }), 0.02);
    EXPECT_GT(difference([&](LayerPlan& l) { alibi(l).max_bias *= 2; }), 0.02);
    EXPECT_GT(difference([&](LayerPlan& l) { alibi(l).scale *= 0.5; }), 0.02);
    EXPECT_EQ(difference([](LayerPlan&) {}), 0);
    const auto wrong = [&] {
      plan.layers[1].bias->heads += 2;
      Sequence(*decoder, plan, 8, AnglePrecision::kExact);
    };
    EXPECT_THAT(MessageOf(wrong),
                AllOf(HasSubstr("layer 1"), HasSubstr("a bias for"), HasSubstr("the model has")));
    EXPECT_THAT(MessageOf([&] { WithScaling(files.config.plan, LinearScaling{2}); }),
                AllOf(HasSubstr("no layer of this model rotates"),
                      HasSubstr("a bias on the scores"), HasSubstr("none")));
  }
}

// What an observer gets is clipped, as the scores are.
TEST(AlibiModels, ObserversSeeQueriesAndKeys) {
  const test::TempFolder folder;
  const ModelFiles files = Open(folder, "mpt");
  const auto decoder = Decoder::Load(files);
  Sequence sequence(*decoder, files.config.plan, 40, AnglePrecision::kExact);
  float most = 0;
  int calls = 0;
  sequence.Observe([&](int64_t, const TensorView& q, const TensorView& k) {
    ++calls;
    for (const TensorView* v : {&q, &k}) {
      for (int64_t t = 0; t < v->shape[0]; ++t) {
        for (int64_t i = 0; i < v->shape[1] * v->shape[2]; ++i) {
          most = std::max(most, std::abs(static_cast<float*>(v->data)[t * v->strides[0] + i]));
        }
      }
    }
  });
  decoder->Forward(sequence, Ids(40), nullptr, 0);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(most, 1.5f);  // clip_qkv
}

TEST(AlibiModels, WhatTheirTensorsMayBe) {
  // Loads `model` without one tensor, or with one of another shape.
  const auto opened = [](const char* model, const char* name, std::vector<int64_t> shape) {
    const test::TempFolder folder, other;
    const ModelFiles files = Open(folder, model);
    test::Tensors tensors;
    for (const auto& [key, weight] : files.tensors) {
      test::Tensor t{weight.shape, std::vector<float>(weight.rows() * weight.cols())};
      weight.ReadRows(0, weight.rows(), t.values.data());
      tensors.emplace(key, std::move(t));
    }
    tensors.erase(name);
    if (!shape.empty()) {
      int64_t n = 1;
      for (const int64_t d : shape) n *= d;
      tensors.emplace(name, test::Tensor{shape, std::vector<float>(n)});
    }
    test::Tiny::WriteFolder(other.path(), ConfigOf(model), tensors);
    return MessageOf([&] { OpenModel(other.path()); });
  };
  const char* kNorm = "transformer.word_embeddings_layernorm.bias";
  EXPECT_THAT(opened("bloom", kNorm, {}), AllOf(HasSubstr(kNorm), HasSubstr("missing")));
  EXPECT_THAT(opened("bloom", kNorm, {25}), AllOf(HasSubstr(kNorm), HasSubstr("[25]")));
  EXPECT_EQ(opened("bloom", kNorm, {24}), "no error");
  EXPECT_THAT(opened("bloom_bare", "word_embeddings_layernorm.weight", {}), HasSubstr("missing"));
  EXPECT_THAT(opened("mpt", "transformer.blocks.1.attn.Wqkv.weight", {24, 72}),
              AllOf(HasSubstr("[24, 72]"), HasSubstr("[72, 24]")));
  EXPECT_THAT(opened("mpt", "transformer.blocks.0.norm_1.bias", {24}),
              AllOf(HasSubstr("norm_1.bias"), HasSubstr("has no place")));
  EXPECT_THAT(opened("mpt_max_16", "lm_head.weight", {}), HasSubstr("lm_head.weight"));
  EXPECT_THAT(opened("falcon_rw", "transformer.h.0.self_attention.dense.bias", {}),
              HasSubstr("missing"));
}

// A change of the configuration, and what the reason not to run it says.
struct Change {
  const char* model;
  const char* patch;
  std::vector<const char*> says;
};

TEST(AlibiModels, WhatIsReadAndNotRun) {
  const std::vector<Change> table = {
      {"mpt", R"({"attn_config": {"alibi": false}})", {"alibi is false", "ALiBi all the same"}},
      {"mpt", R"({"attn_config": {"alibi": false, "rope": true}})", {"rope is true"}},
      {"mpt", R"({"attn_config": {"prefix_lm": true}})", {"prefix_lm is true"}},
      {"mpt", R"({"attn_config": {"qk_ln": true}})", {"qk_ln is true"}},
      {"mpt", R"({"attn_config": {"qk_gn": true}})", {"qk_gn is true"}},
      {"mpt", R"({"attn_config": {"fused_qkv": false}})", {"fused_qkv is false"}},
      {"mpt", R"({"attn_config": {"attn_type": "multiquery_attention"}})", {"multiquery"}},
      {"mpt", R"({"attn_config": {"kv_n_heads": 2}})", {"kv_n_heads is 2"}},
      {"mpt", R"({"attn_config": {"sliding_window_size": 128}})", {"sliding_window_size is 128"}},
      {"mpt", R"({"attn_config": {"attn_logit_softcapping": 30.0}})", {"softcapping is 30"}},
      {"mpt", R"({"no_bias": false})", {"no_bias is false"}},
      {"mpt", R"({"norm_type": "rmsnorm"})", {"norm_type is \"rmsnorm\""}},
      {"mpt", R"({"logit_scale": "inv_sqrt_d_model"})", {"logit_scale is"}},
      {"mpt", R"({"expansion_ratio": 2})", {"expansion_ratio is 2"}},
      {"mpt", R"({"block_overrides": {"order": []}})", {"block_overrides"}},
      {"mpt", R"({"ffn_config": {"ffn_type": "mptgeglu"}})", {"ffn_type is \"mptgeglu\""}},
      {"mpt", R"({"ffn_config": {"ffn_hidden_size": 64}})", {"ffn_hidden_size is 64"}},
      {"bloom", R"({"slow_but_exact": true, "pretraining_tp": 2})", {"slow_but_exact is true"}},
      {"falcon_rw",
       R"({"apply_residual_connection_post_layernorm": true})",
       {"apply_residual_connection_post_layernorm is true", "falcon"}},
  };
  for (const Change& c : table) {
    nlohmann::json config = ConfigOf(c.model);
    config.merge_patch(nlohmann::json::parse(c.patch));
    const std::string reason = ParseHfConfig(config.dump(), "config.json").not_runnable;
    for (const char* part : c.says) EXPECT_THAT(reason, HasSubstr(part)) << c.patch;
  }
  // And what does nothing does nothing.
  for (const auto& [model, patch] :
       {std::pair{"mpt", R"({"attn_config": {"attn_impl": "triton", "kv_n_heads": 6,
                             "sliding_window_size": -1, "attn_uses_sequence_id": true},
                             "ffn_config": {"ffn_type": "mptmlp"}, "learned_pos_emb": false})"},
        {"mpt", R"({"attn_config": null})"},
        {"bloom", R"({"slow_but_exact": true, "offset_alibi": 100, "seq_length": 2048})"},
        {"bloom", R"({"slow_but_exact": false, "pretraining_tp": 4})"}}) {
    nlohmann::json config = ConfigOf(model);
    config.merge_patch(nlohmann::json::parse(patch));
    const ModelConfig c = ParseHfConfig(config.dump(), "config.json");
    EXPECT_EQ(c.not_runnable, "") << patch;
    EXPECT_THAT(c.unknown_keys, testing::IsEmpty()) << patch;
    EXPECT_TRUE(c.plan.layers[1].bias) << patch;
  }
}

TEST(AlibiModels, HostileConfigurations) {
  const std::vector<Change> table = {
      {"mpt",
       R"({"attn_config": {"alibi_bias_max": 0}})",
       {"attn_config: alibi_bias_max", "0.001"}},
      {"mpt", R"({"attn_config": {"alibi_bias_max": -8}})", {"alibi_bias_max", "-8"}},
      {"mpt", R"({"attn_config": {"alibi_bias_max": 1e300}})", {"alibi_bias_max"}},
      {"mpt", R"({"attn_config": {"alibi_bias_max": "8"}})", {"alibi_bias_max", "a number"}},
      {"mpt", R"({"attn_config": {"clip_qkv": -1}})", {"clip_qkv", "-1"}},
      {"mpt", R"({"attn_config": {"softmax_scale": 0}})", {"softmax_scale"}},
      {"mpt", R"({"attn_config": {"alibi": "yes"}})", {"alibi", "yes"}},
      {"mpt", R"({"attn_config": {"alibi_bias_mx": 16}})", {"alibi_bias_mx", "alibi_bias_max"}},
      {"mpt", R"({"attn_config": [1]})", {"attn_config", "object"}},
      {"mpt", R"({"n_heads": 5})", {"24", "5"}},
      {"mpt", R"({"n_heads": 131072, "d_model": 262144})", {"131072 heads", "65536 with ALiBi"}},
      {"mpt", R"({"n_heads": 0})", {"n_heads"}},
      {"bloom", R"({"n_embed": 48})", {"n_embed is 48", "hidden_size is 24"}},
      {"bloom", R"({"alibi": false})", {"alibi", "changes positions"}},
      {"bloom", R"({"pretraining_tp": -1})", {"pretraining_tp"}},
      {"falcon_rw",
       R"({"rope_scaling": {"type": "linear", "factor": 2}})",
       {"rope_scaling", "nothing rotates"}},
  };
  for (const Change& c : table) {
    nlohmann::json config = ConfigOf(c.model);
    config.merge_patch(nlohmann::json::parse(c.patch));
    const std::string message = MessageOf([&] { ParseHfConfig(config.dump(), "dir/config.json"); });
    EXPECT_THAT(message, HasSubstr("dir/config.json")) << c.patch;
    for (const char* part : c.says) EXPECT_THAT(message, HasSubstr(part)) << c.patch;
  }
}

TEST(AlibiModels, PlansAndTheirHash) {
  const auto plan = [](const char* model, const char* patch = "{}") {
    nlohmann::json config = ConfigOf(model);
    config.merge_patch(nlohmann::json::parse(patch));
    return ParseHfConfig(config.dump(), "config.json").plan;
  };
  const PositionPlan rw = plan("falcon_rw");
  const AlibiBias& falcon = std::get<AlibiBias>(rw.layers[1].bias->method);
  EXPECT_EQ(falcon.scale, 0.5);  // heads of 4
  EXPECT_TRUE(falcon.bfloat16);
  EXPECT_EQ(Resolve(rw, 64).biases.size(), 1u);
  EXPECT_EQ(Resolve(rw, 64).hash, Resolve(rw, 4096).hash);
  EXPECT_THAT(Describe(rw, 64), AllOf(HasSubstr("ALiBi, 12 slopes"), HasSubstr("bfloat16"),
                                      HasSubstr("before scores are scaled by 0.5")));
  const PositionPlan mpt = plan("mpt");
  EXPECT_THAT(mpt.notes, testing::Not(Contains(HasSubstr("alibi_bias_max"))));
  EXPECT_THAT(plan("mpt_max_16").notes, Contains(HasSubstr("computes with 8")));
  // The same slopes: 6 heads of BLOOM and of MPT.
  EXPECT_EQ(Resolve(mpt, 64).hash, Resolve(plan("bloom"), 64).hash);
  EXPECT_NE(Resolve(mpt, 64).hash,
            Resolve(plan("mpt", R"({"attn_config": {"alibi_bias_max": 16}})"), 64).hash);
  EXPECT_NE(Resolve(mpt, 64).hash, Resolve(plan("mpt", R"({"n_heads": 12})"), 64).hash);
}

// The same model as GGUF: its bias, from the name or the key, and one hash.
TEST(AlibiModels, BiasOfGguf) {
  const auto read = [](const std::string& arch, float max_bias) {
    const test::TempFolder folder;
    test::GgufWriter w;
    w.Str("general.architecture", arch);
    w.Int(arch + ".context_length", 2048);
    w.Int(arch + ".embedding_length", 24);
    w.Int(arch + ".block_count", 2);
    w.Int(arch + ".feed_forward_length", 96);
    w.Int(arch + ".vocab_size", 64);
    w.Int(arch + ".attention.head_count", 6);
    if (max_bias >= 0) w.Float(arch + ".attention.max_alibi_bias", max_bias);
    w.Write(folder / "model.gguf", {});
    const ModelConfig config = ParseGgufConfig(OpenGguf(folder / "model.gguf"));
    const bool unknown = arch == "mpt" && max_bias <= 0;
    EXPECT_EQ(config.not_runnable.find("max_alibi_bias is 0 or absent") != std::string::npos,
              unknown)
        << config.not_runnable;
    EXPECT_EQ(config.not_runnable.empty(), !unknown);
    return config.plan;
  };
  const std::string hash = Resolve(ParseHfConfig(ConfigOf("bloom").dump(), "").plan, 64).hash;
  EXPECT_EQ(Resolve(read("bloom", -1), 64).hash, hash);
  EXPECT_EQ(Resolve(read("mpt", 8), 64).hash, hash);
  EXPECT_NE(Resolve(read("mpt", 16), 64).hash, hash);
  EXPECT_FALSE(read("mpt", 0).layers[0].bias);
  EXPECT_THAT(read("mpt", -1).notes, Contains(HasSubstr("max_alibi_bias is 0 or absent")));
  EXPECT_FALSE(read("gpt2", -1).layers[0].bias);
}

}  // namespace alibi_test
}  // namespace ropewalk
