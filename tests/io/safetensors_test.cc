#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "ropewalk/io/weights.h"
#include "tests/io/files.h"

namespace ropewalk {
namespace safetensors_test {

using ::testing::ElementsAre;
using testing::ExpectRefused;
using testing::Safetensors;
using testing::TempFolder;

const std::string kGolden = ROPEWALK_SOURCE_DIR "/tests/golden/io/tiny.safetensors";

TEST(Safetensors, ReadsWhatTheReferenceWrites) {
  const auto tensors = OpenSafetensors(kGolden);
  ASSERT_EQ(tensors.size(), 6u);
  const float want[] = {1, -2.5f, 3, 0.375f, 1e-3f, 65504};
  for (const char* name : {"f64", "f32", "f16", "bf16"}) {
    const Weight& weight = tensors.at(name);
    EXPECT_EQ(weight.name, name);
    ASSERT_THAT(weight.shape, ElementsAre(2, 3));
    float got[6];
    weight.ReadRows(0, 2, got);
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(got[i], want[i], std::abs(want[i]) / 128) << name;
  }
  const Weight& scalar = tensors.at("scalar");
  EXPECT_TRUE(scalar.shape.empty());
  float seven = 0;
  scalar.ReadRows(0, 1, &seven);
  EXPECT_EQ(seven, 7);
  EXPECT_THAT(tensors.at("empty").shape, ElementsAre(0, 3));
  EXPECT_EQ(tensors.at("empty").bytes, 0);
}

TEST(Safetensors, TruncatedAnywhereIsRefused) {
  const std::string whole(MappedFile::Open(kGolden)->text());
  const TempFolder folder;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.Write("t.safetensors", whole.substr(0, size));
    ExpectRefused([&] { OpenSafetensors(path); }, ErrorCode::kInvalidFile, {path});
  }
  const std::string longer = folder.Write("t.safetensors", whole + "x");
  ExpectRefused([&] { OpenSafetensors(longer); }, ErrorCode::kInvalidFile, {"101 bytes"});
}

std::string Brackets(int count) {
  return "{\"w\":" + std::string(static_cast<std::size_t>(count), '[');
}

TEST(Safetensors, HostileFilesAreRefused) {
  struct Case {
    const char* what;
    std::string bytes;
    std::vector<std::string> parts;
    ErrorCode code = ErrorCode::kInvalidFile;
  };
  const auto length = [](uint64_t claimed) {
    std::string bytes;
    testing::Append(&bytes, claimed);
    return bytes + "{}";
  };
  const auto one = [](const std::string& entry, const std::string& data) {
    return Safetensors("{\"w\":" + entry + "}", data);
  };
  const std::string four = "1234";
  const Case cases[] = {
      {"empty", "", {"truncated"}},
      {"length 2^64 - 1", length(UINT64_MAX), {"claims 18446744073709551615"}},
      {"length 2^64 - 8", length(UINT64_MAX - 7), {"claims"}},
      {"length 2^63", length(uint64_t{1} << 63), {"claims"}},
      {"length one past the file", length(3), {"claims 3"}},
      {"header of spaces", Safetensors("   ", ""), {"'{'"}},
      {"header is an array", Safetensors("[]", ""), {"'{'"}},
      {"a million brackets", Safetensors(Brackets(1000000), ""), {"nested"}},
      {"NUL after the header", Safetensors(std::string_view("{}\0", 3), ""), {"NUL"}},
      {"entry is a number", one("1", ""), {"'w'", "object"}},
      {"no dtype", one(R"({"shape":[1],"data_offsets":[0,4]})", four), {"'w'", "'dtype'"}},
      {"no shape", one(R"({"dtype":"F32","data_offsets":[0,4]})", four), {"'shape'"}},
      {"no offsets", one(R"({"dtype":"F32","shape":[1]})", four), {"'data_offsets'"}},
      {"dtype is a number",
       one(R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})", four),
       {"'dtype'", "string"}},
      {"integer dtype",
       one(R"({"dtype":"I32","shape":[1],"data_offsets":[0,4]})", four),
       {"'w'", "'I32'"},
       ErrorCode::kUnsupported},
      {"a GGUF dtype",
       one(R"({"dtype":"Q4_1","shape":[32],"data_offsets":[0,20]})", four),
       {"'Q4_1'"},
       ErrorCode::kUnsupported},
      {"unknown dtype",
       one(R"({"dtype":"f32\u0000","shape":[1],"data_offsets":[0,4]})", four),
       {"f32\\x00"},
       ErrorCode::kUnsupported},
      {"negative extent",
       one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", four),
       {"'w': shape"}},
      {"fractional extent",
       one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", four),
       {"'w': shape"}},
      {"extent of 2^63",
       one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})", four),
       {"'w': shape"}},
      {"product overflows to 4",
       one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", ""),
       {"overflows"}},
      {"bytes overflow",
       one(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})", four),
       {"overflows"}},
      {"offsets do not match the shape",
       one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", four),
       {"8 bytes"}},
      {"offsets reversed",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", four),
       {"data_offsets"}},
      {"offsets of one",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[4]})", four),
       {"two integers"}},
      {"offset near 2^63",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[9223372036854775803,9223372036854775807]})",
           four),
       {"hole"}},
      {"offset 2^64 - 1",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[18446744073709551615,3]})", four),
       {"data_offsets"}},
      {"past the end",
       one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", four),
       {"'w'", "truncated"}},
      {"hole in front",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", "12345678"),
       {"hole"}},
      {"surplus data",
       one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "12345"),
       {"5 bytes"}},
      {"overlap",
       Safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   "12345678"),
       {"'b'", "overlap"}},
      {"name twice",
       Safetensors(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                   R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                   ""),
       {"'a'", "twice"}},
      {"name with NUL",
       Safetensors(R"({"a\u0000b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", ""),
       {"'a\\x00b'", "NUL"}},
      {"empty name",
       Safetensors(R"({"":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", ""),
       {"''"}},
      {"metadata is no object", Safetensors(R"({"__metadata__":[]})", ""), {"__metadata__"}},
      {"metadata holds a number", Safetensors(R"({"__metadata__":{"k":1}})", ""), {"'k'"}},
  };
  const TempFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string path = folder.Write("hostile.safetensors", c.bytes);
    std::vector<std::string> parts = c.parts;
    parts.push_back(path);
    ExpectRefused([&] { OpenSafetensors(path); }, c.code, parts);
  }
}

