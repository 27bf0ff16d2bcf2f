// Rotation on several axes, and angles without a table. Against the scalar reference in double, in
// every type and layout, at far positions, on every SIMD target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/rotary/rotate/cpu.h"
#include "tests/rotary/rotate/support.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace rotate_axes_test {

template <class T>
void CheckAxes() {
  const struct {
    std::vector<int64_t> sections;
    AxisOrder order;
  } cases[] = {{{16, 24, 24}, AxisOrder::kChunked},      // Qwen2-VL
               {{24, 20, 20}, AxisOrder::kInterleaved},  // Qwen3-VL
               {{20, 22, 22}, AxisOrder::kErnie},        // Ernie 4.5-VL
               {{7, 6}, AxisOrder::kChunked},
               {{4, 4, 4, 4}, AxisOrder::kChunked}};  // XD-RoPE
  for (const auto& c : cases) {
    const Frequencies f = AxesOf(c.sections, c.order);
    const int64_t dim = 2 * static_cast<int64_t>(f.inv_freq.size()), heads = 2, first_dim = 3;
    const std::vector<int64_t> positions = FarPositions(f.axes);
    for (const PairLayout layout : kLayouts) {
      std::vector<T> x = RandomValues<T>(static_cast<std::size_t>(kTokens * heads * (dim + 5)), 1);
      const std::vector<double> want =
          Reference(Doubles(x), f, positions, heads, dim + 5, layout, first_dim);
      Rotate({.layout = layout,
              .positions = Positions::Each(std::span<const int64_t>(positions), f.axes),
              .q = TensorView::Of(x.data(), {kTokens, heads, dim + 5}),
              .first_dim = first_dim,
              .frequencies = &f});
      ExpectHeads(x, want, dim + 5, Epsilon<T>(), "axes");
    }
  }
}

TEST(RotateAxes, EachPairRotatesByItsOwnAxisOnEveryTarget) {
  ForEachTarget(internal::RotateGeneralTarget, [](const char*) {
    CheckAxes<double>();
    CheckAxes<float>();
    CheckAxes<Float16>();
    CheckAxes<BFloat16>();
  });
}

// Qwen3-VL's sections leave pairs 61 and 62 to time in Hugging Face and vLLM, and in ggml to a
// fourth axis, which llama.cpp feeds with zero: at 32768 an angle of 0.0135 is missing.
TEST(RotateAxes, TailPairsOfInterleavedSectionsAsEachEngineRotatesThem) {
  for (const Dialect dialect : {Dialect::kHuggingFace, Dialect::kLlamaCpp}) {
    RotarySpec spec = SpecOf(128);
    spec.base = 5e6;
    spec.dialect = dialect;
    spec.axes.sections = {24, 20, 20};
    spec.axes.order = AxisOrder::kInterleaved;
    const Frequencies f = Resolve(spec, 1);
    const bool llama = dialect == Dialect::kLlamaCpp;
    ASSERT_EQ(f.axes, llama ? 4 : 3);
    std::vector<int64_t> positions(static_cast<std::size_t>(f.axes), 32768);
    if (llama) positions[3] = 0;
    std::vector<double> x(128, 0.0);
    std::fill_n(x.begin(), 64, 1.0);  // pairs (1, 0): the angle is that of the result
    Rotate({.layout = PairLayout::kHalf,
            .positions = Positions::Each(std::span<const int64_t>(positions), f.axes),
            .q = TensorView::Of(x.data(), {1, 1, 128}),
            .frequencies = &f});
    const double angle = std::atan2(x[64 + 61], x[61]);
    EXPECT_NEAR(angle, llama ? 0 : 0.0135, 5e-5);
    EXPECT_NEAR(std::atan2(x[64 + 63], x[63]), 32768 * f.inv_freq[63].hi, 1e-6);
  }
}

