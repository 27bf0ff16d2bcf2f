// Conversion: the same bits back, the same logits, refusals with a reason. Models are transformers'
// tiny ones (biases, norms of q and k, GQA, untied heads).
#include "ropewalk/convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/new_output.h"
#include "ropewalk/io/writer.h"
#include "tests/model/support.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace convert_test {

using test::MessageOf;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const test::fs::path kGoldens = test::fs::path(ROPEWALK_SOURCE_DIR) / "tests/golden/hf_models";

// qwen2 with biases as random as its weights. Not the golden: GGUF has no head size for qwen2 but
// hidden / heads, and the golden's is another.
nlohmann::json WriteQwen2(const test::TempFolder& folder) {
  test::Tiny tiny{.layers = 2, .hidden = 32, .heads = 4, .kv_heads = 2, .feed_forward = 64};
  test::Tensors weights = tiny.Weights();
  for (int64_t l = 0; l < tiny.layers; ++l) {
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      const std::string p = "model.layers." + std::to_string(l) + ".self_attn." + name;
      const test::Tensor& w = weights.at(p + ".weight");
      const auto rows = static_cast<std::size_t>(w.shape[0]);
      weights[p + ".bias"] = {{w.shape[0]}, {w.values.begin(), w.values.begin() + rows}};
    }
  }
  test::WriteSafetensors(folder / "model.safetensors", weights);
  nlohmann::json config = tiny.Config();
  config["model_type"] = "qwen2";
  return config;
}

// A golden model with `edit` applied to its configuration.
ModelFiles OpenGolden(const test::TempFolder& folder, const std::string& family,
                      const std::function<void(nlohmann::json&)>& edit) {
  nlohmann::json config;
  if (family == "qwen2") {
    config = WriteQwen2(folder);
  } else {
    for (const auto& entry : test::fs::directory_iterator(kGoldens / family)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("model")) test::fs::copy_file(entry.path(), folder / name);
    }
    std::ifstream in(kGoldens / family / "default.json");
    config = nlohmann::json::parse(in);
  }
  edit(config);
  test::WriteFile(folder / "config.json", config.dump());
  return OpenModel(folder.path());
}

void ExpectSameTensors(const std::map<std::string, Weight>& got,
                       const std::map<std::string, Weight>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, w] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    const Weight& g = got.at(name);
    EXPECT_EQ(g.type, w.type) << name;
    EXPECT_EQ(g.shape, w.shape) << name;
    ASSERT_EQ(g.bytes, w.bytes) << name;
    EXPECT_EQ(std::memcmp(g.data, w.data, static_cast<std::size_t>(w.bytes)), 0) << name;
  }
}

struct Setting {
  const char* name;
  nlohmann::ordered_json json;  // keys of config.json
};
std::vector<Setting> Settings() {
  return {{"default", nullptr},
          {"linear",
           {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}},
            {"max_position_embeddings", 512}}},
          {"yarn",
           {{"rope_scaling",
             {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}}},
            {"max_position_embeddings", 512}}}};
}

class Families : public ::testing::TestWithParam<const char*> {};

TEST_P(Families, ToGgufAndBackIsBitExact) {
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(setting.name);
    const test::TempFolder folder, out;
    const ModelFiles files = OpenGolden(folder, GetParam(), [&](nlohmann::json& config) {
      for (const auto& [key, value] : setting.json.items()) config[key] = value;
    });
    const ConvertOptions weights_alone{{}, false};
    const Converted there = FolderToGguf(files, out / "model.gguf", weights_alone);
    EXPECT_TRUE(there.same_values);
    const ModelFiles gguf = OpenModel(out / "model.gguf");
    EXPECT_EQ(gguf.config.architecture, GetParam());
    for (const auto& [name, weight] : gguf.tensors) {
      if (weight.shape.size() == 1) {
        EXPECT_EQ(weight.type, WeightType::kF32) << name;
      }
    }
    const auto proof = ProvePlan(files.config.plan, there.stored, gguf.config.plan, 512);
    EXPECT_EQ(proof.asked, proof.read);
    const std::vector<float> logits = ProbeLogits(files);
    EXPECT_EQ(ProbeLogits(gguf), logits);

    const Converted back = GgufToFolder(gguf, out / "hf", weights_alone);
    EXPECT_TRUE(back.same_values);
    const ModelFiles again = OpenModel(out / "hf");
    ExpectSameTensors(again.tensors, files.tensors);
    EXPECT_EQ(Resolve(again.config.plan, 512).hash, proof.asked);
    EXPECT_EQ(again.config.norm_eps, files.config.norm_eps);
    EXPECT_EQ(ProbeLogits(again), logits);
  }
}

