#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "ropewalk/io/weights.h"
#include "tests/io/files.h"

namespace ropewalk {
namespace llama2c_test {

using ::testing::ElementsAre;
using testing::ExpectRefused;
using testing::Llama2c;
using testing::TempFolder;

// dim 4, hidden 6, layers 2, heads 2, kv_heads 1, vocab 3, seq_len 5: head_dim 2, kv_dim 2.
const std::vector<int32_t> kHeader = {4, 6, 2, 2, 1, 3, 5};
constexpr std::size_t kLayerFloats = 4 + 16 + 8 + 8 + 16 + 4 + 24 + 24 + 24;
constexpr std::size_t kFloats = 12 + 2 * kLayerFloats + 4 + 2 * 5 * 1;

float First(const Llama2cFile& f, const std::string& name) {
  std::vector<float> row(static_cast<std::size_t>(f.tensors.at(name).cols()));
  f.tensors.at(name).ReadRows(0, 1, row.data());
  return row[0];
}

// Each float of the file is its own index, so the first element of a tensor is its place.
TEST(Llama2c, TensorsLieInTheOrderOfTheFormat) {
  const TempFolder folder;
  const Llama2cFile f = OpenLlama2c(folder.Write("m.bin", Llama2c(kHeader, kFloats)));
  EXPECT_EQ(f.dim, 4);
  EXPECT_EQ(f.hidden_dim, 6);
  EXPECT_EQ(f.layers, 2);
  EXPECT_EQ(f.heads, 2);
  EXPECT_EQ(f.kv_heads, 1);
  EXPECT_EQ(f.vocab_size, 3);
  EXPECT_EQ(f.trained_length, 5);
  EXPECT_TRUE(f.tied_head);
  EXPECT_EQ(f.tensors.size(), 2u + 2 * 9);
  const std::string l0 = "model.layers.0.", l1 = "model.layers.1.";
  EXPECT_EQ(First(f, "model.embed_tokens.weight"), 0);
  EXPECT_EQ(First(f, l0 + "input_layernorm.weight"), 12);
  EXPECT_EQ(First(f, l1 + "input_layernorm.weight"), 16);
  EXPECT_EQ(First(f, l0 + "self_attn.q_proj.weight"), 20);
  EXPECT_EQ(First(f, l1 + "self_attn.q_proj.weight"), 36);
  EXPECT_EQ(First(f, l0 + "self_attn.k_proj.weight"), 52);
  EXPECT_EQ(First(f, l0 + "self_attn.v_proj.weight"), 68);
  EXPECT_EQ(First(f, l0 + "self_attn.o_proj.weight"), 84);
  EXPECT_EQ(First(f, l0 + "post_attention_layernorm.weight"), 116);
  EXPECT_EQ(First(f, l0 + "mlp.gate_proj.weight"), 124);
  EXPECT_EQ(First(f, l0 + "mlp.down_proj.weight"), 172);
  EXPECT_EQ(First(f, l0 + "mlp.up_proj.weight"), 220);
  EXPECT_EQ(First(f, "model.norm.weight"), 268);
  EXPECT_THAT(f.tensors.at(l0 + "self_attn.k_proj.weight").shape, ElementsAre(2, 4));
  EXPECT_THAT(f.tensors.at(l0 + "mlp.gate_proj.weight").shape, ElementsAre(6, 4));
  EXPECT_THAT(f.tensors.at(l0 + "mlp.down_proj.weight").shape, ElementsAre(4, 6));
}

TEST(Llama2c, NegativeVocabularyMeansAHeadOfItsOwn) {
  const TempFolder folder;
  std::vector<int32_t> header = kHeader;
  header[5] = -3;
  const Llama2cFile f = OpenLlama2c(folder.Write("m.bin", Llama2c(header, kFloats + 12)));
  EXPECT_FALSE(f.tied_head);
  EXPECT_EQ(f.vocab_size, 3);
  EXPECT_THAT(f.tensors.at("lm_head.weight").shape, ElementsAre(3, 4));
  EXPECT_EQ(First(f, "lm_head.weight"), static_cast<float>(kFloats));
}

TEST(Llama2c, TruncatedAnywhereIsRefused) {
  const TempFolder folder;
  const std::string whole = Llama2c(kHeader, kFloats);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.Write("t.bin", whole.substr(0, size));
    ExpectRefused([&] { OpenLlama2c(path); }, ErrorCode::kInvalidFile, {path});
  }
  const std::string longer = folder.Write("t.bin", whole + "x");
  ExpectRefused([&] { OpenLlama2c(longer); }, ErrorCode::kInvalidFile,
                {std::to_string(whole.size())});
}

TEST(Llama2c, HostileHeadersAreRefused) {
  const int32_t big = INT32_MAX;
  const TempFolder folder;
  for (const std::vector<int32_t>& header : std::vector<std::vector<int32_t>>{
           {0, 0, 0, 0, 0, 0, 0},
           {-4, 6, 2, 2, 1, 3, 5},
           {4, 6, 2, 3, 1, 3, 5},  // heads do not divide dim
           {4, 6, 2, 4, 1, 3, 5},  // head_dim 1 has no pair
           {4, 6, 2, 2, 0, 3, 5},
           {4, 6, 2, 2, 3, 3, 5},  // kv_heads do not divide heads
           {4, 6, 2, 2, 1, 0, 5},
           {4, 6, 2, 2, 1, INT32_MIN, 5},
           {4, 6, 2, 2, 1, 3, 0},
           {4, 6, big, 2, 1, 3, 5},
           {big - 1, big, big, 1, 1, big, big},
           {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN},
       }) {
    const std::string path = folder.Write("h.bin", Llama2c(header, kFloats));
    ExpectRefused([&] { OpenLlama2c(path); }, ErrorCode::kInvalidFile, {path, "llama2.c"});
  }
  const std::string versioned = folder.Write("v.bin", Llama2c({0x616b3432, 1, 4, 6, 2, 2, 1}, 99));
  ExpectRefused([&] { OpenLlama2c(versioned); }, ErrorCode::kUnsupported, {"--version 0"});
}

TEST(Llama2c, Stories260K) {
  const char* data = std::getenv("ROPEWALK_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "ROPEWALK_TEST_DATA is not set";
  const Llama2cFile f = OpenLlama2c(std::string(data) + "/stories260K/checkpoint_legacy.bin");
  EXPECT_EQ(f.dim, 64);
  EXPECT_EQ(f.hidden_dim, 172);
  EXPECT_EQ(f.layers, 5);
  EXPECT_EQ(f.heads, 8);
  EXPECT_EQ(f.kv_heads, 4);
  EXPECT_EQ(f.vocab_size, 512);
  EXPECT_EQ(f.trained_length, 512);
  EXPECT_TRUE(f.tied_head);
  // Norm weights of a trained model are near one; a tensor one place off would not be.
  for (const auto& [name, weight] : f.tensors) {
    std::vector<float> values(static_cast<std::size_t>(weight.rows() * weight.cols()));
    weight.ReadRows(0, weight.rows(), values.data());
    double mean = 0, square = 0;
    for (const float v : values) mean += v / values.size(), square += double{v} * v / values.size();
    if (weight.shape.size() == 1) {
      EXPECT_GT(mean, 0.1) << name;
    } else {
      EXPECT_LT(std::abs(mean), 0.1) << name;
    }
    EXPECT_LT(square, 100) << name;
  }
}

}  // namespace llama2c_test
}  // namespace ropewalk
