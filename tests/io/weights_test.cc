// Mapping, decoding and hashing, against files written by the formats' own Python packages
// (tests/golden/io/make_goldens.py).
#include "ropewalk/io/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "tests/io/files.h"

namespace ropewalk {
namespace weights_test {

using testing::ExpectRefused;
using testing::TempFolder;

const std::string kGolden = ROPEWALK_SOURCE_DIR "/tests/golden/io/";

std::vector<float> All(const Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows() * weight.cols()));
  weight.ReadRows(0, weight.rows(), values.data());
  return values;
}

// Equal bits, so that -0 and rounding count.
void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "element " << i << ": " << got[i] << " instead of " << want[i];
  }
}

class Decoding : public ::testing::TestWithParam<WeightType> {};

TEST_P(Decoding, EqualsTheReferenceBitForBit) {
  const GgufFile file = OpenGguf(kGolden + "quants.gguf");
  const std::string name = Info(GetParam()).name;
  const Weight& weight = file.tensors.at(name);
  EXPECT_EQ(weight.type, GetParam());
  EXPECT_THAT(weight.shape, ::testing::ElementsAre(4, 256));
  ExpectSameBits(All(weight), All(file.tensors.at(name + ".f32")));
}

TEST_P(Decoding, RowsAloneEqualRowsTogether) {
  const GgufFile file = OpenGguf(kGolden + "quants.gguf");
  const Weight& weight = file.tensors.at(Info(GetParam()).name);
  const std::vector<float> all = All(weight);
  for (int64_t first = 0; first < 4; ++first) {
    for (int64_t count = 0; first + count <= 4; ++count) {
      std::vector<float> rows(static_cast<std::size_t>(count * 256));
      weight.ReadRows(first, count, rows.data());
      ExpectSameBits(rows, {all.begin() + first * 256, all.begin() + (first + count) * 256});
    }
  }
}

TEST_P(Decoding, AnyAlignment) {
  const GgufFile file = OpenGguf(kGolden + "quants.gguf");
  const Weight& weight = file.tensors.at(Info(GetParam()).name);
  std::vector<std::byte> shifted(static_cast<std::size_t>(weight.bytes) + 1);
  std::memcpy(shifted.data() + 1, weight.data, static_cast<std::size_t>(weight.bytes));
  Weight moved = weight;
  moved.data = shifted.data() + 1;
  ExpectSameBits(All(moved), All(weight));
}

std::vector<WeightType> AllButFloat32() {
  std::vector<WeightType> types;
  for (int i = 0; i <= static_cast<int>(WeightType::kMXFP4); ++i) {
    if (static_cast<WeightType>(i) != WeightType::kF32) types.push_back(static_cast<WeightType>(i));
  }
  return types;
}
INSTANTIATE_TEST_SUITE_P(Types, Decoding, ::testing::ValuesIn(AllButFloat32()),
                         [](const auto& info) { return std::string(Info(info.param).name); });

// Random bytes meet a part of a grid alone.
TEST(Decoding, EveryPointOfTheGrids) {
  const GgufFile file = OpenGguf(kGolden + "quants.gguf");
  for (const char* name : {"IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"}) {
    SCOPED_TRACE(name);
    const Weight& weight = file.tensors.at(std::string(name) + ".every");
    EXPECT_STREQ(Info(weight.type).name, name);
    ExpectSameBits(All(weight), All(file.tensors.at(weight.name + ".f16")));
  }
}

TEST(Weight, RowsOutsideTheTensorAreRefused) {
  const GgufFile file = OpenGguf(kGolden + "quants.gguf");
  const Weight& weight = file.tensors.at("Q4_1");
  float out[256];
  const int64_t huge = INT64_MAX;
  for (const auto& rows : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 1}, {0, -1}, {4, 1}, {0, 5}, {1, huge}, {huge, huge}, {5, 0}}) {
    ExpectRefused([&] { weight.ReadRows(rows.first, rows.second, out); },
                  ErrorCode::kInvalidArgument, {"'Q4_1'", "4 rows"});
  }
}

TEST(Weight, LargeReadsLeaveTheFileReadable) {
  // Reads of 256 KiB and more give their pages back; the bytes must come again.
  const TempFolder folder;
  std::string data(1 << 20, '\0');
  for (std::size_t i = 0; i < data.size(); i += 4) {
    const float value = static_cast<float>(i);
    std::memcpy(data.data() + i, &value, 4);
  }
  const auto tensors = OpenSafetensors(folder.Write(
      "m.safetensors",
      testing::Safetensors(R"({"w":{"dtype":"F32","shape":[1024,256],"data_offsets":[0,1048576]}})",
                           data)));
  const std::vector<float> first = All(tensors.at("w")), second = All(tensors.at("w"));
  EXPECT_EQ(std::memcmp(first.data(), data.data(), data.size()), 0);
  ExpectSameBits(second, first);
}

TEST(MappedFile, EmptyFileIsLegal) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("empty", ""));
  EXPECT_EQ(file->size(), 0u);
  EXPECT_EQ(file->text(), "");
}

TEST(MappedFile, WhatCannotBeMappedIsAnErrorThatNamesIt) {
  const TempFolder folder;
  ExpectRefused([&] { MappedFile::Open(folder.path() + "/absent"); }, ErrorCode::kIo,
                {"absent", "No such file"});
  ExpectRefused([&] { MappedFile::Open(folder.path()); }, ErrorCode::kIo,
                {folder.path(), "not a regular file"});
  ExpectRefused([&] { MappedFile::Open(std::string("a\0b", 3)); }, ErrorCode::kInvalidArgument,
                {"'a\\x00b'"});
  const std::string fifo = folder.path() + "/fifo";  // opened plainly, it would wait for a writer
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  ExpectRefused([&] { MappedFile::Open(fifo); }, ErrorCode::kIo, {"not a regular file"});
}

TEST(ContentHash, IsTheHashOfAllFilesInOrderOfTheirPaths) {
  const TempFolder folder;
  const std::string one =
      testing::Safetensors(R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234");
  const std::string two =
      testing::Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "5678");
  auto tensors = OpenSafetensors(folder.Write("1.safetensors", one));
  EXPECT_EQ(ContentHash(tensors), HashHex(one));
  tensors.merge(OpenSafetensors(folder.Write("2.safetensors", two)));
  EXPECT_EQ(ContentHash(tensors), HashHex(one + two));  // by path, not by tensor name
  EXPECT_EQ(ContentHash(OpenGguf(kGolden + "quants.gguf").tensors),
            HashHex(MappedFile::Open(kGolden + "quants.gguf")->text()));
}

}  // namespace weights_test
}  // namespace ropewalk
