// Files as save_pretrained of transformers writes them, where a version writes more or less than
// another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"
#include "tests/config/plan_facts.h"

namespace ropewalk {
namespace written_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

ModelConfig Parse(const std::string& text) { return ParseHfConfig(text, "dir/config.json", false); }

std::string ErrorOf(const std::string& text) {
  try {
    Parse(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "(no error)";
}

// 4.57.6: the pattern is an attribute with an underscore.
std::string Cohere2(const std::string& pattern) {
  return R"({"_sliding_window_pattern": )" + pattern + R"(, "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 5, "eos_token_id": 255001, "head_dim": 16,
    "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96,
    "layer_norm_eps": 1e-05, "layer_types": ["sliding_attention", "sliding_attention",
    "sliding_attention", "full_attention"], "logit_scale": 0.0625, "max_position_embeddings": 8192,
    "model_type": "cohere2", "num_attention_heads": 4, "num_hidden_layers": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "rope_scaling": null, "rope_theta": 10000.0,
    "sliding_window": 4096, "transformers_version": "4.57.6", "use_cache": true, "vocab_size": 96})";
}

TEST(WrittenConfig, Cohere2HasItsPatternWithAnUnderscore) {
  const ModelConfig c = Parse(Cohere2("4"));
  EXPECT_EQ(c.plan.layers[2].window_tokens, 4096);
  EXPECT_TRUE(c.plan.layers[2].rotation);
  EXPECT_EQ(c.plan.layers[3].window_tokens, 0);
  EXPECT_FALSE(c.plan.layers[3].rotation);
  EXPECT_THAT(c.not_honoured, testing::IsEmpty());
  // layer_types decide where they are, the pattern where they are not.
  EXPECT_EQ(Parse(Cohere2("2")).plan.layers[1].window_tokens, 4096);
  std::string alone = Cohere2("2");
  const auto first = alone.find("\"layer_types\""), last = alone.find("\"logit_scale\"");
  alone.erase(first, last - first);
  EXPECT_EQ(Parse(alone).plan.layers[1].window_tokens, 0);
  EXPECT_EQ(Parse(alone).plan.layers[2].window_tokens, 4096);
}

// 4.57.6 leaves tie_word_embeddings out where it is true; 5.23 writes it.
std::string SmolLm3(const std::string& tie) {
  return R"({"attention_bias": false, "attention_dropout": 0.0, "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 96, "layer_types": ["full_attention", "full_attention",
    "full_attention", "full_attention"], "max_position_embeddings": 32768, "mlp_bias": false,
    "model_type": "smollm3", "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0],
    "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 2000000.0, "sliding_window": null,)" +
         tie + R"("transformers_version": "4.57.6", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 96})";
}

TEST(WrittenConfig, SmolLm3IsTiedUnlessItSaysOtherwise) {
  EXPECT_TRUE(Parse(SmolLm3("")).tied_head);
  EXPECT_TRUE(Parse(SmolLm3(R"("tie_word_embeddings": true,)")).tied_head);
  EXPECT_FALSE(Parse(SmolLm3(R"("tie_word_embeddings": false,)")).tied_head);
}

// 5.23.0 writes into attn_config what every configuration has.
std::string Mpt(const std::string& extra) {
  return R"({"attn_config": {"_name_or_path": "", "alibi": true, "alibi_bias_max": 8,
    "architectures": null, "attn_impl": "torch", "attn_pdrop": 0,
    "attn_type": "multihead_attention", "attn_uses_sequence_id": false,
    "chunk_size_feed_forward": 0, "clip_qkv": null, "dtype": null, "id2label": {"0": "LABEL_0"},
    "is_encoder_decoder": false, "label2id": {"LABEL_0": 0}, "model_type": "",
    "output_attentions": false, "output_hidden_states": false, "prefix_lm": false,
    "problem_type": null, "qk_ln": false, "return_dict": true, "softmax_scale": null)" +
         extra + R"(}, "bos_token_id": null, "d_model": 64, "emb_pdrop": 0.0,
    "embedding_fraction": 1.0, "expansion_ratio": 4, "init_device": "cpu",
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "learned_pos_emb": true,
    "logit_scale": null, "max_seq_len": 2048, "model_type": "mpt", "n_heads": 4, "n_layers": 2,
    "no_bias": true, "norm_type": "low_precision_layernorm", "resid_pdrop": 0.0,
    "tie_word_embeddings": true, "transformers_version": "5.23.0", "use_cache": false,
    "vocab_size": 96})";
}

