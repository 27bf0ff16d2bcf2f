// params.json of Mistral and of llama-models, and Megatron-LM's arguments: OpenModel on a lone
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/base/error.h"
#include "tests/config/plan_facts.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace text_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

ModelConfig Open(const std::string& name, const std::string& text) {
  const test::TempFolder folder;
  test::WriteFile(folder / name, text);
  return OpenModel(folder / name, {.allow_unknown = false, .need_weights = false}).config;
}
std::string ErrorOf(const std::string& name, const std::string& text) {
  try {
    Open(name, text);
  } catch (const Error& e) {
    return e.what();
  }
  return "(no error)";
}

TEST(ParamsJson, Mistral) {
  const ModelConfig v01 = Open("params.json", R"({"dim": 4096, "n_layers": 2, "head_dim": 128,
      "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-05,
      "sliding_window": 4096, "vocab_size": 32000})");
  EXPECT_EQ(test::Lines(v01.plan), "2 x interleaved 128/128 base 10000 window 4096");
  EXPECT_EQ(v01.format_name, "Mistral params.json");
  EXPECT_FALSE(v01.not_runnable.empty());
  EXPECT_THAT(v01.plan.notes, Contains(HasSubstr("rope_theta is absent")));

  // Ministral 3: yarn's alpha is the slow end, beta the fast one; no amplitude.
  const ModelConfig ministral = Open("params.json", R"({"dim": 3072, "n_layers": 2, "head_dim": 128,
      "hidden_dim": 9216, "n_heads": 32, "n_kv_heads": 8, "rope_theta": 1000000.0,
      "norm_eps": 1e-05, "vocab_size": 131072, "tied_embeddings": true, "causal": true,
      "max_position_embeddings": 262144, "model_type": null,
      "llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1},
      "yarn": {"original_max_position_embeddings": 16384, "factor": 16, "apply_scale": false,
               "beta": 32, "alpha": 1}, "vision_encoder": {"image_size": 1540}})");
  EXPECT_EQ(test::Lines(ministral.plan),
            "2 x interleaved 128/128 base 1e+06 yarn(factor 16, beta_fast 32, beta_slow 1, "
            "truncate, mscale 1, mscale_all_dim 1) temperature 0.1 16384 +0");
  EXPECT_EQ(ministral.plan.trained_length, 16384);
  EXPECT_EQ(ministral.plan.configured_length, 262144);
  EXPECT_EQ(Resolve(*ministral.plan.layers[0].rotation, 262144).amplitude, 1);
}

TEST(ParamsJson, LlamaModels) {
  const std::string common = R"("n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-05, "multiple_of":
      256, "ffn_dim_multiplier": 1.5, "rope_theta": 500000.0, "vocab_size": 128256)";
  const ModelConfig v31 = Open(
      "params.json", "{\"dim\": 4096, \"n_layers\": 3, \"use_scaled_rope\": true, " + common + "}");
  EXPECT_EQ(test::Lines(v31.plan),
            "3 x interleaved 128/128 base 500000 llama3(factor 8, low_freq_factor 1, "
            "high_freq_factor 4)");
  EXPECT_EQ(v31.plan.trained_length, 8192);
  EXPECT_EQ(v31.format_name, "llama-models params.json");
  // Llama 3.2 1B: the file says no other factor than 3.1's, and needs 32.
  const ModelConfig v32 =
      Open("params.json",
           "{\"dim\": 2048, \"n_layers\": 16, \"use_scaled_rope\": true, " + common + "}");
  EXPECT_EQ(FactorOf(v32.plan.layers[0].rotation->scaling), 32);
  EXPECT_THAT(v32.plan.notes, Contains(HasSubstr("Llama 3.2")));
  const ModelConfig plain = Open("params.json", "{\"dim\": 4096, \"n_layers\": 2, " + common + "}");
  EXPECT_EQ(test::Lines(plain.plan), "2 x interleaved 128/128 base 500000");
  EXPECT_THAT(plain.plan.notes, Contains(HasSubstr("does not say at which length")));
  const ModelConfig v4 = Open("params.json",
                              "{\"dim\": 4096, \"n_layers\": 4, \"use_scaled_rope\": true, "
                              "\"rope_scaling_factor\": 16.0, \"rope_high_freq_factor\": 1.0, "
                              "\"nope_layer_interval\": 4, \"attention_chunk_size\": 8192, "
                              "\"attn_temperature_tuning\": true, " +
                                  common + "}");
  EXPECT_EQ(test::Lines(v4.plan),
            "3 x interleaved 128/128 base 500000 llama3(factor 16, low_freq_factor 1, "
            "high_freq_factor 1) chunk 8192; 1 x none temperature 0.1 8192 +1");
}

