// Gemma 1, 2 and 3: what a GGUF of llama.cpp's converter says of them is what the Hugging Face
// folder says, and each key that is computed counts. Logits against transformers: golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/model/support.h"

namespace ropewalk {
namespace gemma_test {

using nlohmann::json;
using test::GgufWriter;
using test::fs::path;

const path kGoldens = path(ROPEWALK_SOURCE_DIR) / "tests" / "golden" / "hf_models";

json ConfigOf(const std::string& family) {
  std::ifstream in(kGoldens / family / "default.json");
  return json::parse(in);
}

// The golden's weights under another configuration.
ModelFiles Open(const test::TempFolder& folder, const std::string& family, const json& config) {
  const std::string inner = folder / family;
  test::fs::remove_all(inner);
  test::fs::create_directories(inner);
  test::fs::create_symlink(kGoldens / family / "model.safetensors", inner + "/model.safetensors");
  test::WriteFile(inner + "/config.json", config.dump());
  return OpenModel(inner);
}

std::vector<int32_t> Ids() {
  test::Tiny tiny;
  tiny.vocab = 64;
  return tiny.Ids(70);
}

std::vector<float> Logits(const ModelFiles& files) {
  return test::LogitsOf(*Decoder::Load(files), files.config.plan, Ids(), {.chunk = 32});
}

// Hugging Face's names and llama.cpp's, of what is in a layer.
const std::map<std::string, std::string> kNames = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"post_feedforward_layernorm", "post_ffw_norm"}};

std::string GgufName(const std::string& name, bool first_gemma) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  const std::string layers = "model.layers.", weight = ".weight";
  const std::size_t dot = name.find('.', layers.size());
  const std::string inner = name.substr(dot + 1, name.size() - dot - 1 - weight.size());
  // Gemma 1 has LLaMA's two norms under LLaMA's words.
  const bool second = first_gemma && inner == "post_attention_layernorm";
  return "blk." + name.substr(layers.size(), dot - layers.size()) + "." +
         (second ? "ffn_norm" : kNames.at(inner)) + weight;
}

// As llama.cpp's converter: 1 + w for norms, everything else as it is.
test::Tensors GgufTensors(const ModelFiles& files, bool first_gemma) {
  test::Tensors all;
  for (const auto& [name, weight] : files.tensors) {
    test::Tensor t{weight.shape, std::vector<float>(weight.rows() * weight.cols())};
    weight.ReadRows(0, weight.rows(), t.values.data());
    if (name.find("norm") != std::string::npos) {
      for (float& v : t.values) v += 1;
    }
    all.emplace(GgufName(name, first_gemma), std::move(t));
  }
  return all;
}

struct Case {
  const char* family;
  const char* arch;
  json patch;  // what GGUF has no key for
  std::function<void(GgufWriter&, const std::string&)> add;
};

std::vector<Case> Cases() {
  return {{"gemma", "gemma", json::object(), [](auto&, auto&) {}},
          {"gemma2",
           "gemma2",
           {{"query_pre_attn_scalar", 16}},
           [](auto& w, auto& p) {
             w.Int(p + "attention.sliding_window", 20);
             w.Float(p + "attn_logit_softcapping", 5);
             w.Float(p + "final_logit_softcapping", 12);
           }},
          {"gemma3", "gemma3", {{"query_pre_attn_scalar", 16}}, [](auto& w, auto& p) {
             w.Int(p + "attention.sliding_window", 20);
             w.Ints(p + "attention.sliding_window_pattern", {1, 0, 1, 0});
             w.Float(p + "rope.freq_base_swa", 100);
           }}};
}

TEST(Gemma, GgufIsTheFolder) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.family);
    json config = ConfigOf(c.family);
    config.update(c.patch);
    const test::TempFolder folder;
    const ModelFiles hf = Open(folder, c.family, config);
    GgufWriter w;
    const std::string p = std::string(c.arch) + ".";
    w.Str("general.architecture", c.arch);
    w.Int(p + "context_length", 128);
    w.Int(p + "embedding_length", 32);
    w.Int(p + "block_count", config["num_hidden_layers"]);
    w.Int(p + "feed_forward_length", 48);
    w.Int(p + "attention.head_count", 4);
    w.Int(p + "attention.head_count_kv", config["num_key_value_heads"]);
    w.Int(p + "attention.key_length", 16);
    w.Int(p + "attention.value_length", 16);
    w.Float(p + "attention.layer_norm_rms_epsilon", 1e-5f);
    w.Float(p + "rope.freq_base", 1000);
    c.add(w, p);
    w.Write(folder / "model.gguf", GgufTensors(hf, std::string(c.family) == "gemma"));
    const ModelFiles gguf = OpenModel(folder / "model.gguf");
    EXPECT_EQ(gguf.config.not_runnable, "");
    EXPECT_EQ(gguf.config.plan.trained_length, hf.config.plan.trained_length);
    // Epsilon is a float32 there.
    EXPECT_LT(test::Difference(Logits(gguf), Logits(hf)), 2e-6);
  }
}

