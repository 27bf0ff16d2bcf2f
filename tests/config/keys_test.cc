// Keys that the family's code does not read, keys that the decoder does not compute, and which
// GGUF files run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ropewalk/base/error.h"
#include "ropewalk/model/encoder.h"
#include "src/config/family.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace keys_test {

using nlohmann::json;
using test::GgufWriter;
using test::MessageOf;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// What layers with experts, or with latent attention, need to be known.
json Experts(const std::string& type) {
  if (type == "mixtral" || type == "gpt_oss") {
    return {{"num_local_experts", 4}, {"num_experts_per_tok", 2}};
  }
  if (type == "olmoe" || type == "qwen2_moe" || type == "qwen3_moe") {
    json experts = {{"num_experts", 4}, {"num_experts_per_tok", 2}};
    if (type == "olmoe") return experts;
    experts["moe_intermediate_size"] = 32;
    if (type == "qwen2_moe") experts["shared_expert_intermediate_size"] = 48;
    return experts;
  }
  if (type == "llama4_text") {
    return {{"num_local_experts", 4}, {"num_experts_per_tok", 1}, {"intermediate_size_mlp", 48}};
  }
  if (type != "deepseek_v2" && type != "deepseek_v3" && type != "minicpm3" && type != "mistral4") {
    return json::object();
  }
  return {{"n_routed_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 32},
          {"n_group", 1},          {"topk_group", 1},          {"qk_nope_head_dim", 8},
          {"qk_rope_head_dim", 8}, {"v_head_dim", 16},         {"kv_lora_rank", 24}};
}

json Base(const std::string& type) {
  json base = {{"model_type", type},       {"hidden_size", 64},
               {"intermediate_size", 96},  {"num_hidden_layers", 4},
               {"num_attention_heads", 4}, {"num_key_value_heads", 4},
               {"vocab_size", 100},        {"max_position_embeddings", 4096},
               {"rope_theta", 10000.0},    {"head_dim", 16}};
  base.update(Experts(type));
  if (type == "ministral3" || type == "mistral4")
    base["rope_parameters"] = {{"rope_type", "default"}};
  if (type == "gpt_oss") base["rope_scaling"] = {{"rope_type", "default"}};
  return base;
}

ModelConfig Read(const json& config, bool allow_unknown = false) {
  return ParseHfConfig(config.dump(), "dir/config.json", allow_unknown);
}

ModelConfig With(const std::string& type, const json& more, bool allow_unknown = false) {
  json config = Base(type);
  if (!more.is_null()) config.update(more);
  return Read(config, allow_unknown);
}

std::string HashOf(const ModelConfig& c) { return Resolve(c.plan, 4096).hash; }

const json kTypes = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};

