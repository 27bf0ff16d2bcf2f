// Which kernel a call gets, and from what on threads; that kernels agree where both can run.
#include "src/rotary/rotate/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ropewalk/base/threads.h"
#include "src/rotary/rotate/cpu.h"
#include "tests/rotary/rotate/support.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace rotate_plan_test {

internal::RotatePlan PlanOf(const RotateArgs& args) {
  return internal::PlanRotate(args, internal::CheckRotate(args));
}

// The general kernel, for a plain call.
void RotateInGeneral(const RotateArgs& args, int64_t tokens) {
  const internal::RotatePlan plan = PlanOf(args);
  EXPECT_TRUE(plan.plain);
  const int64_t size = internal::GeneralScratch(plan.params).size;
  AlignedBuffer<double> scratch(static_cast<std::size_t>(size));
  internal::RotateGeneral(plan.params, 0, tokens, scratch.data());
}

template <class T>
void CheckSameBits() {
  const int64_t dim = 74, heads = 3, tokens = 9, first_dim = 5;
  const Frequencies f = FrequenciesOf(64, YarnScaling{4});
  const CosSinTable table(f, 300, tokens, AnglePrecision::kExact);
  for (const PairLayout layout : kLayouts) {
    for (const Direction direction :
         {Direction::kForward, Direction::kAdjoint, Direction::kInverse}) {
      const std::vector<T> x = RandomValues<T>(static_cast<std::size_t>(tokens * heads * dim), 4);
      for (const bool in_place : {true, false}) {
        std::vector<T> results[3];
        for (int way = 0; way < 3; ++way) {
          std::vector<T> in = x, out(x.size());
          RotateArgs args{.table = way < 2 ? &table : nullptr,
                          .layout = layout,
                          .positions = Positions::From(300),
                          .q = TensorView::Of(in.data(), {tokens, heads, dim}),
                          .first_dim = first_dim,
                          .direction = direction,
                          .frequencies = way < 2 ? nullptr : &f,
                          .rotated_heads = way == 0 ? 0 : heads};
          if (!in_place) args.q_out = TensorView::Of(out.data(), {tokens, heads, dim});
          way == 1 ? RotateInGeneral(args, tokens) : Rotate(args);
          results[way] = in_place ? in : out;
        }
        const std::size_t bytes = x.size() * sizeof(T);
        EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), bytes), 0);
        EXPECT_EQ(std::memcmp(results[0].data(), results[2].data(), bytes), 0);
      }
    }
  }
}

TEST(RotatePlan, KernelsGiveTheSameBitsOnEveryTarget) {
  ForEachTarget(internal::RotateGeneralTarget, [](const char*) {
    CheckSameBits<double>();
    CheckSameBits<float>();
    CheckSameBits<Float16>();
    CheckSameBits<BFloat16>();
  });
}

// By the plain kernel, converted in the given way.
template <class T>
std::vector<T> RotateTuned(std::vector<T> x, int64_t dim, const CosSinTable& table,
                           PairLayout layout, internal::Tuning tuning) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / dim;
  internal::RotatePlan plan = PlanOf({.table = &table,
                                      .layout = layout,
                                      .positions = Positions::From(table.first()),
                                      .q = TensorView::Of(x.data(), {tokens, 1, dim})});
  EXPECT_TRUE(plan.plain);
  plan.params.tuning = tuning;
  AlignedBuffer<double> scratch(static_cast<std::size_t>(plan.scratch));
  internal::RotatePlain(plan.params, 0, tokens, scratch.data());
  return x;
}

// The bits agree, but for those of a NaN: which of two NaN survives is the compiler's choice.
template <class T>
bool SameValue(T a, T b) {
  return a.bits == b.bits || (std::isnan(ToFloat(a)) && std::isnan(ToFloat(b)));
}

// Every pattern of 16 bits, then ordinary numbers, then these with zeros and subnormals among them.
template <class T>
void CheckTunings() {
  for (const int64_t dim : {2, 6, 32, 64, 96, 128, 256, 512}) {
    const Frequencies f = FrequenciesOf(dim);
    const int64_t count = 65536 / dim * dim;
    const CosSinTable table(f, 131071, count / dim, AnglePrecision::kExact);
    for (int values = 0; values < 3; ++values) {
      std::vector<T> x = RandomValues<T>(static_cast<std::size_t>(count), 5);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (values == 0) x[i].bits = static_cast<uint16_t>(i * 40503);
        if (values == 2 && i % 97 == 0) x[i].bits = static_cast<uint16_t>(i % 5 == 0 ? 0 : i % 128);
      }
      for (const PairLayout layout : kLayouts) {
        const auto common = RotateTuned(x, dim, table, layout, internal::Tuning::kCommon);
        const auto zen = RotateTuned(x, dim, table, layout, internal::Tuning::kZen);
        EXPECT_TRUE(std::equal(common.begin(), common.end(), zen.begin(), SameValue<T>))
            << "dim " << dim << ", values " << values << ", layout " << static_cast<int>(layout);
      }
    }
  }
}

