#include "ropewalk/linear/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ropewalk/base/dtype.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"

namespace ropewalk {
namespace {

// Both, where the CPU has both.
std::vector<ComputeType> ComputeTypes() {
  if (FindBf16Unit() == Bf16Unit::kNone) return {ComputeType::kFloat32};
  return {ComputeType::kFloat32, ComputeType::kBFloat16};
}

struct Problem {
  Problem(int64_t out, int64_t in, bool with_bias, ComputeType compute = ComputeType::kFloat32)
      : out(out),
        in(in),
        compute(compute),
        weight(static_cast<size_t>(out * in)),
        bias(with_bias ? out : 0) {
    std::minstd_rand random(static_cast<uint32_t>(out * 131 + in));
    const auto uniform = [&] { return static_cast<float>(random() % 20001) / 10000.0f - 1.0f; };
    for (float& x : weight) x = uniform();
    for (float& x : bias) x = uniform();
  }
  Linear Make() const {
    return Linear(
        out, in,
        [this](int64_t first, int64_t rows, float* to) {
          std::copy_n(weight.data() + first * in, rows * in, to);
        },
        bias.empty() ? nullptr : bias.data(), compute);
  }
  // x [rows, in] in [-1, 1], a pattern that differs for every row.
  std::vector<float> X(int64_t rows, int64_t stride) const {
    std::vector<float> x(static_cast<size_t>(rows * stride), NAN);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < in; ++i)
        x[r * stride + i] = static_cast<float>(std::sin(r * 3.7 + i));
    }
    return x;
  }
  double Rounded(float v) const {
    return compute == ComputeType::kFloat32 ? double{v} : double{ToFloat(ToBFloat16(v))};
  }
  double Y(const float* x, int64_t o) const {
    double sum = bias.empty() ? 0.0 : double{bias[o]};
    for (int64_t i = 0; i < in; ++i) sum += Rounded(x[i]) * Rounded(weight[o * in + i]);
    return sum;
  }
  // n rounded sums of n terms err by at most sqrt(n) 2^-24 sum |x w| with high probability (Higham
  // & Mary 2019, SIAM J. Sci. Comput. 41); |x w| is 0.32 on average. Then half an ULP of a result
  // below 16. bf16 is summed in float32 as well; its products are exact there.
  double Tolerance() const {
    return std::pow(in + 1.0, 1.5) * 0.32 * std::exp2(-24) + std::exp2(-21);
  }

  int64_t out, in;
  ComputeType compute;
  std::vector<float> weight, bias;
};

void Check(const Problem& p, const Linear& linear, int64_t rows, int64_t extra, bool accumulate) {
  const int64_t x_stride = p.in + extra, y_stride = p.out + 2 * extra;
  const auto x = p.X(rows, x_stride);
  std::vector<float> y(static_cast<size_t>(rows * y_stride), 7.0f);
  linear.Apply(x.data(), rows, x_stride, y.data(), y_stride, accumulate);
  double worst = 0;
  for (int64_t r = 0; r < rows; ++r) {
    // Every row of few, some of more: the reference is slow.
    if (rows > 3 && r % 13 != 0 && r != rows - 1) continue;
    for (int64_t o = 0; o < p.out; ++o) {
      const double expected = p.Y(x.data() + r * x_stride, o) + (accumulate ? 7.0 : 0.0);
      const double error = std::abs(y[r * y_stride + o] - expected);
      if (!(error <= worst)) worst = error;
    }
    for (int64_t o = p.out; o < y_stride; ++o) ASSERT_EQ(y[r * y_stride + o], 7.0f);
  }
  EXPECT_LE(worst, p.Tolerance()) << Name(p.compute) << " [" << p.out << ", " << p.in << "], rows "
                                  << rows << ", extra " << extra << ", accumulate " << accumulate;
}

TEST(Linear, EqualsTheReference) {
  for (const ComputeType compute : ComputeTypes()) {
    for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {3, 5}, {64, 64}, {172, 64}, {65, 129}, {100, 577}}) {
      for (const bool with_bias : {false, true}) {
        const Problem p(out, in, with_bias, compute);
        const Linear linear = p.Make();
        EXPECT_EQ(linear.out_features(), out);
        EXPECT_EQ(linear.in_features(), in);
        EXPECT_EQ(linear.compute(), compute);
        EXPECT_GE(linear.bytes(), out * in * (compute == ComputeType::kFloat32 ? 4 : 2));
        for (const int64_t rows : {1, 7, 513}) {
          Check(p, linear, rows, 0, false);
          Check(p, linear, rows, 5, true);
        }
        Check(p, linear, 2, 0, true);
        Check(p, linear, 130, 5, false);
      }
    }
  }
}

// The shapes of a small model, with which fast kernels of oneDNN run.
TEST(Linear, Bf16RoundsWeightsAndInputs) {
  if (FindBf16Unit() == Bf16Unit::kNone) GTEST_SKIP() << "this CPU multiplies no bf16";
  Problem p(960, 576, false, ComputeType::kBFloat16);
  const Linear linear = p.Make();
  for (const int64_t rows : {1, 2, 16, 17, 512}) Check(p, linear, rows, 0, rows == 17);
  EXPECT_GE(linear.bytes(), p.out * p.in * 2);
  EXPECT_LE(linear.bytes(), p.out * p.in * 2 * 102 / 100);
  // Without rounding the result is another one, so the reference above did see it.
  const auto x = p.X(1, p.in);
  std::vector<float> y(static_cast<size_t>(p.out));
  linear.Apply(x.data(), 1, p.in, y.data(), p.out);
  p.compute = ComputeType::kFloat32;
  double worst = 0;
  for (int64_t o = 0; o < p.out; ++o) worst = std::max(worst, std::abs(y[o] - p.Y(x.data(), o)));
  EXPECT_GT(worst, 10 * p.Tolerance());
}

