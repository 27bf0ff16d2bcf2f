// Families whose layers are not LLaMA's: to GGUF and back with the same bits and logits, tensors and
// keys as llama.cpp's converter writes them, and what llama.cpp would not load refused. Models are
// random, with the tensors that their configuration calls for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "tests/convert/family_case.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace families_test {

using nlohmann::json;
using test::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

json Yarn() {
  return {{"rope_scaling",
           {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}},
          {"max_position_embeddings", 128}};
}

// Divisors of `pairs` pairs.
json LongRope(int pairs, const char* kind) {
  json rope = {{kind, "longrope"}};
  for (int i = 0; i < pairs; ++i) {
    rope["short_factor"].push_back(1 + 0.03 * i);
    rope["long_factor"].push_back(1 + 0.9 * i);
  }
  return rope;
}

json Phi3LongRope() {
  return {{"rope_scaling", LongRope(4, "type")},
          {"original_max_position_embeddings", 32},
          {"max_position_embeddings", 128}};
}

std::vector<Case> Cases() {
  const json rms = {{"rms_norm_eps", 1e-5}};
  const auto with = [&](std::initializer_list<std::pair<const char*, json>> keys) {
    json all = rms;
    for (const auto& [key, value] : keys) all[key] = value;
    return all;
  };
  const json granite = with({{"model_type", "granite"},
                             {"attention_bias", true},
                             {"mlp_bias", true},
                             {"tie_word_embeddings", false},
                             {"embedding_multiplier", 12.0},
                             {"attention_multiplier", 0.2},
                             {"residual_multiplier", 0.22},
                             {"logits_scaling", 9.3}});
  const json chatglm = {{"model_type", "chatglm"},
                        {"num_layers", 4},
                        {"multi_query_attention", true},
                        {"multi_query_group_num", 2},
                        {"kv_channels", 8},
                        {"ffn_hidden_size", 40},
                        {"padded_vocab_size", 53},
                        {"seq_length", 64},
                        {"layernorm_epsilon", 1e-5},
                        {"add_qkv_bias", true},
                        {"add_bias_linear", false},
                        {"rmsnorm", true},
                        {"post_layer_norm", true},
                        {"apply_residual_connection_post_layernorm", false},
                        {"original_rope", true},
                        {"rope_ratio", 2.0}};
  const json neox = {{"model_type", "gpt_neox"},     {"rotary_pct", 0.5},
                     {"rotary_emb_base", 1000},      {"num_key_value_heads", 4},
                     {"tie_word_embeddings", false}, {"use_parallel_residual", true}};
  json sequential = neox;
  sequential["use_parallel_residual"] = false;
  return {
      {"granite", granite, "granite", nullptr, Yarn()},
      {"minicpm",
       with({{"model_type", "minicpm"},
             {"scale_emb", 12},
             {"scale_depth", 1.4},
             {"dim_model_base", 8}}),
       "minicpm"},
      {"phi3", with({{"model_type", "phi3"}, {"sliding_window", 20}}), "phi3"},
      {"phi3_partial",
       with({{"model_type", "phi3"},
             {"partial_rotary_factor", 0.5},
             {"tie_word_embeddings", false}}),
       "phi3"},
      {"phi3_longrope", with({{"model_type", "phi3"}}), "phi3", nullptr, Phi3LongRope()},
      {"olmo", {{"model_type", "olmo"}, {"clip_qkv", 0.5}, {"tie_word_embeddings", false}}, "olmo"},
      {"olmo2", with({{"model_type", "olmo2"}, {"tie_word_embeddings", false}}), "olmo2", nullptr,
       Yarn()},
      {"olmo3",
       with({{"model_type", "olmo3"}, {"sliding_window", 20}, {"tie_word_embeddings", false}}),
       "olmo2", nullptr, Yarn()},
      {"cohere", {{"model_type", "cohere"}, {"logit_scale", 0.25}}, "command-r"},
      {"cohere2",
       {{"model_type", "cohere2"}, {"logit_scale", 0.25}, {"sliding_window", 20}},
       "cohere2"},
      {"glm4", with({{"model_type", "glm4"}, {"partial_rotary_factor", 0.5}}), "glm4", nullptr,
       Yarn()},
      {"glm",
       with({{"model_type", "glm"}, {"partial_rotary_factor", 0.5}, {"attention_bias", true}}),
       "chatglm"},
      {"chatglm", chatglm, "chatglm", "glm"},
      {"starcoder2",
       {{"model_type", "starcoder2"}, {"norm_epsilon", 1e-5}, {"sliding_window", 20}},
       "starcoder2"},
      {"internlm2",
       with({{"model_type", "internlm2"}, {"bias", false}, {"tie_word_embeddings", false}}),
       "internlm2"},
      {"orion", with({{"model_type", "orion"}, {"tie_word_embeddings", false}}), "orion"},
      {"stablelm",
       {{"model_type", "stablelm"},
        {"partial_rotary_factor", 0.5},
        {"use_qkv_bias", true},
        {"tie_word_embeddings", false}},
       "stablelm"},
      {"stablelm_parallel",
       {{"model_type", "stablelm"},
        {"partial_rotary_factor", 0.25},
        {"use_parallel_residual", true},
        {"tie_word_embeddings", false}},
       "stablelm"},
      {"gpt_neox", neox, "gptneox", nullptr, Yarn()},
      {"gpt_neox_sequential", sequential, "gptneox"},
      {"falcon",
       {{"model_type", "falcon"}, {"multi_query", true}, {"num_key_value_heads", 1}},
       "falcon"},
      {"falcon_new",
       {{"model_type", "falcon"}, {"new_decoder_architecture", true}, {"num_kv_heads", 2}},
       "falcon"},
      {"falcon_one_norm",
       {{"model_type", "falcon"},
        {"new_decoder_architecture", true},
        {"num_kv_heads", 2},
        {"num_ln_in_parallel_attn", 1}},
       "falcon"},
      {"phi",
       {{"model_type", "phi"}, {"partial_rotary_factor", 0.5}, {"tie_word_embeddings", false}},
       "phi2"},
      {"gpt2",
       {{"model_type", "gpt2"}, {"num_key_value_heads", 4}, {"max_position_embeddings", 128}},
       "gpt2"},
      {"bloom",
       {{"model_type", "bloom"}, {"num_key_value_heads", 4}, {"intermediate_size", 128}},
       "bloom"},
      {"mpt",
       {{"model_type", "mpt"},
        {"num_key_value_heads", 4},
        {"intermediate_size", 128},
        {"no_bias", true},
        {"attn_config", {{"alibi", true}, {"alibi_bias_max", 16}, {"clip_qkv", 0.5}}}},
       "mpt"},
  };
}

