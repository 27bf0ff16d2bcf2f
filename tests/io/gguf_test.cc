#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "ropewalk/io/weights.h"
#include "tests/io/files.h"

namespace ropewalk {
namespace gguf_test {

using ::testing::ElementsAre;
using testing::ExpectRefused;
using testing::GgufWriter;
using testing::TempFolder;

const std::string kGolden = ROPEWALK_SOURCE_DIR "/tests/golden/io/quants.gguf";
constexpr uint32_t kF32 = 0, kQ4_1 = 3, kQ4_K = 12, kIQ2_XXS = 16, kIQ1_S = 19, kTQ1_0 = 34,
                   kMXFP4 = 39;
constexpr uint32_t kU8Value = 0, kU32Value = 4, kBoolValue = 7, kStringValue = 8, kArrayValue = 9,
                   kU64Value = 10;

template <class T>
T Get(const GgufFile& file, const std::string& key) {
  return std::get<T>(file.metadata.at(key).value);
}

TEST(Gguf, MetadataOfEveryTypeAsTheReferenceWritesIt) {
  const GgufFile f = OpenGguf(kGolden);
  EXPECT_EQ(f.version, 3u);
  EXPECT_EQ(Get<std::string>(f, "general.architecture"), "llama");
  EXPECT_EQ(Get<int64_t>(f, "a.u8"), 200);
  EXPECT_EQ(Get<int64_t>(f, "a.i8"), -100);
  EXPECT_EQ(Get<int64_t>(f, "a.u16"), 60000);
  EXPECT_EQ(Get<int64_t>(f, "a.i16"), -30000);
  EXPECT_EQ(Get<int64_t>(f, "a.u32"), 4000000000);
  EXPECT_EQ(Get<int64_t>(f, "a.i32"), -2000000000);
  EXPECT_EQ(Get<uint64_t>(f, "a.u64"), UINT64_MAX);
  EXPECT_EQ(Get<int64_t>(f, "a.i64"), INT64_MIN);
  EXPECT_EQ(Get<double>(f, "a.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(Get<double>(f, "a.f64"), 0.1);
  EXPECT_EQ(Get<bool>(f, "a.bool"), true);
  EXPECT_EQ(Get<std::string>(f, "a.string"), "rope \u00e9 \u7e69");
  EXPECT_THAT(Get<std::vector<int64_t>>(f, "a.ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(Get<std::vector<double>>(f, "a.floats"), ElementsAre(0.5, -0.25));
  EXPECT_THAT(Get<std::vector<int64_t>>(f, "a.bools"), ElementsAre(1, 0));
  EXPECT_THAT(Get<std::vector<std::string>>(f, "a.strings"), ElementsAre("x", "", "\u7e69"));
}

TEST(Gguf, TypedAccessConvertsWhatLosesNothingAndRefusesTheRest) {
  const GgufFile f = OpenGguf(kGolden);
  EXPECT_EQ(f.metadata.at("a.u32").AsInt("a.u32"), 4000000000);
  EXPECT_EQ(f.metadata.at("a.u32").AsDouble("a.u32"), 4e9);
  EXPECT_EQ(f.metadata.at("a.u64").AsDouble("a.u64"), 18446744073709551616.0);
  EXPECT_TRUE(f.metadata.at("a.bool").AsBool("a.bool"));
  EXPECT_EQ(f.metadata.at("a.string").AsString("a.string").size(), 11u);
  const auto refused = [&](const char* key, auto access, const std::string& part) {
    ExpectRefused([&] { access(f.metadata.at(key), key); }, ErrorCode::kInvalidFile, {key, part});
  };
  const auto as_int = [](const GgufValue& v, const char* key) { v.AsInt(key); };
  refused("a.f32", as_int, "found a float");
  refused("a.bool", as_int, "found a bool");
  refused("a.u64", as_int, "2^63");
  refused(
      "a.string", [](const GgufValue& v, const char* k) { v.AsDouble(k); }, "found a string");
  refused(
      "a.u8", [](const GgufValue& v, const char* k) { v.AsBool(k); }, "found an integer");
  refused(
      "a.ints", [](const GgufValue& v, const char* k) { v.AsString(k); }, "array of integers");
}

TEST(Gguf, DimensionsAreTurnedOuterFirst) {
  const GgufFile f = OpenGguf(kGolden);
  const Weight& weight = f.tensors.at("rank4");
  ASSERT_THAT(weight.shape, ElementsAre(2, 3, 2, 2));
  float values[24];
  weight.ReadRows(0, 12, values);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(values[i], i);
}

// Two tensors, one key, version 2 and another alignment.
std::string Small() {
  return GgufWriter(2, 2, 2)
      .Key("general.alignment", kU32Value, uint32_t{64})
      .String("k")
      .Value(kArrayValue)
      .Value(kStringValue)
      .Value(uint64_t{1})
      .String("x")
      .Tensor("a", {4, 2}, kF32, 0)
      .Tensor("b", {32}, kQ4_1, 64)
      .Data(84, 64)
      .bytes;
}

TEST(Gguf, Version2AndAlignment) {
  const TempFolder folder;
  const GgufFile f = OpenGguf(folder.Write("m.gguf", Small()));
  EXPECT_EQ(f.version, 2u);
  EXPECT_THAT(f.tensors.at("a").shape, ElementsAre(2, 4));
  EXPECT_EQ(static_cast<int>(f.tensors.at("b").data[0]), 64);
  EXPECT_EQ(f.tensors.at("b").bytes, 20);
}

TEST(Gguf, TruncatedAnywhereIsRefused) {
  const TempFolder folder;
  const std::string whole = Small();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string path = folder.Write("t.gguf", whole.substr(0, size));
    ExpectRefused([&] { OpenGguf(path); }, ErrorCode::kInvalidFile, {path + ": byte "});
  }
}

TEST(Gguf, AnyBitFlippedIsReadOrRefused) {
  const TempFolder folder;
  const std::string whole = Small();
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const testing::AllocationWatch watch;
    try {
      for (const auto& [name, weight] : OpenGguf(folder.Write("f.gguf", bytes)).tensors) {
        std::vector<float> out(static_cast<std::size_t>(weight.rows() * weight.cols()));
        weight.ReadRows(0, weight.rows(), out.data());
      }
    } catch (const Error&) {
    }
    EXPECT_LE(watch.largest(), std::size_t{1} << 20) << "bit " << bit;
  }
}

TEST(Gguf, HostileFilesAreRefused) {
  struct Case {
    const char* what;
    std::string bytes;
    std::vector<std::string> parts;
    ErrorCode code = ErrorCode::kInvalidFile;
  };
  const auto tensor = [](const std::vector<uint64_t>& shape, uint32_t type, uint64_t offset) {
    return GgufWriter(1, 0).Tensor("w", shape, type, offset).Data(64).bytes;
  };
  const auto two = [](uint64_t first, uint64_t second) {
    return GgufWriter(2, 0)
        .Tensor("a", {16}, kF32, first)
        .Tensor("b", {8}, kF32, second)
        .Data(96)
        .bytes;
  };
  const auto array = [](uint32_t type, uint64_t count) {
    return GgufWriter(0, 1).String("k").Value(kArrayValue).Value(type).Value(count).bytes;
  };
  const auto aligned = [](uint32_t alignment) {
    return GgufWriter(1, 1)
        .Key("general.alignment", kU32Value, alignment)
        .Tensor("w", {1}, kF32, 0)
        .Data(4)
        .bytes;
  };
  std::string long_key(1 << 17, 'k');
  const uint64_t huge = UINT64_MAX;
  const Case cases[] = {
      {"empty", "", {"byte 0", "not a GGUF"}},
      {"another format", "PK\x03\x04zipzipzip", {"not a GGUF"}},
      {"version 1", GgufWriter(0, 0, 1).bytes, {"version 1"}, ErrorCode::kUnsupported},
      {"version 4", GgufWriter(0, 0, 4).bytes, {"version 4"}, ErrorCode::kUnsupported},
      {"big endian", GgufWriter(0, 0, 3u << 24).bytes, {"big-endian"}, ErrorCode::kUnsupported},
      {"2^64 - 1 tensors", GgufWriter(huge, 0).bytes, {"18446744073709551615 tensors"}},
      {"2^64 - 1 keys", GgufWriter(0, huge).bytes, {"metadata keys"}},
      {"2^60 tensors", GgufWriter(uint64_t{1} << 60, 0).Data(100).bytes, {"tensors"}},
      {"a million tensors", GgufWriter(1000000, 0).Data(1000).bytes, {"1000000 tensors"}},
      {"key of 2^64 - 1 bytes", GgufWriter(0, 1).Value(huge).Data(64).bytes, {"claims"}},
      {"key of 2^63 bytes", GgufWriter(0, 1).Value(uint64_t{1} << 63).Data(64).bytes, {"claims"}},
      {"empty key", GgufWriter(0, 1).Key("", kU32Value, 1).bytes, {"metadata key ''"}},
      {"key with NUL", GgufWriter(0, 1).Key({"a\0b", 3}, kU32Value, 1).bytes, {"'a\\x00b'"}},
      {"key of 128 KiB", GgufWriter(0, 1).Key(long_key, kU32Value, 1).bytes, {"...'"}},
      {"key twice",
       GgufWriter(0, 2).Key("k", kU32Value, 1).Key("k", kU32Value, 1).bytes,
       {"'k' occurs twice"}},
      {"value type 13", GgufWriter(0, 1).Key("k", 13, 1).Data(8).bytes, {"'k'", "type 13"}},
      {"value of 2^64 - 1 bytes", GgufWriter(0, 1).Key("k", kStringValue, huge).bytes, {"'k'"}},
      {"bool of 2", GgufWriter(0, 1).Key("k", kBoolValue, uint8_t{2}).bytes, {"'k'", "found 2"}},
      {"array of 2^64 - 1 strings", array(kStringValue, huge), {"'k'", "left in the file"}},
      {"array of 2^61 u64", array(kU64Value, uint64_t{1} << 61), {"'k'"}},
      {"array of 1000000 u8", array(kU8Value, 1000000), {"1000000 elements"}},
      {"array of type 99", array(99, 0), {"value type 99"}},
      {"array of arrays",
       array(kArrayValue, huge),
       {"'k'", "arrays of arrays"},
       ErrorCode::kUnsupported},
      {"u64 array element past int64",
       GgufWriter(0, 1)
           .String("k")
           .Value(kArrayValue)
           .Value(kU64Value)
           .Value(uint64_t{1})
           .Value(huge)
           .bytes,
       {"'k'", "2^63"}},
      {"tensor name with NUL",
       GgufWriter(1, 0).Tensor({"a\0b", 3}, {1}, kF32, 0).Data(4).bytes,
       {"'a\\x00b'"}},
      {"terminal escape in a name",
       GgufWriter(2, 0).Tensor("\x1b[2J", {1}, kF32, 0).Tensor("\x1b[2J", {1}, kF32, 0).bytes,
       {"'\\x1b[2J' occurs twice"}},
      {"rank 5", tensor({1, 1, 1, 1, 1}, kF32, 0), {"'w'", "rank 5"}},
      {"rank 2^32 - 1",
       GgufWriter(1, 0).String("w").Value(UINT32_MAX).Data(64).bytes,
       {"rank 4294967295"}},
      {"dimension of 2^63", tensor({uint64_t{1} << 63}, kF32, 0), {"'w'", "overflows"}},
      {"product overflows to 0",
       tensor({uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0),
       {"'w'", "overflows"}},
      {"bytes overflow", tensor({uint64_t{1} << 62}, kF32, 0), {"overflows"}},
      {"33 elements of Q4_1", tensor({33}, kQ4_1, 0), {"'w'", "blocks of 32"}},
      {"blocks along the wrong dimension", tensor({2, 256}, kQ4_K, 0), {"blocks of 256"}},
      {"half a block of IQ2_XXS", tensor({128}, kIQ2_XXS, 0), {"'w'", "IQ2_XXS", "blocks of 256"}},
      {"a block of TQ1_0 cut short", tensor({512}, kTQ1_0, 0), {"'w'", "108 bytes", "truncated"}},
      {"33 elements of MXFP4", tensor({33}, kMXFP4, 0), {"'w'", "MXFP4", "blocks of 32"}},
      {"bytes of IQ1_S overflow", tensor({uint64_t{1} << 62, 8}, kIQ1_S, 0), {"overflows"}},
      {"type Q8_K",
       tensor({256}, 15, 0),
       {"'w'", "Q8_K", "Q2_K, Q3_K", "IQ1_M, TQ1_0, TQ2_0, MXFP4 are", "llama-quantize"},
       ErrorCode::kUnsupported},
      {"type NVFP4", tensor({64}, 40, 0), {"'w'", "NVFP4"}, ErrorCode::kUnsupported},
      {"type 4, long removed", tensor({32}, 4, 0), {"'w'", "type 4"}},
      {"type 2^32 - 1", tensor({32}, UINT32_MAX, 0), {"'w'", "type 4294967295"}},
      {"offset of 2^64 - 32", tensor({16}, kF32, huge - 31), {"'w'", "pass the end"}},
      {"offset past the end", tensor({1}, kF32, 96), {"'w'", "pass the end"}},
      {"one element past the end", tensor({17}, kF32, 0), {"'w'", "truncated"}},
      {"offset not aligned", tensor({1}, kF32, 4), {"'w'", "alignment 32"}},
      {"overlap", two(0, 32), {"'b' overlaps tensor 'a'"}},
      {"the same bytes twice", two(0, 0), {"overlaps"}},
      {"alignment 0", aligned(0), {"general.alignment"}},
      {"alignment 48", aligned(48), {"general.alignment"}},
      {"alignment 2^31", aligned(1u << 31), {"pass the end"}},
      {"alignment is a string",
       GgufWriter(1, 1)
           .String("general.alignment")
           .Value(kStringValue)
           .String("32")
           .Tensor("w", {1}, kF32, 0)
           .Data(4)
           .bytes,
       {"general.alignment", "found a string"}},
  };
  const TempFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string path = folder.Write("hostile.gguf", c.bytes);
    ExpectRefused([&] { OpenGguf(path); }, c.code, c.parts);
  }
}

TEST(Gguf, RealVocabularies) {
  const char* data = std::getenv("ROPEWALK_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "ROPEWALK_TEST_DATA is not set";
  struct Case {
    const char* name;
    const char* architecture;
    std::size_t tokens;
    int64_t context;
  };
  // Read with gguf-py.
  for (const Case& c : {Case{"llama-spm", "llama", 32000, 4096},
                        {"phi-3", "phi3", 32064, 4096},
                        {"gpt-neox", "gptneox", 50432, 2048},
                        {"mpt", "mpt", 50432, 2048},
                        {"deepseek-coder", "llama", 32256, 16384},
                        {"bert-bge", "bert", 30522, 512}}) {
    SCOPED_TRACE(c.name);
    const GgufFile f = OpenGguf(std::string(data) + "/gguf_vocab/ggml-vocab-" + c.name + ".gguf");
    EXPECT_EQ(Get<std::string>(f, "general.architecture"), c.architecture);
    EXPECT_EQ(Get<std::vector<std::string>>(f, "tokenizer.ggml.tokens").size(), c.tokens);
    EXPECT_EQ(Get<std::vector<int64_t>>(f, "tokenizer.ggml.token_type").size(), c.tokens);
    EXPECT_EQ(f.metadata.at(std::string(c.architecture) + ".context_length").AsInt(c.name),
              c.context);
    EXPECT_TRUE(f.tensors.empty());
  }
}

}  // namespace gguf_test
}  // namespace ropewalk
