// What is written is read back the same, bit for bit; what cannot be written says why and leaves
// nothing behind.
#include "ropewalk/io/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "ropewalk/base/error.h"
#include "src/io/bytes.h"
#include "src/io/dequantize.h"
#include "tests/io/files.h"

namespace ropewalk {
namespace writer_test {

namespace fs = std::filesystem;
using testing::ExpectRefused;
using testing::TempFolder;

const std::string kGolden = ROPEWALK_SOURCE_DIR "/tests/golden/io/";

// Tensors whose bytes are random, so that every bit counts (NaN payloads among them).
struct RandomTensors {
  std::vector<std::vector<std::byte>> data;
  std::vector<Weight> weights;

  explicit RandomTensors(const std::vector<WeightType>& types) {
    std::mt19937 random(11);
    const std::vector<std::vector<int64_t>> shapes = {{5, 512},       {256},    {3, 2, 256},
                                                      {2, 1, 3, 256}, {0, 256}, {4, 0}};
    data.reserve(types.size() * (shapes.size() + 3));
    for (const WeightType type : types) {
      for (const auto& shape : shapes) Add(type, shape, random);
      if (Info(type).block_elements != 1) continue;
      for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {7}, {3, 1}}) {
        Add(type, shape, random);
      }
    }
  }
  std::vector<TensorSource> Sources() const {
    std::vector<TensorSource> sources;
    for (const Weight& weight : weights) sources.push_back(CopyOf(weight));
    return sources;
  }

 private:
  void Add(WeightType type, const std::vector<int64_t>& shape, std::mt19937& random) {
    Weight weight;
    weight.name = Info(type).name + std::to_string(weights.size());
    weight.type = type;
    weight.shape = shape;
    weight.bytes = internal::TensorBytes(type, shape).value();
    auto& bytes = data.emplace_back(static_cast<std::size_t>(weight.bytes));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    weight.data = bytes.data();
    weights.push_back(std::move(weight));
  }
};

void ExpectSame(const std::map<std::string, Weight>& got, const std::vector<Weight>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const Weight& w : want) {
    SCOPED_TRACE(w.name);
    const Weight& g = got.at(w.name);
    EXPECT_EQ(g.type, w.type);
    EXPECT_EQ(g.shape, w.shape);
    ASSERT_EQ(g.bytes, w.bytes);
    if (w.bytes == 0) continue;  // no data to compare
    EXPECT_EQ(std::memcmp(g.data, w.data, static_cast<std::size_t>(w.bytes)), 0);
  }
}

std::string Bytes(const std::string& path) { return std::string(MappedFile::Open(path)->text()); }

TEST(Writer, SafetensorsRoundTrip) {
  const TempFolder folder;
  const RandomTensors random(
      {WeightType::kBF16, WeightType::kF64, WeightType::kF16, WeightType::kF32});
  const std::string path = folder.path() + "/model.safetensors";
  WriteSafetensors(path, random.Sources(), {{"format", "pt"}, {"k\"\n", "\u7e69"}});
  const auto tensors = OpenSafetensors(path);
  ExpectSame(tensors, random.weights);
  for (const auto& [name, weight] : tensors) {
    const auto at = weight.data - weight.file->data();
    EXPECT_EQ(at % Info(weight.type).block_bytes, 0) << name << " is not aligned";
  }
  EXPECT_NE(Bytes(path).find(R"("__metadata__":{"format":"pt","k\"\n":")"), std::string::npos);
}

TEST(Writer, GgufRoundTripOfEveryTypeAtEveryAlignment) {
  std::vector<WeightType> types;
  for (int i = 0; i <= static_cast<int>(WeightType::kMXFP4); ++i) {
    types.push_back(static_cast<WeightType>(i));
  }
  const RandomTensors random(types);
  const TempFolder folder;
  const std::string path = folder.path() + "/model.gguf";
  for (const int64_t alignment : {0, 1, 8, 64, 4096}) {
    std::map<std::string, GgufValue> metadata;
    if (alignment > 0) metadata["general.alignment"] = {alignment, GgufType::kU32};
    WriteGguf(path, metadata, random.Sources());
    const GgufFile file = OpenGguf(path);
    EXPECT_EQ(file.version, 3u);
    ExpectSame(file.tensors, random.weights);
    const int64_t expected = alignment > 0 ? alignment : 32;
    for (const auto& [name, weight] : file.tensors) {
      EXPECT_EQ((weight.data - file.file->data()) % expected, 0) << name;
    }
    EXPECT_EQ(static_cast<int64_t>(file.file->size()) % expected, 0);
  }
}