const Case& Find(const std::string& name) {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all = Cases();
    for (Case& c : MixtureCases()) all.push_back(std::move(c));
    return all;
  }();
  for (const Case& c : cases) {
    if (name == c.name) return c;
  }
  throw std::runtime_error("no case " + name);
}

class FamilyTest : public ::testing::TestWithParam<const char*> {
 protected:
  ModelFiles Open(const json& settings = nullptr) {
    json config = ConfigOf(c_);
    if (!settings.is_null()) config.update(settings);
    WriteModel(folder_ / "hf", config);
    return OpenModel(folder_ / "hf");
  }
  // The same tensors, but for those whose layout the other family has otherwise.
  static void ExpectSameTensors(const ModelFiles& got, const ModelFiles& want) {
    ASSERT_EQ(got.tensors.size(), want.tensors.size());
    for (const auto& [name, w] : want.tensors) {
      if (want.config.normalized_head && name == "lm_head.weight") continue;
      ASSERT_TRUE(got.tensors.contains(name)) << name;
      const Weight& g = got.tensors.at(name);
      ASSERT_EQ(g.type, w.type) << name;
      ASSERT_EQ(g.shape, w.shape) << name;
      EXPECT_EQ(std::memcmp(g.data, w.data, static_cast<std::size_t>(w.bytes)), 0) << name;
    }
  }
  void RoundTrip(const json& settings) {
    const ModelFiles files = Open(settings);
    ASSERT_EQ(files.config.not_runnable, "");
    const Converted there = FolderToGguf(files, folder_ / "m.gguf", kWeightsAlone);
    EXPECT_TRUE(there.same_values);
    const GgufFile raw = OpenGguf(folder_ / "m.gguf");
    EXPECT_EQ(raw.metadata.at("general.architecture").AsString("architecture"), c_.gguf);
    const ModelFiles gguf = OpenModel(folder_ / "m.gguf");
    EXPECT_EQ(gguf.config.not_runnable, "");
    EXPECT_EQ(gguf.config.norm_eps, files.config.norm_eps);
    const auto proof = ProvePlan(files.config.plan, there.stored, gguf.config.plan, 128);
    EXPECT_EQ(proof.asked, proof.read);
    const std::vector<float> logits = ProbeLogits(files, there.stored);
    EXPECT_EQ(ProbeLogits(gguf), logits);

    const Converted back = GgufToFolder(gguf, folder_ / "back", kWeightsAlone);
    EXPECT_TRUE(back.same_values);
    const ModelFiles again = OpenModel(folder_ / "back");
    EXPECT_EQ(again.config.architecture,
              c_.back != nullptr ? std::string(c_.back) : files.config.architecture);
    // The text of a model with axes for images comes back as one without them.
    const auto& rotation = files.config.plan.layers[0].rotation;
    const bool axes = rotation && !rotation->axes.sections.empty();
    EXPECT_EQ(Resolve(again.config.plan, 128).hash,
              axes ? Resolve(back.stored, 128).hash : proof.asked);
    EXPECT_EQ(ProbeLogits(again, files.config.plan), ProbeLogits(files));
    if (c_.back == nullptr) ExpectSameTensors(again, files);
  }

