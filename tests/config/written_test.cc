// Files as save_pretrained of transformers writes them, where a version writes more or less than
// another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/config/config.h"

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

}  // namespace written_test
}  // namespace ropewalk
