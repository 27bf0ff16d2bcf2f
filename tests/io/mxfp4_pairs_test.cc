// Experts in MXFP4 as two uint8 tensors, against what transformers makes of them
// (tests/golden/io/make_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "ropewalk/base/hash.h"
#include "ropewalk/io/weights.h"
#include "ropewalk/io/writer.h"
#include "src/io/dequantize.h"
#include "tests/io/files.h"

namespace ropewalk {
namespace mxfp4_pairs_test {

using ::testing::ElementsAre;
using testing::ExpectRefused;
using testing::Safetensors;
using testing::TempFolder;

const std::string kGolden = ROPEWALK_SOURCE_DIR "/tests/golden/io/mxfp4.safetensors";

std::vector<uint32_t> Bits(const Weight& weight, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count * weight.cols()));
  weight.ReadRows(first, count, values.data());
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

std::string Header(const std::vector<std::string>& entries) {
  std::string header = "{";
  for (const std::string& entry : entries) header += (header.size() > 1 ? "," : "") + entry;
  return header + "}";
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  int begin, int end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

// A tensor of U8 by itself, its bytes counting up from `first`.
std::string OneOfU8(const std::string& name, const std::string& shape, int bytes, int first) {
  std::string data;
  for (int i = 0; i < bytes; ++i) data += static_cast<char>(first + i);
  return Safetensors(Header({Entry(name, "U8", shape, 0, bytes)}), data);
}

TEST(Mxfp4Pairs, DecodeAsTransformersDoes) {
  const auto tensors = OpenSafetensors(kGolden);
  ASSERT_EQ(tensors.size(), 2u);
  const Weight& experts = tensors.at("experts");
  EXPECT_EQ(experts.name, "experts");
  EXPECT_EQ(experts.type, WeightType::kMXFP4Pair);
  EXPECT_THAT(experts.shape, ElementsAre(2, 8, 512));
  EXPECT_EQ(experts.bytes, 4096);
  EXPECT_EQ(Bits(experts, 0, 16), Bits(tensors.at("decoded"), 0, 16));
}

TEST(Mxfp4Pairs, AnyRangeOfRowsAtAnyAlignment) {
  const auto tensors = OpenSafetensors(kGolden);
  const Weight& experts = tensors.at("experts");
  std::vector<std::byte> blocks(4097), scales(257);
  std::memcpy(blocks.data() + 1, experts.data, 4096);
  std::memcpy(scales.data() + 1, experts.scales, 256);
  Weight moved = experts;
  moved.data = blocks.data() + 1;
  moved.scales = scales.data() + 1;
  moved.file = moved.scales_file = nullptr;
  for (int64_t first = 0; first <= 16; ++first) {
    for (int64_t count = 0; first + count <= 16; ++count) {
      const auto want = Bits(tensors.at("decoded"), first, count);
      ASSERT_EQ(Bits(experts, first, count), want) << first << " + " << count;
      ASSERT_EQ(Bits(moved, first, count), want) << first << " + " << count;
    }
  }
  ExpectRefused([&] { Bits(experts, 16, 1); }, ErrorCode::kInvalidArgument, {"'experts'", "16"});
}

TEST(Mxfp4Pairs, LargeReadsLeaveTheFileReadable) {
  // Reads of 256 KiB and more give their pages back; the bytes must come again.
  const int64_t groups = 1 << 14;
  std::string data;
  for (int64_t i = 0; i < groups * 17; ++i) data += static_cast<char>(i * 7 % 251);
  const int blocks = static_cast<int>(groups * 16), scales = static_cast<int>(groups);
  const TempFolder folder;
  const auto tensors = OpenSafetensors(folder.Write(
      "m.safetensors",
      Safetensors(Header({Entry("x_blocks", "U8", "[4,64,64,16]", 0, blocks),
                          Entry("x_scales", "U8", "[4,64,64]", blocks, blocks + scales)}),
                  data)));
  const auto first = Bits(tensors.at("x"), 0, 256);
  EXPECT_EQ(Bits(tensors.at("x"), 0, 256), first);
  const std::vector<uint32_t> last(first.end() - 2048, first.end());
  EXPECT_EQ(Bits(tensors.at("x"), 255, 1), last);
}

TEST(Mxfp4Pairs, HalvesInTwoShards) {
  const TempFolder folder;
  const std::string one = OneOfU8("x_blocks", "[1,2,1,16]", 32, 100);
  const std::string two = OneOfU8("x_scales", "[1,2,1]", 2, 126);
  folder.Write("1.safetensors", one);
  folder.Write("2.safetensors", two);
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"x_blocks":"1.safetensors","x_scales":"2.safetensors"}})");
  auto tensors = OpenSafetensorsFolder(folder.path());
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_THAT(tensors.at("x").shape, ElementsAre(1, 2, 32));
  EXPECT_EQ(ContentHash(tensors), HashHex(one + two));  // the second holds scales alone
  const Weight kept = tensors.at("x");
  tensors.clear();  // a weight keeps both of its files open
  float rows[64];
  kept.ReadRows(0, 2, rows);
  EXPECT_EQ(rows[0], 1.0f);   // byte 100 is 0x64, its low half 4 is 2, scale 126 halves
  EXPECT_EQ(rows[1], 2.0f);   // its high half 6 is 4
  EXPECT_EQ(rows[32], 2.0f);  // byte 116 is 0x74, scale 127
  EXPECT_EQ(rows[33], 6.0f);
  EXPECT_EQ(rows[63], -0.0f);  // byte 131 is 0x83
  EXPECT_TRUE(std::signbit(rows[63]));
}