// The three: transformers 4.57 ignores two of them in a llama and stops at the third.
TEST(ConfigKeys, WhatALlamaDoesNotReadIsNotApplied) {
  const std::string plain = HashOf(With("llama", {}));
  const ModelConfig no_rope = With("llama", {{"no_rope_layers", {1, 0, 1, 0}}});
  EXPECT_EQ(HashOf(no_rope), plain);
  EXPECT_THAT(no_rope.not_honoured,
              ElementsAre("dir/config.json: no_rope_layers = an array of 4: transformers does not "
                          "read it in a llama model; ignored"));
  const ModelConfig window = With("llama", {{"layer_types", kTypes}, {"sliding_window", 16}});
  EXPECT_EQ(HashOf(window), plain);
  EXPECT_THAT(window.not_honoured,
              ElementsAre(HasSubstr("layer_types = an array of 4"),
                          HasSubstr("sliding_window = 16: transformers does not read it")));
  const json partial = {{"partial_rotary_factor", 0.5}};
  EXPECT_THAT(MessageOf([&] { With("llama", partial); }),
              AllOf(HasSubstr("dir/config.json: partial_rotary_factor = 0.5: transformers stops"),
                    HasSubstr("llama"), HasSubstr("--allow-unknown")));
  const ModelConfig allowed = With("llama", partial, true);
  EXPECT_EQ(HashOf(allowed), plain);
  EXPECT_THAT(allowed.not_honoured, ElementsAre(HasSubstr("partial_rotary_factor = 0.5")));
  // The same inside the dictionary of transformers 5.
  const json inside = {{"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}};
  EXPECT_THAT(MessageOf([&] { With("llama", inside); }), HasSubstr("in a llama model"));
  EXPECT_EQ(HashOf(With("llama", inside, true)), plain);
}

// The table, as transformers 4.57 was found to do (tests/parity/keys.py asks it again).
TEST(ConfigKeys, CountWhereTheFamilyReadsThem) {
  const auto hash = [](const char* type, const json& more) { return HashOf(With(type, more)); };
  const json no_rope = {{"no_rope_layers", {1, 0, 1, 0}}};
  const json window = {{"layer_types", kTypes}, {"sliding_window", 16}};
  for (const char* type : {"smollm3", "mistral"}) EXPECT_NE(hash(type, window), hash(type, {}));
  EXPECT_NE(hash("smollm3", no_rope), hash("smollm3", {}));
  EXPECT_EQ(hash("mistral", no_rope), hash("mistral", {}));
  EXPECT_NE(hash("phi", {{"partial_rotary_factor", 0.25}}), hash("phi", {}));
  // Mistral's window is on every layer and no flag switches it off.
  const json off = {{"sliding_window", 16}, {"use_sliding_window", false}};
  EXPECT_EQ(With("mistral", off).plan.layers[0].window_tokens, 16);
  EXPECT_THAT(With("mistral", off).not_honoured, ElementsAre(HasSubstr("use_sliding_window")));
  EXPECT_EQ(With("qwen2", off).plan.layers[0].window_tokens, 0);
  EXPECT_THAT(With("qwen2", off).not_honoured, IsEmpty());
  // GPT-J's sinusoids have one base and no scaling; GPT-NeoX has names of its own.
  const json gptj = {{"n_positions", 4096}, {"rotary_dim", 8}};
  json other = gptj;
  other.update({{"rope_theta", 500.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}});
  EXPECT_EQ(hash("gptj", other), hash("gptj", gptj));
  EXPECT_THAT(With("gptj", other).not_honoured,
              ElementsAre(HasSubstr("rope_theta = 500"), HasSubstr("rope_scaling")));
  EXPECT_EQ(hash("gpt_neox", {{"rope_theta", 500.0}}), hash("gpt_neox", {}));
  EXPECT_NE(hash("gpt_neox", {{"rope_theta", 500.0}, {"rotary_emb_base", 500.0}}),
            hash("gpt_neox", {}));
  EXPECT_THAT(MessageOf([] {
                With("gpt_neox", {{"rope_theta", 500.0}, {"rotary_emb_base", 700.0}});
              }),
              AllOf(HasSubstr("500"), HasSubstr("rotary_emb_base is 700")));
  // Half of GPT-NeoX follows head_dim: its frequencies.
  EXPECT_THAT(MessageOf([] { With("gpt_neox", {{"head_dim", 32}}); }), HasSubstr("head_dim = 32"));
}

// Every family that runs and every such key: either it counts, or it changes nothing and is said,
// or it is refused.
TEST(ConfigKeys, NoneCountsInSilence) {
  const std::vector<std::pair<const char*, json>> patches = {
      {"no_rope_layers", {{"no_rope_layers", {1, 0, 1, 0}}}},
      {"no_rope_layer_interval", {{"no_rope_layer_interval", 2}}},
      {"layer_types", {{"layer_types", kTypes}, {"sliding_window", 16}}},
      {"sliding_window", {{"sliding_window", 16}}},
      {"partial_rotary_factor", {{"partial_rotary_factor", 0.75}, {"head_dim", 16}}},
      {"head_dim", {{"head_dim", 32}}},
      {"rope_theta", {{"rope_theta", 500.0}}},
      {"rope_scaling", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}}};
  int ignored = 0, refused = 0, applied = 0;
  for (const internal::Family& f : internal::Families()) {
    const bool encoder = f.encoder != internal::EncoderKind::kNone;
    if (!f.Runs() && !encoder) continue;
    for (const auto& [key, patch] : patches) {
      SCOPED_TRACE(std::string(f.name) + " " + key);
      ModelConfig c;
      json given = patch;
      try {
        if (f.Has(internal::kPositionsObject)) {  // refuses any base outside it
          given["positions"] = json::object();
          if (!patch.contains("rope_theta")) given["rope_theta"] = nullptr;
        }
        if (f.sections[0] > 0) {  // whose default is for heads of 128
          json& rope = given["rope_scaling"];
          if (rope.is_null()) rope["rope_type"] = "default";
          rope["mrope_section"] = patch.value("head_dim", 16) == 32 ? json{6, 5, 5} : json{4, 2, 2};
        }
        c = With(f.name, given);
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr(key));
        ++refused;
        continue;
      }
      if (f.Reads(key)) {
        ++applied;
        EXPECT_THAT(c.not_honoured, Not(Contains(HasSubstr(key))));
      } else {
        ++ignored;
        json rest = given;  // the other keys of a patch may count
        rest.erase(key);
        const ModelConfig without = With(f.name, rest);
        EXPECT_EQ(HashOf(c), HashOf(without));
        EXPECT_EQ(c.head_dim, without.head_dim);
        EXPECT_THAT(c.not_honoured, Contains(HasSubstr(std::string(key) + " = ")));
      }
    }
  }
  EXPECT_GT(ignored, 40);
  EXPECT_GT(refused, 8);
  EXPECT_GT(applied, 20);
}

