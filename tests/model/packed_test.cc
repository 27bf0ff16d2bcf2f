// Weights that stay in the file give what converted ones give, for every type and every way to call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ropewalk/base/dtype.h"
#include "ropewalk/io/writer.h"
#include "ropewalk/model/encoder.h"
#include "src/model/weight_storage.h"
#include "tests/model/encoder_support.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace packed_test {

using test::Difference;
using test::LogitsOf;

const std::string kEmbedded = std::string(ROPEWALK_SOURCE_DIR) + "/models";

// Whole prompts, chunks that leave one token or a few, single tokens; from far positions too. What
// float32 sums in another order may change after all layers is the unit: 2e-5 of the largest logit,
// as between engines.
void ExpectEqual(const ModelFiles& files, const std::vector<int32_t>& ids,
                 ComputeType compute = ComputeType::kFloat32, double most = 2e-5) {
  const auto unpacked =
      Decoder::Load(files, {.compute = compute, .weights = WeightStorage::kUnpacked});
  const auto packed = Decoder::Load(files, {.compute = compute, .weights = WeightStorage::kPacked});
  EXPECT_EQ(unpacked->weights(), WeightStorage::kUnpacked);
  EXPECT_EQ(packed->weights(), WeightStorage::kPacked);
  EXPECT_EQ(unpacked->mapped_bytes(), 0);
  EXPECT_LT(packed->weight_bytes(), unpacked->weight_bytes() / 4);
  for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{512}}) {
    for (const int64_t offset : {0, 255, 131071, 1048575}) {
      const test::RunOptions run = {.chunk = chunk, .offset = offset};
      const std::vector<float> expected = LogitsOf(*unpacked, files.config.plan, ids, run);
      EXPECT_LT(Difference(LogitsOf(*packed, files.config.plan, ids, run), expected), most)
          << "chunks of " << chunk << ", first position " << offset;
      if (chunk > 64 && offset == 0) {  // the same call again: the same bits
        EXPECT_EQ(LogitsOf(*packed, files.config.plan, ids, run),
                  LogitsOf(*packed, files.config.plan, ids, run));
      }
    }
  }
}

std::vector<int32_t> IdsFor(const ModelFiles& files, int64_t n) {
  test::Tiny any;
  any.vocab = files.config.vocab;
  return any.Ids(n);
}

// The model that the project trained itself.
TEST(PackedWeights, OfTheEmbeddedModel) {
  const ModelFiles files = OpenModel(kEmbedded);
  ExpectEqual(files, IdsFor(files, 150));
}

TEST(PackedWeights, InBf16) {
  if (FindBf16Unit() == Bf16Unit::kNone) GTEST_SKIP() << "this CPU multiplies no bf16";
  const ModelFiles files = OpenModel(kEmbedded);
  // Single tokens are not rounded, so their distance is that between bf16 and float32.
  const double products = 2.0 * static_cast<double>(4 * files.config.layers + 1);
  ExpectEqual(files, IdsFor(files, 100), ComputeType::kBFloat16, std::sqrt(products) * 0x1p-9);
}

// A type, and its half-precision scales: where they are in a block, and numbers that make weights
// of about 0.05 around 0 out of random bits.
struct TypeCase {
  WeightType type;
  std::vector<std::pair<int, float>> halves;
};

// Bytes of rows of random blocks; every fourth byte of plain types is made a harmless exponent.
TensorSource RandomRows(const std::string& name, std::vector<int64_t> shape, const TypeCase& of) {
  const WeightTypeInfo& info = Info(of.type);
  const int64_t row_bytes = shape.back() / info.block_elements * info.block_bytes;
  auto random = std::make_shared<std::mt19937>(static_cast<uint32_t>(name.size() * 31 + shape[0]));
  return {name, of.type, shape, [=](int64_t, int64_t count, std::byte* out) {
            for (int64_t i = 0; i < count * row_bytes; ++i) out[i] = std::byte((*random)() >> 8);
            for (int64_t at = 0; at < count * row_bytes; at += info.block_bytes) {
              for (const auto& [offset, value] : of.halves) {
                const Float16 half = ToFloat16(value);
                std::memcpy(out + at + offset, &half, sizeof(half));
              }
              if (!of.halves.empty()) continue;
              const float value = 0.1f * static_cast<float>((*random)() % 2001) / 1000.0f - 0.1f;
              const Float16 half = ToFloat16(value);
              const BFloat16 brain = ToBFloat16(value);
              if (of.type == WeightType::kF32) std::memcpy(out + at, &value, sizeof(value));
              if (of.type == WeightType::kF16) std::memcpy(out + at, &half, sizeof(half));
              if (of.type == WeightType::kBF16) std::memcpy(out + at, &brain, sizeof(brain));
            }
          }};
}