  const Case& c_ = Find(GetParam());
  test::TempFolder folder_;
};

TEST_P(FamilyTest, ToGgufAndBackIsBitExact) { RoundTrip(nullptr); }

TEST_P(FamilyTest, Q8_0IsTheSameModel) {
  const ModelFiles files = Open();
  EXPECT_FALSE(FolderToGguf(files, folder_ / "q8.gguf", {WeightType::kQ8_0, false}).same_values);
  const ModelFiles q8 = OpenModel(folder_ / "q8.gguf");
  EXPECT_EQ(q8.tensors.at("token_embd.weight").type, WeightType::kQ8_0);
  for (const char* name : {"position_embd.weight", "blk.1.attn_norm.weight"}) {
    if (!q8.tensors.contains(name)) continue;
    EXPECT_EQ(q8.tensors.at(name).type, WeightType::kF32) << name;
  }
  const double moved = test::Difference(ProbeLogits(q8), ProbeLogits(files));
  EXPECT_GT(moved, 0);
  // A rounded score may choose another expert.
  EXPECT_LT(moved, files.config.experts.count > 0 ? 1 : 0.2);
  GgufToFolder(q8, folder_ / "decoded", kWeightsAlone);
  EXPECT_EQ(ProbeLogits(OpenModel(folder_ / "decoded")), ProbeLogits(q8));
}

class ScaledFamilyTest : public FamilyTest {};
TEST_P(ScaledFamilyTest, ToGgufAndBackIsBitExact) { RoundTrip(c_.settings); }

// No weight is dropped in silence: each renamed in turn is an error that names a tensor.
TEST_P(FamilyTest, EveryTensorCounts) {
  FolderToGguf(Open(), folder_ / "m.gguf", kWeightsAlone);
  const GgufFile raw = OpenGguf(folder_ / "m.gguf");
  for (const auto& [renamed, ignored] : raw.tensors) {
    // The first layer says what all have; the others are alike.
    if (renamed.starts_with("blk.2.") || renamed.starts_with("blk.3.")) continue;
    std::vector<TensorSource> tensors;
    for (const auto& [name, weight] : raw.tensors) {
      tensors.push_back(CopyOf(weight));
      if (name == renamed) tensors.back().name = "stranger.weight";
    }
    WriteGguf(folder_ / "renamed.gguf", raw.metadata, tensors);
    const std::string message = MessageOf([&] { OpenModel(folder_ / "renamed.gguf"); });
    EXPECT_THAT(message, HasSubstr("renamed.gguf: tensor '")) << renamed;
  }
}