TEST_P(Families, Q8_0AndBackAndForthGivesTheSameBytes) {
  const test::TempFolder folder, out;
  const ModelFiles files = OpenGolden(folder, GetParam(), [](nlohmann::json&) {});
  const auto to = FolderToGguf(files, out / "q8.gguf", {WeightType::kQ8_0, false});
  EXPECT_FALSE(to.same_values);
  const ModelFiles q8 = OpenModel(out / "q8.gguf");
  EXPECT_EQ(q8.tensors.at("token_embd.weight").type, WeightType::kQ8_0);
  GgufToFolder(q8, out / "hf", {{}, false});
  const ModelFiles decoded = OpenModel(out / "hf");
  EXPECT_EQ(ProbeLogits(decoded), ProbeLogits(q8));
  FolderToGguf(decoded, out / "again.gguf", {WeightType::kQ8_0, false});
  ExpectSameTensors(OpenGguf(out / "again.gguf").tensors, q8.tensors);
  // Rounded, yet the same model: the control that the probe sees rounding at all.
  const double moved = test::Difference(ProbeLogits(q8), ProbeLogits(files));
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 0.1);
}

// The rows of q and k, their biases and norms, interleaved; the decoder puts them back.
TEST_P(Families, InterleavedFolderGivesTheSameLogits) {
  const test::TempFolder folder, out;
  const ModelFiles files = OpenGolden(folder, GetParam(), [](nlohmann::json&) {});
  PermuteFolder(files, out / "there", PairLayout::kInterleaved);
  ModelFiles there = OpenEitherLayout(out / "there");
  EXPECT_TRUE(there.config.permuted_qk);
  EXPECT_EQ(ProbeLogits(there), ProbeLogits(files));
  there.config.permuted_qk = false;
  EXPECT_NE(ProbeLogits(there), ProbeLogits(files)) << "nothing was moved";
  PermuteFolder(there, out / "back", PairLayout::kHalf);
  EXPECT_FALSE(OpenEitherLayout(out / "back").config.permuted_qk);
  ExpectSameTensors(OpenSafetensorsFolder(out / "back"), files.tensors);
}

