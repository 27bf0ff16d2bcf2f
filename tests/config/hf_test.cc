// config.json: published files read right, and everything that does not add up refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"

namespace ropewalk {
namespace hf_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A small valid configuration with `extra` members in front.
std::string Config(const std::string& extra) {
  return "{" + extra + (extra.empty() ? "" : ", ") +
         R"("model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
           "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
           "vocab_size": 100, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05})";
}

// The same of another family.
std::string ConfigOf(const char* type, const std::string& extra) {
  std::string text = Config(extra);
  return text.replace(text.find("\"llama\""), 7, "\"" + std::string(type) + "\"");
}

ModelConfig Parse(const std::string& text, bool allow_unknown = false) {
  return ParseHfConfig(text, "dir/config.json", allow_unknown);
}

std::string ErrorOf(const std::string& text) {
  try {
    Parse(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "(no error)";
}

const RotarySpec& Spec(const ModelConfig& c, int layer = 0) {
  return *c.plan.layers[layer].rotation;
}

struct Published {
  const char* file;
  const char* architecture;
  int64_t layers, hidden, heads, kv_heads, head_dim, feed_forward, vocab;
  double base;
  int64_t trained, configured;
  const char* scaling;
  bool tied, qkv_bias, qk_norm;
};

// Sizes from the model cards; scaling as Describe prints it.
constexpr Published kPublished[] = {
    {"presets/llama2_7b.json", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 1e4, 2048, 2048,
     "none", false, false, false},
    {"presets/codellama_7b.json", "llama", 32, 4096, 32, 32, 128, 11008, 32016, 1e6, 16384, 16384,
     "none", false, false, false},
    {"presets/llama3_1_8b.json", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 5e5, 8192, 131072,
     "llama3", false, false, false},
    {"hf/llama-3.1-8b-instruct.json", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 5e5, 8192,
     131072, "llama3", false, false, false},
    {"presets/llama3_2_1b.json", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 5e5, 8192, 262144,
     "llama3", true, false, false},
    {"presets/smollm2_135m.json", "llama", 30, 576, 9, 3, 64, 1536, 49152, 1e5, 8192, 8192, "none",
     true, false, false},
    {"presets/mistral_7b_v03.json", "mistral", 32, 4096, 32, 8, 128, 14336, 32768, 1e6, 32768,
     32768, "none", false, false, false},
    {"presets/qwen2_0_5b.json", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 1e6, 32768, 32768,
     "none", true, true, false},
    {"presets/qwen3_0.6b.json", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 1e6, 40960, 40960,
     "none", true, false, true},
};

TEST(HfConfig, ReadsPublishedFiles) {
  const char* data = std::getenv("ROPEWALK_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "ROPEWALK_TEST_DATA is not set";
  for (const Published& p : kPublished) {
    SCOPED_TRACE(p.file);
    const std::string path = std::string(data) + "/configs/" + p.file;
    const ModelConfig c = ParseHfConfig(ReadAll(path), path);
    EXPECT_EQ(c.architecture, p.architecture);
    EXPECT_EQ(c.layers, p.layers);
    EXPECT_EQ(c.hidden, p.hidden);
    EXPECT_EQ(c.heads, p.heads);
    EXPECT_EQ(c.kv_heads, p.kv_heads);
    EXPECT_EQ(c.head_dim, p.head_dim);
    EXPECT_EQ(c.feed_forward, p.feed_forward);
    EXPECT_EQ(c.vocab, p.vocab);
    EXPECT_EQ(c.tied_head, p.tied);
    EXPECT_EQ(c.layer.attention.qkv_bias, p.qkv_bias);
    EXPECT_EQ(c.layer.attention.qk_norm.exists(), p.qk_norm);
    EXPECT_EQ(c.plan.trained_length, p.trained);
    EXPECT_EQ(c.plan.configured_length, p.configured);
    ASSERT_EQ(static_cast<int64_t>(c.plan.layers.size()), p.layers);
    for (const LayerPlan& layer : c.plan.layers) {
      ASSERT_TRUE(layer.rotation);
      EXPECT_EQ(layer.rotation->base, p.base);
      EXPECT_EQ(layer.rotation->rotary_dim, p.head_dim);
      EXPECT_EQ(layer.rotation->layout, PairLayout::kHalf);
      EXPECT_EQ(layer.window_tokens, 0);
      EXPECT_THAT(Describe(layer.rotation->scaling), HasSubstr(p.scaling));
    }
  }
}

TEST(HfConfig, RefusesOtherArchitecturesWithTheList) {
  for (const char* text :
       {R"({"model_type": "clip"})", R"({"model_type": "whisper", "d_model": 8})",
        R"({"model_type": "llava", "text_config": {"model_type": "clip"}})"}) {
    try {
      ParseHfConfig(text, "dir/config.json");
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("dir/config.json"), HasSubstr("model_type"),
                                  HasSubstr("llama, mistral, qwen2, qwen3")));
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << text;
    }
  }
}

TEST(HfConfig, OldAndNewSchemaGiveOneHash) {
  const std::string old_schema = Config(
      R"("rope_theta": 500000.0, "rope_scaling": {"type": "yarn", "factor": 4,
         "original_max_position_embeddings": 1024})");
  const std::string both_names = Config(
      R"("rope_theta": 500000.0, "rope_scaling": {"type": "yarn", "rope_type": "yarn", "factor": 4.0,
         "original_max_position_embeddings": 1024, "finetuned": true})");
  const std::string new_schema = Config(
      R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 500000, "factor": 4,
         "original_max_position_embeddings": 1024, "partial_rotary_factor": 1.0})");
  const std::string top_level = Config(
      R"("rope_theta": 500000.0, "original_max_position_embeddings": 1024,
         "rope_scaling": {"rope_type": "yarn", "factor": 4})");
  const std::string hash = Resolve(Parse(old_schema).plan, 4096).hash;
  EXPECT_EQ(Resolve(Parse(both_names).plan, 4096).hash, hash);
  EXPECT_EQ(Resolve(Parse(new_schema).plan, 4096).hash, hash);
  EXPECT_EQ(Resolve(Parse(top_level).plan, 4096).hash, hash);
  EXPECT_EQ(Parse(new_schema).plan.trained_length, 1024);
  EXPECT_EQ(Parse(top_level).plan.trained_length, 1024);
  EXPECT_NE(Resolve(Parse(Config(R"("rope_theta": 500000.0)")).plan, 4096).hash, hash);
}

