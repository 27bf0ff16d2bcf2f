// GGUF: what llama.cpp does by the architecture's name, and that a model reads alike from GGUF and
// from config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/config/plan_facts.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace gguf_arch_test {

using test::GgufWriter;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

struct Case {
  const char* arch;
  uint32_t layers, key_length;
  std::function<void(GgufWriter&, const std::string&)> add;
  test::Tensors tensors;
  const char* lines;
};

ModelConfig Read(const Case& c) {
  const test::TempFolder folder;
  GgufWriter w;
  const std::string p = std::string(c.arch) + ".";
  w.Str("general.architecture", c.arch);
  w.Int(p + "context_length", 4096);
  w.Int(p + "embedding_length", 64);
  w.Int(p + "block_count", c.layers);
  w.Int(p + "feed_forward_length", 128);
  w.Int(p + "attention.head_count", 4);
  w.Int(p + "attention.head_count_kv", 2);
  if (c.key_length > 0) w.Int(p + "attention.key_length", c.key_length);
  w.Int(p + "vocab_size", 100);
  if (c.add) c.add(w, p);
  w.Write(folder / "model.gguf", c.tensors);
  return ParseGgufConfig(OpenGguf(folder / "model.gguf"));
}

const auto kBase = [](GgufWriter& w, const std::string& p) { w.Float(p + "rope.freq_base", 5e5f); };