std::string OneTensor(const std::string& name, float value) {
  std::string data;
  testing::Append(&data, value);
  return Safetensors("{\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", data);
}

TEST(SafetensorsFolder, SingleFileWinsOverIndex) {
  const TempFolder folder;
  folder.Write("model.safetensors.index.json", "not even JSON");
  folder.Write("model.safetensors", OneTensor("a", 1));
  EXPECT_EQ(OpenSafetensorsFolder(folder.path()).count("a"), 1u);
}

TEST(SafetensorsFolder, TheOnlyFileWhateverItsName) {
  const TempFolder folder;
  ExpectRefused([&] { OpenSafetensorsFolder(folder.path()); }, ErrorCode::kIo, {folder.path()});
  folder.Write("weights.safetensors", OneTensor("a", 1));
  EXPECT_EQ(OpenSafetensorsFolder(folder.path()).size(), 1u);
  folder.Write("more.safetensors", OneTensor("b", 1));
  ExpectRefused([&] { OpenSafetensorsFolder(folder.path()); }, ErrorCode::kInvalidFile,
                {"2 *.safetensors", "index.json"});
  ExpectRefused([&] { OpenSafetensorsFolder(folder.path() + "/absent"); }, ErrorCode::kIo,
                {"absent"});
}

TEST(SafetensorsFolder, ShardsByIndex) {
  const TempFolder folder;
  folder.Write("model-00001-of-00002.safetensors", OneTensor("a", 1));
  // Caches keep the bytes elsewhere and link to them.
  const TempFolder blobs;
  std::filesystem::create_symlink(blobs.Write("blob", OneTensor("b", 2)),
                                  folder.path() + "/model-00002-of-00002.safetensors");
  folder.Write("model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors",
                   "b":"model-00002-of-00002.safetensors"}})");
  const auto tensors = OpenSafetensorsFolder(folder.path());
  ASSERT_EQ(tensors.size(), 2u);
  for (const auto& [name, value] : {std::pair{"a", 1.0f}, {"b", 2.0f}}) {
    float got = 0;
    tensors.at(name).ReadRows(0, 1, &got);
    EXPECT_EQ(got, value);
  }
}

TEST(SafetensorsFolder, HostileIndexIsRefused) {
  struct Case {
    const char* index;
    std::vector<std::string> parts;
    ErrorCode code = ErrorCode::kInvalidFile;
  };
  const Case cases[] = {
      {"", {"byte 0"}},
      {"[]", {"weight_map"}},
      {"{}", {"weight_map"}},
      {R"({"weight_map":{}})", {"weight_map"}},
      {R"({"weight_map":{"a":1}})", {"'a'"}},
      {R"({"weight_map":{"a":"s.safetensors","a":"s.safetensors"}})", {"'a'", "twice"}},
      {R"({"weight_map":{"a":"../s.safetensors"}})", {"'../s.safetensors'"}},
      {R"({"weight_map":{"a":"..safetensors"}})", {"plain file name"}},
      {R"({"weight_map":{"a":"sub/s.safetensors"}})", {"plain file name"}},
      {R"({"weight_map":{"a":"/etc/s.safetensors"}})", {"plain file name"}},
      {R"({"weight_map":{"a":"..\\s.safetensors"}})", {"plain file name"}},
      {R"({"weight_map":{"a":"s\u0000.safetensors"}})", {"s\\x00"}},
      {R"({"weight_map":{"a":""}})", {"plain file name"}},
      // An index that names itself would never end.
      {R"({"weight_map":{"a":"model.safetensors.index.json"}})", {"index.json'"}},
      {R"({"weight_map":{"a":"absent.safetensors"}})", {"absent", "No such"}, ErrorCode::kIo},
      {R"({"weight_map":{"a":"s.safetensors","c":"s.safetensors"}})", {"'c'", "not in shard"}},
      {R"({"weight_map":{"a":"s.safetensors"}})", {"'b'", "weight_map does not place"}},
      {R"({"weight_map":{"a":"s.safetensors","b":"t.safetensors"}})", {"'b'", "does not place"}},
  };
  const TempFolder folder;
  folder.Write("s.safetensors",
               Safetensors(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                           R"("b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                           ""));
  folder.Write("t.safetensors", OneTensor("b", 1));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.index);
    folder.Write("model.safetensors.index.json", c.index);
    ExpectRefused([&] { OpenSafetensorsFolder(folder.path()); }, c.code, c.parts);
  }
}

}  // namespace safetensors_test
}  // namespace ropewalk
