// Weights that stay in their file: the same numbers as decoded float32 weights, multiplied where they
// are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ropewalk/base/dtype.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/linear/linear.h"
#include "src/io/dequantize.h"
#include "src/linear/rows_cpu.h"
#include "src/linear/transpose_cpu.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace {

// A type, and where its blocks have half-precision scales.
struct TypeCase {
  WeightType type;
  std::vector<int> halves;
};
const std::vector<TypeCase>& Types() {
  static const std::vector<TypeCase> types = {
      {WeightType::kF64, {}},      {WeightType::kF32, {}},        {WeightType::kF16, {}},
      {WeightType::kBF16, {}},     {WeightType::kQ8_0, {0}},      {WeightType::kQ4_0, {0}},
      {WeightType::kQ4_1, {0, 2}}, {WeightType::kQ5_0, {0}},      {WeightType::kQ5_1, {0, 2}},
      {WeightType::kIQ4_NL, {0}},  {WeightType::kQ2_K, {80, 82}}, {WeightType::kQ3_K, {108}},
      {WeightType::kQ4_K, {0, 2}}, {WeightType::kQ5_K, {0, 2}},   {WeightType::kQ6_K, {208}},
      {WeightType::kIQ4_XS, {0}},  {WeightType::kMXFP4, {}},      {WeightType::kIQ2_XXS, {0}},
      {WeightType::kIQ2_XS, {0}},  {WeightType::kIQ2_S, {0}},     {WeightType::kIQ3_XXS, {0}},
      {WeightType::kIQ3_S, {0}},   {WeightType::kIQ1_S, {0}},     {WeightType::kIQ1_M, {}},
      {WeightType::kTQ1_0, {52}},  {WeightType::kTQ2_0, {64}}};
  return types;
}

// Rows of random blocks, one byte off every alignment.
struct Blocks {
  Blocks(const TypeCase& of, int64_t n_rows, int64_t n_cols, uint32_t seed = 1)
      : type(of.type), rows(n_rows), cols(n_cols) {
    const WeightTypeInfo& info = Info(type);
    row_bytes = cols / info.block_elements * info.block_bytes;
    bytes.resize(static_cast<size_t>(rows * row_bytes + 1));
    std::minstd_rand random(seed * 77 + static_cast<uint32_t>(rows * 131 + cols));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() >> 8);
    const auto uniform = [&] { return static_cast<float>(random() % 20001) / 1e4f - 1.0f; };
    if (type == WeightType::kMXFP4) {  // its scales are powers of two
      for (int64_t at = 0; at < rows * row_bytes; at += info.block_bytes) {
        data()[at] = static_cast<std::byte>(112 + random() % 10);
      }
    } else if (type == WeightType::kIQ1_M) {  // the upper four bits of its scale: 2^-11 to 2^-8
      for (int64_t at = 0; at < rows * row_bytes; at += info.block_bytes) {
        std::byte& last = data()[at + info.block_bytes - 1];
        last = (last & std::byte{15}) | std::byte{16};
      }
    } else if (of.halves.empty()) {
      FillPlain(uniform);
    }
    for (int64_t at = 0; at < rows * row_bytes; at += info.block_bytes) {
      for (const int half : of.halves) {
        const Float16 scale = ToFloat16(uniform() * 0.01f);
        std::memcpy(data() + at + half, &scale, sizeof(scale));
      }
    }
  }
  template <class F>
  void FillPlain(F uniform) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float value = uniform();
      const double wide = value;
      const Float16 half = ToFloat16(value);
      const BFloat16 brain = ToBFloat16(value);
      const int size = Info(type).block_bytes;
      const void* from = size == 8                  ? static_cast<const void*>(&wide)
                         : size == 4                ? static_cast<const void*>(&value)
                         : type == WeightType::kF16 ? static_cast<const void*>(&half)
                                                    : &brain;
      std::memcpy(data() + i * size, from, static_cast<size_t>(size));
    }
  }
  std::byte* data() { return bytes.data() + 1; }
  const std::byte* data() const { return bytes.data() + 1; }
  std::vector<float> Floats() const {
    std::vector<float> out(static_cast<size_t>(rows * cols));
    internal::Dequantize(type, data(), rows * cols / Info(type).block_elements, out.data());
    return out;
  }

  WeightType type;
  int64_t rows, cols, row_bytes;
  std::vector<std::byte> bytes;
};

