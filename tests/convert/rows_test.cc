// Rows of q and k between the pair layouts, typed again here, and Q8_0 by ggml's rule.
#include "src/model/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "ropewalk/base/error.h"
#include "src/io/quantize.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace rows_test {

using internal::HeadRows;
using internal::Rearranged;
using test::MessageOf;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Order(const HeadRows& rows, int64_t count) {
  std::vector<int64_t> order;
  for (int64_t r = 0; r < count; ++r) order.push_back(rows.Source(r));
  return order;
}

// llama.cpp's converter reshapes a head to [2, half, columns] and swaps the first two: for a head
// of 8, row order 0 4 1 5 2 6 3 7.
TEST(HeadRows, AsLlamaCppPermutes) {
  const HeadRows to{8, 8, PairLayout::kInterleaved};
  EXPECT_THAT(Order(to, 8), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  EXPECT_THAT(Order(to, 16),  // a second head by itself
              ElementsAre(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
  EXPECT_THAT(Order({8, 8, PairLayout::kHalf}, 8), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  // Partial rotary: the first 4 of 6 move.
  EXPECT_THAT(Order({6, 4, PairLayout::kInterleaved}, 12),
              ElementsAre(0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11));
  EXPECT_THAT(Order({6, 4, PairLayout::kHalf}, 6), ElementsAre(0, 2, 1, 3, 4, 5));
}

TEST(HeadRows, BothWaysIsNothing) {
  for (const int64_t head_dim : {2, 6, 64, 80, 128}) {
    for (int64_t rotary = 2; rotary <= head_dim; rotary += 2) {
      const HeadRows there{head_dim, rotary, PairLayout::kInterleaved};
      const HeadRows back{head_dim, rotary, PairLayout::kHalf};
      for (int64_t r = 0; r < 3 * head_dim; ++r) ASSERT_EQ(there.Source(back.Source(r)), r);
    }
  }
}

std::vector<std::byte> BytesOf(const TensorSource& source, int64_t bytes) {
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  const int64_t rows = source.shape.size() == 2 ? source.shape[0] : 1;
  // In two pieces, as a writer asks.
  const int64_t first = rows / 2, row_bytes = bytes / rows;
  if (first > 0) source.read(0, first, out.data());
  source.read(first, rows - first, out.data() + first * row_bytes);
  return out;
}

Weight WeightOf(WeightType type, std::vector<int64_t> shape, const std::vector<std::byte>& bytes) {
  Weight w;
  w.name = "w";
  w.type = type;
  w.shape = std::move(shape);
  w.data = bytes.data();
  w.bytes = static_cast<int64_t>(bytes.size());
  return w;
}

TEST(Rearranged, MovesWholeRowsOfAnyTypeAndElementsOfVectors) {
  std::mt19937 random(3);
  struct Case {
    WeightType type;
    std::vector<int64_t> shape;
    int64_t row_bytes;
  };
  for (const Case& c : {Case{WeightType::kF32, {16, 5}, 20},
                        {WeightType::kBF16, {16, 3}, 6},
                        {WeightType::kQ8_0, {16, 64}, 68},
                        {WeightType::kQ4_K, {16, 256}, 144},
                        {WeightType::kIQ4_XS, {16, 512}, 272},
                        {WeightType::kIQ1_M, {16, 512}, 112},
                        {WeightType::kMXFP4, {16, 64}, 34},
                        {WeightType::kBF16, {16}, 2},
                        {WeightType::kF32, {16}, 4}}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(16 * c.row_bytes));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    const Weight w = WeightOf(c.type, c.shape, bytes);
    const HeadRows rows{8, 6, PairLayout::kInterleaved};
    const TensorSource moved = Rearranged(w, "moved", rows);
    EXPECT_EQ(moved.type, c.type);
    const auto got = BytesOf(moved, w.bytes);
    const int64_t order[] = {0, 3, 1, 4, 2, 5, 6, 7, 8, 11, 9, 12, 10, 13, 14, 15};
    for (int r = 0; r < 16; ++r) {
      EXPECT_EQ(std::memcmp(got.data() + r * c.row_bytes, bytes.data() + order[r] * c.row_bytes,
                            static_cast<std::size_t>(c.row_bytes)),
                0)
          << Info(c.type).name << " row " << r;
    }
    const Weight there = WeightOf(c.type, c.shape, got);
    EXPECT_EQ(BytesOf(Rearranged(there, "back", {8, 6, PairLayout::kHalf}), w.bytes), bytes);
  }
}

TEST(Rearranged, RefusesWhatIsNoHeads) {
  const std::vector<std::byte> bytes(4 * 34 * 256);
  const auto refused = [&](Weight w, HeadRows rows, const char* part) {
    EXPECT_THAT(MessageOf([&] { Rearranged(w, "x", rows); }),
                AllOf(HasSubstr("'w'"), HasSubstr(part)));
  };
  refused(WeightOf(WeightType::kF32, {12, 2}, bytes), {8, 8, PairLayout::kHalf}, "whole number");
  refused(WeightOf(WeightType::kF32, {16, 2}, bytes), {8, 5, PairLayout::kHalf}, "rotary_dim");
  refused(WeightOf(WeightType::kF32, {16, 2}, bytes), {8, 10, PairLayout::kHalf}, "rotary_dim");
  refused(WeightOf(WeightType::kF32, {2, 8, 2}, bytes), {8, 8, PairLayout::kHalf}, "matrix");
  refused(WeightOf(WeightType::kQ8_0, {64}, bytes), {8, 8, PairLayout::kHalf}, "vector");
  EXPECT_THAT(MessageOf([&] {
                Rearranged(WeightOf(WeightType::kF32, {1, 256}, bytes), "x", {}, WeightType::kQ4_K);
              }),
              HasSubstr("not written as Q4_K"));
}

// ggml's rule typed again: d = amax / 127, q = round(x / d).
TEST(Quantize, Q8_0AndItsOwnBytesAgain) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(32 * 64), decoded(x.size());
  for (float& v : x) v = normal(random) * 0.1f;
  for (int j = 0; j < 32; ++j) x[j] = 0;  // a block of nothing
  std::vector<std::byte> bytes(64 * 34), again(64 * 34);
  internal::Quantize(WeightType::kQ8_0, x.data(), 64, bytes.data());
  WeightOf(WeightType::kQ8_0, {64, 32}, bytes).ReadRows(0, 64, decoded.data());
  for (int b = 0; b < 64; ++b) {
    float largest = 0;
    for (int j = 0; j < 32; ++j) largest = std::max(largest, std::abs(x[b * 32 + j]));
    for (int j = 0; j < 32; ++j) {
      // Half a step, and what rounding the scale to a half moves at 127 steps.
      EXPECT_NEAR(decoded[b * 32 + j], x[b * 32 + j], largest * (0.501 / 127 + 0x1p-11))
          << b << " " << j;
    }
  }
  internal::Quantize(WeightType::kQ8_0, decoded.data(), 64, again.data());
  EXPECT_EQ(again, bytes);
  x[40] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(internal::Quantize(WeightType::kQ8_0, x.data(), 64, bytes.data()), Error);
}

}  // namespace rows_test
}  // namespace ropewalk