INSTANTIATE_TEST_SUITE_P(Random, FamilyTest,
                         ::testing::Values("granite", "minicpm", "phi3", "phi3_partial",
                                           "phi3_longrope", "olmo", "olmo2", "olmo3", "cohere",
                                           "cohere2", "glm4", "glm", "chatglm", "starcoder2",
                                           "internlm2", "orion", "stablelm", "stablelm_parallel",
                                           "gpt_neox", "gpt_neox_sequential", "falcon",
                                           "falcon_new", "falcon_one_norm", "phi", "gpt2", "bloom",
                                           "mpt", "mistral", "mixtral", "qwen3_moe", "qwen2_moe",
                                           "olmoe", "gpt_oss", "deepseek_v2", "deepseek_v3",
                                           "llama4", "minicpm3", "ministral3", "qwen", "baichuan",
                                           "baichuan_13b", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Random, ScaledFamilyTest,
                         ::testing::Values("granite", "phi3_longrope", "olmo2", "olmo3", "glm4",
                                           "gpt_neox", "mistral", "mixtral", "qwen3_moe", "gpt_oss",
                                           "deepseek_v2", "deepseek_v3", "minicpm3", "ministral3",
                                           "qwen2_vl", "qwen3_vl"),
                         [](const auto& info) { return std::string(info.param); });

// ---- What llama.cpp's converter writes, typed again --------------------------------------------

struct Written {
  explicit Written(const char* name) : arch(Find(name).gguf) {
    WriteModel(folder / "hf", ConfigOf(Find(name)));
    hf = OpenModel(folder / "hf");
    FolderToGguf(hf, folder / "m.gguf", kWeightsAlone);
    gguf = OpenGguf(folder / "m.gguf");
  }
  double Number(const std::string& key) const {
    return gguf.metadata.at(arch + "." + key).AsDouble(key);
  }
  static std::vector<float> Row(const Weight& w, int64_t row) {
    std::vector<float> out(static_cast<std::size_t>(w.cols()));
    w.ReadRows(row, 1, out.data());
    return out;
  }
  std::vector<float> HfRow(const std::string& name, int64_t row) const {
    return Row(hf.tensors.at(name), row);
  }
  std::vector<float> GgufRow(const std::string& name, int64_t row) const {
    return Row(gguf.tensors.at(name), row);
  }
  std::string arch;
  test::TempFolder folder;
  ModelFiles hf;
  GgufFile gguf;
};

TEST(FamilyKeys, MultipliersHaveGranitesWords) {
  const Written granite("granite");
  EXPECT_FLOAT_EQ(granite.Number("embedding_scale"), 12);
  EXPECT_FLOAT_EQ(granite.Number("residual_scale"), 0.22f);
  EXPECT_FLOAT_EQ(granite.Number("attention.scale"), 0.2f);
  EXPECT_FLOAT_EQ(granite.Number("logit_scale"), 9.3f);  // divides
  const Written minicpm("minicpm");
  EXPECT_FLOAT_EQ(minicpm.Number("embedding_scale"), 12);
  EXPECT_FLOAT_EQ(minicpm.Number("residual_scale"), 1.4 / std::sqrt(4.0));
  EXPECT_FLOAT_EQ(minicpm.Number("logit_scale"), 32.0 / 8);
  const Written cohere("cohere");
  EXPECT_FLOAT_EQ(cohere.Number("logit_scale"), 0.25);  // multiplies
  EXPECT_FLOAT_EQ(cohere.Number("attention.layer_norm_epsilon"), 1e-5);
  EXPECT_FALSE(cohere.gguf.metadata.contains("command-r.attention.layer_norm_rms_epsilon"));
  EXPECT_FLOAT_EQ(Written("olmo").Number("attention.clamp_kqv"), 0.5);
}

// What is no short decimal: float32 in GGUF, and the same float in every product.
TEST(FamilyKeys, MultipliersOfManyDigits) {
  const test::TempFolder folder;
  json config = ConfigOf(Find("granite"));
  config.update({{"logits_scaling", 7.123456789},
                 {"attention_multiplier", 0.123456789},
                 {"residual_multiplier", 0.2718281828459}});
  WriteModel(folder / "hf", config);
  const ModelFiles files = OpenModel(folder / "hf");
  const Converted there = FolderToGguf(files, folder / "m.gguf", kWeightsAlone);
  const ModelFiles gguf = OpenModel(folder / "m.gguf");
  EXPECT_TRUE(there.same_values);
  EXPECT_EQ(ProbeLogits(gguf), ProbeLogits(AsWritten(files, there)));
  EXPECT_LT(test::Difference(ProbeLogits(gguf), ProbeLogits(files)), 1e-6);
  GgufToFolder(gguf, folder / "back", kWeightsAlone);
  std::ifstream in(folder / "back/config.json");
  const json back = json::parse(in);
  EXPECT_EQ(back["logits_scaling"], 7.123457);
  EXPECT_EQ(back["attention_multiplier"], 0.12345679);
  EXPECT_EQ(ProbeLogits(OpenModel(folder / "back")), ProbeLogits(gguf));
}

TEST(FamilyKeys, WindowsOfLayers) {
  for (const char* name : {"olmo3", "cohere2"}) {
    const Written written(name);
    EXPECT_EQ(written.Number("attention.sliding_window"), 20);
    const GgufValue& pattern =
        written.gguf.metadata.at(written.arch + ".attention.sliding_window_pattern");
    EXPECT_EQ(std::get<std::vector<int64_t>>(pattern.value), (std::vector<int64_t>{1, 1, 1, 0}));
    EXPECT_EQ(pattern.type, GgufType::kBool);
  }
  EXPECT_EQ(Written("phi3").Number("attention.sliding_window"), 20);
}

// llama.cpp's reshape of rows into heads of two halves, swapped: half h, pair p -> 2 p + h.
TEST(FamilyRows, QAndKInterleaved) {
  for (const char* name : {"granite", "minicpm", "olmo"}) {
    const Written written(name);
    for (int64_t row = 0; row < 32; ++row) {
      const int64_t head = row / 8, pair = row % 8 / 2, half = row % 2;
      EXPECT_EQ(written.GgufRow("blk.1.attn_q.weight", row),
                written.HfRow("model.layers.1.self_attn.q_proj.weight", head * 8 + half * 4 + pair))
          << name << " row " << row;
    }
  }
  const Written cohere("cohere");  // interleaved in both
  for (int64_t row = 0; row < 32; ++row) {
    EXPECT_EQ(cohere.GgufRow("blk.1.attn_q.weight", row),
              cohere.HfRow("model.layers.1.self_attn.q_proj.weight", row));
  }
}

// wqkv has, for each of two key heads, two query heads, itself, its values.
TEST(FamilyRows, InternLm2IsTakenApart) {
  const Written written("internlm2");
  const auto hf = [&](int64_t head, int64_t row) {
    return written.HfRow("model.layers.2.attention.wqkv.weight", head * 8 + row);
  };
  for (int64_t row = 0; row < 8; ++row) {
    const int64_t half_row = row % 2 * 4 + row / 2;
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(written.GgufRow("blk.2.attn_q.weight", head * 8 + row),
                hf(head / 2 * 4 + head % 2, half_row));
    }
    for (int64_t head = 0; head < 2; ++head) {
      EXPECT_EQ(written.GgufRow("blk.2.attn_k.weight", head * 8 + row), hf(head * 4 + 2, half_row));
      EXPECT_EQ(written.GgufRow("blk.2.attn_v.weight", head * 8 + row), hf(head * 4 + 3, row));
    }
  }
}

