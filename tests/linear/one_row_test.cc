// Rows of blocks times one row of x that is written for them, in fixed point and for masked words:
// against double, beside what float32 makes of the same rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/base/dtype.h"
#include "ropewalk/linear/linear.h"
#include "src/io/dequantize.h"
#include "src/linear/fixed_dots.h"
#include "src/linear/rows_cpu.h"
#include "src/linear/word_dots.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace one_row_test {

// How a row of x is written and multiplied.
struct Product {
  const char* name;
  decltype(&internal::HasFixedDots) has;
  decltype(&internal::FixedBytes) bytes;
  decltype(&internal::WriteFixed) write;
  decltype(&internal::DotFixed) dot;
  float most;  // the largest number that is written
};
const Product kProducts[] = {{"Fixed", internal::HasFixedDots, internal::FixedBytes,
                              internal::WriteFixed, internal::DotFixed, 0x1p124f},
                             {"Words", internal::HasWordDots, internal::WordBytes,
                              internal::WriteWords, internal::DotWords, 0x1p106f}};

// A type, and its half-precision scales: where they are in a block, and what makes weights of about
// 0.05 around 0 out of random bits.
struct TypeCase {
  WeightType type;
  std::vector<std::pair<int, float>> halves;
};
const TypeCase kTypes[] = {{WeightType::kQ8_0, {{0, 1e-3f}}},
                           {WeightType::kQ4_0, {{0, 0.01f}}},
                           {WeightType::kQ4_1, {{0, 0.01f}, {2, -0.075f}}},
                           {WeightType::kQ4_K, {{0, 2e-4f}, {2, 1.5e-3f}}},
                           {WeightType::kQ5_K, {{0, 1e-4f}, {2, 1.5e-3f}}},
                           {WeightType::kQ6_K, {{208, 5e-5f}}},
                           {WeightType::kIQ4_NL, {{0, 1e-3f}}},
                           {WeightType::kIQ4_XS, {{0, 5e-5f}}},
                           {WeightType::kQ3_K, {{108, 1e-3f}}},
                           {WeightType::kQ2_K, {{80, 5e-3f}, {82, 7e-3f}}},
                           {WeightType::kMXFP4, {}}};

struct Rows {
  Rows(const TypeCase& of, int64_t n_rows, int64_t n_cols, uint32_t seed = 1)
      : type(of.type), rows(n_rows), cols(n_cols) {
    const WeightTypeInfo& info = Info(type);
    row_bytes = cols / info.block_elements * info.block_bytes;
    bytes.resize(static_cast<std::size_t>(rows * row_bytes));  // nothing behind the last row
    std::mt19937 random(seed);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() >> 8);
    for (int64_t at = 0; at < rows * row_bytes; at += info.block_bytes) {
      for (const auto& [offset, value] : of.halves) {
        const Float16 half = ToFloat16(value * (0.5f + static_cast<float>(random() % 1024) / 1024));
        std::memcpy(bytes.data() + at + offset, &half, sizeof(half));
      }
      if (type == WeightType::kMXFP4) bytes[at] = static_cast<std::byte>(120 + random() % 4);
    }
    floats.resize(static_cast<std::size_t>(rows * cols));
    internal::Dequantize(type, bytes.data(), rows * cols / info.block_elements, floats.data());
  }
  const std::byte* row(int64_t r) const { return bytes.data() + r * row_bytes; }
  double Expected(int64_t r, const float* x) const {
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) sum += double{floats[r * cols + i]} * x[i];
    return sum;
  }
  // Of the products of row r: the root of the sum of squares, the unit of rounding errors.
  double Norm(int64_t r, const float* x) const {
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) sum += std::pow(double{floats[r * cols + i]} * x[i], 2);
    return std::sqrt(sum);
  }
  // Sets *ok to what `write` returns.
  std::vector<float> Times(const float* x, const Product& product, bool* ok,
                           const int64_t* order = nullptr) const {
    AlignedBuffer<std::byte> written(static_cast<std::size_t>(product.bytes(cols)));
    std::vector<float> y(static_cast<std::size_t>(rows), 0.0f);
    *ok = product.write(type, x, cols, written.data());
    if (*ok) product.dot(type, {bytes.data(), order, 0, rows}, cols, written.data(), y.data());
    return y;
  }

  WeightType type;
  int64_t rows, cols, row_bytes;
  std::vector<std::byte> bytes;
  std::vector<float> floats;
};

enum class Kind { kNormal, kPositive, kHeavyTails, kOneInEach32 };
constexpr Kind kKinds[] = {Kind::kNormal, Kind::kPositive, Kind::kHeavyTails, Kind::kOneInEach32};

