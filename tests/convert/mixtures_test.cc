// GGUF files of experts and latent attention: what llama.cpp's converter writes, typed again; files of
// other converters; what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ropewalk/base/error.h"
#include "src/io/mxfp4_pairs.h"
#include "tests/convert/family_case.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk::families_test {
namespace {

using nlohmann::json;
using test::MessageOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const Case& Find(const std::string& name) {
  static const std::vector<Case> cases = MixtureCases();
  for (const Case& c : cases) {
    if (name == c.name) return c;
  }
  throw std::runtime_error("no case " + name);
}

json ChangedConfig(const char* name, const json& change) {
  json config = ConfigOf(Find(name));
  if (!change.is_null()) config.update(change);
  return config;
}

struct Written {
  explicit Written(const char* name, const json& change = nullptr) {
    WriteModel(folder / "hf", ChangedConfig(name, change));
    hf = OpenModel(folder / "hf");
    FolderToGguf(hf, folder / "m.gguf", kWeightsAlone);
    gguf = OpenGguf(folder / "m.gguf");
  }
  static std::vector<float> Row(const Weight& w, int64_t row) {
    std::vector<float> out(static_cast<std::size_t>(w.cols()));
    w.ReadRows(row, 1, out.data());
    return out;
  }
  std::vector<float> Hf(const std::string& name, int64_t row) const {
    return Row(hf.tensors.at("model.layers.1." + name), row);
  }
  std::vector<float> Gguf(const std::string& name, int64_t row) const {
    return Row(gguf.tensors.at("blk.1." + name), row);
  }
  const GgufValue& Key(const std::string& key) const { return gguf.metadata.at(key); }
  test::TempFolder folder;
  ModelFiles hf;
  GgufFile gguf;
};

TEST(MixtureRows, ExpertsAreStacked) {
  const Written mixtral("mixtral");
  EXPECT_EQ(mixtral.gguf.tensors.at("blk.1.ffn_gate_exps.weight").shape,
            (std::vector<int64_t>{5, 40, 32}));
  for (int64_t e = 0; e < 5; ++e) {
    const std::string expert = "block_sparse_moe.experts." + std::to_string(e) + ".";
    EXPECT_EQ(mixtral.Gguf("ffn_gate_exps.weight", e * 40 + 7),
              mixtral.Hf(expert + "w1.weight", 7));
    EXPECT_EQ(mixtral.Gguf("ffn_up_exps.weight", e * 40 + 7), mixtral.Hf(expert + "w3.weight", 7));
    EXPECT_EQ(mixtral.Gguf("ffn_down_exps.weight", e * 32 + 7),
              mixtral.Hf(expert + "w2.weight", 7));
  }
}

// [experts, in, out] with gate and up in turn, and their biases.
TEST(MixtureRows, GptOssIsTakenApart) {
  const Written oss("gpt_oss");
  const std::string both = "mlp.experts.gate_up_proj";
  for (int64_t e = 0; e < 5; ++e) {
    for (int64_t in = 0; in < 32; ++in) {
      const std::vector<float> stored = oss.Hf(both, e * 32 + in);
      for (const int64_t r : {0, 1, 39}) {
        const auto at = static_cast<std::size_t>(2 * r), i = static_cast<std::size_t>(in);
        EXPECT_EQ(oss.Gguf("ffn_gate_exps.weight", e * 40 + r)[i], stored[at]);
        EXPECT_EQ(oss.Gguf("ffn_up_exps.weight", e * 40 + r)[i], stored[at + 1]);
      }
    }
    const std::vector<float> bias = oss.Hf(both + "_bias", e);
    EXPECT_EQ(oss.Gguf("ffn_gate_exps.bias", e)[3], bias[6]);
    EXPECT_EQ(oss.Gguf("ffn_up_exps.bias", e)[3], bias[7]);
  }
  EXPECT_EQ(oss.Gguf("post_attention_norm.weight", 0),
            oss.Hf("post_attention_layernorm.weight", 0));
  EXPECT_EQ(oss.Gguf("attn_sinks.weight", 0), oss.Hf("self_attn.sinks", 0));
}

// Of each head, its key's part as [rank, part], its value as [value, rank].
TEST(MixtureRows, LatentKeysAndValues) {
  const Written v3("deepseek_v3");
  for (int64_t head = 0; head < 4; ++head) {
    for (int64_t r = 0; r < 10; ++r) {
      EXPECT_EQ(v3.Gguf("attn_v_b.weight", head * 10 + r),
                v3.Hf("self_attn.kv_b_proj.weight", head * 16 + 6 + r));
    }
    for (int64_t i = 0; i < 20; ++i) {
      const std::vector<float> row = v3.Gguf("attn_k_b.weight", head * 20 + i);
      for (int64_t r = 0; r < 6; ++r) {
        EXPECT_EQ(row[static_cast<std::size_t>(r)],
                  v3.Hf("self_attn.kv_b_proj.weight", head * 16 + r)[static_cast<std::size_t>(i)]);
      }
    }
  }
}

// Weights that stay in the file: slices of experts, and keys that are stored [in, out].
TEST(MixtureRows, PackedWeightsAgree) {
  for (const char* name : {"mixtral", "gpt_oss", "deepseek_v3", "mistral4", "llama4"}) {
    const Written written(name);
    const ModelFiles files = OpenModel(written.folder / "m.gguf");
    const std::vector<float> packed = ProbeLogits(files, WeightStorage::kPacked);
    EXPECT_LT(test::Difference(packed, ProbeLogits(files, WeightStorage::kUnpacked)), 1e-5) << name;
  }
}

TEST(MixtureKeys, Deepseek) {
  const Written v3("deepseek_v3", Find("deepseek_v3").settings);
  const auto integer = [&](const std::string& key) {
    return v3.Key("deepseek2." + key).AsInt(key);
  };
  EXPECT_EQ(integer("attention.head_count_kv"), 1);
  EXPECT_EQ(integer("attention.key_length"), 20 + 8);
  EXPECT_EQ(integer("attention.value_length"), 20);
  EXPECT_EQ(integer("attention.key_length_mla"), 6 + 8);
  EXPECT_EQ(integer("attention.value_length_mla"), 10);
  EXPECT_EQ(integer("attention.q_lora_rank"), 16);
  EXPECT_EQ(integer("leading_dense_block_count"), 1);
  EXPECT_EQ(integer("expert_shared_count"), 2);
  EXPECT_EQ(integer("expert_gating_func"), 2);
  EXPECT_EQ(integer("expert_group_count"), 3);
  EXPECT_EQ(integer("expert_group_used_count"), 2);
  EXPECT_TRUE(v3.Key("deepseek2.expert_weights_norm").AsBool("norm"));
  EXPECT_FLOAT_EQ(v3.Key("deepseek2.expert_weights_scale").AsDouble("scale"), 1.5);
  EXPECT_FLOAT_EQ(v3.Key("deepseek2.rope.scaling.yarn_log_multiplier").AsDouble("log"), 0.1);
  EXPECT_EQ(v3.gguf.tensors.at("blk.1.ffn_gate_inp.weight").type, WeightType::kF32);
  EXPECT_TRUE(v3.gguf.tensors.contains("blk.1.exp_probs_b.bias"));
}

TEST(MixtureKeys, Mistral4) {
  const Written m("mistral4", Find("mistral4").settings);
  const auto integer = [&](const std::string& key) { return m.Key("mistral4." + key).AsInt(key); };
  EXPECT_EQ(integer("attention.head_count_kv"), 1);
  EXPECT_EQ(integer("attention.key_length"), 20 + 8);
  EXPECT_EQ(integer("attention.key_length_mla"), 6 + 8);
  EXPECT_EQ(integer("expert_gating_func"), 1);
  EXPECT_EQ(integer("expert_group_used_count"), 2);
  EXPECT_EQ(integer("attention.temperature_length"), 32);
  EXPECT_FLOAT_EQ(m.Key("mistral4.attention.temperature_scale").AsDouble("scale"), 0.1);
  EXPECT_FLOAT_EQ(m.Key("mistral4.rope.scaling.yarn_log_multiplier").AsDouble("log"), 0.1);
  EXPECT_FALSE(m.gguf.tensors.contains("blk.1.exp_probs_b.bias"));
}

TEST(MixtureKeys, Others) {
  EXPECT_EQ(Written("qwen2_moe").Key("qwen2moe.expert_shared_feed_forward_length").AsInt("k"), 28);
  EXPECT_EQ(Written("qwen3_moe").Key("qwen3moe.expert_feed_forward_length").AsInt("k"), 24);
  EXPECT_EQ(Written("llama4").Key("llama4.interleave_moe_layer_step").AsInt("k"), 2);
  EXPECT_EQ(Written("qwen").Key("qwen.feed_forward_length").AsInt("k"), 80);
}

// Published files have [in, out]; transformers 5 writes [out, in], and the count by another key.
TEST(MixtureRows, Qwen3VlInBothLayouts) {
  const test::TempFolder folder;
  json config = ChangedConfig("qwen3_vl_moe", nullptr);
  WriteModel(folder / "published", config);
  const ModelFiles published = OpenModel(folder / "published");
  test::Tensors tensors;
  for (const auto& [name, weight] : published.tensors) {
    test::Tensor tensor{weight.shape, {}};
    tensor.values.resize(static_cast<std::size_t>(weight.rows() * weight.cols()));
    weight.ReadRows(0, weight.rows(), tensor.values.data());
    if (name.find(".experts.") != std::string::npos) {
      const auto in = static_cast<std::size_t>(weight.shape[1]),
                 out = static_cast<std::size_t>(weight.shape[2]);
      const std::vector<float> before = tensor.values;
      for (std::size_t i = 0; i < before.size(); ++i) {
        const std::size_t expert = i / (in * out), row = i / out % in, column = i % out;
        tensor.values[(expert * out + column) * in + row] = before[i];
      }
      std::swap(tensor.shape[1], tensor.shape[2]);
    }
    tensors.emplace(name, std::move(tensor));
  }
  config["num_local_experts"] = config["num_experts"];
  config.erase("num_experts");
  test::Tiny::WriteFolder(folder / "newer", config, tensors);
  EXPECT_EQ(ProbeLogits(OpenModel(folder / "newer")), ProbeLogits(published));
  config["norm_topk_prob"] = false;
  test::Tiny::WriteFolder(folder / "other", config, tensors);
  EXPECT_THAT(OpenModel(folder / "other").config.not_runnable,
              HasSubstr("norm_topk_prob is false"));
}

// Stored as bytes by a folder, as blocks by GGUF: the same numbers.
TEST(MixtureRows, Mxfp4IsRepacked) {
  std::vector<std::byte> bytes(2 * 3 * 16), scales(2 * 3);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(120 + i);
  Weight pair;
  pair.type = WeightType::kMXFP4Pair;
  pair.shape = {2, 96};
  pair.data = bytes.data();
  pair.bytes = static_cast<int64_t>(bytes.size());
  pair.scales = scales.data();
  std::vector<std::byte> blocks(2 * 3 * 17);
  for (int64_t row = 0; row < 2; ++row) internal::RepackPair(pair, row, blocks.data() + row * 51);
  Weight ggml;
  ggml.type = WeightType::kMXFP4;
  ggml.shape = pair.shape;
  ggml.data = blocks.data();
  ggml.bytes = static_cast<int64_t>(blocks.size());
  for (int64_t row = 0; row < 2; ++row) EXPECT_EQ(Written::Row(ggml, row), Written::Row(pair, row));
}

// ---- Files of other converters ------------------------------------------------------------------

using Keys = std::map<std::string, GgufValue>;
using Edit = std::function<void(Keys&, std::vector<TensorSource>&, const Written&)>;

struct Other {
  Other(const char* name, const Edit& edit) {
    const Written written(name);
    right = ProbeLogits(OpenModel(written.folder / "m.gguf"));
    Keys keys = written.gguf.metadata;
    std::vector<TensorSource> tensors;
    for (const auto& [tensor, weight] : written.gguf.tensors) tensors.push_back(CopyOf(weight));
    edit(keys, tensors, written);
    WriteGguf(folder / "other.gguf", keys, tensors);
    files = OpenModel(folder / "other.gguf");
  }
  test::TempFolder folder;
  std::vector<float> right;
  ModelFiles files;
};

// Before 2025: one tensor of keys and values, the sizes of heads in the plain keys.
TEST(OtherMixtures, DeepseekInOneTensor) {
  const Other old(
      "deepseek_v3", [](Keys& keys, std::vector<TensorSource>& tensors, const Written& w) {
        std::erase_if(tensors, [](const TensorSource& t) {
          return t.name.ends_with("attn_k_b.weight") || t.name.ends_with("attn_v_b.weight");
        });
        for (int l = 0; l < 4; ++l) {
          const std::string n = std::to_string(l);
          tensors.push_back(
              CopyOf(w.hf.tensors.at("model.layers." + n + ".self_attn.kv_b_proj.weight")));
          tensors.back().name = "blk." + n + ".attn_kv_b.weight";
        }
        for (const char* key : {"key_length_mla", "value_length_mla"}) {
          keys.erase(std::string("deepseek2.attention.") + key);
        }
        keys["deepseek2.attention.key_length"] = {int64_t{14}, GgufType::kU32};
        keys["deepseek2.attention.value_length"] = {int64_t{10}, GgufType::kU32};
        keys["deepseek2.attention.head_count_kv"] = {int64_t{4}, GgufType::kU32};
      });
  EXPECT_EQ(ProbeLogits(old.files), old.right);
}

// --fuse-gate-up-exps of llama.cpp's converter.
TEST(OtherMixtures, DeepseekWithGateAndUpInOne) {
  const Other fused("deepseek_v3", [](Keys&, std::vector<TensorSource>& tensors, const Written& w) {
    std::erase_if(tensors, [](const TensorSource& t) {
      return t.name.ends_with("ffn_gate_exps.weight") || t.name.ends_with("ffn_up_exps.weight");
    });
    for (int l = 1; l < 4; ++l) {
      const std::string p = "blk." + std::to_string(l) + ".ffn_";
      std::vector<float> all;
      for (int64_t e = 0; e < 6; ++e) {
        for (const char* part : {"gate_exps.weight", "up_exps.weight"}) {
          for (int64_t r = 0; r < 24; ++r) {
            const std::vector<float> row = Written::Row(w.gguf.tensors.at(p + part), e * 24 + r);
            all.insert(all.end(), row.begin(), row.end());
          }
        }
      }
      tensors.push_back(FromFloats(p + "gate_up_exps.weight", {6, 48, 32}, std::move(all)));
    }
  });
  EXPECT_EQ(ProbeLogits(fused.files), fused.right);
  const test::TempFolder back;
  GgufToFolder(fused.files, back / "hf", kWeightsAlone);
  EXPECT_EQ(ProbeLogits(OpenModel(back / "hf")), fused.right);
}

// Older converters dropped dimensions of 1.
TEST(OtherMixtures, SharedRouterOfOneDimension) {
  const Other old("qwen2_moe", [](Keys&, std::vector<TensorSource>& tensors, const Written&) {
    int dropped = 0;
    for (TensorSource& t : tensors) {
      if (!t.name.ends_with("ffn_gate_inp_shexp.weight")) continue;
      t.shape = {t.shape.back()};
      ++dropped;
    }
    EXPECT_EQ(dropped, 4);
  });
  EXPECT_EQ(ProbeLogits(old.files), old.right);
  const test::TempFolder back;
  GgufToFolder(old.files, back / "hf", kWeightsAlone);
  EXPECT_EQ(ProbeLogits(OpenModel(back / "hf")), old.right);
}

TEST(OtherMixtures, KeysThatContradictTheArchitecture) {
  const auto reason = [](const char* name, const std::string& key, const GgufValue& value) {
    return Other(name, [&](Keys& keys, auto&, auto&) { keys[key] = value; })
        .files.config.not_runnable;
  };
  const auto integer = [](int64_t v) { return GgufValue{v, GgufType::kU32}; };
  EXPECT_THAT(reason("qwen3_moe", "qwen3moe.expert_gating_func", integer(2)),
              HasSubstr("qwen3moe.expert_gating_func: it is 2"));
  EXPECT_THAT(reason("olmoe", "olmoe.expert_weights_norm", {true, GgufType::kBool}),
              HasSubstr("olmoe.expert_weights_norm: it is true"));
  EXPECT_THAT(reason("deepseek_v3", "deepseek2.rope.scaling.type", {std::string("yarn"), {}}),
              HasSubstr("deepseek2.rope.scaling.yarn_log_multiplier"));
  EXPECT_THAT(reason("qwen", "qwen.expert_weights_scale", {2.0, GgufType::kF32}),
              HasSubstr("qwen.expert_weights_scale = 2"));
  EXPECT_EQ(reason("mixtral", "llama.expert_gating_func", integer(1)), "");
  // llama.cpp takes mscale for 1 whatever mscale_all_dim is, in this architecture alone.
  const auto log_of = [](const char* name, const std::string& prefix) {
    return Other(name,
                 [&](Keys& keys, auto&, auto&) {
                   keys[prefix + "type"] = {std::string("yarn"), {}};
                   keys[prefix + "factor"] = {4.0, GgufType::kF32};
                   keys[prefix + "yarn_log_multiplier"] = {double{0.0707F}, GgufType::kF32};
                 })
        .files.config.not_runnable;
  };
  EXPECT_THAT(log_of("mistral4", "mistral4.rope.scaling."), HasSubstr("a tenth of mscale_all_dim"));
  EXPECT_EQ(log_of("deepseek_v3", "deepseek2.rope.scaling."), "");
}

// Mistral Large 3, as llama.cpp's converter writes it.
TEST(OtherMixtures, ADeepseekWithATemperature) {
  const Other large("deepseek_v2", [](Keys& keys, auto&, auto&) {
    keys["deepseek2.attention.temperature_scale"] = {double{0.1F}, GgufType::kF32};
    keys["deepseek2.attention.temperature_length"] = {int64_t{32}, GgufType::kU32};
  });
  EXPECT_EQ(large.files.config.not_runnable, "");
  const QueryTemperature expected{.beta = 0.1, .period = 32};
  EXPECT_EQ(large.files.config.plan.layers[1].temperature, expected);
  const test::TempFolder back;
  EXPECT_THAT(MessageOf([&] { GgufToFolder(large.files, back / "hf", kWeightsAlone); }),
              HasSubstr("a temperature of its queries"));
}

// llama.cpp's own converter leaves the temperature out.
TEST(OtherMixtures, Mistral4WithoutATemperatureIsSaid) {
  const Other bare("mistral4", [](Keys& keys, auto&, auto&) {
    EXPECT_EQ(keys.erase("mistral4.attention.temperature_scale"), 1u);
    keys.erase("mistral4.attention.temperature_length");
  });
  EXPECT_EQ(bare.files.config.not_runnable, "");
  EXPECT_FALSE(bare.files.config.plan.layers[0].temperature.has_value());
  EXPECT_THAT(bare.files.config.plan.notes, Contains(HasSubstr("leaves llama_4_scaling_beta out")));
  EXPECT_GT(test::Difference(ProbeLogits(bare.files), bare.right), 1e-4);
}

TEST(OtherMixtures, GroupsOfASoftmaxAreSaid) {
  const Other v2("deepseek_v2", [](Keys& keys, auto&, auto&) {
    keys["deepseek2.expert_group_count"] = {int64_t{3}, GgufType::kU32};
    keys["deepseek2.expert_group_used_count"] = {int64_t{2}, GgufType::kU32};
  });
  EXPECT_EQ(v2.files.config.experts.groups, 3);
  EXPECT_THAT(v2.files.config.plan.notes, Contains(HasSubstr("two largest scores")));
}

TEST(OtherMixtures, LayersBehindTheLastDoNotRun) {
  const Other v3("deepseek_v3", [](Keys& keys, std::vector<TensorSource>& tensors, const Written&) {
    keys["deepseek2.block_count"] = {int64_t{5}, GgufType::kU32};
    keys["deepseek2.nextn_predict_layers"] = {int64_t{1}, GgufType::kU32};
    tensors.push_back(FromFloats("blk.4.nextn.eh_proj.weight", {2}, {1, 2}));
  });
  EXPECT_EQ(v3.files.config.layers, 4);
  EXPECT_EQ(ProbeLogits(v3.files), v3.right);
}

TEST(OtherMixtures, NumbersThatCannotBe) {
  const auto message = [](const char* name, const std::string& key, int64_t value) {
    return MessageOf([&] {
      Other(name, [&](Keys& keys, auto&, auto&) { keys[key] = {value, GgufType::kU32}; });
    });
  };
  EXPECT_THAT(message("mixtral", "llama.expert_used_count", 6),
              HasSubstr("at most expert_count (5)"));
  EXPECT_THAT(message("deepseek_v3", "deepseek2.expert_group_count", 4),
              HasSubstr("deepseek2.expert_group_count"));
  const auto used = [](std::vector<int64_t> list) {
    return Other("mixtral",
                 [&](Keys& keys, auto&, auto&) {
                   keys["llama.expert_used_count"] = {list, GgufType::kU32};
                 })
        .files.config.not_runnable;
  };
  EXPECT_THAT(MessageOf([&] { used({2, 2, 2}); }), HasSubstr("each of 4 layers, got 3"));
  EXPECT_THAT(used({2, 2, 2, 1}), HasSubstr("llama.expert_used_count: it differs by layer"));
  EXPECT_EQ(used({2, 2, 2, 2}), "");
  EXPECT_THAT(message("qwen", "qwen.feed_forward_length", 81), HasSubstr("an even number, got 81"));
  EXPECT_THAT(message("deepseek_v3", "deepseek2.nextn_predict_layers", 4),
              HasSubstr("deepseek2.nextn_predict_layers: expected 0 to 3"));
}

// ---- Refusals -----------------------------------------------------------------------------------

TEST(MixtureRefusals, WhatLlamaCppWouldComputeOtherwise) {
  struct Row {
    const char* name;
    json change;
    const char* message;
  };
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const auto scaled = [&](const json& more) {
    json rope = yarn;
    rope.update(more);
    return json{{"rope_scaling", rope}, {"max_position_embeddings", 128}};
  };
  const Row table[] = {
      {"mistral", {{"sliding_window", 20}}, "layer 0 has a sliding window"},
      {"qwen3_moe", {{"norm_topk_prob", false}}, "norm_topk_prob is false"},
      {"qwen2_moe", {{"norm_topk_prob", true}}, "norm_topk_prob is true"},
      {"qwen3_moe", {{"mlp_only_layers", {1}}}, "some layers have no experts"},
      {"olmoe", {{"num_key_value_heads", 2}}, "2 key heads for 4 heads"},
      {"deepseek_v2",
       {{"topk_method", "group_limited_greedy"}, {"n_group", 3}, {"topk_group", 2}},
       "takes the two largest"},
      {"deepseek_v3", {{"n_shared_experts", 0}}, "shared experts of 0"},
      {"deepseek_v3", {{"attention_bias", true}}, "attention_bias"},
      {"deepseek_v3", {{"rope_interleave", false}}, "pairs of elements half a rotary_dim apart"},
      {"deepseek_v3", scaled({{"mscale", 1.0}, {"mscale_all_dim", 0.7}}), "the same mscale"},
      {"mistral4", {{"q_lora_rank", 16}, {"num_hidden_layers", 26}}, "26 layers"},
      {"mistral4",
       {{"rope_parameters",
         {{"rope_type", "yarn"},
          {"rope_theta", 500.0},
          {"factor", 4.0},
          {"original_max_position_embeddings", 32},
          {"mscale", 0.7},
          {"mscale_all_dim", 0.7},
          {"llama_4_scaling_beta", 0.1}}},
        {"max_position_embeddings", 128}},
       "mscale for 1 in the architecture mistral4"},
      {"gpt_oss", scaled({{"truncate", false}}), "extend --method yarn"},
      {"llama4", {{"attention_chunk_size", 4096}}, "chunks of 8192 tokens"},
      {"llama4", {{"use_qk_norm", false}}, "5 experts without norms of q and k"},
      {"minicpm3", {{"scale_depth", 1.5}}, "has these as constants"},
      {"olmoe", {{"clip_qkv", 0.7}}, "q, k and v are clipped (clip_qkv is 0.7)"},
      {"qwen", {{"use_logn_attn", true}}, "temperature by position"},
      {"qwen", {{"use_dynamic_ntk", true}, {"max_position_embeddings", 128}}, "follows the length"},
      {"baichuan", {{"num_hidden_layers", 4}}, "4 layers that rotate"},
  };
  for (const Row& row : table) {
    const test::TempFolder folder;
    WriteModel(folder / "hf", ChangedConfig(row.name, row.change));
    const ModelFiles files = OpenModel(folder / "hf");
    const std::string message =
        MessageOf([&] { FolderToGguf(files, folder / "m.gguf", kWeightsAlone); });
    EXPECT_THAT(message, HasSubstr("GGUF cannot hold it")) << row.name;
    EXPECT_THAT(message, HasSubstr(row.message)) << row.name;
    EXPECT_FALSE(test::fs::exists(folder / "m.gguf")) << row.name;
  }
}

// The two vectors' norms have an epsilon of their own in a folder, a constant; a file has one for
// all norms. That is said, and all else is the same to the last bit.
TEST(MixtureEpsilon, IsSaidBothWays) {
  for (const char* name : {"deepseek_v2", "deepseek_v3", "mistral4", "minicpm3"}) {
    const test::TempFolder folder;
    WriteModel(folder / "hf", ChangedConfig(name, {{"rms_norm_eps", 1e-3}}));
    const ModelFiles files = OpenModel(folder / "hf");
    const Converted there = FolderToGguf(files, folder / "m.gguf", kWeightsAlone);
    EXPECT_TRUE(there.same_values) << name;
    EXPECT_EQ(there.numbers.latent_norm_eps, 1e-3) << name;
    EXPECT_THAT(there.notes,
                Contains(HasSubstr("norms of latent attention have the epsilon 1e-06")));
    const ModelFiles gguf = OpenModel(folder / "m.gguf");
    EXPECT_NE(ProbeLogits(gguf), ProbeLogits(files)) << name;
    EXPECT_EQ(ProbeLogits(gguf), ProbeLogits(AsWritten(files, there))) << name;

    const Converted back = GgufToFolder(gguf, folder / "back", kWeightsAlone);
    EXPECT_EQ(back.numbers.latent_norm_eps, 1e-6) << name;
    EXPECT_THAT(back.notes,
                Contains(HasSubstr("norms of latent attention have the epsilon 0.001")));
    const ModelFiles again = OpenModel(folder / "back");
    EXPECT_EQ(ProbeLogits(again), ProbeLogits(AsWritten(gguf, back))) << name;
    EXPECT_EQ(ProbeLogits(again), ProbeLogits(files)) << name;
  }
}

TEST(MixtureRefusals, WhatConfigJsonCannotSay) {
  const auto back = [](const char* name, const std::function<void(ModelConfig&)>& edit) {
    const Written written(name);
    ModelFiles files = OpenModel(written.folder / "m.gguf");
    edit(files.config);
    return MessageOf([&] { GgufToFolder(files, written.folder / "back", kWeightsAlone); });
  };
  EXPECT_THAT(back("mixtral", [](ModelConfig& c) { c.experts.scale = 2; }),
              HasSubstr("weights of experts multiplied by 2"));
  EXPECT_THAT(back("deepseek_v2", [](ModelConfig& c) { c.experts.normalized = true; }),
              HasSubstr("weights of experts that sum to 1"));
}

}  // namespace
}  // namespace ropewalk::families_test