TEST(ConfigKeys, ValuesThatSayNothingAreHarmless) {
  const ModelConfig c =
      With("llama", {{"partial_rotary_factor", 1.0},
                     {"no_rope_layers", {1, 1, 1, 1}},
                     {"layer_types", json(std::vector<std::string>(4, "full_attention"))},
                     {"use_sliding_window", false},
                     {"sliding_window", 4096},
                     {"max_window_layers", 28}});
  EXPECT_THAT(c.not_honoured, IsEmpty());
  EXPECT_THAT(c.harmless_keys, AllOf(Contains("partial_rotary_factor"), Contains("layer_types"),
                                     Contains("sliding_window"), Contains("max_window_layers")));
  EXPECT_THAT(With("gpt_neox", {{"partial_rotary_factor", 0.25}}).not_honoured, IsEmpty());
}

TEST(ConfigKeys, NumbersThatAreNotComputed) {
  const std::vector<std::pair<const char*, json>> changing = {{"attn_logit_softcapping", 50.0},
                                                              {"final_logit_softcapping", 30.0},
                                                              {"embedding_multiplier", 12.0},
                                                              {"residual_multiplier", 0.22},
                                                              {"attention_multiplier", 0.015625},
                                                              {"logits_scaling", 8.0},
                                                              {"logit_scale", 0.0625},
                                                              {"query_pre_attn_scalar", 256},
                                                              {"clip_qkv", 8.0},
                                                              {"is_causal", false},
                                                              {"use_bidirectional_attention", true},
                                                              {"mlp_multipliers", {1.0, 0.5}},
                                                              {"use_qk_norm", true},
                                                              {"scale_emb", 12}};
  for (const char* type : {"llama", "mistral", "qwen2", "gpt2", "bert"}) {
    for (const auto& [key, value] : changing) {
      SCOPED_TRACE(std::string(type) + " " + key);
      const ModelConfig c = With(type, {{key, value}});
      EXPECT_THAT(c.not_runnable, AllOf(HasSubstr("dir/config.json: "), HasSubstr(key),
                                        HasSubstr("--allow-unknown")));
      EXPECT_EQ(c.encoder, nullptr);
      EXPECT_EQ(HashOf(c), HashOf(With(type, {})));  // its positions are read all the same
      const ModelConfig allowed = With(type, {{key, value}}, true);
      EXPECT_EQ(allowed.not_runnable, With(type, {}).not_runnable);
      EXPECT_EQ(allowed.encoder != nullptr, std::string(type) == "bert");
      EXPECT_THAT(allowed.not_honoured,
                  ElementsAre(AllOf(HasSubstr(key), HasSubstr("does not compute it; ignored"))));
    }
  }
  const ModelConfig neutral = With("llama", {{"attn_logit_softcapping", nullptr},
                                             {"final_logit_softcapping", 0},
                                             {"embedding_multiplier", 1.0},
                                             {"attention_multiplier", 0.25},
                                             {"logit_scale", 1},
                                             {"query_pre_attn_scalar", 16},
                                             {"clip_qkv", nullptr},
                                             {"is_causal", true},
                                             {"mlp_multipliers", {1, 1}},
                                             {"use_qk_norm", false}});
  EXPECT_EQ(neutral.not_runnable, "");
  EXPECT_THAT(neutral.not_honoured, IsEmpty());
  // Several are named together; families that do not run have such keys by right.
  const ModelConfig two = With("llama", {{"logit_scale", 2}, {"final_logit_softcapping", 30.0}});
  EXPECT_THAT(two.not_runnable, HasSubstr("final_logit_softcapping = 30.0, logit_scale = 2: "));
  const ModelConfig hunyuan = With("hunyuan_v1_dense", {{"scale_emb", 12.0}});
  EXPECT_THAT(hunyuan.unknown_keys, Contains("scale_emb"));
  EXPECT_THAT(hunyuan.not_runnable, HasSubstr("its decoder is not built in"));
}

class GgufKeysTest : public testing::Test {
 protected:
  ModelConfig Parse(const char* arch, const std::function<void(GgufWriter&)>& add,
                    bool allow_unknown = false) {
    GgufWriter w;
    const std::string p = std::string(arch) + ".";
    w.Str("general.architecture", arch);
    w.Int(p + "context_length", 4096);
    w.Int(p + "embedding_length", 64);
    w.Int(p + "block_count", 3);
    w.Int(p + "attention.head_count", 4);
    w.Int(p + "vocab_size", 100);
    add(w);
    w.Write(folder_ / "model.gguf", {});
    return ParseGgufConfig(OpenGguf(folder_ / "model.gguf"), allow_unknown);
  }
  // Of a llama with a feed-forward layer.
  ModelConfig Llama(const std::function<void(GgufWriter&)>& add, bool allow_unknown = false) {
    return Parse(
        "llama",
        [&](GgufWriter& w) {
          w.Int("llama.feed_forward_length", 96);
          add(w);
        },
        allow_unknown);
  }
  test::TempFolder folder_;
};