std::vector<Case> Cases() {
  test::Tensor still{{8}, {1, 1, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f}};
  return {
      {"gptneox",
       2,
       0,
       [](auto& w, auto& p) { w.Int(p + "rope.dimension_count", 4); },
       {},
       "2 x half 4/16 base 10000"},
      {"command-r", 2, 0, kBase, {}, "2 x interleaved 16/16 base 500000"},
      {"internlm2", 2, 0, kBase, {}, "2 x half 16/16 base 500000"},
      {"chatglm",
       2,
       0,
       [](auto& w, auto& p) { w.Int(p + "rope.dimension_count", 8); },
       {},
       "2 x interleaved 8/16 base 10000"},
      {"falcon", 2, 0, kBase, {}, "2 x half 16/16 base 500000"},
      {"gpt2", 2, 0, nullptr, {}, "2 x none"},
      {"gemma2",
       3,
       0,
       [](auto& w, auto& p) { w.Int(p + "attention.sliding_window", 128); },
       {},
       "1 x half 16/16 base 10000 window 128; 1 x half 16/16 base 10000; "
       "1 x half 16/16 base 10000 window 128"},
      {"gemma3",
       7,
       0,
       [](auto& w, auto& p) {
         w.Int(p + "attention.sliding_window", 128);
         w.Float(p + "rope.freq_base", 1e6f);
         w.Str(p + "rope.scaling.type", "linear");
         w.Float(p + "rope.scaling.factor", 8);
       },
       {},
       "5 x half 16/16 base 10000 window 128; 1 x half 16/16 base 1e+06 linear(factor 8); "
       "1 x half 16/16 base 10000 window 128"},
      {"gemma4",
       3,
       16,
       [](auto& w, auto& p) {
         w.Int(p + "attention.sliding_window", 128);
         w.Ints(p + "attention.sliding_window_pattern", {1, 1, 0});
         w.Float(p + "rope.freq_base", 1e6f);
         w.Float(p + "rope.freq_base_swa", 1e4f);
         w.Int(p + "attention.key_length_swa", 8);
         w.Int(p + "rope.dimension_count", 16);
         w.Int(p + "rope.dimension_count_swa", 8);
       },
       {{"rope_freqs.weight", still}},
       "2 x half 8/8 base 10000 window 128; "
       "1 x half 16/16 base 1e+06 proportional(fraction 0.25, factor 1)"},
      {"cohere2",
       4,
       0,
       [](auto& w, auto& p) { w.Int(p + "attention.sliding_window", 128); },
       {},
       "3 x interleaved 16/16 base 10000 window 128; 1 x none"},
      {"gpt-oss",
       2,
       0,
       [](auto& w, auto& p) {
         w.Int(p + "attention.sliding_window", 128);
         w.Float(p + "rope.freq_base", 150000);
         w.Str(p + "rope.scaling.type", "yarn");
         w.Float(p + "rope.scaling.factor", 32);
         w.Int(p + "rope.scaling.original_context_length", 4096);
       },
       {},
       "1 x half 16/16 base 150000 yarn(factor 32, beta_fast 32, beta_slow 1, truncate) window "
       "128; "
       "1 x half 16/16 base 150000 yarn(factor 32, beta_fast 32, beta_slow 1, truncate)"},
      {"olmo2",
       4,
       0,
       [](auto& w, auto& p) {
         w.Int(p + "attention.sliding_window", 128);
         w.Str(p + "rope.scaling.type", "linear");
         w.Float(p + "rope.scaling.factor", 2);
       },
       {},
       "3 x half 16/16 base 10000 window 128; 1 x half 16/16 base 10000 linear(factor 2)"},
      {"smollm3", 4, 0, kBase, {}, "3 x half 16/16 base 500000; 1 x none"},
      {"llama4",
       4,
       0,
       kBase,
       {},
       "3 x interleaved 16/16 base 500000 chunk 8192; 1 x none temperature 0.1 8192 +1"},
      {"mistral3",
       2,
       0,
       [](auto& w, auto& p) {
         w.Float(p + "rope.freq_base", 1e6f);
         w.Str(p + "rope.scaling.type", "yarn");
         w.Float(p + "rope.scaling.factor", 16);
         w.Int(p + "rope.scaling.original_context_length", 1024);
         w.Float(p + "rope.scaling.yarn_log_multiplier", 1);
         w.Float(p + "attention.temperature_scale", 0.1f);
       },
       {},
       "2 x half 16/16 base 1e+06 yarn(factor 16, beta_fast 32, beta_slow 1, truncate, "
       "mscale 1, mscale_all_dim 1) temperature 0.1 1024 +0"},
      {"deepseek2",
       2,
       192,
       [](auto& w, auto& p) {
         w.Int(p + "rope.dimension_count", 64);
         w.Str(p + "rope.scaling.type", "yarn");
         w.Float(p + "rope.scaling.factor", 40);
         w.Int(p + "rope.scaling.original_context_length", 4096);
         w.Float(p + "rope.scaling.yarn_log_multiplier", 0.0707f);
       },
       {},
       "2 x interleaved 64/192 base 10000 from 128 yarn(factor 40, beta_fast 32, beta_slow 1, "
       "truncate, mscale 0.707, mscale_all_dim 0.707, softmax times mscale_all_dim's squared)"},
      {"qwen2vl",
       2,
       0,
       [](auto& w, auto& p) {
         w.Ints(p + "rope.dimension_sections", {2, 3, 3, 0});
       },
       {},
       "2 x half 16/16 base 10000 chunked [2 3 3]"},
      {"qwen3vl",
       2,
       0,
       [](auto& w, auto& p) {
         w.Ints(p + "rope.dimension_sections", {4, 2, 2, 0});
       },
       {},
       "2 x half 16/16 base 10000 interleaved [4 2 2]"},
      {"qwen35",
       4,
       0,
       [](auto& w, auto& p) {
         w.Ints(p + "rope.dimension_sections", {2, 1, 1, 0});
         w.Int(p + "rope.dimension_count", 8);
         w.Int(p + "full_attention_interval", 4);
       },
       {},
       "3 x recurrent; 1 x half 8/16 base 10000 interleaved [2 1 1]"},
      {"hunyuan_vl",
       2,
       0,
       [](auto& w, auto& p) {
         w.Ints(p + "rope.dimension_sections", {2, 2, 2, 2});
         w.Float(p + "rope.scaling.alpha", 1000);
       },
       {},
       "2 x half 16/16 base 10000 ntk(factor 1000) chunked [2 2 2 2]"},
  };
}