INSTANTIATE_TEST_SUITE_P(Golden, Families, ::testing::Values("llama", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

// llama.cpp gives up on files of these architectures that turn half a head: "llama" with an error,
// qwen2 and qwen3 by aborting.
TEST(Convert, PartialRotaryIsNoGguf) {
  const test::TempFolder folder, out;
  test::Tiny tiny;
  tiny.WriteFolder(folder / "hf");
  ModelFiles files = OpenModel(folder / "hf");
  for (LayerPlan& layer : files.config.plan.layers) layer.rotation->rotary_dim = 4;
  EXPECT_THAT(MessageOf([&] {
                FolderToGguf(files, out / "m.gguf", {{}, false});
              }),
              AllOf(HasSubstr("4 of 8 dimensions"), HasSubstr("whole heads")));
  EXPECT_FALSE(test::fs::exists(out / "m.gguf"));
}

// llama.cpp multiplies its own amplitude, 0.1 ln s + 1, by rope.scaling.attn_factor, and loads no
// file that does not name a tokenizer.
TEST(Convert, YarnAmplitudeIsAFactorInGguf) {
  const test::TempFolder folder, out;
  const ModelFiles files = OpenGolden(folder, "llama", [](nlohmann::json& c) {
    c["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 0.9}};
  });
  const auto converted = FolderToGguf(files, out / "m.gguf", {{}, false});
  const ModelFiles gguf = OpenModel(out / "m.gguf");
  ProvePlan(files.config.plan, converted.stored, gguf.config.plan, 512);
  const GgufFile raw = OpenGguf(out / "m.gguf");
  EXPECT_FLOAT_EQ(raw.metadata.at("llama.rope.scaling.attn_factor").AsDouble("attn_factor"),
                  0.9 / (0.1 * std::log(4.0) + 1));
  EXPECT_EQ(raw.metadata.at("tokenizer.ggml.model").AsString("model"), "no_vocab");
  EXPECT_THAT(gguf.tokenizer_error, HasSubstr("no_vocab"));
  EXPECT_NEAR(Resolve(*gguf.config.plan.layers[0].rotation, 512).amplitude, 0.9, 1e-7);
  GgufToFolder(gguf, out / "hf", {{}, false});
}

// B [out, rank] and DoRA's magnitudes [out] move with the rows that they add to; A does not.
// x W'^T with W' = W + B A: permuting W and B permutes the product, whatever A is.
TEST(Convert, LoraMovesBAndNotA) {
  const test::TempFolder folder;
  test::Tensors lora;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    test::Tensor t{std::move(shape), std::vector<float>(static_cast<std::size_t>(n))};
    for (std::size_t i = 0; i < t.values.size(); ++i) t.values[i] = static_cast<float>(i);
    lora.emplace("base_model.model.model.layers.0.self_attn." + name, std::move(t));
  };
  add("q_proj.lora_A.weight", {8, 4});
  add("q_proj.lora_B.weight", {16, 4});
  add("k_proj.lora_B.weight", {8, 4});
  add("v_proj.lora_B.weight", {8, 4});
  add("q_proj.lora_magnitude_vector", {16});
  test::WriteSafetensors(folder / "adapter.safetensors", lora);
  PermuteSafetensors(folder / "adapter.safetensors", folder / "out.safetensors", {8, 8},
                     PairLayout::kInterleaved);
  const auto out = OpenSafetensors(folder / "out.safetensors");
  const int64_t order[] = {0, 4, 1, 5, 2, 6, 3, 7};
  for (const auto& [name, tensor] : lora) {
    const bool moves =
        name.find("lora_A") == std::string::npos && name.find("v_proj") == std::string::npos;
    const int64_t rows = tensor.shape[0];
    const int64_t cols = static_cast<int64_t>(tensor.values.size()) / rows;
    const auto* got = reinterpret_cast<const float*>(out.at(name).data);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t from = moves ? r / 8 * 8 + order[r % 8] : r;
      for (int64_t c = 0; c < cols; ++c) {
        ASSERT_EQ(got[r * cols + c], tensor.values[static_cast<std::size_t>(from * cols + c)])
            << name << " row " << r;
      }
    }
  }
}

TEST(Convert, RefusesWhatItWouldGetWrong) {
  const test::TempFolder folder, out;
  const auto write = [&](const test::Tensors& tensors) {
    test::WriteSafetensors(folder / "w.safetensors", tensors);
  };
  const auto permute = [&] {
    PermuteSafetensors(folder / "w.safetensors", out / "o", {8, 8}, PairLayout::kHalf);
  };
  write({{"layers.0.qkv_proj.weight", {{24, 1}, std::vector<float>(24)}}});
  EXPECT_THAT(MessageOf(permute), AllOf(HasSubstr("qkv_proj"), HasSubstr("split it first")));
  write({{"layers.0.o_proj.weight", {{8, 1}, std::vector<float>(8)}}});
  EXPECT_THAT(MessageOf(permute), HasSubstr("no tensor is called q_proj"));
  write({{"q_proj.weight", {{9, 1}, std::vector<float>(9)}}});
  EXPECT_THAT(MessageOf(permute), HasSubstr("whole number of heads"));

  const auto to_gguf = [&](const std::string& family, const auto& edit) {
    const test::TempFolder source;
    return MessageOf([&] {
      const ModelFiles files = OpenGolden(source, family, edit);
      FolderToGguf(files, out / "m.gguf", {{}, false});
    });
  };
  for (const char* family : {"smollm3", "gemma3"}) {
    EXPECT_THAT(to_gguf(family, [](nlohmann::json&) {}), HasSubstr("is not written as GGUF"));
  }
  EXPECT_THAT(to_gguf("qwen2",
                      [](nlohmann::json& c) {
                        c["use_sliding_window"] = true;
                        c["layer_types"] = {"full_attention", "sliding_attention"};
                      }),
              HasSubstr("sliding window"));
  EXPECT_THAT(to_gguf("llama",
                      [](nlohmann::json& c) {
                        c["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
                      }),
              HasSubstr("follows the length"));
  const auto yarn = [](const char* key, const nlohmann::json& value) {
    return [=](nlohmann::json& c) {
      c["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2.0}, {key, value}};
    };
  };
  EXPECT_THAT(to_gguf("llama", yarn("truncate", false)),
              AllOf(HasSubstr("always truncates"), HasSubstr("Hugging Face folder can")));
  EXPECT_THAT(to_gguf("llama", yarn("beta_fast", 16)),
              AllOf(HasSubstr("beta_fast"), HasSubstr("has 16 and 1")));
  // What the file says of sizes and biases has to match its weights, so these are changed later.
  const auto with = [&](const char* family, const std::function<void(ModelConfig&)>& edit) {
    const test::TempFolder source;
    ModelFiles files = OpenGolden(source, family, [](nlohmann::json&) {});
    edit(files.config);
    return MessageOf([&] { FolderToGguf(files, out / "m.gguf", {{}, false}); });
  };
  EXPECT_THAT(with("qwen3", [](ModelConfig& c) { c.layer.attention.out_bias = true; }),
              AllOf(HasSubstr("o_proj has a bias"), HasSubstr("qwen3")));
  EXPECT_THAT(with("qwen2", [](ModelConfig& c) { c.head_dim = 16; }),
              AllOf(HasSubstr("4 heads of 16 for 32"), HasSubstr("qwen2")));
  EXPECT_THAT(to_gguf("qwen3",
                      [](nlohmann::json& c) {
                        c["rope_scaling"] = {{"rope_type", "llama3"},
                                             {"factor", 4.0},
                                             {"low_freq_factor", 1.0},
                                             {"high_freq_factor", 4.0},
                                             {"original_max_position_embeddings", 32}};
                      }),
              AllOf(HasSubstr("llama.cpp"), HasSubstr("qwen3")));
  EXPECT_FALSE(test::fs::exists(out / "m.gguf"));
}

// GGUF rounds divisors and amplitudes to float32, so the logits are those of the rounded plan, bit
// for bit, and not those of the one that was asked for.
TEST(Convert, RoundedPositionsGiveTheirOwnLogits) {
  const nlohmann::json settings[] = {
      {{"rope_type", "llama3"},
       {"factor", 8.0},
       {"low_freq_factor", 1.0},
       {"high_freq_factor", 4.0},
       {"original_max_position_embeddings", 32}},
      {{"rope_type", "longrope"},
       {"factor", 3.0},
       {"short_factor", {1, 1.03, 1.06, 1.09, 1.12, 1.15, 1.18, 1.21}},
       {"long_factor", {1, 1.9, 2.8, 3.7, 4.6, 5.5, 6.4, 7.3}},
       {"original_max_position_embeddings", 32}},
      {{"rope_type", "yarn"},
       {"factor", 4.0},
       {"attention_factor", 0.9},
       {"original_max_position_embeddings", 32}}};
  for (const nlohmann::json& setting : settings) {
    SCOPED_TRACE(setting.dump());
    const test::TempFolder folder, out;
    const ModelFiles files =
        OpenGolden(folder, "llama", [&](nlohmann::json& c) { c["rope_scaling"] = setting; });
    const auto converted = FolderToGguf(files, out / "m.gguf", {{}, false});
    const ModelFiles gguf = OpenModel(out / "m.gguf");
    const std::vector<float> logits = ProbeLogits(gguf);
    EXPECT_EQ(ProbeLogits(files, converted.stored), logits);
    EXPECT_NE(ProbeLogits(files), logits);
    EXPECT_LT(test::Difference(ProbeLogits(files), logits), 2e-5);
  }
}

// The divisors are written, and come from the length in the rope dictionary, not from 8192.
TEST(Convert, Llama3DivisorsAreThoseOfItsOwnLength) {
  const test::TempFolder folder, out;
  const ModelFiles files = OpenGolden(folder, "llama", [](nlohmann::json& c) {
    c["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 4.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 4096}};
    c["rope_theta"] = 10000.0;
  });
  const auto converted = FolderToGguf(files, out / "m.gguf", {{}, false});
  const ModelFiles gguf = OpenModel(out / "m.gguf");
  ProvePlan(files.config.plan, converted.stored, gguf.config.plan, 16384);
  const Weight& divisors = gguf.tensors.at("rope_freqs.weight");
  ASSERT_THAT(divisors.shape, ElementsAre(8));
  float got[8];
  divisors.ReadRows(0, 1, got);
  for (int i = 0; i < 8; ++i) {
    // Llama 3.1's rule, typed again.
    const double f = std::pow(10000.0, -2.0 * i / 16), wavelength = 2 * M_PI / f;
    double divisor = 1;
    if (wavelength > 4096 / 1.0) {
      divisor = 4;
    } else if (wavelength > 4096 / 4.0) {
      const double t = (4096 / wavelength - 1) / (4 - 1);
      divisor = 1 / ((1 - t) / 4 + t);
    }
    EXPECT_FLOAT_EQ(got[i], static_cast<float>(divisor)) << i;
  }
}

TEST(Convert, NewOutputIsWholeOrAbsent) {
  const test::TempFolder folder;
  {
    NewOutput out(folder / "out/");
    test::fs::create_directory(out.written());
    test::WriteFile(out.written() + "/x", "1");
    EXPECT_FALSE(test::fs::exists(folder / "out"));
    EXPECT_TRUE(out.written().starts_with(NewOutput::TemporaryFolder(folder / "out") + "/"));
  }
  EXPECT_TRUE(test::fs::is_empty(folder.path()));
  {
    NewOutput out(folder / "out.gguf");  // the name ends as it will in the end
    test::WriteFile(out.written(), "1");
    EXPECT_TRUE(out.written().ends_with("/out.gguf"));
    out.Commit();
  }
  EXPECT_TRUE(test::fs::exists(folder / "out.gguf"));
  EXPECT_EQ(std::distance(test::fs::directory_iterator(folder.path()), {}), 1);
  EXPECT_THAT(MessageOf([&] { NewOutput again(folder / "out.gguf"); }),
              HasSubstr("nothing is overwritten"));
  EXPECT_THAT(MessageOf([&] { NewOutput none(folder / "no/such"); }), HasSubstr("cannot create"));
  EXPECT_THAT(MessageOf([&] {
                NewOutput late(folder / "late");
                test::WriteFile(late.written(), "mine");
                test::WriteFile(folder / "late", "theirs");
                late.Commit();
              }),
              HasSubstr("nothing is overwritten"));
}

}  // namespace convert_test
}  // namespace ropewalk