TEST(FamilyRows, GateAndUpStayOneTensor) {
  const Written phi3("phi3");
  EXPECT_EQ(phi3.gguf.tensors.at("blk.0.attn_qkv.weight").shape, (std::vector<int64_t>{64, 32}));
  for (const char* name : {"phi3", "glm4", "chatglm"}) {
    const Written written(name);
    const Weight& up = written.gguf.tensors.at("blk.0.ffn_up.weight");
    EXPECT_EQ(up.shape, (std::vector<int64_t>{80, 32})) << name;
    EXPECT_FALSE(written.gguf.tensors.contains("blk.0.ffn_gate.weight")) << name;
  }
}

// Each head's q, k and v become all of q, all of k, all of v; biases as well.
TEST(FamilyRows, HeadsAreTakenApart) {
  const Written neox("gpt_neox");
  for (int64_t row = 0; row < 96; ++row) {
    const int64_t part = row / 32, head = row % 32 / 8;
    const int64_t source = (head * 3 + part) * 8 + row % 8;
    EXPECT_EQ(neox.GgufRow("blk.1.attn_qkv.weight", row),
              neox.HfRow("gpt_neox.layers.1.attention.query_key_value.weight", source));
    EXPECT_EQ(neox.GgufRow("blk.1.attn_qkv.bias", 0)[static_cast<std::size_t>(row)],
              neox.HfRow("gpt_neox.layers.1.attention.query_key_value.bias",
                         0)[static_cast<std::size_t>(source)]);
  }
  EXPECT_TRUE(neox.gguf.metadata.at("gptneox.use_parallel_residual").AsBool("parallel"));
}