TEST(Gemma, EachKeyCounts) {
  const std::map<std::string, std::vector<json>> patches = {
      {"gemma", {{{"hidden_act", "gelu"}}, {{"rms_norm_eps", 0.5}}}},
      {"gemma2",
       {{{"attn_logit_softcapping", nullptr}},
        {{"final_logit_softcapping", nullptr}},
        {{"query_pre_attn_scalar", 16}},
        {{"sliding_window", 40}},
        {{"hidden_activation", "silu"}}}},
      {"gemma3",
       {{{"final_logit_softcapping", 5.0}},
        {{"query_pre_attn_scalar", 16}},
        {{"rope_local_base_freq", 1000.0}},
        {{"sliding_window", 40}},
        {{"rope_theta", 2000.0}}}}};
  for (const auto& [family, list] : patches) {
    const test::TempFolder folder;
    const json config = ConfigOf(family);
    const std::vector<float> plain = Logits(Open(folder, family, config));
    for (const json& patch : list) {
      json other = config;
      for (const auto& [key, value] : patch.items()) other[key] = value;
      const double difference = test::Difference(Logits(Open(folder, family, other)), plain);
      EXPECT_GT(difference, family == "gemma" ? 1e-5 : 1e-3) << family << " " << patch;
    }
  }
}

// Values that transformers takes where a file is silent, and what it does not compute.
TEST(Gemma, DefaultsAndRefusals) {
  json config = ConfigOf("gemma2");
  for (const char* key :
       {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}) {
    config.erase(key);
  }
  const ModelConfig c = ParseHfConfig(config.dump(), "config.json");
  EXPECT_EQ(c.layer.attention.soft_cap, 50);
  EXPECT_EQ(c.logit_cap, 30);
  EXPECT_EQ(c.layer.attention.score_scale, 1.0 / 16);
  EXPECT_EQ(c.embedding_scale, std::sqrt(32.0));
  EXPECT_TRUE(c.tied_head);
  config = ConfigOf("gemma3");
  config["attn_logit_softcapping"] = 50.0;
  EXPECT_THAT(ParseHfConfig(config.dump(), "config.json").not_runnable,
              testing::HasSubstr("attn_logit_softcapping"));
  config["attn_logit_softcapping"] = nullptr;
  config["use_bidirectional_attention"] = true;
  EXPECT_THAT(ParseHfConfig(config.dump(), "config.json").not_runnable,
              testing::HasSubstr("use_bidirectional_attention"));
  config["use_bidirectional_attention"] = false;
  config["query_pre_attn_scalar"] = 0;
  EXPECT_THROW(ParseHfConfig(config.dump(), "config.json"), std::exception);
}

// llama.cpp knows the 27B by its number of layers: scores times 1 / sqrt(hidden / heads).
TEST(Gemma, TwentySevenBillion) {
  for (const auto& [arch, layers] : {std::pair<std::string, uint32_t>{"gemma2", 46},
                                     {"gemma3", 62},
                                     {"gemma2", 42},
                                     {"gemma3", 48},
                                     {"gemma", 46}}) {
    const test::TempFolder folder;
    GgufWriter w;
    const std::string p = arch + ".";
    w.Str("general.architecture", arch);
    w.Int(p + "context_length", 128);
    w.Int(p + "embedding_length", 96);
    w.Int(p + "block_count", layers);
    w.Int(p + "feed_forward_length", 48);
    w.Int(p + "attention.head_count", 4);
    w.Int(p + "attention.key_length", 16);
    w.Int(p + "vocab_size", 64);
    w.Write(folder / "model.gguf", {});
    const ModelConfig c = ParseGgufConfig(OpenGguf(folder / "model.gguf"));
    const bool wide = (arch == "gemma2" && layers == 46) || (arch == "gemma3" && layers == 62);
    EXPECT_EQ(c.layer.attention.score_scale, wide ? 1 / std::sqrt(24.0) : 0) << arch << layers;
  }
}

}  // namespace gemma_test
}  // namespace ropewalk
