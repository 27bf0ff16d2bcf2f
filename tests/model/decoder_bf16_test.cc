// The decoder with its products in bf16: near float32, and as repeatable as float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ropewalk/base/threads.h"
#include "tests/model/support.h"

namespace ropewalk {
namespace decoder_bf16_test {

using test::Difference;
using test::LogitsOf;

// The model that the project trained itself, and ids that it did not see.
class Bf16Decoder : public testing::Test {
 protected:
  void SetUp() override {
    if (FindBf16Unit() == Bf16Unit::kNone) GTEST_SKIP() << "this CPU multiplies no bf16";
    files_ = OpenModel(std::string(ROPEWALK_SOURCE_DIR) + "/models");
    exact_ = Decoder::Load(files_);
    rounded_ = Decoder::Load(files_, {.compute = ComputeType::kBFloat16});
  }
  const PositionPlan& plan() const { return files_.config.plan; }
  std::vector<int32_t> Ids(int64_t n) const {
    test::Tiny any;
    any.vocab = files_.config.vocab;
    return any.Ids(n);
  }
  // What rounding does to the logits of `ids`: the unit of the tolerances below.
  double RoundingError(const std::vector<int32_t>& ids, const test::RunOptions& options = {}) {
    return Difference(LogitsOf(*rounded_, plan(), ids, options),
                      LogitsOf(*exact_, plan(), ids, options));
  }

  ModelFiles files_;
  std::unique_ptr<Decoder> exact_, rounded_;
};

TEST_F(Bf16Decoder, WeightsTakeHalfTheMemory) {
  EXPECT_EQ(exact_->compute(), ComputeType::kFloat32);
  EXPECT_EQ(rounded_->compute(), ComputeType::kBFloat16);
  EXPECT_STREQ(exact_->arithmetic(), "float32");
  EXPECT_STREQ(rounded_->arithmetic(), HasBf16Attention() ? "bf16+attention" : "bf16");
  EXPECT_LT(rounded_->weight_bytes(), exact_->weight_bytes() * 52 / 100);
  EXPECT_GT(rounded_->weight_bytes(), exact_->weight_bytes() * 48 / 100);
}

// Products round what a float32 cache holds: a cache of what they round to has the same bits.
TEST_F(Bf16Decoder, KeepsWhatProductsRound) {
  if (!HasBf16Attention()) GTEST_SKIP() << "attention multiplies in float32 here";
  const auto ids = Ids(300);
  EXPECT_EQ(LogitsOf(*rounded_, plan(), ids),
            LogitsOf(*rounded_, plan(), ids, {.kv = KvType::kBf16}));
  const auto bytes = [&](const Decoder& decoder, const PositionPlan& positions) {
    return Sequence(decoder, positions, 300, AnglePrecision::kExact).bytes();
  };
  EXPECT_LT(bytes(*rounded_, plan()), bytes(*exact_, plan()) * 52 / 100);
  // Keys that are rotated as they are read, to several positions, are rounded after that.
  PositionPlan mapped = plan();
  for (LayerPlan& layer : mapped.layers) layer.map = Rerope{64};
  EXPECT_EQ(bytes(*rounded_, mapped), bytes(*exact_, mapped));
}

// A bf16 is off by at most 2^-9 of its value, and an input and a weight are rounded in each of the
// products that follow each other in a path, 4 a layer, the 2 of attention where these are in bf16,
// and the head. Errors of random sign add as a square root.
TEST_F(Bf16Decoder, LogitsAreNearFloat32) {
  const int64_t in_a_layer = HasBf16Attention() ? 6 : 4;
  const double products = 2.0 * static_cast<double>(in_a_layer * files_.config.layers + 1);
  for (const int64_t offset : {0, 1, 255, 256, 257, 131071, 1048575}) {
    const double error = RoundingError(Ids(257), {.offset = offset});
    EXPECT_LE(error, std::sqrt(products) * 0x1p-9) << "first position " << offset;
    EXPECT_GT(error, 0x1p-12) << "nothing was rounded";
  }
}

// In float32 the order of a sum is all that chunks change. In bf16 a last bit of float32 may decide
// which way an input is rounded, so two chunkings differ as two roundings do: by no more than
// either differs from float32.
TEST_F(Bf16Decoder, AnyChunkingGivesTheSameLogitsUpToRounding) {
  const auto few = Ids(90);
  const auto few_whole = LogitsOf(*rounded_, plan(), few);
  const double few_error = RoundingError(few);
  for (const int64_t chunk : {1, 7, 64}) {
    EXPECT_LE(Difference(LogitsOf(*rounded_, plan(), few, {.chunk = chunk}), few_whole), few_error)
        << chunk;
  }
  const auto ids = Ids(Decoder::kChunkTokens + 61);
  const auto whole = LogitsOf(*rounded_, plan(), ids);
  const double error = RoundingError(ids);
  for (const int64_t chunk : {511, 512, 513}) {
    EXPECT_LE(Difference(LogitsOf(*rounded_, plan(), ids, {.chunk = chunk}), whole), error)
        << chunk;
  }
}

TEST_F(Bf16Decoder, EqualThreadsAndChunksEqualBits) {
  const auto ids = Ids(300);
  const int before = NumThreads();
  for (const int threads : {1, 2}) {
    SetNumThreads(threads);
    for (const int64_t chunk : {7, 300}) {
      EXPECT_EQ(LogitsOf(*rounded_, plan(), ids, {.chunk = chunk}),
                LogitsOf(*rounded_, plan(), ids, {.chunk = chunk}));
    }
  }
  SetNumThreads(before);
}

}  // namespace decoder_bf16_test
}  // namespace ropewalk