// A head of a large vocabulary is packed in bands; no band is larger than 32 MiB.
TEST(Linear, LargeOutputsAreSeamless) {
  for (const ComputeType compute : ComputeTypes()) {
    const int64_t bytes = compute == ComputeType::kFloat32 ? 4 : 2;
    const Problem p(20011, 1000, true, compute);
    int64_t calls = 0, largest = 0, next = 0;
    const Linear linear(
        p.out, p.in,
        [&](int64_t first, int64_t rows, float* to) {
          EXPECT_EQ(first, next);
          next = first + rows;
          ++calls;
          largest = std::max(largest, rows);
          std::copy_n(p.weight.data() + first * p.in, rows * p.in, to);
        },
        p.bias.data(), compute);
    EXPECT_EQ(next, p.out);
    EXPECT_GT(calls, 10);
    EXPECT_LE(largest, 256);
    // AMX takes inputs in blocks of 32, which makes 1024 of these 1000.
    const int64_t in = compute == ComputeType::kFloat32 ? p.in : 1024;
    EXPECT_LE(linear.bytes(), p.out * in * bytes * 102 / 100);
    Check(p, linear, 1, 0, false);
    Check(p, linear, 9, 3, true);
  }
}

TEST(Linear, SameBitsForTheSameRows) {
  for (const ComputeType compute : ComputeTypes()) {
    const Problem p(200, 300, false, compute);
    const Linear linear = p.Make();
    const auto x = p.X(20, p.in);
    std::vector<float> first(20 * 200), again(20 * 200);
    linear.Apply(x.data(), 20, 300, first.data(), 200);
    for (int64_t rows = 1; rows <= 40; ++rows) {  // more shapes than primitives are kept
      const auto other = p.X(rows, p.in);
      std::vector<float> y(static_cast<size_t>(rows * 200));
      linear.Apply(other.data(), rows, 300, y.data(), 200);
    }
    linear.Apply(x.data(), 20, 300, again.data(), 200);
    EXPECT_EQ(first, again) << Name(compute);
  }
}

// Small products run on one thread, so their bits do not depend on the number; large ones keep
// theirs for equal numbers, whatever number came between.
TEST(Linear, BitsAndTheNumberOfThreads) {
  const int before = NumThreads();
  for (const ComputeType compute : ComputeTypes()) {
    for (const auto& [rows, size] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 192}, {300, 600}}) {
      const Problem p(size, size, true, compute);
      const Linear linear = p.Make();
      const auto x = p.X(rows, p.in);
      std::vector<std::vector<float>> y;
      for (const int threads : {1, 3, 2, 1, 3}) {
        SetNumThreads(threads);
        y.emplace_back(static_cast<size_t>(rows * size));
        linear.Apply(x.data(), rows, size, y.back().data(), size);
        EXPECT_EQ(NumThreads(), threads) << "left changed";
      }
      EXPECT_EQ(y[0], y[3]);
      EXPECT_EQ(y[1], y[4]);
      if (rows == 1) {
        EXPECT_EQ(y[0], y[1]);
        EXPECT_EQ(y[0], y[2]);
      }
    }
  }
  SetNumThreads(before);
}

TEST(Linear, ManyThreadsMayApply) {
  for (const ComputeType compute : ComputeTypes()) {
    const Problem p(130, 70, true, compute);
    const Linear linear = p.Make();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int64_t rows = 1; rows <= 30; ++rows) Check(p, linear, rows, 0, false);
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(Linear, MovesAndEmptiness) {
  const Problem p(10, 20, false);
  Linear a = p.Make(), b;
  EXPECT_EQ(b.out_features(), 0);
  EXPECT_EQ(b.bytes(), 0);
  b = std::move(a);
  Check(p, b, 3, 0, false);
  b.Apply(nullptr, 0, 20, nullptr, 10);  // no rows: nothing to do
}

// What a CPU cannot multiply is refused, with what is missing and what to do.
TEST(Linear, Bf16WithoutAUnitIsRefused) {
  if (FindBf16Unit() != Bf16Unit::kNone) GTEST_SKIP() << Name(FindBf16Unit());
  try {
    Problem(10, 20, false, ComputeType::kBFloat16).Make();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("AVX-512"), std::string::npos) << e.what();
  }
}

TEST(Linear, Errors) {
  const auto zeros = [](int64_t, int64_t rows, float* to) { std::fill_n(to, rows * 20, 0.0f); };
  EXPECT_THROW(Linear(0, 20, zeros, nullptr), Error);
  EXPECT_THROW(Linear(10, -1, zeros, nullptr), Error);
  EXPECT_THROW(Linear(int64_t{1} << 40, 20, zeros, nullptr), Error);
  const Linear linear(10, 20, zeros, nullptr), empty;
  std::vector<float> x(200), y(200);
  EXPECT_THROW(linear.Apply(x.data(), -1, 20, y.data(), 10), Error);
  EXPECT_THROW(linear.Apply(x.data(), 2, 19, y.data(), 10), Error);
  EXPECT_THROW(linear.Apply(x.data(), 2, 20, y.data(), 9), Error);
  EXPECT_THROW(linear.Apply(nullptr, 2, 20, y.data(), 10), Error);
  EXPECT_THROW(empty.Apply(x.data(), 2, 20, y.data(), 10), Error);
}

}  // namespace
}  // namespace ropewalk