TEST(RotateAxes, AxesFromATableInt32AndSharedByTheBatch) {
  const Frequencies f = AxesOf({4, 6, 6}, AxisOrder::kInterleaved);
  const CosSinTable table(f, 100, 50, AnglePrecision::kExact);
  std::vector<int32_t> shared, all;
  for (int axis = 0; axis < 3; ++axis) {
    for (int t = 0; t < 5; ++t) shared.push_back(100 + 7 * t + axis * 3);
    for (int t = 0; t < 10; ++t) all.push_back(100 + 7 * (t % 5) + axis * 3);
  }
  std::vector<float> x = RandomValues<float>(2 * 5 * 3 * 32, 2), y = x, z = x;
  const auto rotated = [&](std::vector<float>& v, const std::vector<int32_t>& p, bool with_table) {
    Rotate({.table = with_table ? &table : nullptr,
            .layout = PairLayout::kHalf,
            .positions = Positions::Each(std::span<const int32_t>(p), 3),
            .q = TensorView::Of(v.data(), {2, 5, 3, 32}),
            .frequencies = with_table ? nullptr : &f});
  };
  rotated(x, shared, true);
  rotated(y, all, true);
  rotated(z, all, false);
  EXPECT_EQ(x, y);
  EXPECT_EQ(x, z);
  // Text stands at one position on all axes: a start says it.
  std::vector<float> text = RandomValues<float>(4 * 32, 3), each = text;
  std::vector<int64_t> same;
  for (int i = 0; i < 12; ++i) same.push_back(110 + i % 4);
  Rotate({.table = &table,
          .layout = PairLayout::kHalf,
          .positions = Positions::From(110),
          .q = TensorView::Of(text.data(), {4, 1, 32})});
  Rotate({.table = &table,
          .layout = PairLayout::kHalf,
          .positions = Positions::Each(std::span<const int64_t>(same), 3),
          .q = TensorView::Of(each.data(), {4, 1, 32})});
  EXPECT_EQ(text, each);
}

// float32 angles without a table are those of a float32 table.
TEST(RotateAxes, AnglesOnTheFlyInEitherPrecision) {
  const Frequencies f = FrequenciesOf(64);
  for (const AnglePrecision precision : {AnglePrecision::kExact, AnglePrecision::kFloat32}) {
    const CosSinTable table(f, 1048570, 6, precision);
    const std::vector<int64_t> p = {1048575, 1048570, 1048575, 1048573};
    std::vector<float> x = RandomValues<float>(4 * 64, 5), y = x;
    RotateArgs args{.table = &table,
                    .layout = PairLayout::kHalf,
                    .positions = Positions::Each(std::span<const int64_t>(p)),
                    .q = TensorView::Of(x.data(), {4, 1, 64})};
    Rotate(args);
    args.table = nullptr;
    args.frequencies = &f;
    args.precision = precision;
    args.q.data = y.data();
    Rotate(args);
    EXPECT_EQ(x, y);
  }
}

TEST(RotateAxes, ThreadsDoNotChangeBits) {
  const int64_t tokens = 700, heads = 8, dim = 128;
  const Frequencies f = AxesOf({16, 24, 24}, AxisOrder::kChunked);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < 3 * tokens; ++i) positions.push_back(i * 37 % 5000);
  const std::vector<float> w(128, 1.5f);
  const std::vector<float> x =
      RandomValues<float>(static_cast<std::size_t>(tokens * heads * dim), 18);
  const int before = NumThreads();
  std::vector<BFloat16> results[2];
  for (int i = 0; i < 2; ++i) {
    SetNumThreads(i == 0 ? 1 : 3);
    results[i].resize(x.size());
    Rotate({.layout = PairLayout::kHalf,
            .positions = Positions::Each(std::span<const int64_t>(positions), 3),
            .q = TensorView::Of(x.data(), {tokens, heads, dim}),
            .q_out = TensorView::Of(results[i].data(), {tokens, heads, dim}),
            .frequencies = &f,
            .q_norm = {w, 1e-6}});
  }
  SetNumThreads(before);
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), 2 * x.size()), 0);
}

}  // namespace rotate_axes_test
}  // namespace ropewalk