TEST(Mxfp4Pairs, WhatIsNoPairIsRefused) {
  struct Case {
    const char* what;
    std::vector<std::string> entries;
    int bytes;
    std::vector<std::string> parts;
    ErrorCode code = ErrorCode::kInvalidFile;
  };
  const std::string blocks = Entry("x_blocks", "U8", "[1,1,2,16]", 0, 32);
  const Case cases[] = {
      {"blocks alone", {blocks}, 32, {"'x_blocks'", "MXFP4", "'x_scales' is not there"}},
      {"scales alone",
       {Entry("x_scales", "U8", "[1,1,2]", 0, 2)},
       2,
       {"'x_scales'", "MXFP4", "'x_blocks' is not there"}},
      {"scales of another tensor",
       {blocks, Entry("y_scales", "U8", "[1,1,2]", 32, 34)},
       34,
       {"'x_scales' is not there"}},
      {"scales of BF16",
       {blocks, Entry("x_scales", "BF16", "[1,1,2]", 32, 36)},
       36,
       {"'x_blocks'", "'x_scales' is not of U8"}},
      {"blocks of BF16",
       {Entry("x_blocks", "BF16", "[1,1,2,16]", 0, 64), Entry("x_scales", "U8", "[1,1,2]", 64, 66)},
       66,
       {"'x_scales'", "'x_blocks' is not of U8"}},
      {"a pair of rank 3",
       {Entry("x_blocks", "U8", "[1,2,16]", 0, 32), Entry("x_scales", "U8", "[1,2]", 32, 34)},
       34,
       {"'x_blocks'", "[1, 2, 16]", "columns / 32, 16] expected"}},
      {"blocks of 8 bytes",
       {Entry("x_blocks", "U8", "[1,1,4,8]", 0, 32), Entry("x_scales", "U8", "[1,1,4]", 32, 36)},
       36,
       {"'x_blocks'", "[1, 1, 4, 8]", "16] expected"}},
      {"a scale too many",
       {blocks, Entry("x_scales", "U8", "[1,1,3]", 32, 35)},
       35,
       {"'x_blocks'", "[1, 1, 2, 16]", "'x_scales'", "[1, 1, 3]"}},
      {"scales in another order",
       {blocks, Entry("x_scales", "U8", "[1,2,1]", 32, 34)},
       34,
       {"'x_scales'", "[1, 2, 1]"}},
      {"scales of rank 4",
       {blocks, Entry("x_scales", "U8", "[1,1,2,1]", 32, 34)},
       34,
       {"'x_scales'", "[1, 1, 2, 1]"}},
      {"the whole tensor too",
       {Entry("x", "F32", "[1]", 0, 4), Entry("x_blocks", "U8", "[1,1,2,16]", 4, 36),
        Entry("x_scales", "U8", "[1,1,2]", 36, 38)},
       38,
       {"'x'", "'x_blocks'"}},
      {"bytes that the shape has not",
       {Entry("x_blocks", "U8", "[1,1,2,16]", 0, 31)},
       31,
       {"'x_blocks'", "32 bytes", "U8"}},
      {"bytes overflow",
       {Entry("x_blocks", "U8", "[4294967296,4294967296,1,16]", 0, 0)},
       0,
       {"'x_blocks'", "overflows"}},
      {"columns overflow",
       {Entry("x_blocks", "U8", "[0,1,1152921504606846976,16]", 0, 0),
        Entry("x_scales", "U8", "[0,1,1152921504606846976]", 0, 0)},
       0,
       {"'x_blocks'", "overflows"}},
      {"a name that is all suffix",
       {Entry("_blocks", "U8", "[1]", 0, 1)},
       1,
       {"'_blocks'", "'U8'", "F64, F32, F16 and BF16"},
       ErrorCode::kUnsupported},
      {"U8 of another name",
       {Entry("x_block", "U8", "[1]", 0, 1)},
       1,
       {"'x_block'", "'U8'", "F64, F32, F16 and BF16"},
       ErrorCode::kUnsupported},
      {"blocks of I8",
       {Entry("x_blocks", "I8", "[1,1,2,16]", 0, 32)},
       32,
       {"'x_blocks'", "'I8'"},
       ErrorCode::kUnsupported},
  };
  const TempFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string path = folder.Write(
        "hostile.safetensors",
        Safetensors(Header(c.entries), std::string(static_cast<std::size_t>(c.bytes), '\1')));
    std::vector<std::string> parts = c.parts;
    parts.push_back(path);
    ExpectRefused([&] { OpenSafetensors(path); }, c.code, parts);
  }
}