TEST(FamilyRows, Gpt2IsTransposed) {
  const Written gpt2("gpt2");
  for (const char* name : {"attn.c_attn attn_qkv", "attn.c_proj attn_output", "mlp.c_fc ffn_up",
                           "mlp.c_proj ffn_down"}) {
    const std::string words = name, hf = words.substr(0, words.find(' ')),
                      gguf = words.substr(words.find(' ') + 1);
    const Weight& from = gpt2.hf.tensors.at("transformer.h.3." + hf + ".weight");
    const Weight& to = gpt2.gguf.tensors.at("blk.3." + gguf + ".weight");
    ASSERT_EQ(to.shape, (std::vector<int64_t>{from.shape[1], from.shape[0]}));
    for (int64_t i = 0; i < from.rows(); ++i) {
      const std::vector<float> row = Written::Row(from, i);
      for (int64_t j = 0; j < from.cols(); ++j) {
        ASSERT_EQ(Written::Row(to, j)[static_cast<std::size_t>(i)],
                  row[static_cast<std::size_t>(j)]);
      }
    }
  }
  EXPECT_EQ(gpt2.Number("context_length"), 128);
}

// Falcon 40B: attention reads the second norm of GGUF.
TEST(FamilyRows, FalconsTwoNorms) {
  const Written falcon("falcon_new");
  EXPECT_EQ(falcon.GgufRow("blk.0.attn_norm_2.weight", 0),
            falcon.HfRow("transformer.h.0.ln_attn.weight", 0));
  EXPECT_EQ(falcon.GgufRow("blk.0.attn_norm.weight", 0),
            falcon.HfRow("transformer.h.0.ln_mlp.weight", 0));
}

TEST(FamilyKeys, AlibiAndClip) {
  const Written mpt("mpt");
  EXPECT_EQ(mpt.Number("attention.max_alibi_bias"), 16);
  EXPECT_EQ(mpt.Number("attention.clamp_kqv"), 0.5);
  const Written bloom("bloom");  // known by its name
  EXPECT_FALSE(bloom.gguf.metadata.contains("bloom.attention.max_alibi_bias"));
}