std::vector<float> Input(Kind kind, int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(random);
    if (kind == Kind::kPositive) x[i] = std::abs(x[i]);
    if (kind == Kind::kHeavyTails) x[i] = std::pow(x[i], 5.0f);
    if (kind == Kind::kOneInEach32 && i % 32 == 7) x[i] *= 1000;
  }
  return x;
}

class OneRow : public testing::TestWithParam<Product> {
 protected:
  void SetUp() override {
    for (const TypeCase& of : kTypes) {
      if (GetParam().has(of.type)) types.push_back(of);
    }
    if (types.empty()) GTEST_SKIP() << "this CPU has no vpdpbusd";
  }
  std::vector<TypeCase> types;
};
INSTANTIATE_TEST_SUITE_P(, OneRow, testing::ValuesIn(kProducts),
                         [](const auto& info) { return info.param.name; });

// Of 256 rows the root of the mean squared error, in each one's unit.
TEST_P(OneRow, ErrorsAreThoseOfFloat32) {
  for (const TypeCase& of : types) {
    for (const int64_t cols : {576, 1536, 2048, 8192}) {
      if (cols % Info(of.type).block_elements != 0) continue;
      const Rows rows(of, 256, cols);
      for (const Kind kind : kKinds) {
        const std::vector<float> x = Input(kind, cols, 3);
        bool ok = false;
        const std::vector<float> y = rows.Times(x.data(), GetParam(), &ok);
        ASSERT_TRUE(ok);
        double error = 0, of_floats = 0;
        for (int64_t r = 0; r < rows.rows; ++r) {
          const double expected = rows.Expected(r, x.data()), unit = rows.Norm(r, x.data());
          error += std::pow((y[r] - expected) / unit, 2);
          const float in_floats = internal::DotRow(of.type, rows.row(r), cols, x.data());
          of_floats += std::pow((in_floats - expected) / unit, 2);
        }
        // 1.72 at most, with positive numbers.
        EXPECT_LT(std::sqrt(error / of_floats), 2.0)
            << Info(of.type).name << ' ' << cols << ", kind " << static_cast<int>(kind);
        EXPECT_LT(std::sqrt(error / 256), 12 * std::exp2(-24)) << Info(of.type).name << ' ' << cols;
      }
    }
  }
}

// Every number of blocks up to two steps and one more, so every end of a row; rows that are no multiple
// of those multiplied at a time, in another order; on every target that Highway has here.
TEST_P(OneRow, EveryNumberOfBlocks) {
  const std::vector<int64_t> order = {3, 0, 6, 5, 1, 2, 4};
  ForEachTarget(internal::WordsTarget, [&](const char* target) {
    for (const TypeCase& of : types) {
      for (int64_t blocks = 1; blocks <= 9; ++blocks) {
        const std::string what = std::string(Info(of.type).name) + ' ' + target + ", blocks ";
        const int64_t cols = blocks * Info(of.type).block_elements;
        const Rows rows(of, 7, cols, static_cast<uint32_t>(blocks));
        const std::vector<float> x = Input(Kind::kNormal, cols, static_cast<uint32_t>(cols));
        bool ok = false;
        const std::vector<float> y = rows.Times(x.data(), GetParam(), &ok);
        ASSERT_TRUE(ok);
        for (int64_t r = 0; r < 7; ++r) {
          EXPECT_NEAR(y[r], rows.Expected(r, x.data()),
                      20 * std::exp2(-24) * rows.Norm(r, x.data()))
              << what << blocks << ", row " << r;
        }
        const std::vector<float> ordered = rows.Times(x.data(), GetParam(), &ok, order.data());
        for (int64_t r = 0; r < 7; ++r) EXPECT_EQ(ordered[r], y[order[r]]) << what << blocks;
      }
    }
  });
}