// The golden file has a key of each type, written by gguf-py.
TEST(Writer, GgufMetadataOfEveryTypeRoundTrips) {
  const TempFolder folder;
  GgufFile golden = OpenGguf(kGolden + "quants.gguf");
  golden.metadata["b.u64s"] = {std::vector<int64_t>{1, INT64_MAX}, GgufType::kU64};
  golden.metadata["b.f64s"] = {std::vector<double>{0.1, -0.0}, GgufType::kF64};
  golden.metadata["b.none"] = {std::vector<std::string>{}, GgufType::kString};
  std::vector<TensorSource> sources;
  std::vector<Weight> weights;
  for (const auto& [name, weight] : golden.tensors) {
    sources.push_back(CopyOf(weight));
    weights.push_back(weight);
  }
  const std::string path = folder.path() + "/copy.gguf";
  WriteGguf(path, golden.metadata, sources);
  const GgufFile copy = OpenGguf(path);
  ExpectSame(copy.tensors, weights);
  ASSERT_EQ(copy.metadata.size(), golden.metadata.size());
  for (const auto& [key, value] : golden.metadata) {
    EXPECT_EQ(copy.metadata.at(key).value, value.value) << key;
    EXPECT_EQ(copy.metadata.at(key).type, value.type) << key;
    EXPECT_TRUE(value.type.has_value()) << key;
  }
}

// The bytes, typed here from the format's specification.
TEST(Writer, GgufLayoutByHand) {
  const TempFolder folder;
  const std::string path = folder.path() + "/hand.gguf";
  WriteGguf(path,
            {{"a", {int64_t{7}, GgufType::kU16}},
             {"b", {std::vector<std::string>{"x"}, GgufType::kString}},
             {"c", {1.5}}},
            {FromFloats("w", {2, 3}, {1, 2, 3, 4, 5, 6})});
  testing::GgufWriter hand(1, 3);
  hand.Key("a", 2, uint16_t{7});
  hand.String("b").Value(uint32_t{9}).Value(uint32_t{8}).Value(uint64_t{1}).String("x");
  hand.Key("c", 12, 1.5);
  hand.Tensor("w", {3, 2}, 0, 0);
  while (hand.bytes.size() % 32 != 0) hand.bytes += '\0';
  for (const float v : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}) hand.Value(v);
  while (hand.bytes.size() % 32 != 0) hand.bytes += '\0';
  EXPECT_EQ(Bytes(path), hand.bytes);
}

TEST(Writer, ReadsRowsInPieces) {
  const TempFolder folder;
  const std::string path = folder.path() + "/large.safetensors";
  constexpr int64_t kRows = 5000, kCols = 1024;  // 20 MiB
  TensorSource source{"w", WeightType::kF32, {kRows, kCols}, {}};
  int64_t next = 0, most = 0;
  source.read = [&](int64_t first, int64_t count, std::byte* out) {
    EXPECT_EQ(first, next);
    next += count;
    most = std::max(most, count);
    for (int64_t i = 0; i < count * kCols; ++i) {
      const auto v = static_cast<float>(first * kCols + i);
      std::memcpy(out + i * 4, &v, 4);
    }
  };
  WriteSafetensors(path, {source});
  EXPECT_EQ(next, kRows);
  EXPECT_LE(most * kCols * 4, 4 << 20);
  const auto tensors = OpenSafetensors(path);
  std::vector<float> row(kCols);
  for (const int64_t r : {int64_t{0}, int64_t{1023}, int64_t{1024}, kRows - 1}) {
    tensors.at("w").ReadRows(r, 1, row.data());
    for (int64_t c = 0; c < kCols; ++c) ASSERT_EQ(row[c], static_cast<float>(r * kCols + c));
  }
}