TEST(Mxfp4Pairs, TruncatedAnywhereIsRefused) {
  const std::string whole = Safetensors(Header({Entry("x_blocks", "U8", "[1,1,1,16]", 0, 16),
                                                Entry("x_scales", "U8", "[1,1,1]", 16, 17)}),
                                        std::string(17, '\1'));
  const TempFolder folder;
  EXPECT_EQ(OpenSafetensors(folder.Write("t.safetensors", whole)).count("x"), 1u);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.Write("t.safetensors", whole.substr(0, size));
    ExpectRefused([&] { OpenSafetensors(path); }, ErrorCode::kInvalidFile, {path});
  }
}

TEST(Mxfp4Pairs, AnIndexWithOneHalfIsRefused) {
  const TempFolder folder;
  folder.Write("1.safetensors", OneOfU8("x_blocks", "[1,2,1,16]", 32, 0));
  folder.Write("2.safetensors", OneOfU8("x_scales", "[1,1,2]", 2, 127));
  const std::string index = "model.safetensors.index.json";
  const auto refused = [&](const char* text, const std::vector<std::string>& parts) {
    folder.Write(index, text);
    ExpectRefused([&] { OpenSafetensorsFolder(folder.path()); }, ErrorCode::kInvalidFile, parts);
  };
  refused(R"({"weight_map":{"x_blocks":"1.safetensors"}})",
          {"1.safetensors", "'x_blocks'", "'x_scales' is not there"});
  refused(R"({"weight_map":{"x_scales":"2.safetensors"}})",
          {"2.safetensors", "'x_scales'", "'x_blocks' is not there"});
  refused(R"({"weight_map":{"x":"1.safetensors"}})", {index, "'x' is not in shard"});
  refused(R"({"weight_map":{"x_blocks":"1.safetensors","x_scales":"1.safetensors"}})",
          {index, "'x_scales' is not in shard"});
  refused(R"({"weight_map":{"x_blocks":"1.safetensors","x_scales":"2.safetensors"}})",
          {"1.safetensors", "[1, 2, 1, 16]", "[1, 1, 2]"});
}

TEST(Mxfp4Pairs, NoWriterLosesTheScales) {
  const auto tensors = OpenSafetensors(kGolden);
  ExpectRefused([&] { CopyOf(tensors.at("experts")); }, ErrorCode::kUnsupported,
                {"'experts'", "MXFP4 pair", "convert to"});
  const TempFolder folder;
  const std::string path = folder.path() + "/out";
  const TensorSource source{"w", WeightType::kMXFP4Pair, {2, 32}, {}};
  ExpectRefused([&] { WriteGguf(path, {}, {source}); }, ErrorCode::kInvalidArgument,
                {"'w'", "MXFP4 pair"});
  ExpectRefused([&] { WriteSafetensors(path, {source}); }, ErrorCode::kInvalidArgument,
                {"'w'", "MXFP4 pair"});
  EXPECT_FALSE(Info(WeightType::kMXFP4Pair).ggml_id.has_value());
  for (uint32_t id = 0; id < 256; ++id) {
    EXPECT_NE(internal::FindGgmlType(id), WeightType::kMXFP4Pair) << id;
  }
  EXPECT_EQ(internal::GgmlTypeNames().find("pair"), std::string::npos);
  Weight without = tensors.at("experts");
  without.scales = nullptr;
  ExpectRefused([&] { Bits(without, 3, 1); }, ErrorCode::kInvalidArgument,
                {"without their scales"});
}

}  // namespace mxfp4_pairs_test
}  // namespace ropewalk
