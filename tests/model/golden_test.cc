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

// A model that reads images too, made of one that does not: its header renamed, the same bytes.
void WriteAround(const test::TempFolder& folder, const std::string& family,
                 const std::string& config, const char* wrapper, bool newer_names) {
  std::ifstream in(kGoldens / family / "model.safetensors", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, size));
  nlohmann::json renamed;
  for (const auto& [name, entry] : header.items()) {
    const bool body = name.starts_with("model.");
    std::string own = name;
    if (newer_names && body) own = "model.language_model." + name.substr(6);
    if (!newer_names && name != "__metadata__") own = "language_model." + name;
    renamed[own] = entry;
  }
  uint64_t at = bytes.size() - 8 - size;
  for (const char* name : {"vision_tower.patch_conv.weight", "multi_modal_projector.norm.weight",
                           "visual.merger.norm.weight"}) {
    renamed[(newer_names ? "model." : "") + std::string(name)] = {
        {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {at, at + 4}}};
    at += 4;
  }
  const std::string text = renamed.dump();
  const uint64_t length = text.size();
  test::WriteFile(folder / "model.safetensors",
                  std::string(reinterpret_cast<const char*>(&length), 8) + text +
                      bytes.substr(8 + size) + std::string(12, '\0'));
  std::ifstream inner(kGoldens / family / (config + ".json"));
  auto inside = nlohmann::json::parse(inner);
  if (std::string(wrapper) == "qwen3_vl") {
    inside["model_type"] = "qwen3_vl_text";
    inside["rope_scaling"]["mrope_section"] = {4, 2, 2};
    inside["rope_scaling"]["mrope_interleaved"] = true;
  }
  const nlohmann::json outer = {
      {"model_type", wrapper}, {"text_config", inside}, {"vision_config", {{"hidden_size", 8}}}};
  test::WriteFile(folder / "config.json", outer.dump());
}

TEST(Golden, TheTextPartOfAModelThatReadsImagesToo) {
  const nlohmann::json cases = Cases();
  struct Row {
    const char *wrapper, *family, *config;
  };
  const Row rows[] = {{"gemma3", "gemma3", "default"},       {"mistral3", "mistral", "yarn"},
                      {"mistral3", "ministral3", "default"}, {"mistral3", "mistral4", "default"},
                      {"llama4", "llama4", "default"},       {"llava", "llama", "linear"},
                      {"qwen3_vl", "qwen3", "yarn"}};
  for (const Row& row : rows) {
    for (const bool newer_names : {false, true}) {
      SCOPED_TRACE(std::string(row.family) + " of " + row.wrapper + (newer_names ? ", newer" : ""));
      const test::TempFolder plain, around;
      const ModelFiles right = OpenCase(plain, row.family, row.config);
      WriteAround(around, row.family, row.config, row.wrapper, newer_names);
      const ModelFiles files = OpenModel(around.path());
      ASSERT_EQ(files.config.not_runnable, "");
      if (row.wrapper != std::string("qwen3_vl")) {  // which has axes
        EXPECT_EQ(Resolve(files.config.plan, 64).hash, Resolve(right.config.plan, 64).hash);
      }
      EXPECT_THAT(files.config.plan.notes,
                  ::testing::Contains("3 tensors of other parts than the text's are not read"));
      EXPECT_EQ(
          Ours(*Decoder::Load(files), files.config.plan, cases, AnglePrecision::kFloat32, 64),
          Ours(*Decoder::Load(right), right.config.plan, cases, AnglePrecision::kFloat32, 64));
    }
  }
}

TEST(Golden, TextPartsThatDoNotRun) {
  const auto reason = [](const char* wrapper, const nlohmann::json& more) {
    const test::TempFolder folder;
    WriteAround(folder, "mistral", "default", wrapper, false);
    std::ifstream in(folder / "config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config.update(more);
    test::WriteFile(folder / "config.json", config.dump());
    return OpenModel(folder.path()).config.not_runnable;
  };
  EXPECT_EQ(reason("mistral3", nlohmann::json::object()), "");
  EXPECT_THAT(reason("mistral3", {{"quantization_config", {{"quant_method", "fp8"}}}}),
              ::testing::HasSubstr("quantization_config"));
  EXPECT_THAT(reason("paligemma", nlohmann::json::object()),
              ::testing::HasSubstr("text part of a paligemma model"));
  // A part that nobody knows is an error, and so is a tensor under both names.
  const test::TempFolder folder;
  WriteAround(folder, "mistral", "default", "mistral3", false);
  const auto message_with = [&](const char* from, const char* to) -> std::string {
    std::ifstream in(folder / "model.safetensors", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    in.close();
    const test::TempFolder changed;
    bytes.replace(bytes.find(from), std::strlen(from), to);
    test::WriteFile(changed / "model.safetensors", bytes);
    test::fs::copy_file(folder / "config.json", changed / "config.json");
    try {
      OpenModel(changed.path());
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message_with("vision_tower.patch", "audio_tower_.patch"),
              ::testing::HasSubstr("audio_tower_.patch_conv.weight"));
  EXPECT_THAT(
      message_with("\"vision_tower.patch_conv.weight\"", "\"model.norm.weight\"             "),
      ::testing::HasSubstr("'model.norm.weight' is there twice"));
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