std::vector<float> Waves(int64_t rows, int64_t stride) {
  std::vector<float> x(static_cast<size_t>(rows * stride));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(0.7 * i + i % 13));
  return x;
}

// What rounding may do to a sum of n products (Higham & Mary 2019, SIAM J. Sci. Comput. 41).
double Tolerance(const float* w, const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::abs(double{w[i]} * x[i]);
  return (std::sqrt(n) + 2) * std::exp2(-24) * sum + 1e-30;
}
double Product(const float* w, const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{w[i]} * x[i];
  return sum;
}

TEST(PackedRows, DecodeBitForBitAndMultiplyOnEveryTarget) {
  for (const TypeCase& type : Types()) {
    const int64_t step = Info(type.type).block_elements;
    for (const int64_t cols : {step, 3 * step, step == 1 ? 259 : 8 * step}) {
      const Blocks blocks(type, 3, cols);
      const std::vector<float> expected = blocks.Floats(), x = Waves(7, cols + 3);
      ForEachTarget(internal::RowsTarget, [&](const char* target) {
        const std::string what = std::string(Info(type.type).name) + " " + target;
        for (int64_t r = 0; r < blocks.rows; ++r) {
          const float* w = expected.data() + r * cols;
          std::vector<float> decoded(static_cast<size_t>(cols + 1), 7.0f);
          const std::byte* row = blocks.data() + r * blocks.row_bytes;
          internal::DecodeRow(blocks.type, row, cols, decoded.data());
          EXPECT_EQ(std::memcmp(decoded.data(), w, static_cast<size_t>(cols) * 4), 0) << what;
          EXPECT_EQ(decoded.back(), 7.0f) << what;
          EXPECT_NEAR(internal::DotRow(blocks.type, row, cols, x.data()),
                      Product(w, x.data(), cols), Tolerance(w, x.data(), cols))
              << what;
          std::vector<float> y(14, 0.5f);
          internal::DotFloats(w, cols, x.data(), 7, cols + 3, y.data(), 2);
          for (int64_t i = 0; i < 7; ++i) {
            const float* row_of_x = x.data() + i * (cols + 3);
            EXPECT_NEAR(y[2 * i], 0.5 + Product(w, row_of_x, cols),
                        Tolerance(w, row_of_x, cols) + std::exp2(-22))
                << what;
            EXPECT_EQ(y[2 * i + 1], 0.5f) << what;
          }
        }
      });
    }
  }
}

// Halves and bf16 of every bit pattern, so subnormals, infinities and NaNs too.
TEST(PackedRows, TransposeOnEveryTarget) {
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {1, 1}, {3, 5}, {4, 4}, {13, 70}, {16, 256}};
  ForEachTarget(internal::TransposeTarget, [&](const char* target) {
    for (const auto& [rows, columns] : sizes) {
      const int64_t stride = rows + 3;
      std::vector<float> from(static_cast<std::size_t>(rows * columns));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
      std::vector<float> to(static_cast<std::size_t>(columns * stride), -1.0f);
      internal::Transpose(from.data(), rows, columns, to.data(), stride);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < stride; ++r) {
          const float expected = r < rows ? static_cast<float>(r * columns + c + 1) : -1.0f;
          ASSERT_EQ(to[static_cast<std::size_t>(c * stride + r)], expected)
              << target << ": " << rows << " x " << columns << ", row " << r << ", column " << c;
        }
      }
    }
  });
}