TEST(WrittenConfig, MptHasGenericKeysInItsAttention) {
  const ModelConfig c = Parse(Mpt(""));
  ASSERT_EQ(c.plan.layers.size(), 2u);
  EXPECT_TRUE(c.plan.layers[0].bias);
  EXPECT_EQ(c.not_runnable, "");
  EXPECT_THAT(c.not_honoured, testing::IsEmpty());
  EXPECT_THAT(c.unknown_keys, Not(Contains(HasSubstr("chunk_size_feed_forward"))));
  EXPECT_THAT(ErrorOf(Mpt(R"(, "alibi_bias_mx": 4)")), HasSubstr("alibi_bias_max"));
}

// Python's json writes infinities as they are.
std::string Llama(const std::string& extra) {
  return R"({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "model_type": "llama")" +
         extra + "}";
}

TEST(WrittenConfig, InfinityIsAValueThatNothingReads) {
  const ModelConfig c = Parse(Llama(R"(, "time_step_limit": [0.0, Infinity], "low": -Infinity,
      "note": "Infinity \" Infinity", "rope_theta": 500000.0)"));
  EXPECT_EQ(c.plan.layers[0].rotation->base, 5e5);
  EXPECT_THAT(c.unknown_keys, testing::ElementsAre("low", "note", "time_step_limit"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_theta": Infinity)")),
              AllOf(HasSubstr("rope_theta: expected a number"), HasSubstr("Inf")));
  EXPECT_THAT(ErrorOf(Llama(R"(, "rope_theta": -Infinity)")), HasSubstr("-Inf"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "low": [Infinity, NaN])")), HasSubstr("not valid JSON near"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "low": Infinityy)")), HasSubstr("not valid JSON near"));
  // Bytes are counted as in the file.
  const std::string bad = Llama(R"(, "low": Infinity, "high": ?)");
  EXPECT_THAT(ErrorOf(bad), HasSubstr("byte " + std::to_string(bad.find('?') + 1)));
}