TEST(RotatePlan, TuningsGiveTheSameBits) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16")) {
    CheckTunings<Float16>();
    return CheckTunings<BFloat16>();
  }
#endif
  EXPECT_EQ(internal::BestTuning(), internal::Tuning::kCommon);
  GTEST_SKIP() << "no avx512_bf16";
}

class RotatePlanOf : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 4, kHeads = 2, kDim = 64;

  RotateArgs Plain() {
    return {.table = &table_,
            .layout = PairLayout::kHalf,
            .positions = Positions::From(0),
            .q = X(0),
            .k = X(1)};
  }
  TensorView X(int i) {
    const auto at = static_cast<std::size_t>(i * kTokens * kHeads * kDim);
    return TensorView::Of(x_.data() + at, {kTokens, kHeads, kDim});
  }

  Frequencies f_ = FrequenciesOf(kDim);
  CosSinTable table_{f_, 0, kTokens, AnglePrecision::kExact};
  std::vector<float> x_ = std::vector<float>(4 * kTokens * kHeads * kDim);
};

TEST_F(RotatePlanOf, PlainUntilOneThingIsNot) {
  EXPECT_TRUE(PlanOf(Plain()).plain);
  RotateArgs rotated_values = Plain();
  rotated_values.v = X(2);
  rotated_values.values = ValueRotation::kRotate;
  EXPECT_TRUE(PlanOf(rotated_values).plain);

  const std::vector<float> weight(kDim, 1.0f);
  const int64_t slots[] = {0, 1, 2, 3};
  const auto general = [&](const char* what, const auto& change) {
    RotateArgs args = Plain();
    change(args);
    EXPECT_FALSE(PlanOf(args).plain) << what;
  };
  general("angles on the fly", [&](RotateArgs& a) { a.table = nullptr, a.frequencies = &f_; });
  general("values are copied", [&](RotateArgs& a) { a.v = X(2), a.v_out = X(3); });
  general("some heads", [](RotateArgs& a) { a.rotated_heads = 1; });
  general("norm", [&](RotateArgs& a) { a.k_norm.weight = weight; });
  general("slots", [&](RotateArgs& a) { a.k_out = X(2), a.slots = slots; });
  general("another type", [&](RotateArgs& a) {
    a.q_out = X(2);
    a.q_out.dtype = DType::kBF16;
  });
  RotarySpec spec = SpecOf(kDim);
  spec.xpos = XposDecay{};
  const CosSinTable xpos(Resolve(spec, 1), 0, kTokens, AnglePrecision::kExact);
  general("xPos", [&](RotateArgs& a) { a.table = &xpos; });
  spec = SpecOf(kDim);
  spec.axes.sections = {16, 16};
  const CosSinTable axes(Resolve(spec, 1), 0, kTokens, AnglePrecision::kExact);
  const std::vector<int64_t> positions(2 * kTokens, 1);
  general("axes", [&](RotateArgs& a) {
    a.table = &axes;
    a.positions = Positions::Each(std::span<const int64_t>(positions), 2);
  });
}

// The bytes of a call decide, not what is done with them.
TEST(RotatePlan, OneThresholdForThreads) {
  const int64_t dim = 64, heads = 8;
  const Frequencies f = FrequenciesOf(dim);
  const int before = NumThreads();
  SetNumThreads(3);
  for (const int64_t tokens : {96, 100}) {  // 196,608 and 204,800 bytes; threads from 200,000 on
    const CosSinTable table(f, 0, tokens, AnglePrecision::kExact);
    std::vector<float> x(static_cast<std::size_t>(tokens * heads * dim)), out(x.size());
    const int64_t half = heads / 2;
    RotateArgs plain{.table = &table,
                     .layout = PairLayout::kHalf,
                     .positions = Positions::From(0),
                     .q = TensorView::Of(x.data(), {tokens, heads, dim})};
    RotateArgs values = plain;
    values.q = TensorView::Of(x.data(), {tokens, half, dim});
    values.v = TensorView::Of(x.data() + x.size() / 2, {tokens, half, dim});
    values.v_out = TensorView::Of(out.data(), {tokens, half, dim});
    EXPECT_EQ(PlanOf(plain).threads, tokens == 96 ? 1 : 3);
    EXPECT_EQ(PlanOf(values).threads, tokens == 96 ? 1 : 3);
    EXPECT_FALSE(PlanOf(values).plain);
  }
  SetNumThreads(before);
}

}  // namespace rotate_plan_test
}  // namespace ropewalk