TEST(HfConfig, QwenWayOfYarnServesFactorTimesOriginal) {
  const ModelConfig c = Parse(Config(
      R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096})"));
  EXPECT_EQ(c.plan.trained_length, 4096);
  EXPECT_EQ(c.plan.configured_length, 16384);
}

TEST(HfConfig, AbsentThetaIsNoted) {
  const ModelConfig c = Parse(Config(""));
  EXPECT_EQ(Spec(c).base, 10000);
  EXPECT_THAT(c.plan.notes, Contains(HasSubstr("rope_theta is absent: 10000")));
  const ModelConfig given = Parse(Config(R"("rope_theta": 10000.0)"));
  EXPECT_THAT(given.plan.notes, testing::IsEmpty());
}

TEST(HfConfig, AttnFactorMultipliesAndAttentionFactorReplaces) {
  // DeepSeek-R1-0528-Qwen3-8B: 0.8782488562869419 * (0.1 ln 4 + 1) = 1.
  const ModelConfig multiplied = Parse(Config(
      R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attn_factor": 0.8782488562869419,
         "original_max_position_embeddings": 1024})"));
  EXPECT_NEAR(Resolve(Spec(multiplied), 4096).amplitude, 1.0, 1e-6);
  const ModelConfig replaced = Parse(Config(
      R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.8782488562869419,
         "original_max_position_embeddings": 1024})"));
  EXPECT_NEAR(Resolve(Spec(replaced), 4096).amplitude, 0.8782488562869419, 1e-12);
}

TEST(HfConfig, LongRopeFactorFromLengths) {
  const std::string lists =
      R"("rope_theta": 10000.0, "original_max_position_embeddings": 1024, "rope_scaling": {
         "short_factor": [1,1,1,1,1,1,1,1], "long_factor": [1,2,3,4,5,6,7,8], "type": )";
  const ModelConfig su = Parse(Config(lists + "\"su\"}"));
  const ModelConfig longrope = Parse(Config(lists + "\"longrope\"}"));
  EXPECT_EQ(Resolve(su.plan, 4096).hash, Resolve(longrope.plan, 4096).hash);
  // max / original = 4: sqrt(1 + ln 4 / ln 1024) = sqrt(1.2).
  EXPECT_NEAR(Resolve(Spec(su), 4096).amplitude, std::sqrt(1.2), 1e-12);
}

