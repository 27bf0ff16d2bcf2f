// GGUF: keys, refusals, and the same model as a Hugging Face folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "ropewalk/base/error.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace gguf_test {

using test::GgufWriter;
using test::Tensors;
using test::Tiny;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

GgufWriter Header(const Tiny& s, const std::string& arch = "llama") {
  GgufWriter w;
  w.Str("general.architecture", arch);
  const std::string p = arch + ".";
  w.Int(p + "context_length", uint32_t(s.trained));
  w.Int(p + "embedding_length", uint32_t(s.hidden));
  w.Int(p + "block_count", uint32_t(s.layers));
  w.Int(p + "feed_forward_length", uint32_t(s.feed_forward));
  w.Int(p + "attention.head_count", uint32_t(s.heads));
  w.Int(p + "attention.head_count_kv", uint32_t(s.kv_heads));
  w.Int(p + "attention.key_length", uint32_t(s.head_dim));
  w.Float(p + "attention.layer_norm_rms_epsilon", 1e-5f);
  w.Float(p + "rope.freq_base", 500.0f);
  return w;
}

// Hugging Face tensors under GGUF's names; q and k rows of a llama go to the interleaved layout, as
// llama.cpp's converter does: row i of the first half of a head to 2 i, of the second to 2 i + 1.
Tensors ToGguf(const Tensors& hf, const Tiny& s, bool permute) {
  const std::map<std::string, std::string> names = {
      {"input_layernorm.weight", "attn_norm.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"self_attn.q_proj.bias", "attn_q.bias"},
      {"self_attn.k_proj.bias", "attn_k.bias"},
      {"self_attn.v_proj.bias", "attn_v.bias"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"}};
  Tensors out;
  for (const auto& [name, tensor] : hf) {
    if (name == "model.embed_tokens.weight") {
      out["token_embd.weight"] = tensor;
    } else if (name == "model.norm.weight") {
      out["output_norm.weight"] = tensor;
    } else {
      const std::string rest = name.substr(std::string("model.layers.").size());
      const std::size_t dot = rest.find('.');
      const std::string part = rest.substr(dot + 1);
      test::Tensor t = tensor;
      if (permute &&
          (part.find("q_proj") != std::string::npos || part.find("k_proj") != std::string::npos)) {
        const int64_t row = int64_t(t.values.size()) / t.shape[0], half = s.head_dim / 2;
        for (int64_t r = 0; r < t.shape[0]; ++r) {
          const int64_t in_head = r % s.head_dim;
          const int64_t to = r - in_head + 2 * (in_head % half) + in_head / half;
          std::copy_n(tensor.values.begin() + r * row, row, t.values.begin() + to * row);
        }
      }
      out["blk." + rest.substr(0, dot) + "." + names.at(part)] = std::move(t);
    }
  }
  return out;
}

TEST(Gguf, LlamaEqualsItsHuggingFaceFolder) {
  const Tiny tiny;
  const test::TempFolder folder;
  tiny.WriteFolder(folder / "hf");
  Header(tiny).Write(folder / "model.gguf", ToGguf(tiny.Weights(), tiny, true));
  const ModelFiles hf = OpenModel(folder / "hf"), gguf = OpenModel(folder / "model.gguf");
  EXPECT_EQ(gguf.config.format_name, "GGUF v3");
  EXPECT_THAT(gguf.config.plan.notes, Contains(HasSubstr("permuted at load")));
  for (const int64_t length : {10, 64, 65, 1000}) {
    EXPECT_EQ(Resolve(gguf.config.plan, length).hash, Resolve(hf.config.plan, length).hash);
  }
  const auto ids = tiny.Ids(50);
  EXPECT_EQ(test::LogitsOf(*Decoder::Load(gguf), gguf.config.plan, ids),
            test::LogitsOf(*Decoder::Load(hf), hf.config.plan, ids));
  EXPECT_NE(gguf.Hash(), hf.Hash());
  EXPECT_EQ(gguf.Hash(), OpenModel(folder / "model.gguf").Hash());

  // The control: unpermuted weights under the same name are another model.
  Header(tiny).Write(folder / "wrong.gguf", ToGguf(tiny.Weights(), tiny, false));
  const ModelFiles wrong = OpenModel(folder / "wrong.gguf");
  EXPECT_GT(test::Difference(test::LogitsOf(*Decoder::Load(wrong), wrong.config.plan, ids),
                             test::LogitsOf(*Decoder::Load(hf), hf.config.plan, ids)),
            0.05);
}

TEST(Gguf, Qwen2WithBiasesEqualsItsHuggingFaceFolder) {
  const Tiny tiny;
  const test::TempFolder folder;
  Tensors weights = tiny.Weights();
  for (int64_t l = 0; l < tiny.layers; ++l) {
    for (const auto& [name, size] :
         {std::pair{"q", tiny.heads}, {"k", tiny.kv_heads}, {"v", tiny.kv_heads}}) {
      test::Tensor bias{{size * tiny.head_dim}, {}};
      for (int64_t i = 0; i < size * tiny.head_dim; ++i) {
        bias.values.push_back(0.3f * std::sin(float(i + l) * 1.7f + float(name[0])));
      }
      weights["model.layers." + std::to_string(l) + ".self_attn." + name + "_proj.bias"] = bias;
    }
  }
  nlohmann::json config = tiny.Config();
  config["model_type"] = "qwen2";
  Tiny::WriteFolder(folder / "hf", config, weights);
  Header(tiny, "qwen2").Write(folder / "model.gguf", ToGguf(weights, tiny, false));
  const ModelFiles hf = OpenModel(folder / "hf"), gguf = OpenModel(folder / "model.gguf");
  EXPECT_EQ(gguf.config.architecture, "qwen2");
  EXPECT_FALSE(gguf.config.permuted_qk);
  EXPECT_EQ(Resolve(gguf.config.plan, 64).hash, Resolve(hf.config.plan, 64).hash);
  const auto ids = tiny.Ids(50);
  const auto logits = test::LogitsOf(*Decoder::Load(hf), hf.config.plan, ids);
  EXPECT_EQ(test::LogitsOf(*Decoder::Load(gguf), gguf.config.plan, ids), logits);
  // Biases matter.
  test::TempFolder plain;
  tiny.WriteFolder(plain.path());
  const ModelFiles without = OpenModel(plain.path());
  EXPECT_GT(
      test::Difference(test::LogitsOf(*Decoder::Load(without), without.config.plan, ids), logits),
      0.05);
}

// llama.cpp skips the rotation of every fourth layer of a smollm3; no key says so.
TEST(Gguf, SmolLm3EqualsItsHuggingFaceFolder) {
  Tiny tiny;
  tiny.layers = 5;
  const test::TempFolder folder;
  nlohmann::json config = tiny.Config();
  config["model_type"] = "smollm3";
  Tiny::WriteFolder(folder / "hf", config, tiny.Weights());
  Header(tiny, "smollm3").Write(folder / "model.gguf", ToGguf(tiny.Weights(), tiny, true));
  const ModelFiles hf = OpenModel(folder / "hf"), gguf = OpenModel(folder / "model.gguf");
  for (int l = 0; l < 5; ++l) {
    EXPECT_EQ(gguf.config.plan.layers[l].rotation.has_value(), l != 3) << l;
  }
  EXPECT_EQ(Resolve(gguf.config.plan, 64).hash, Resolve(hf.config.plan, 64).hash);
  const auto ids = tiny.Ids(50);
  EXPECT_EQ(test::LogitsOf(*Decoder::Load(gguf), gguf.config.plan, ids),
            test::LogitsOf(*Decoder::Load(hf), hf.config.plan, ids));
}

TEST(Gguf, ScalingKeys) {
  const Tiny tiny;
  const test::TempFolder folder;
  const Tensors weights = ToGguf(tiny.Weights(), tiny, true);
  const auto plan = [&](const std::function<void(GgufWriter&)>& add, const Tensors& extra = {}) {
    GgufWriter w = Header(tiny);
    add(w);
    Tensors all = weights;
    all.insert(extra.begin(), extra.end());
    w.Write(folder / "model.gguf", all);
    return OpenModel(folder / "model.gguf").config.plan;
  };
  const auto hash = [](const PositionPlan& p) { return Resolve(p, 256).hash; };
  const auto dictionary = [&](const char* text) {
    const test::TempFolder hf;
    nlohmann::json config = tiny.Config();
    config["rope_scaling"] = nlohmann::json::parse(text);
    return hash(ParseHfConfig(config.dump(), "config.json").plan);
  };
  const std::string p = "llama.rope.";
  EXPECT_EQ(
      hash(plan([&](GgufWriter& w) {
        w.Str(p + "scaling.type", "yarn");
        w.Float(p + "scaling.factor", 4);
        w.Int(p + "scaling.original_context_length", 16);
      })),
      dictionary(R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16})"));
  EXPECT_EQ(hash(plan([&](GgufWriter& w) {
              w.Str(p + "scaling.type", "linear");
              w.Float(p + "scaling.factor", 2);
            })),
            dictionary(R"({"rope_type": "linear", "factor": 2})"));
  EXPECT_EQ(hash(plan([&](GgufWriter& w) { w.Float(p + "scale_linear", 2); })),
            dictionary(R"({"rope_type": "linear", "factor": 2})"));
  EXPECT_EQ(hash(plan([&](GgufWriter& w) { w.Str(p + "scaling.type", "none"); })),
            dictionary("null"));
  // Read as the file has them, and said, because llama.cpp does not read them.
  const PositionPlan betas = plan([&](GgufWriter& w) {
    w.Str(p + "scaling.type", "yarn");
    w.Float(p + "scaling.factor", 4);
    w.Float(p + "scaling.yarn_beta_fast", 8);
    w.Int(p + "scaling.original_context_length", 16);
  });
  EXPECT_EQ(std::get<YarnScaling>(betas.layers[0].rotation->scaling).beta_fast, 8);
  EXPECT_THAT(betas.notes, ::testing::Contains(::testing::HasSubstr("takes 32 and 1")));
  const PositionPlan divided =
      plan([](GgufWriter&) {}, {{"rope_freqs.weight", {{4}, {1, 2, 4, 8}}}});
  ASSERT_TRUE(std::holds_alternative<ExplicitScaling>(divided.layers[0].rotation->scaling));
  EXPECT_EQ(std::get<ExplicitScaling>(divided.layers[0].rotation->scaling).divisors,
            (std::vector<double>{1, 2, 4, 8}));
}

TEST(Gguf, RefusesByName) {
  const Tiny tiny;
  const test::TempFolder folder;
  const Tensors weights = ToGguf(tiny.Weights(), tiny, true);
  struct Row {
    std::function<void(GgufWriter&, Tensors&)> change;
    std::vector<const char*> message;
  };
  const auto none = [](int64_t) {};
  (void)none;
  const Row table[] = {
      {[](GgufWriter& w, Tensors&) { w.Str("llama.rope.scaling.type", "quadratic"); },
       {"llama.rope.scaling.type", "quadratic", "yarn"}},
      {[](GgufWriter& w, Tensors& t) {
         w.Str("llama.rope.scaling.type", "longrope");
         w.Float("llama.rope.scaling.factor", 2);
         t["rope_factors_long.weight"] = t["rope_factors_short.weight"] = {{4}, {1, 1, 2, 2}};
       },
       {"llama.rope.scaling.factor", "longrope", "got 2"}},
      {[](GgufWriter& w, Tensors&) { w.Int("llama.rope.scaling.type", 3); },
       {"llama.rope.scaling.type"}},
      {[](GgufWriter& w, Tensors&) { w.Float("llama.rope.scaling.factor", -4); },
       {"llama.rope.scaling.factor", "-4"}},
      {[](GgufWriter& w, Tensors&) { w.Float("llama.rope.scaling.factor", NAN); },
       {"llama.rope.scaling.factor", "nan"}},
      {[](GgufWriter& w, Tensors&) { w.Int("llama.rope.dimension_count", 7); },
       {"llama.rope.dimension_count", "7"}},
      {[](GgufWriter& w, Tensors&) { w.Int("llama.rope.dimension_count", 10); },
       {"llama.rope.dimension_count", "10"}},
      {[](GgufWriter& w, Tensors&) { w.Float("llama.rope.scaling.alpha", 2); },
       {"llama.rope.scaling.alpha", "unknown key"}},
      {[](GgufWriter& w, Tensors&) { w.Float("llama.rope.scaling.yarn_ext_factor", 2); },
       {"yarn_ext_factor", "unknown key"}},
      {[](GgufWriter& w, Tensors&) {
         w.Float("llama.rope.scaling.factor", 4);
         w.Float("llama.rope.scale_linear", 2);
       },
       {"scale_linear", "4", "2"}},
      {[](GgufWriter&, Tensors& t) {
         t["rope_freqs.weight"] = {{3}, {1, 1, 1}};
       },
       {"rope_freqs.weight", "4 rotated pairs"}},
      {[](GgufWriter&, Tensors& t) {
         t["rope_freqs.weight"] = {{4}, {1, 1, 0, 1}};
       },
       {"rope_freqs.weight", "positive"}},
      {[](GgufWriter&, Tensors& t) { t.erase("blk.1.ffn_up.weight"); },
       {"blk.1.ffn_up.weight", "missing", "[40, 24]"}},
      {[](GgufWriter&, Tensors& t) {
         t["blk.1.ffn_up.weight"] = {{2, 2}, {1, 1, 1, 1}};
       },
       {"blk.1.ffn_up.weight", "[2, 2]", "[40, 24]"}},
      {[](GgufWriter&, Tensors& t) {
         t["blk.0.ffn_gate_exps.weight"] = {{2}, {1, 1}};
       },
       {"blk.0.ffn_gate_exps.weight", "no place"}},
  };
  for (const Row& row : table) {
    GgufWriter w = Header(tiny);
    Tensors tensors = weights;
    row.change(w, tensors);
    w.Write(folder / "model.gguf", tensors);
    try {
      OpenModel(folder / "model.gguf");
      ADD_FAILURE() << "accepted: " << row.message[0];
    } catch (const Error& e) {
      for (const char* part : row.message) EXPECT_THAT(e.what(), HasSubstr(part));
      EXPECT_THAT(e.what(), HasSubstr("model.gguf"));
    }
  }
}

TEST(Gguf, VocabularyFiles) {
  const char* data = std::getenv("ROPEWALK_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "ROPEWALK_TEST_DATA is not set";
  const std::string folder = std::string(data) + "/gguf_vocab/ggml-vocab-";
  const OpenOptions no_weights{.allow_unknown = false, .need_weights = false};
  const ModelFiles llama = OpenModel(folder + "llama-spm.gguf", no_weights);
  EXPECT_EQ(llama.config.layers, 32);
  EXPECT_EQ(llama.config.head_dim, 128);
  EXPECT_EQ(llama.config.vocab, 32000);
  EXPECT_EQ(llama.config.plan.layers.size(), 32u);
  EXPECT_THROW(OpenModel(folder + "llama-spm.gguf"), Error);
}

}  // namespace gguf_test
}  // namespace ropewalk