TEST(Writer, RefusesWhatTheFormatCannotHold) {
  const TempFolder folder;
  const std::string path = folder.path() + "/bad";
  const auto f = [](const std::string& name) { return FromFloats(name, {1}, {0}); };
  const RandomTensors q8({WeightType::kQ8_0});
  const auto refused = [&](const auto& write, const std::vector<std::string>& parts) {
    ExpectRefused(write, ErrorCode::kInvalidArgument, parts);
    EXPECT_TRUE(fs::is_empty(folder.path())) << "something was left behind";
  };
  const auto gguf = [&](const GgufValue& value) {
    return [&path, value] { WriteGguf(path, {{"the.key", value}}, {}); };
  };
  refused([&] { WriteSafetensors(path, {f("a"), f("a")}); }, {"'a'", "twice"});
  refused([&] { WriteGguf(path, {}, {f("")}); }, {"''"});
  refused([&] { WriteSafetensors(path, {f("__metadata__")}); }, {"__metadata__"});
  refused([&] { WriteSafetensors(path, {f("\xff")}); }, {"UTF-8"});
  refused([&] { WriteSafetensors(path, q8.Sources()); }, {"Q8_0", "dequantise"});
  refused(
      [&] {
        WriteGguf(path, {}, {FromFloats("w", {1, 1, 1, 1, 1}, {0})});
      },
      {"'w'", "at most 4"});
  refused([&] { WriteGguf(path, {}, {{"w", WeightType::kQ8_0, {31}, {}}}); }, {"'w'", "blocks"});
  refused([&] { WriteGguf(path, {}, {{"w", WeightType::kF32, {-1}, {}}}); }, {"'w'"});
  refused([&] { WriteGguf(path, {{"", {true}}}, {}); }, {"key ''"});
  refused(gguf({int64_t{256}, GgufType::kU8}), {"the.key", "256"});
  refused(gguf({int64_t{-1}, GgufType::kU64}), {"the.key", "-1"});
  refused(gguf({int64_t{1} << 31, GgufType::kI32}), {"the.key"});
  refused(gguf({0.1, GgufType::kF32}), {"the.key", "float32"});
  refused(gguf({1e300, GgufType::kF32}), {"the.key", "float32"});
  refused(gguf({std::string("x"), GgufType::kU8}), {"the.key", "does not suit"});
  refused(gguf({1.0, GgufType::kU8}), {"the.key", "does not suit"});
  refused(gguf({std::vector<int64_t>{2}, GgufType::kBool}), {"the.key", "does not suit"});
}

TEST(Writer, AtomicUnderDiskFullAndWithoutPermission) {
  const TempFolder folder;
  const std::string path = folder.Write("model.safetensors", "the old file");
  // A file size limit stands for a full disk: both make write() fail half-way.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 3 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    WriteSafetensors(path, {FromFloats("w", {2048, 1024}, std::vector<float>(2 << 20))});
  } catch (const Error& e) {
    message = e.what();
    EXPECT_EQ(e.code(), ErrorCode::kIo);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_THAT(message, ::testing::AllOf(::testing::HasSubstr(path),
                                        ::testing::HasSubstr("cannot write: File too large")));
  EXPECT_EQ(Bytes(path), "the old file");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);

  ExpectRefused([&] { WriteGguf(folder.path() + "/none/m.gguf", {}, {}); }, ErrorCode::kIo,
                {"none/m.gguf", "No such file or directory"});
  ExpectRefused([&] { WriteGguf(folder.path(), {}, {}); }, ErrorCode::kIo, {"not a regular file"});
  ExpectRefused([&] { WriteGguf(path + "/m.gguf", {}, {}); }, ErrorCode::kIo, {"Not a directory"});
  WriteSafetensors(path, {FromFloats("w", {1}, {1})});  // replaces
  EXPECT_EQ(OpenSafetensors(path).size(), 1u);
}

}  // namespace writer_test
}  // namespace ropewalk