TEST(HfConfig, WindowsByLayer) {
  const auto windows = [](const ModelConfig& c) {
    std::vector<int64_t> w;
    for (const LayerPlan& layer : c.plan.layers) w.push_back(layer.window_tokens);
    return w;
  };
  const auto with_type = [](const char* type, const std::string& extra) {
    return Parse(ConfigOf(type, extra));
  };
  using W = std::vector<int64_t>;
  EXPECT_EQ(windows(with_type("mistral", R"("sliding_window": 128)")), (W{128, 128, 128, 128}));
  EXPECT_EQ(windows(with_type("mistral", R"("sliding_window": null)")), (W{0, 0, 0, 0}));
  const ModelConfig absent = with_type("mistral", "");
  EXPECT_EQ(windows(absent), (W{4096, 4096, 4096, 4096}));
  EXPECT_THAT(absent.plan.notes, Contains(HasSubstr("sliding_window is absent: 4096")));
  EXPECT_EQ(windows(with_type("qwen2", R"("sliding_window": 128, "max_window_layers": 3)")),
            (W{0, 0, 0, 0}));  // use_sliding_window is false unless it says so
  EXPECT_EQ(windows(with_type("qwen2", R"("sliding_window": 128, "max_window_layers": 3,
                                          "use_sliding_window": true)")),
            (W{0, 0, 0, 128}));
  EXPECT_EQ(windows(with_type("qwen3", R"("sliding_window": 64, "use_sliding_window": true,
      "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"])")),
            (W{64, 0, 0, 64}));
}

TEST(HfConfig, LayersWithoutRotation) {
  const ModelConfig listed = Parse(ConfigOf("smollm3", R"("no_rope_layers": [1, 0, 1, 1])"));
  const ModelConfig interval = Parse(ConfigOf("smollm3", R"("no_rope_layer_interval": 2)"));
  for (int l = 0; l < 4; ++l) {
    EXPECT_EQ(listed.plan.layers[l].rotation.has_value(), l != 1) << l;
    EXPECT_EQ(interval.plan.layers[l].rotation.has_value(), l % 2 == 0) << l;
  }
  EXPECT_THAT(listed.plan.notes, Contains(HasSubstr("no_rope_layers")));
  // transformers writes both, and reads the list.
  const ModelConfig both =
      Parse(ConfigOf("smollm3", R"("no_rope_layers": [1, 0, 1, 1], "no_rope_layer_interval": 4)"));
  EXPECT_EQ(Resolve(both.plan, 4096).hash, Resolve(listed.plan, 4096).hash);
  EXPECT_THAT(both.plan.notes, Contains(HasSubstr("no_rope_layer_interval = 4")));
}

TEST(HfConfig, RopeParametersByLayerType) {
  const ModelConfig c = Parse(ConfigOf("mistral",
                                       R"("sliding_window": 256,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
         "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1000000},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 10000}})"));
  EXPECT_EQ(Spec(c, 0).base, 10000);
  EXPECT_EQ(Spec(c, 1).base, 1000000);
  EXPECT_EQ(FactorOf(Spec(c, 0).scaling), 1);
  EXPECT_EQ(FactorOf(Spec(c, 1).scaling), 8);
  EXPECT_EQ(c.plan.layers[2].window_tokens, 256);
  EXPECT_EQ(c.plan.layers[3].window_tokens, 0);
  const ModelConfig yarn = Parse(
      ConfigOf("mistral",  // read where it stands
               R"("sliding_window": 256, "layer_types": ["sliding_attention", "full_attention",
         "sliding_attention", "full_attention"], "rope_parameters": {"full_attention": {"rope_type":
         "yarn", "factor": 8, "truncate": false}, "sliding_attention": {"rope_type": "default"}})"));
  EXPECT_FALSE(std::get<YarnScaling>(Spec(yarn, 1).scaling).truncate);
}

TEST(HfConfig, PartialRotation) {
  const ModelConfig c = Parse(ConfigOf("phi", R"("partial_rotary_factor": 0.5)"));
  EXPECT_EQ(Spec(c).rotary_dim, 8);
  EXPECT_EQ(Spec(c).head_dim, 16);
  // int(96 * 0.3) = 28; int(64 * 0.55) = 35 is odd.
  const auto phi = [](const char* extra) { return ConfigOf("phi", extra); };
  EXPECT_EQ(Spec(Parse(phi(R"("head_dim": 96, "partial_rotary_factor": 0.3)"))).rotary_dim, 28);
  EXPECT_THAT(ErrorOf(phi(R"("head_dim": 64, "partial_rotary_factor": 0.55)")),
              AllOf(HasSubstr("partial_rotary_factor"), HasSubstr("head_dim 64"), HasSubstr("35")));
}

TEST(HfConfig, UnknownKeysAreListedOrRefused) {
  const ModelConfig c = Parse(Config(R"("favourite_colour": "blue", "use_cache": true)"));
  EXPECT_THAT(c.unknown_keys, testing::ElementsAre("favourite_colour"));
  EXPECT_THAT(c.harmless_keys, testing::ElementsAre("use_cache"));
  const std::string typo = Config(R"("rope_tetha": 500000.0)");
  EXPECT_THAT(ErrorOf(typo), AllOf(HasSubstr("dir/config.json"), HasSubstr("rope_tetha"),
                                   HasSubstr("500000"), HasSubstr("did you mean \"rope_theta\"")));
  const ModelConfig allowed = Parse(typo, /*allow_unknown=*/true);
  EXPECT_THAT(allowed.not_honoured, Contains(HasSubstr("rope_tetha")));
}

struct Hostile {
  const char* extra;  // put in front of a valid configuration
  std::vector<const char*> message;
  const char* type = "llama";
};

TEST(HfConfig, RefusesByName) {
  const std::vector<Hostile> table = {
      {R"("rope_scaling": {"factor": 4})", {"rope_scaling", "neither rope_type nor type"}},
      {R"("rope_scaling": {"rope_type": "yarn"})", {"rope_scaling", "factor", "missing"}},
      {R"("rope_scaling": {"rope_type": "yran", "factor": 4})", {"rope_type", "yran", "\"yarn\""}},
      {R"("rope_scaling": {"rope_type": "mrope", "mrope_section": [1]})", {"mrope", "one axis"}},
      {R"("rope_scaling": {"rope_type": 7, "factor": 4})", {"rope_type", "a string", "7"}},
      {R"("rope_scaling": {"rope_type": "yarn", "type": "linear", "factor": 4})",
       {"rope_type is \"yarn\"", "type is \"linear\""}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": "4"})", {"factor", "number", "\"4\""}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": -2})", {"factor", "-2"}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": 0.5})", {"factor", "from 1", "0.5"}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": 1e300})", {"factor", "1e+300"}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": NaN})", {"config.json", "JSON"}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": 1e999})", {"config.json"}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": 2, "factro": 3})",
       {"factro", "did you mean \"factor\""}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": 2, "beta_fast": 3})",
       {"beta_fast", "no meaning for type \"linear\"", "yarn"}},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": 2, "extrapolation_factor": 1})",
       {"extrapolation_factor"}},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 32})",
       {"beta_fast", "swapped"}},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": 2, "attn_factor": 1.1, "attention_factor": 1.2})",
       {"attn_factor", "attention_factor", "1.1", "1.2"}},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": 1})",
       {"truncate", "true or false"}},
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8})", {"low_freq_factor", "missing"}},
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1})",
       {"low_freq_factor", "above"}},
      {R"("rope_scaling": {"rope_type": "longrope", "factor": 4, "short_factor": [1, 2], "long_factor": [1, 2]})",
       {"config.json", "8"}},
      {R"("rope_scaling": {"rope_type": "longrope", "factor": 4, "short_factor": [1,1,1,1,1,1,1,-1],
          "long_factor": [1,1,1,1,1,1,1,1]})",
       {"short_factor", "item 7", "-1"}},
      {R"("rope_scaling": [1, 2])", {"rope_scaling", "object", "an array of 2"}},
      {R"("rope_scaling": "yarn")", {"rope_scaling", "object", "\"yarn\""}},
      {R"("rope_scaling": {"rope_type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "yarn", "factor": 2})",
       {"rope_scaling says linear", "rope_parameters yarn"}},
      {R"("rope_theta": 10000, "rope_parameters": {"rope_theta": 500000})",
       {"rope_theta", "10000", "500000"}},
      {R"("rope_theta": -1)", {"rope_theta", "-1"}},
      {R"("rope_theta": "big")", {"rope_theta", "\"big\""}},
      {R"("original_max_position_embeddings": 512, "rope_scaling": {"rope_type": "yarn", "factor": 2,
          "original_max_position_embeddings": 1024})",
       {"original_max_position_embeddings", "512", "1024"}},
      {R"("rope_parameters": {"full_attention": {"rope_type": "default"}, "linear_attention": {}})",
       {"rope_parameters", "linear_attention"}},
      {R"("partial_rotary_factor": 0.2)", {"partial_rotary_factor", "head_dim 16", "3"}, "phi"},
      {R"("partial_rotary_factor": 1.5)", {"partial_rotary_factor", "1.5"}, "phi"},
      {R"("head_dim": 15)", {"head_dim 15", "even"}},
      {R"("rotary_emb_base": 10000)", {"rotary_emb_base"}},
      {R"("alibi": true)", {"alibi"}},
      {R"("rope_interleaved": true)", {"rope_interleaved"}},
      {R"("use_rope_scaling_v2": true)", {"use_rope_scaling_v2"}},
      {R"("position_embedding_type": "absolute")", {"position_embedding_type"}},
      {R"("sliding_window": 4096, "use_sliding_window": true)",
       {"sliding_window", "4096", "layer_types"},
       "smollm3"},
      {R"("layer_types": ["full_attention"])", {"layer_types", "4 times"}, "qwen3"},
      {R"("layer_types": ["chunked_attention", "full_attention", "full_attention", "full_attention"])",
       {"layer_types", "item 0", "chunked_attention"},
       "qwen3"},
      {R"("layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"])",
       {"layer 0 slides", "sliding_window"},
       "qwen3"},
      {R"("no_rope_layers": [1, 0])", {"no_rope_layers", "4"}, "smollm3"},
      {R"("no_rope_layers": [1, 0, 2, 1])", {"no_rope_layers", "item 2"}, "smollm3"},
      {R"("hidden_act": "gelu")", {"hidden_act", "gelu"}},
      {R"("tie_word_embeddings": "yes")", {"tie_word_embeddings", "\"yes\""}},
      {R"("vocab_size": 7)", {"vocab_size", "twice"}},
  };
  for (const Hostile& h : table) {
    const std::string error = ErrorOf(ConfigOf(h.type, h.extra));
    for (const char* part : h.message) EXPECT_THAT(error, HasSubstr(part)) << h.extra;
    EXPECT_THAT(error, HasSubstr("dir/config.json")) << h.extra;
  }
}

