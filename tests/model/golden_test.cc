// Logits of transformers 4.57 (tests/golden/make_hf_goldens.py) on tiny models of every family and
// rope type: bf16, f16, f32 in shards, tied and untied, windows, biases, norms of q and k, NoPE,
// and the ways in which GPT-2, GPT-NeoX, GPT-J, Falcon, OPT, Phi, StableLM, BLOOM and MPT differ.
// Where ALiBi has no positions but distances, transformers gives the same at every offset.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace golden_test {

using test::Difference;
using test::fs::path;

const path kGoldens = path(ROPEWALK_SOURCE_DIR) / "tests" / "golden" / "hf_models";
// The limit of make parity as well; measured: at most 3e-6.
constexpr double kLimit = 2e-5;

nlohmann::json Cases() {
  std::ifstream in(kGoldens / "cases.json");
  return nlohmann::json::parse(in);
}

ModelFiles OpenCase(const test::TempFolder& folder, const std::string& family,
                    const std::string& rope) {
  for (const auto& entry : test::fs::directory_iterator(kGoldens / family)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("model")) test::fs::create_symlink(entry.path(), folder / name);
  }
  test::fs::copy_file(kGoldens / family / (rope + ".json"), folder / "config.json");
  return OpenModel(folder.path());
}

std::vector<float> Expected(const std::string& family, const std::string& rope) {
  std::ifstream in(kGoldens / family / (rope + ".f32"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// The rows of every run, one run after the other, as the file has them.
std::vector<float> Ours(const Decoder& decoder, const PositionPlan& plan,
                        const nlohmann::json& cases, AnglePrecision angles, int64_t chunk) {
  const auto ids = cases["ids"].get<std::vector<int32_t>>();
  const int64_t vocab = decoder.config().vocab;
  std::vector<float> rows;
  const auto& learned = plan.learned;
  for (const int64_t offset : cases["offsets"]) {
    if (learned && offset + static_cast<int64_t>(ids.size()) > learned->positions) continue;
    // transformers takes the highest position for the length of length-dependent methods.
    const auto logits = test::LogitsOf(decoder, plan, ids,
                                       {.chunk = chunk,
                                        .offset = offset,
                                        .final_length = offset + static_cast<int64_t>(ids.size()),
                                        .angles = angles});
    for (const int64_t row : cases["rows"]) {
      rows.insert(rows.end(), logits.begin() + row * vocab, logits.begin() + (row + 1) * vocab);
    }
  }
  return rows;
}

TEST(Golden, LogitsEqualTransformers) {
  const nlohmann::json cases = Cases();
  ASSERT_GE(cases["cases"].size(), 116u);
  for (const auto& c : cases["cases"]) {
    const std::string family = c[0], rope = c[1];
    SCOPED_TRACE(family + " " + rope);
    const test::TempFolder folder;
    const ModelFiles files = OpenCase(folder, family, rope);
    const auto expected = Expected(family, rope);
    // Learned positions end after the first two offsets.
    const std::size_t runs = files.config.plan.learned ? 2 : cases["offsets"].size();
    ASSERT_EQ(expected.size(), runs * cases["rows"].size() * 64);
    for (const WeightStorage weights : {WeightStorage::kUnpacked, WeightStorage::kPacked}) {
      const auto decoder = Decoder::Load(files, {.weights = weights});
      for (const int64_t chunk : {64, 11}) {  // whole, and in pieces
        const auto ours = Ours(*decoder, files.config.plan, cases, AnglePrecision::kFloat32, chunk);
        EXPECT_LE(Difference(ours, expected), kLimit) << Name(weights) << ", chunk " << chunk;
      }
    }
  }
}

// Exact angles differ from transformers' float32 ones, and more so far out: never by nothing, or
// the mode would not be used; and a wrong base is seen at once.
TEST(Golden, NegativeControls) {
  const nlohmann::json cases = Cases();
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "falcon"}) {
    SCOPED_TRACE(family);
    const test::TempFolder folder;
    const ModelFiles files = OpenCase(folder, family, "yarn");
    const auto decoder = Decoder::Load(files);
    const auto expected = Expected(family, "yarn");
    const double exact =
        Difference(Ours(*decoder, files.config.plan, cases, AnglePrecision::kExact, 64), expected);
    EXPECT_GT(exact, kLimit);
    EXPECT_LT(exact, 0.5);
    PositionPlan wrong = files.config.plan;
    for (LayerPlan& layer : wrong.layers) layer.rotation->base *= 1.5;
    EXPECT_GT(Difference(Ours(*decoder, wrong, cases, AnglePrecision::kFloat32, 64), expected),
              0.1);
    const PositionPlan unscaled = WithScaling(files.config.plan, NoScaling{});
    EXPECT_GT(Difference(Ours(*decoder, unscaled, cases, AnglePrecision::kFloat32, 64), expected),
              0.1);
  }
}

// No weight is dropped in silence: each tensor of each family, under another name, is missed by its own
// (in a shard, by the index), and one too many is refused.
TEST(Golden, EveryTensorIsUsed) {
  const nlohmann::json cases = Cases();
  std::set<std::string> families;
  int tensors = 0;
  for (const auto& c : cases["cases"]) {
    const std::string family = c[0], rope = c[1];
    if (!families.insert(family).second) continue;
    if (!test::fs::exists(kGoldens / family / "model.safetensors")) continue;  // in shards
    SCOPED_TRACE(family);
    std::ifstream in(kGoldens / family / "model.safetensors", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), 8);
    const auto header = nlohmann::json::parse(bytes.substr(8, size));
    const test::TempFolder folder;
    test::fs::copy_file(kGoldens / family / (rope + ".json"), folder / "config.json");
    const auto error_with = [&](const nlohmann::json& changed) -> std::string {
      const std::string text = changed.dump();
      const uint64_t length = text.size();
      test::WriteFile(
          folder / "model.safetensors",
          std::string(reinterpret_cast<const char*>(&length), 8) + text + bytes.substr(8 + size));
      try {
        OpenModel(folder.path());
      } catch (const Error& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_EQ(error_with(header), "");
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      nlohmann::json changed = header;
      changed.erase(name);
      changed["renamed." + name] = entry;
      // A half of an MXFP4 pair is missed by the other half.
      const std::string word = name.substr(0, name.find("_blocks"));
      EXPECT_THAT(error_with(changed), testing::HasSubstr(word.substr(0, word.find("_scales"))));
      ++tensors;
    }
    nlohmann::json more = header;
    more["model.layers.0.extra.weight"] = {
        {"dtype", "F32"},
        {"shape", {0}},
        {"data_offsets", {bytes.size() - 8 - size, bytes.size() - 8 - size}}};
    EXPECT_THAT(error_with(more), testing::HasSubstr("extra.weight"));
  }
  EXPECT_GE(tensors, 1900);
}

}  // namespace golden_test
}  // namespace ropewalk