TEST(PackedRows, EveryHalf) {
  std::vector<uint16_t> halves(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const auto* data = reinterpret_cast<const std::byte*>(halves.data());
  for (const WeightType type : {WeightType::kF16, WeightType::kBF16}) {
    std::vector<float> expected(halves.size());
    internal::Dequantize(type, data, 0x10000, expected.data());
    ForEachTarget(internal::RowsTarget, [&](const char* target) {
      std::vector<float> decoded(halves.size());
      internal::DecodeRow(type, data, 0x10000, decoded.data());
      int64_t wrong = 0;
      for (size_t i = 0; i < decoded.size(); ++i) {
        const bool nan = std::isnan(expected[i]) && std::isnan(decoded[i]);
        wrong += nan || std::memcmp(&decoded[i], &expected[i], 4) == 0 ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << Info(type).name << ' ' << target;
    });
  }
}

// A product of several parts of different types, of which the first is in another order.
struct Packed {
  explicit Packed(int64_t cols, const std::vector<std::pair<int, int64_t>>& parts, bool with_bias) {
    in = cols;
    for (const auto& [index, rows] : parts) {
      blocks.emplace_back(Types()[static_cast<size_t>(index)], rows, cols,
                          static_cast<uint32_t>(blocks.size()));
      std::vector<float> part = blocks.back().Floats();
      if (blocks.size() == 1) {
        for (int64_t r = 0; r < rows; ++r) order.push_back((r * 7 + 3) % rows);
        for (const int64_t r : order) {
          weight.insert(weight.end(), part.begin() + r * cols, part.begin() + (r + 1) * cols);
        }
      } else {
        weight.insert(weight.end(), part.begin(), part.end());
      }
      out += rows;
    }
    for (int64_t o = 0; with_bias && o < out; ++o) bias.push_back(0.01f * static_cast<float>(o));
  }
  Linear Make(ComputeType compute = ComputeType::kFloat32) const {
    std::vector<FileRows> rows;
    for (const Blocks& b : blocks) rows.push_back({b.type, b.data(), b.rows});
    rows[0].order = order;
    return Linear(in, rows, bias.empty() ? nullptr : bias.data(), compute);
  }
  Linear MakeUnpacked(ComputeType compute) const {
    return Linear(
        out, in,
        [&](int64_t first, int64_t rows, float* to) {
          std::copy_n(weight.data() + first * in, rows * in, to);
        },
        bias.empty() ? nullptr : bias.data(), compute);
  }

  int64_t out = 0, in = 0;
  std::vector<Blocks> blocks;
  std::vector<int64_t> order;
  std::vector<float> weight, bias;
};

void Check(const Packed& p, const Linear& linear, int64_t rows, int64_t extra, bool accumulate) {
  const int64_t x_stride = p.in + extra, y_stride = p.out + 2 * extra;
  const std::vector<float> x = Waves(rows, x_stride);
  std::vector<float> y(static_cast<size_t>(rows * y_stride), 2.0f);
  linear.Apply(x.data(), rows, x_stride, y.data(), y_stride, accumulate);
  for (int64_t r = 0; r < rows; ++r) {
    if (rows > 3 && r % 13 != 0 && r != rows - 1) continue;  // the reference is slow
    for (int64_t o = 0; o < p.out; ++o) {
      const float *w = p.weight.data() + o * p.in, *row = x.data() + r * x_stride;
      const double added = (p.bias.empty() ? 0.0 : double{p.bias[o]}) + (accumulate ? 2.0 : 0.0);
      const double expected = added + Product(w, row, p.in);
      ASSERT_NEAR(y[r * y_stride + o], expected,
                  2 * Tolerance(w, row, p.in) + std::exp2(-21) * (1 + std::abs(added)))
          << "rows " << rows << ", row " << r << ", feature " << o << ", extra " << extra;
    }
    for (int64_t o = p.out; o < y_stride; ++o) ASSERT_EQ(y[r * y_stride + o], 2.0f);
  }
}

// From one row over few to many, in bands and at their edges.
TEST(PackedLinear, EqualsTheReference) {
  const std::vector<int> plain = {0, 1, 2, 3}, small_blocks = {4, 5, 6, 7, 8, 9},
                         large_blocks = {10, 11, 12, 13, 14, 15};
  for (const auto& [types, in] : std::vector<std::pair<std::vector<int>, int64_t>>{
           {plain, 77}, {small_blocks, 96}, {large_blocks, 512}}) {
    for (const int type : types) {
      const int next = type == types.back() ? types.front() : type + 1;
      const Packed p(in, {{type, 70}, {next, 5}, {type, 64}}, type % 2 == 0);
      const Linear linear = p.Make();
      EXPECT_EQ(linear.out_features(), p.out);
      EXPECT_EQ(linear.in_features(), in);
      for (const int64_t rows : {1, 2, 4, 15, 16, 17, 131}) {
        Check(p, linear, rows, 0, false);
        Check(p, linear, rows, 3, true);
      }
    }
  }
}

TEST(PackedLinear, ManyFeaturesAreSeamless) {
  const Packed p(256, {{12, 2100}, {14, 37}}, true);
  const Linear linear = p.Make();
  for (const int64_t rows : {1, 20, 600}) Check(p, linear, rows, rows == 20 ? 4 : 0, rows == 20);
}

// Decoded weights are rounded to bf16 as those that are converted once, so the products are those of
// the same numbers.
TEST(PackedLinear, Bf16IsThatOfUnpackedWeights) {
  if (FindBf16Unit() == Bf16Unit::kNone) GTEST_SKIP() << "this CPU multiplies no bf16";
  const Packed p(512, {{12, 200}, {4, 101}}, true);
  const Linear packed = p.Make(ComputeType::kBFloat16);
  const Linear unpacked = p.MakeUnpacked(ComputeType::kBFloat16);
  EXPECT_EQ(packed.compute(), ComputeType::kBFloat16);
  const std::vector<float> x = Waves(40, 512);
  std::vector<float> y(static_cast<size_t>(40 * p.out)), other(y.size());
  packed.Apply(x.data(), 40, 512, y.data(), p.out);
  unpacked.Apply(x.data(), 40, 512, other.data(), p.out);
  for (int64_t i = 0; i < 40 * p.out; ++i) {
    ASSERT_NEAR(y[i], other[i],
                4 * Tolerance(p.weight.data() + i % p.out * 512, x.data() + i / p.out * 512, 512) +
                    std::exp2(-20));
  }
}

TEST(PackedLinear, HoldsAlmostNothing) {
  const Packed p(512, {{12, 640}, {14, 64}}, true);
  const Linear packed = p.Make();
  EXPECT_EQ(packed.bytes(), p.out * 4 + 640 * 8);  // the bias, and the order of the first part
  EXPECT_EQ(packed.mapped_bytes(), 640 * 2 * 144 + 64 * 2 * 210);
  EXPECT_EQ(p.MakeUnpacked(ComputeType::kFloat32).mapped_bytes(), 0);
  EXPECT_EQ(Linear().mapped_bytes(), 0);
}

// Bits do not depend on the number of threads.
TEST(PackedLinear, BitsAndTheNumberOfThreads) {
  const int before = NumThreads();
  const Packed p(1024, {{12, 1500}}, false);
  const Linear linear = p.Make();
  for (const int64_t rows : {1, 5, 40}) {
    const std::vector<float> x = Waves(rows, p.in);
    std::vector<std::vector<float>> y;
    for (const int threads : {1, 3, 1, 3}) {
      SetNumThreads(threads);
      y.emplace_back(static_cast<size_t>(rows * p.out));
      linear.Apply(x.data(), rows, p.in, y.back().data(), p.out);
    }
    for (const auto& other : y) EXPECT_EQ(y[0], other);
  }
  SetNumThreads(before);
}

TEST(PackedLinear, ManyThreadsMayApply) {
  const Packed p(256, {{12, 130}}, true);
  const Linear linear = p.Make();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t rows = 1; rows <= 30; ++rows) Check(p, linear, rows, 0, false);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(PackedLinear, Errors) {
  const Blocks blocks(Types()[12], 4, 256);
  const auto error = [&](int64_t in, const FileRows& rows) -> std::string {
    try {
      const Linear linear(in, {rows}, nullptr);
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_EQ(error(256, {WeightType::kQ4_K, blocks.data(), 4}), "none");
  EXPECT_NE(error(250, {WeightType::kQ4_K, blocks.data(), 4}).find("whole blocks"),
            std::string::npos);
  EXPECT_NE(error(256, {WeightType::kQ4_K, nullptr, 4}).find("null pointer"), std::string::npos);
  EXPECT_NE(error(256, {WeightType::kQ4_K, blocks.data(), 0}).find("0 rows"), std::string::npos);
  EXPECT_NE(error(256, {WeightType::kQ4_K, blocks.data(), 4, {0, 1}}).find("an order of 2 rows"),
            std::string::npos);
  EXPECT_THROW(Linear(256, {}, nullptr), Error);
}

}  // namespace
}  // namespace ropewalk