TEST(HfConfig, QuantisedWeightsAreReadButDoNotRun) {
  const ModelConfig c = Parse(Config(R"("quantization_config": {"bits": 4})"));
  EXPECT_THAT(c.not_runnable,
              AllOf(HasSubstr("dir/config.json"), HasSubstr("quantization_config")));
  EXPECT_EQ(c.plan.layers.size(), 4u);
}

TEST(HfConfig, RefusesSizesThatCannotBe) {
  const auto with = [](const char* key, const char* value) {
    std::string text = Config("");
    const std::string quoted = "\"" + std::string(key) + "\": ";
    const std::size_t at = text.find(quoted) + quoted.size();
    return text.replace(at, text.find_first_of(",}", at) - at, value);
  };
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings"}) {
    for (const char* value : {"0", "-1", "1e30", "9223372036854775807", "18446744073709551615",
                              "1.5", "\"64\"", "[64]", "{}", "true", "null"}) {
      if (std::string(key) == "num_key_value_heads" && std::string(value) == "null") continue;
      EXPECT_THAT(ErrorOf(with(key, value)), AllOf(HasSubstr("dir/config.json"), HasSubstr(key)))
          << key << " = " << value;
    }
  }
  EXPECT_THAT(ErrorOf(with("rms_norm_eps", "-1")),
              AllOf(HasSubstr("rms_norm_eps"), HasSubstr("-1")));
  EXPECT_THAT(ErrorOf(with("num_attention_heads", "3")), HasSubstr("hidden_size 64"));
  EXPECT_THAT(ErrorOf(with("num_key_value_heads", "3")), HasSubstr("3 key heads"));
  EXPECT_EQ(Parse(with("num_key_value_heads", "null")).kv_heads, 4);  // llama: as many as heads
  for (const char* text : {"", "[]", "{", "nonsense", "{\"model_type\": \"llama\"}", "{}"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("dir/config.json")) << text;
  }
  EXPECT_THAT(ErrorOf(std::string(1000000, '[')), HasSubstr("dir/config.json"));
}

}  // namespace hf_test
}  // namespace ropewalk