// Of four layers, as vendors and their code publish it, with keys that say nothing of positions or
// whose default another key needs.
TEST(WrittenConfig, FilesOfVendors) {
  struct {
    const char* about;
    const char* text;
    const char* lines;
  } const rows[] = {
      {"Qwen2.5 base", R"("model_type": "qwen2", "use_mrope": false, "rope_theta": 1e6)",
       "4 x half 64/64 base 1e+06"},
      {"Hunyuan", R"("model_type": "hunyuan_v1_moe", "position_embedding_xdrope": false)",
       "4 x half 64/64 base 10000"},
      {"Pixtral's text",
       R"("model_type": "mistral", "is_composition": true, "rope_theta": 1e9, "sliding_window": null)",
       "4 x half 64/64 base 1e+09"},
      {"OLMo's own code", R"("model_type": "hf_olmo", "alibi": false, "alibi_bias_max": 8.0)",
       "4 x half 64/64 base 10000"},
      {"Mamba 2", R"("model_type": "mamba2", "chunk_size": 256)", "4 x none"},
      {"Gemma 3n", R"("model_type": "gemma3n_text", "intermediate_size": [8, 8, 16, 8],
        "head_dim": 64, "rope_local_base_freq": 1e4, "layer_types": ["full_attention",
        "full_attention", "full_attention", "full_attention"])",
       "4 x half 64/64 base 1e+06"},
      {"Granite 4 without rotation", R"("model_type": "granitemoehybrid", "rope_theta": 10000,
        "position_embedding_type": "nope", "rope_scaling": null,
        "layer_types": ["mamba", "mamba", "mamba", "attention"])",
       "4 x none"},
      {"Granite 4 as transformers 5 writes it", R"("model_type": "granitemoehybrid",
        "position_embedding_type": "nope", "rope_parameters": {"rope_type": "default"},
        "layer_types": ["mamba", "mamba", "mamba", "attention"])",
       "4 x none"},
      {"SmolLM3: use_sliding_window is false where absent",
       R"("model_type": "smollm3", "sliding_window": 4096, "rope_theta": 5e6)",
       "3 x half 64/64 base 5e+06; 1 x none"},
      {"EXAONE 4 with a window in no layer", R"("model_type": "exaone4", "sliding_window": 4096,
        "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"])",
       "4 x none"},
      {"EXAONE 4 without a window", R"("model_type": "exaone4", "sliding_window": null)",
       "4 x half 64/64 base 10000"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.about);
    std::string text = std::string("{") + row.text + R"(, "hidden_size": 512, "vocab_size": 1000,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 4,
        "max_position_embeddings": 8192)";
    if (text.find("intermediate_size") == text.npos) text += R"(, "intermediate_size": 1024)";
    try {
      EXPECT_EQ(test::Lines(Parse(text + "}").plan), row.lines);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
  EXPECT_THAT(ErrorOf(Llama(R"(, "use_mrope": true)")), HasSubstr("use_mrope"));
  // A scaling of what does not rotate is said, not dropped.
  EXPECT_THAT(Parse(R"({"model_type": "granitemoehybrid", "hidden_size": 512, "vocab_size": 1000,
      "num_attention_heads": 8, "num_hidden_layers": 1, "max_position_embeddings": 8192,
      "layer_types": ["attention"], "position_embedding_type": "nope",
      "rope_scaling": {"type": "linear", "factor": 2}})")
                  .plan.notes,
              Contains(HasSubstr("rope_scaling does not count")));
  EXPECT_EQ(Parse(R"({"model_type": "RefinedWeb", "alibi": false, "n_head": 128, "n_head_kv": 8,
      "n_layer": 60, "hidden_size": 8192, "parallel_attn": true, "bias": false,
      "vocab_size": 65024, "layer_norm_epsilon": 1e-5})")
                .kv_heads,
            8);
  EXPECT_THAT(ErrorOf(R"({"model_type": "chatglm", "hidden_size": 4096, "inner_hidden_size": 16384,
      "max_sequence_length": 2048, "num_attention_heads": 32, "num_layers": 28,
      "position_encoding_2d": true, "vocab_size": 130528})"),
              HasSubstr("two-dimensional positions"));
}

// configuration_phi3.py has 4096 where the file says nothing.
TEST(WrittenConfig, Phi3LongRopeHasAnOriginalLengthByDefault) {
  const std::string ones = "[" + std::string("1.0") + [] {
    std::string more;
    for (int i = 1; i < 32; ++i) more += ", 1.0";
    return more;
  }() + "]";
  const std::string rope = R"("rope_scaling": {"type": "longrope", "short_factor": )" + ones +
                           R"(, "long_factor": )" + ones;
  const std::string head = R"({"model_type": "phi3", "hidden_size": 512, "num_attention_heads": 8,
      "num_key_value_heads": 4, "num_hidden_layers": 4, "intermediate_size": 1024,
      "vocab_size": 1000, "max_position_embeddings": 131072, "rope_theta": 10000.0, )";
  const ModelConfig c = Parse(head + rope + "}}");
  EXPECT_EQ(c.plan.trained_length, 4096);
  const auto& longrope = std::get<LongRopeScaling>(c.plan.layers[0].rotation->scaling);
  EXPECT_EQ(longrope.factor, 32);
  EXPECT_EQ(
      Parse(head + rope + R"(, "original_max_position_embeddings": 8192}})").plan.trained_length,
      8192);
  // Nothing else of a phi3 model has it.
  EXPECT_EQ(Parse(head + R"("rope_scaling": null})").plan.trained_length, 131072);
}

}  // namespace written_test
}  // namespace ropewalk