// A llama whose matrices are of one type; q and k are in the interleaved order, so their rows are
// reordered. Rows are whole blocks of every type.
void WriteModel(const std::string& path, const TypeCase& of) {
  const int64_t hidden = 256, feed_forward = 512, kv = 128, vocab = 67, layers = 2;
  std::map<std::string, GgufValue> metadata = {
      {"general.architecture", {std::string("llama")}},
      {"llama.attention.layer_norm_rms_epsilon", {double{1e-5f}, GgufType::kF32}},
      {"llama.rope.freq_base", {500.0, GgufType::kF32}}};
  const std::map<std::string, int64_t> sizes = {
      {"context_length", 64},  {"embedding_length", hidden}, {"feed_forward_length", feed_forward},
      {"block_count", layers}, {"attention.head_count", 4},  {"attention.head_count_kv", 2}};
  for (const auto& [key, size] : sizes) {
    metadata["llama." + key] = GgufValue{size, GgufType::kU32};
  }
  const std::vector<float> ones(static_cast<size_t>(hidden), 1.0f);
  std::vector<TensorSource> tensors = {RandomRows("token_embd.weight", {vocab, hidden}, of),
                                       FromFloats("output_norm.weight", {hidden}, ones)};
  for (int64_t l = 0; l < layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    tensors.push_back(FromFloats(p + "attn_norm.weight", {hidden}, ones));
    tensors.push_back(FromFloats(p + "ffn_norm.weight", {hidden}, ones));
    tensors.push_back(RandomRows(p + "attn_q.weight", {hidden, hidden}, of));
    tensors.push_back(RandomRows(p + "attn_k.weight", {kv, hidden}, of));
    tensors.push_back(RandomRows(p + "attn_v.weight", {kv, hidden}, of));
    tensors.push_back(RandomRows(p + "attn_output.weight", {hidden, hidden}, of));
    tensors.push_back(RandomRows(p + "ffn_gate.weight", {feed_forward, hidden}, of));
    tensors.push_back(RandomRows(p + "ffn_up.weight", {feed_forward, hidden}, of));
    tensors.push_back(RandomRows(p + "ffn_down.weight", {hidden, feed_forward}, of));
  }
  WriteGguf(path, metadata, tensors);
}

TEST(PackedWeights, OfEveryType) {
  const std::vector<TypeCase> types = {{WeightType::kF32, {}},
                                       {WeightType::kF16, {}},
                                       {WeightType::kBF16, {}},
                                       {WeightType::kQ8_0, {{0, 1e-3f}}},
                                       {WeightType::kQ4_0, {{0, 0.01f}}},
                                       {WeightType::kQ4_1, {{0, 0.01f}, {2, -0.075f}}},
                                       {WeightType::kQ5_0, {{0, 0.005f}}},
                                       {WeightType::kQ5_1, {{0, 0.005f}, {2, -0.08f}}},
                                       {WeightType::kIQ4_NL, {{0, 1e-3f}}},
                                       {WeightType::kQ2_K, {{80, 4e-3f}, {82, 6e-3f}}},
                                       {WeightType::kQ3_K, {{108, 1e-3f}}},
                                       {WeightType::kQ4_K, {{0, 2e-4f}, {2, 1.5e-3f}}},
                                       {WeightType::kQ5_K, {{0, 1e-4f}, {2, 1.5e-3f}}},
                                       {WeightType::kQ6_K, {{208, 5e-5f}}},
                                       {WeightType::kIQ4_XS, {{0, 5e-5f}}}};
  test::TempFolder folder;
  for (const TypeCase& of : types) {
    SCOPED_TRACE(Info(of.type).name);
    WriteModel(folder / "model.gguf", of);
    const ModelFiles files = OpenModel(folder / "model.gguf");
    const int64_t matrices = 2 * (256 * (256 + 256 + 256) + 3 * 256 * 512) + 67 * 256;
    const auto packed = Decoder::Load(files, {.weights = WeightStorage::kPacked});
    EXPECT_EQ(packed->mapped_bytes(),
              matrices / Info(of.type).block_elements * Info(of.type).block_bytes);
    ExpectEqual(files, IdsFor(files, 40));
  }
}

// Transposed matrices, fused q, k and v, LayerNorm and biases: states of every encoder's golden. Decoders: golden_test.cc.
TEST(PackedWeights, OfEncoders) {
  int models = 0;
  for (const auto& entry : test::fs::directory_iterator(test::kGoldens)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename());
    const ModelFiles files = OpenModel(entry.path().string());
    const auto unpacked = Encoder::Load(files, {.weights = WeightStorage::kUnpacked});
    const auto packed = Encoder::Load(files, {.weights = WeightStorage::kPacked});
    const std::vector<int32_t> ids = {5, 9, 3, 7, 11, 4, 8, 2, 6, 12, 10, 3, 5, 9, 7};
    EXPECT_LT(Difference(test::States(*packed, ids), test::States(*unpacked, ids)), 2e-5);
    ++models;
  }
  EXPECT_GE(models, 5);
}

TEST(PackedWeights, AutoIsByMemory) {
  EXPECT_EQ(internal::StorageFor(100, 200), WeightStorage::kUnpacked);
  EXPECT_EQ(internal::StorageFor(101, 200), WeightStorage::kPacked);
  EXPECT_EQ(internal::StorageFor(101, std::numeric_limits<int64_t>::max()),
            WeightStorage::kUnpacked);
  const ModelFiles files = OpenModel(kEmbedded);
  const auto decoder = Decoder::Load(files, {.weights = WeightStorage::kUnpacked});
  // Norms are not counted, and oneDNN pads.
  const int64_t estimate =
      internal::UnpackedBytes(files.config, internal::Naming::kHuggingFace, ComputeType::kFloat32);
  EXPECT_NEAR(static_cast<double>(estimate), static_cast<double>(decoder->weight_bytes()),
              0.02 * static_cast<double>(estimate));
  EXPECT_EQ(
      internal::UnpackedBytes(files.config, internal::Naming::kHuggingFace, ComputeType::kBFloat16),
      estimate / 2);
  EXPECT_EQ(ChooseStorage(files, ComputeType::kFloat32, WeightStorage::kPacked),
            WeightStorage::kPacked);
  EXPECT_NE(ChooseStorage(files, ComputeType::kFloat32), WeightStorage::kAuto);
}

}  // namespace packed_test
}  // namespace ropewalk