TEST(GgufArchitectures, PositionsByLayer) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.arch);
    try {
      const ModelConfig config = Read(c);
      EXPECT_EQ(test::Lines(config.plan), c.lines);
      const std::set<std::string> run = {"smollm3",   "gemma2",   "gemma3",  "command-r", "chatglm",
                                         "internlm2", "cohere2",  "olmo2",   "gptneox",   "falcon",
                                         "gpt2",      "mistral3", "qwen2vl", "qwen3vl"};
      EXPECT_EQ(config.not_runnable.empty(), run.contains(c.arch)) << config.not_runnable;
      // Of settings for the folders that such files were made of.
      const std::string& rope_keys = config.plan.place.rope_keys;
      EXPECT_EQ(rope_keys.empty(), !std::set<std::string>({"qwen2vl", "qwen3vl"}).contains(c.arch));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

// The same model has one hash, from config.json and from GGUF.
TEST(GgufArchitectures, SameHashAsConfigJson) {
  const auto hash = [](const PositionPlan& plan) { return Resolve(plan, 8192).hash; };
  const auto find = [](const char* arch) {
    for (const Case& c : Cases()) {
      if (std::string(arch) == c.arch) return Read(c);
    }
    throw std::runtime_error(arch);
  };
  const std::string sizes =
      R"("hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 4096,)";
  EXPECT_EQ(hash(find("gemma3").plan),
            hash(ParseHfConfig("{" + sizes + R"("model_type": "gemma3_text", "head_dim": 16,
                "intermediate_size": 128, "vocab_size": 100, "num_hidden_layers": 7, "sliding_window": 128, "rope_scaling": {"rope_type":
                "linear", "factor": 8}})",
                               "config.json")
                     .plan));
  EXPECT_EQ(hash(find("gemma4").plan),
            hash(ParseHfConfig("{" + sizes + R"("model_type": "gemma4_text", "head_dim": 8,
                "global_head_dim": 16, "num_hidden_layers": 3, "sliding_window": 128,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]})",
                               "config.json")
                     .plan));
  EXPECT_EQ(hash(find("deepseek2").plan),
            hash(ParseHfConfig("{" + sizes + R"("model_type": "deepseek_v2", "num_hidden_layers": 2,
                "intermediate_size": 96, "vocab_size": 100, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_scaling": {"type": "yarn",
                "factor": 40, "original_max_position_embeddings": 4096, "mscale": 0.707,
                "mscale_all_dim": 0.707}})",
                               "config.json")
                     .plan));
  EXPECT_EQ(hash(find("mistral3").plan),
            hash(ParseHfConfig("{" + sizes + R"("model_type": "ministral3", "head_dim": 16,
                "intermediate_size": 96, "vocab_size": 100,
                "num_hidden_layers": 2, "rope_parameters": {"rope_type": "yarn", "factor": 16,
                "original_max_position_embeddings": 1024, "mscale": 1, "mscale_all_dim": 1,
                "rope_theta": 1000000, "llama_4_scaling_beta": 0.1}})",
                               "config.json")
                     .plan));
}

TEST(GgufArchitectures, RefusesByName) {
  struct Bad {
    Case c;
    std::vector<const char*> message;
  };
  const std::vector<Bad> table = {
      {{"clip", 2, 0, nullptr, {}, ""}, {"general.architecture", "clip", "llama, qwen2, qwen3"}},
      {{"qwen2vl", 2, 0, nullptr, {}, ""}, {"qwen2vl.rope.dimension_sections", "missing"}},
      {{"qwen2vl",
        2,
        0,
        [](auto& w, auto& p) {
          w.Ints(p + "rope.dimension_sections", {2, 3, 4, 0});
        },
        {},
        ""},
       {"qwen2vl.rope.dimension_sections", "sum 8", "[2, 3, 4]"}},
      {{"gemma2",
        3,
        0,
        [](auto& w, auto& p) {
          w.Int(p + "attention.sliding_window", 8);
          w.Ints(p + "attention.sliding_window_pattern", {1, 0});
        },
        {},
        ""},
       {"gemma2.attention.sliding_window_pattern", "3 values", "got 2"}},
      {{"falcon", 2, 0, [](auto& w, auto& p) { w.Float(p + "rope.freq_base_swa", 1e4f); }, {}, ""},
       {"falcon.rope.freq_base_swa", "unknown key", "did you mean \"rope.freq_base\""}},
      {{"gemma3", 2, 0, [](auto& w, auto& p) { w.Float(p + "rope.scaling.alpha", 2); }, {}, ""},
       {"gemma3.rope.scaling.alpha", "unknown key"}},
  };
  for (const Bad& bad : table) {
    try {
      Read(bad.c);
      ADD_FAILURE() << "accepted: " << bad.c.arch;
    } catch (const Error& e) {
      for (const char* part : bad.message) EXPECT_THAT(e.what(), HasSubstr(part));
      EXPECT_THAT(e.what(), HasSubstr("model.gguf"));
    }
  }
}

}  // namespace gguf_arch_test
}  // namespace ropewalk