// Files of other converters: q, k and v in one tensor where they usually are three, and the other
// way; the old keys of MiniCPM.
class OtherFiles : public ::testing::Test {
 protected:
  // The file with `edit` applied to its tensors and keys.
  ModelFiles Rewritten(const char* name,
                       const std::function<void(std::map<std::string, GgufValue>&,
                                                std::vector<TensorSource>&)>& edit) {
    const Written written(name);
    right_ = ProbeLogits(OpenModel(written.folder / "m.gguf"));
    std::map<std::string, GgufValue> keys = written.gguf.metadata;
    std::vector<TensorSource> tensors;
    for (const auto& [tensor, weight] : written.gguf.tensors) tensors.push_back(CopyOf(weight));
    edit(keys, tensors);
    WriteGguf(folder_ / "other.gguf", keys, tensors);
    return OpenModel(folder_ / "other.gguf");
  }
  static std::vector<float> Values(const TensorSource& t) {
    const int64_t cols = t.shape.back(), rows = t.shape.size() > 1 ? t.shape[0] : 1;
    std::vector<float> out(static_cast<std::size_t>(rows * cols));
    t.read(0, rows, reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  test::TempFolder folder_;
  std::vector<float> right_;
};

TEST_F(OtherFiles, QkvInOneTensor) {
  for (const char* name : {"granite", "olmo2", "glm4"}) {
    const ModelFiles files = Rewritten(name, [&](auto&, std::vector<TensorSource>& tensors) {
      std::map<std::string, TensorSource> by_name;
      for (TensorSource& t : tensors) by_name[t.name] = t;
      tensors.clear();
      for (const char* kind : {".weight", ".bias"}) {
        for (int l = 0; l < 4; ++l) {
          const std::string p = "blk." + std::to_string(l) + ".attn_";
          if (!by_name.contains(p + "q" + kind)) continue;
          std::vector<float> all;
          std::vector<int64_t> shape = by_name[p + "q" + kind].shape;
          for (const char* part : {"k", "v"}) shape[0] += by_name[p + part + kind].shape[0];
          for (const char* part : {"q", "k", "v"}) {
            const std::vector<float> values = Values(by_name[p + part + kind]);
            all.insert(all.end(), values.begin(), values.end());
            by_name.erase(p + part + kind);
          }
          by_name[p + "qkv" + kind] = FromFloats(p + "qkv" + kind, shape, std::move(all));
        }
      }
      for (auto& [tensor, source] : by_name) tensors.push_back(std::move(source));
    });
    EXPECT_EQ(ProbeLogits(files), right_) << name;
  }
}

TEST_F(OtherFiles, MiniCpmWithoutKeysIsThe2B) {
  const ModelFiles files = Rewritten("minicpm", [](auto& keys, auto&) {
    for (const char* key : {"embedding_scale", "residual_scale", "logit_scale"}) {
      ASSERT_EQ(keys.erase(std::string("minicpm.") + key), 1u);
    }
  });
  EXPECT_EQ(files.config.embedding_scale, 12);
  EXPECT_DOUBLE_EQ(files.config.layer.residual_scale, 1.4 / std::sqrt(4.0));
  EXPECT_DOUBLE_EQ(files.config.logit_scale, 256.0 / 32);
}

TEST_F(OtherFiles, GraniteWithoutRotation) {
  const ModelFiles files = Rewritten("granite", [](auto& keys, auto&) {
    keys["granite.rope.scaling.finetuned"] = {false, GgufType::kBool};
  });
  for (const LayerPlan& layer : files.config.plan.layers) EXPECT_FALSE(layer.rotation);
}

TEST_F(OtherFiles, KeysOfOtherFamiliesAreRefused) {
  EXPECT_THAT(Rewritten("orion",
                        [](auto& keys, auto&) {
                          keys["orion.logit_scale"] = {0.5, GgufType::kF32};
                        })
                  .config.not_runnable,
              HasSubstr("orion.logit_scale = 0.5"));
}

// ---- Refusals -----------------------------------------------------------------------------------

TEST(FamilyRefusals, WhatLlamaCppWouldNotLoad) {
  const test::TempFolder folder;
  const auto to_gguf = [&](const char* name, const json& change) {
    const test::TempFolder source;
    json config = ConfigOf(Find(name));
    config.update(change);
    WriteModel(source / "hf", config);
    return MessageOf(
        [&] { FolderToGguf(OpenModel(source / "hf"), folder / "m.gguf", kWeightsAlone); });
  };
  struct Row {
    const char* name;
    json change;
    std::vector<const char*> message;
  };
  const Row table[] = {
      {"olmo", {{"attention_bias", true}}, {"o_proj has a bias", "olmo"}},
      {"internlm2", {{"bias", true}}, {"o_proj has a bias", "internlm2"}},
      {"cohere", {{"use_qk_norm", true}}, {"4 layers with norms of q and k", "64 layers"}},
      {"cohere", {{"tie_word_embeddings", false}}, {"lm_head is not the embedding", "command-r"}},
      {"starcoder2", {{"use_bias", false}}, {"no biases", "starcoder2"}},
      {"starcoder2", {{"hidden_act", "gelu"}}, {"activation is not gelu_pytorch_tanh"}},
      {"phi3", {{"head_dim", 16}}, {"4 heads of 16 for 32", "phi3"}},
      {"gpt_neox", {{"attention_bias", false}}, {"no biases", "gptneox"}},
      {"falcon", {{"parallel_attn", false}}, {"its MLP follows attention", "falcon"}},
      {"falcon", {{"alibi", true}}, {"does not rotate", "falcon"}},
      {"bloom",
       {{"apply_residual_connection_post_layernorm", true}},
       {"added to the norm's result", "bloom"}},
      {"mpt",
       {{"attn_config", {{"alibi", true}, {"softmax_scale", 0.3}}}},
       {"scores are multiplied by 0.3", "mpt"}},
      {"glm", {{"head_dim", 16}}, {"4 heads of 16 for 32", "chatglm"}},
      {"cohere2",
       {{"layer_types",
         {"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"}}},
       {"no error"}},
      {"olmo2",
       {{"rope_scaling", LongRope(4, "rope_type")},
        {"max_position_embeddings", 128},
        {"original_max_position_embeddings", 32}},
       {"does not load their tensor for the architecture olmo2"}},
  };
  for (const Row& row : table) {
    std::error_code ignored;
    test::fs::remove(folder / "m.gguf", ignored);
    const std::string message = to_gguf(row.name, row.change);
    for (const char* part : row.message) EXPECT_THAT(message, HasSubstr(part)) << row.name;
    EXPECT_EQ(test::fs::exists(folder / "m.gguf"), message == "no error") << row.name;
  }
}

TEST(FamilyRefusals, WhatConfigJsonCannotSay) {
  const auto to_hf = [&](const char* name, const std::function<void(ModelConfig&)>& edit) {
    const Written written(name);
    ModelFiles files = OpenModel(written.folder / "m.gguf");
    edit(files.config);
    return MessageOf([&] { GgufToFolder(files, written.folder / "back", kWeightsAlone); });
  };
  EXPECT_THAT(to_hf("phi3_longrope",
                    [](ModelConfig& c) {
                      for (LayerPlan& l : c.plan.layers) l.rotation->scaling = YarnScaling{};
                    }),
              AllOf(HasSubstr("phi3"), HasSubstr("LongRoPE")));
  EXPECT_THAT(to_hf("phi3_longrope",
                    [](ModelConfig& c) {
                      const std::vector<double> ones(4, 1.0);
                      c.plan.configured_length = 128;
                      c.plan.trained_length = 32;
                      for (LayerPlan& l : c.plan.layers) {
                        l.rotation->trained_length = 32;
                        l.rotation->scaling = LongRopeScaling{
                            .short_factor = ones, .long_factor = ones, .attention_factor = 2};
                      }
                    }),
              HasSubstr("attention factor of a phi3 model"));
  EXPECT_THAT(to_hf("minicpm", [](ModelConfig& c) { c.architecture = "gptj"; }),
              HasSubstr("is not written as a Hugging Face folder"));
}

}  // namespace families_test
}  // namespace ropewalk