TEST_F(GgufKeysTest, NumbersThatAreNotComputed) {
  for (const char* key :
       {"logit_scale", "attention.scale", "attn_logit_softcapping", "final_logit_softcapping",
        "embedding_scale", "residual_scale", "attention.clamp_kqv"}) {
    SCOPED_TRACE(key);
    const std::string name = std::string("llama.") + key;
    const auto add = [&](GgufWriter& w) { w.Float(name, 0.7f); };
    EXPECT_THAT(Llama(add).not_runnable,
                AllOf(HasSubstr("model.gguf: " + name + " = 0.7"), HasSubstr("--allow-unknown")));
    const ModelConfig allowed = Llama(add, true);
    EXPECT_EQ(allowed.not_runnable, "");
    EXPECT_THAT(allowed.not_honoured, ElementsAre(HasSubstr(name)));
    // 0 is "not given" to llama.cpp.
    EXPECT_EQ(Llama([&](GgufWriter& w) { w.Float(name, 0); }).not_runnable, "");
  }
  EXPECT_EQ(Llama([](GgufWriter& w) {
              w.Float("llama.attention.scale", 0.25f);
              w.Float("llama.logit_scale", 1);
              w.Bool("llama.attention.causal", true);
            }).not_runnable,
            "");
  const auto causal = [](GgufWriter& w) { w.Bool("llama.attention.causal", false); };
  EXPECT_THAT(Llama(causal).not_runnable, HasSubstr("llama.attention.causal = false"));
  EXPECT_THAT(Llama(causal).harmless_keys, Not(Contains("llama.attention.causal")));
  EXPECT_THAT(Llama(causal, true).not_honoured, ElementsAre(HasSubstr("llama.attention.causal")));
}

TEST_F(GgufKeysTest, NumbersByLayer) {
  for (const char* key : {"attention.head_count_kv", "feed_forward_length"}) {
    SCOPED_TRACE(key);
    const std::string name = std::string("llama.") + key;
    const auto parse = [&](const std::vector<int32_t>& list) {
      return Parse("llama", [&](GgufWriter& w) {
        w.Ints(name, list);
        if (std::string_view(key) != "feed_forward_length") {
          w.Int("llama.feed_forward_length", 96);
        }
      });
    };
    EXPECT_EQ(parse({4, 4, 4}).not_runnable, "");
    EXPECT_THAT(parse({4, 2, 4}).not_runnable, HasSubstr("model.gguf: " + name + " differs by"));
    for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{4}, {4, 4}, {4, 4, 4, 4}}) {
      EXPECT_THAT(MessageOf([&] { parse(wrong); }),
                  AllOf(HasSubstr(name), HasSubstr("each of 3 layers"),
                        HasSubstr("got " + std::to_string(wrong.size()))));
    }
  }
}

TEST_F(GgufKeysTest, FamiliesThatDoNotRun) {
  const auto none = [](GgufWriter&) {};
  EXPECT_THAT(Parse("bert", none).not_runnable,
              HasSubstr("; ropewalk embed runs the same model as a Hugging Face folder"));
  const auto t5 = [](GgufWriter& w) { w.Int("t5.feed_forward_length", 96); };
  const auto encoder = [](GgufWriter& w) { w.Int("t5encoder.feed_forward_length", 96); };
  EXPECT_THAT(Parse("t5", t5).not_runnable,
              HasSubstr("ropewalk perplexity --prefix N scores its decoder"));
  EXPECT_THAT(Parse("t5encoder", encoder).not_runnable, HasSubstr("ropewalk embed runs it"));
  EXPECT_THAT(MessageOf([&] { Parse("t5", none); }), HasSubstr("t5.feed_forward_length"));
  EXPECT_THAT(Parse("exaone", none).not_runnable,
              AllOf(HasSubstr("llama, qwen2, qwen3, smollm3, gemma, olmo"),
                    HasSubstr("nor does the decoder")));
  EXPECT_THAT(MessageOf([&] { Parse("whisper", none); }),
              AllOf(HasSubstr("\"whisper\" is not supported"),
                    HasSubstr("GGUF files of llama, qwen2, qwen3, smollm3, gemma, olmo"),
                    HasSubstr("gpt2, bloom, t5, t5encoder run"), HasSubstr("are read: llama, ")));
}

}  // namespace keys_test
}  // namespace ropewalk