TEST(ParamsJson, RefusesByName) {
  const std::string head = R"({"dim": 64, "n_layers": 2, "n_heads": 4, )";
  EXPECT_THAT(ErrorOf("params.json", head + R"("rope_tetha": 5})"),
              AllOf(HasSubstr("params.json"), HasSubstr("did you mean \"rope_theta\"")));
  EXPECT_THAT(ErrorOf("params.json", head + R"("yarn": {"factor": 4}})"),
              AllOf(HasSubstr("yarn"), HasSubstr("original_max_position_embeddings")));
  EXPECT_THAT(
      ErrorOf(
          "params.json",
          head + R"("yarn": {"factor": 4, "original_max_position_embeddings": 8, "alhpa": 1}})"),
      AllOf(HasSubstr("alhpa"), HasSubstr("did you mean \"alpha\"")));
  EXPECT_THAT(ErrorOf("params.json", head + R"("yarn": {"factor": 4, "alpha": 32, "beta": 1,
      "original_max_position_embeddings": 8}})"),
              HasSubstr("swapped"));
  EXPECT_THAT(ErrorOf("params.json", head + R"("use_scaled_rope": false,
      "rope_scaling_factor": 32})"),
              AllOf(HasSubstr("use_scaled_rope is false"), HasSubstr("rope_scaling_factor is 32")));
  EXPECT_THAT(ErrorOf("params.json", head + R"("n_kv_heads": 3})"), HasSubstr("3 key heads"));
  EXPECT_THAT(ErrorOf("params.json", head + R"("max_seq_len": 5, "max_position_embeddings": 6})"),
              AllOf(HasSubstr("is 6"), HasSubstr("is 5")));
}

constexpr const char* kScript = R"(#!/bin/bash
MODEL_ARGS=(
   --swiglu           # not about positions
   --num-layers 4
   --hidden-size 3072 --ffn-hidden-size=8192
   --num-attention-heads 24
   --group-query-attention
   --num-query-groups 8 \
   --max-position-embeddings 131072
   --use-rotary-position-embeddings
   --normalization "RMSNorm"
   --rotary-base 500000
   --kv-channels 128
)";

TEST(Megatron, LaunchScripts) {
  const ModelConfig plain = Open("llama.sh", std::string(kScript) + ")\n");
  EXPECT_EQ(plain.format_name, "Megatron-LM arguments");
  EXPECT_EQ(test::Lines(plain.plan), "4 x half 128/128 base 500000");
  EXPECT_EQ(plain.kv_heads, 8);
  EXPECT_EQ(plain.feed_forward, 8192);
  EXPECT_EQ(plain.plan.trained_length, 131072);
  EXPECT_THAT(plain.unknown_keys, AllOf(Contains("swiglu"), Contains("normalization")));
  const auto with = [](const char* more) {
    return test::Lines(Open("args.txt", std::string(kScript) + more).plan);
  };
  EXPECT_EQ(with("--use-rope-scaling --rope-scaling-factor 32.0 --rotary-percent 0.5"),
            "4 x half 64/128 base 500000 llama3(factor 32, low_freq_factor 1, high_freq_factor 4)");
  EXPECT_EQ(with("--rotary-seq-len-interpolation-factor 4 --rotary-interleaved"),
            "4 x interleaved 128/128 base 500000 linear(factor 4)");
  EXPECT_EQ(with("--no-rope-freq 2"),
            "1 x half 128/128 base 500000; 1 x none; "
            "1 x half 128/128 base 500000; 1 x none");
  EXPECT_EQ(with("--no-rope-freq [0,0,1,1]"), "2 x half 128/128 base 500000; 2 x none");
}

