// Models split into several files, written here with the project's own writer (tested by hand-typed
// bytes in writer_test.cc) and with what goes wrong in the wild: a shard missing, renamed, of
// another model, of another split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ropewalk/io/weights.h"
#include "ropewalk/io/writer.h"
#include "tests/io/files.h"

namespace ropewalk {
namespace gguf_split_test {

namespace fs = std::filesystem;
using testing::ExpectRefused;
using testing::TempFolder;

using Metadata = std::map<std::string, GgufValue>;

Metadata SplitKeys(int64_t no, int64_t count, int64_t tensors) {
  const GgufType type = count > 65535 ? GgufType::kU32 : GgufType::kU16;
  return {{"split.no", {no, type}},
          {"split.count", {count, type}},
          {"split.tensors.count", {tensors, GgufType::kI32}}};
}

struct Split {
  TempFolder folder;
  std::string Path(int number, int count = 3) const {
    char name[64];
    std::snprintf(name, sizeof(name), "/m-%05d-of-%05d.gguf", number, count);
    return folder.path() + name;
  }
  void WriteShard(int number, Metadata metadata, const std::string& tensor) const {
    const auto value = static_cast<float>(number);
    WriteGguf(Path(number), metadata, {FromFloats(tensor, {1, 2}, {value, value})});
  }
  Split() {
    Metadata first = SplitKeys(0, 3, 3);
    first["general.architecture"] = {std::string("llama"), GgufType::kString};
    WriteShard(1, first, "a");
    WriteShard(2, SplitKeys(1, 3, 3), "b");
    WriteShard(3, SplitKeys(2, 3, 3), "c");
  }
};

TEST(GgufSplit, AnyShardOpensAll) {
  const Split split;
  for (int number = 1; number <= 3; ++number) {
    const GgufFile file = OpenGguf(split.Path(number));
    EXPECT_EQ(file.file->path(), split.Path(1));
    EXPECT_EQ(file.metadata.at("general.architecture").AsString(""), "llama");
    ASSERT_EQ(file.tensors.size(), 3u);
    float expected = 1;
    for (const char* name : {"a", "b", "c"}) {
      float values[2];
      file.tensors.at(name).ReadRows(0, 1, values);
      EXPECT_EQ(values[0], expected++);
    }
  }
}

TEST(GgufSplit, BlocksOfAnyShardDecodeAsInOneFile) {
  const Split split;
  const GgufFile whole = OpenGguf(ROPEWALK_SOURCE_DIR "/tests/golden/io/quants.gguf");
  TensorSource blocks = CopyOf(whole.tensors.at("IQ3_S"));
  blocks.name = "b";
  WriteGguf(split.Path(2), SplitKeys(1, 3, 3), {blocks});
  std::vector<float> got(4 * 256), want(4 * 256);
  const GgufFile file = OpenGguf(split.Path(3));
  file.tensors.at("b").ReadRows(0, 4, got.data());
  whole.tensors.at("IQ3_S.f32").ReadRows(0, 4, want.data());
  EXPECT_EQ(got, want);
}

TEST(GgufSplit, TheHashIsOfAllFiles) {
  const Split split;
  const std::string before = ContentHash(OpenGguf(split.Path(1)).tensors);
  WriteGguf(split.Path(3), SplitKeys(2, 3, 3), {FromFloats("c", {1, 2}, {3, 4})});
  EXPECT_NE(ContentHash(OpenGguf(split.Path(1)).tensors), before);
}

TEST(GgufSplit, OneShardIsAPlainFile) {
  const TempFolder folder;
  const std::string path = folder.path() + "/any-name.gguf";
  WriteGguf(path, SplitKeys(0, 1, 1), {FromFloats("a", {1}, {1})});
  EXPECT_EQ(OpenGguf(path).tensors.size(), 1u);
}

TEST(GgufSplit, MissingAndForeignShardsAreNamed) {
  {
    const Split split;
    fs::remove(split.Path(2));
    ExpectRefused([&] { OpenGguf(split.Path(3)); }, ErrorCode::kIo,
                  {"m-00002-of-00003.gguf", "shard 2 of 3 is missing"});
  }
  struct Case {
    const char* what;
    Metadata keys;
    const char* tensor;
    std::vector<std::string> parts;
  };
  Metadata other_model = SplitKeys(1, 3, 3);
  other_model["general.architecture"] = {std::string("qwen2"), GgufType::kString};
  Metadata no_count = SplitKeys(1, 3, 3);
  no_count.erase("split.count");
  Metadata text = SplitKeys(1, 3, 3);
  text["split.no"] = {std::string("1"), GgufType::kString};
  for (const Case& c : {
           Case{"the number of another", SplitKeys(2, 3, 3), "b", {"says 2, where 1"}},
           {"another split", SplitKeys(1, 4, 3), "b", {"'split.count'", "two models"}},
           {"another total", SplitKeys(1, 3, 4), "b", {"'split.tensors.count'", "two models"}},
           {"another model", other_model, "b", {"'general.architecture'", "two models"}},
           {"not split", {}, "b", {"'split.no' is missing"}},
           {"no count", no_count, "b", {"'split.count' is missing"}},
           {"a string", text, "b", {"split.no", "found a string"}},
           {"the same tensor", SplitKeys(1, 3, 3), "a", {"'a' is in", "m-00001-of-00003.gguf"}},
       }) {
    SCOPED_TRACE(c.what);
    const Split split;
    split.WriteShard(2, c.keys, c.tensor);
    std::vector<std::string> parts = c.parts;
    parts.push_back("m-00002-of-00003.gguf");
    ExpectRefused([&] { OpenGguf(split.Path(1)); }, ErrorCode::kInvalidFile, parts);
  }
}

TEST(GgufSplit, NamesAndTotalsThatDoNotHold) {
  const Split split;
  const std::string renamed = split.folder.path() + "/renamed.gguf";
  fs::copy(split.Path(2), renamed);
  ExpectRefused([&] { OpenGguf(renamed); }, ErrorCode::kInvalidFile,
                {"renamed.gguf", "shard 2 of 3", "-00002-of-00003.gguf"});
  split.WriteShard(1, SplitKeys(0, 100000, 3), "a");
  ExpectRefused([&] { OpenGguf(split.Path(1)); }, ErrorCode::kInvalidFile, {"at most 99999"});
  split.WriteShard(1, SplitKeys(7, 3, 3), "a");
  ExpectRefused([&] { OpenGguf(split.Path(1)); }, ErrorCode::kInvalidFile, {"'split.no' is 7"});
  for (int number = 1; number <= 3; ++number) {
    split.WriteShard(number, SplitKeys(number - 1, 3, 4), std::string(1, char('a' + number)));
  }
  ExpectRefused([&] { OpenGguf(split.Path(1)); }, ErrorCode::kInvalidFile,
                {"'split.tensors.count' is 4", "hold 3 tensors"});
}

}  // namespace gguf_split_test
}  // namespace ropewalk