// All products with one sign and as large as they can be: integers do not overflow.
TEST_P(OneRow, TheLargestCodes) {
  for (const TypeCase& of : types) {
    const int64_t cols = Info(of.type).block_elements * 4;
    for (const int fill : {0x00, 0x7f, 0x80, 0xff}) {
      Rows rows(of, 1, cols);
      const std::vector<std::byte> before = rows.bytes;
      std::fill(rows.bytes.begin(), rows.bytes.end(), std::byte(fill));
      for (int64_t at = 0; at < rows.row_bytes; at += Info(of.type).block_bytes) {
        for (const auto& [offset, value] : of.halves) {
          std::memcpy(rows.bytes.data() + at + offset, before.data() + at + offset, 2);
        }
        if (of.type == WeightType::kMXFP4) rows.bytes[at] = before[at];
      }
      internal::Dequantize(of.type, rows.bytes.data(), 4, rows.floats.data());
      for (const float value : {1.0f, -1.0f, 0.3f}) {
        const std::vector<float> x(static_cast<std::size_t>(cols), value);
        bool ok = false;
        const float y = rows.Times(x.data(), GetParam(), &ok)[0];
        const double expected = rows.Expected(0, x.data());
        // Q4_K's scale and min nearly cancel in some of these.
        const double size = std::max(std::abs(expected), 8 * 0.01 * static_cast<double>(cols));
        EXPECT_NEAR(y, expected, 4 * std::exp2(-24) * size) << Info(of.type).name << ' ' << fill;
      }
    }
  }
}

// Beside a giant, the three others of its four lose bits: 2^-24 of it at most.
TEST_P(OneRow, AGiantCostsItsFourAlone) {
  for (const TypeCase& of : types) {
    const int64_t cols = 2048;
    const Rows rows(of, 16, cols);
    std::vector<float> x = Input(Kind::kNormal, cols, 8);
    x[701] = 1e6f;
    bool ok = false;
    const std::vector<float> y = rows.Times(x.data(), GetParam(), &ok);
    std::vector<float> without = x;
    without[701] = 0;
    for (int64_t r = 0; r < 16; ++r) {
      const float* w = rows.floats.data() + r * cols;
      const double largest = std::max({std::abs(w[700]), std::abs(w[702]), std::abs(w[703])});
      const double bound = std::exp2(-24) * (3 * 1.2e6 * largest + 8 * std::abs(w[701] * 1e6) +
                                             20 * rows.Norm(r, without.data()));
      EXPECT_NEAR(y[r], rows.Expected(r, x.data()), bound) << Info(of.type).name << ' ' << r;
    }
  }
}

TEST_P(OneRow, OfZeros) {
  for (const TypeCase& of : types) {
    const Rows rows(of, 5, 512);
    const std::vector<float> x(512, 0.0f);
    bool ok = false;
    for (const float y : rows.Times(x.data(), GetParam(), &ok)) EXPECT_EQ(y, 0.0f);
    EXPECT_TRUE(ok);
  }
}

// From 2^-80 to the largest, and subnormal numbers beside others.
TEST_P(OneRow, EverySize) {
  for (const TypeCase& of : types) {
    const Rows rows(of, 5, 512);
    for (const float size : {0x1p-78f, 1e-20f, 1e20f, GetParam().most}) {
      std::vector<float> x = Input(Kind::kNormal, 512, 5);
      for (float& v : x) v *= size;
      for (int i = 64; i < 128; ++i) x[i] = 1e-42f;
      bool ok = false;
      const std::vector<float> y = rows.Times(x.data(), GetParam(), &ok);
      ASSERT_TRUE(ok) << size;
      for (int64_t r = 0; r < 5; ++r) {
        EXPECT_NEAR(y[r], rows.Expected(r, x.data()), 20 * std::exp2(-24) * rows.Norm(r, x.data()))
            << Info(of.type).name << ' ' << size;
      }
    }
  }
}

// What cannot be written is multiplied in float32, so a product gives what it gave: NaN,
// infinities with their sign, subnormal sums.
TEST_P(OneRow, OtherNumbersAreFloat32s) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const TypeCase& of : types) {
    const Rows rows(of, 3, 512);
    const Linear linear(512, {{of.type, rows.bytes.data(), 3}}, nullptr);
    for (const float odd : {infinity, -infinity, std::nanf(""), 1e-40f, 1e-30f, 1e35f}) {
      std::vector<float> x(512, odd == 1e-40f || odd == 1e-30f ? odd : 1.0f);
      x[100] = odd;
      bool ok = true;
      rows.Times(x.data(), GetParam(), &ok);
      EXPECT_EQ(ok, odd == 1e35f && GetParam().most > odd) << odd;
      if (odd == 1e35f) continue;  // a CPU that has fixed point writes it
      float y[3];
      linear.Apply(x.data(), 1, 512, y, 3);
      for (int64_t r = 0; r < 3; ++r) {
        const float expected = internal::DotRow(of.type, rows.row(r), 512, x.data());
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(y[r]));
        } else {
          EXPECT_EQ(y[r], expected) << Info(of.type).name << ' ' << odd;
        }
      }
    }
  }
}

}  // namespace one_row_test
}  // namespace ropewalk