TEST(Megatron, JsonAndLatentAttention) {
  const std::string sizes = R"({"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, )";
  const ModelConfig absolute = Open("args.json", sizes + R"("swiglu": true, "seq_length": 64})");
  EXPECT_EQ(test::Lines(absolute.plan), "2 x none");
  EXPECT_THAT(absolute.plan.notes, Contains(HasSubstr("learned absolute positions")));
  const ModelConfig latent = Open(
      "args.json", sizes + R"("position_embedding_type": "rope", "multi_latent_attention": true,
      "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "rotary_scaling_factor": 40, "mscale": 1.0,
      "mscale_all_dim": 1.0, "max_position_embeddings": 163840})");
  const RotarySpec& spec = *latent.plan.layers[0].rotation;
  EXPECT_EQ(spec.first_dim, 128);
  EXPECT_EQ(spec.rotary_dim, 64);
  EXPECT_EQ(latent.plan.trained_length, 4096);
  const Frequencies f = Resolve(spec, 163840);
  EXPECT_NEAR(f.amplitude, 1, 1e-12);
  EXPECT_NEAR(f.softmax_multiplier, 1.8738542, 1e-7);
  // mscale alone: Megatron takes the absent mscale_all_dim for 0, whose g is 1.
  const ModelConfig alone = Open(
      "args.json", sizes + R"("position_embedding_type": "rope", "multi_latent_attention": true,
      "mscale": 0.707})");
  EXPECT_NEAR(Resolve(*alone.plan.layers[0].rotation, 4096).amplitude, 1.2608038, 1e-7);
}

TEST(Megatron, RefusesByName) {
  const auto with = [](const char* more) {
    return ErrorOf("args.txt", std::string(kScript) + more);
  };
  EXPECT_THAT(with("--rotary-bas 4"), AllOf(HasSubstr("args.txt"), HasSubstr("rotary_base")));
  EXPECT_THAT(
      with("--position-embedding-type learned_absolute"),
      AllOf(HasSubstr("use_rotary_position_embeddings is true"), HasSubstr("learned_absolute")));
  EXPECT_THAT(with("--rotary-base 4"), AllOf(HasSubstr("500000"), HasSubstr("is 4")));
  EXPECT_THAT(with("--use-rope-scaling --rotary-seq-len-interpolation-factor 2"),
              AllOf(HasSubstr("linear(factor 2)"), HasSubstr("llama3")));
  EXPECT_THAT(with("--rotary-percent 0.26"), AllOf(HasSubstr("rotary_percent"), HasSubstr("even")));
  EXPECT_THAT(with("--no-rope-freq [0,1]"), HasSubstr("no_rope_freq"));
  EXPECT_THAT(with("--rotary-base \xff"), AllOf(HasSubstr("args.txt"), HasSubstr("UTF-8")));
}

TEST(OpenModel, ParamsJsonInAFolder) {
  const test::TempFolder folder;
  test::WriteFile(folder / "params.json", R"({"dim": 64, "n_layers": 2, "n_heads": 4})");
  const ModelFiles files =
      OpenModel(folder.path(), {.allow_unknown = false, .need_weights = false});
  EXPECT_EQ(files.config.format_name, "Mistral params.json");
  EXPECT_THROW(Decoder::Load(files), Error);
}

}  // namespace text_test
}  // namespace ropewalk
