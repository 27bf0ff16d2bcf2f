// The sums that kernels add up, run thread by thread on the CPU, against FrequencyGradient.
#include "src/rotary/gradient/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "tests/rotary/gradient/device_host.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace gradient_device_test {

constexpr int64_t kFar[] = {0, 1, 255, 256, 257, 2047, 2048, 2049, 8192, 131071, 1048575};
constexpr PairLayout kLayouts[] = {PairLayout::kHalf, PairLayout::kInterleaved};

Frequencies FrequenciesOf(int64_t pairs, int axes) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 2 * pairs;
  spec.trained_length = 2048;
  spec.scaling = YarnScaling{4};
  Frequencies f = Resolve(spec, 2048);
  f.axes = axes;
  for (int64_t i = 0; i < pairs && axes > 1; ++i) f.axis.push_back(static_cast<uint8_t>(i % axes));
  return f;
}

// Tensors [batch, tokens, heads, head_dim] of value and gradient, with gaps.
template <class T>
struct Tensors {
  Tensors(int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim, int64_t gap,
          int64_t offset = 0) {
    const int64_t token = heads * head_dim + gap;
    const auto size = static_cast<std::size_t>(batch * tokens * token + offset);
    for (auto* m : {&value_memory, &gradient_memory}) {
      *m = RandomValues<T>(size, m == &value_memory ? 1 : 2);
    }
    const auto view = [&](std::vector<T>& memory) {
      TensorView v = TensorView::Of(memory.data() + offset, {batch, tokens, heads, head_dim});
      v.strides[1] = token;
      v.strides[0] = tokens * token;
      return v;
    };
    value = view(value_memory);
    gradient = view(gradient_memory);
  }
  std::vector<T> value_memory, gradient_memory;
  TensorView value, gradient;
};

RotaryGradientArgs OnCuda(RotaryGradientArgs args) {
  args.value.device = args.gradient.device = Device::kCuda;
  return args;
}

double Largest(const std::vector<double>& v) {
  double m = 0;
  for (const double x : v) m = std::max(m, std::abs(x));
  return m;
}

void ExpectThatOfTheCpu(const RotaryGradientArgs& args, const char* what) {
  std::vector<double> derivative;
  const auto pairs = args.frequencies->inv_freq.size();
  for (std::size_t i = 0; i < pairs; ++i) derivative.push_back(0.5 - static_cast<double>(i));
  const RotaryGradient want = FrequencyGradient(args);
  const std::vector<double> got =
      internal::RunOnHost(internal::PlanGradient(OnCuda(args), derivative));
  ASSERT_EQ(got.size(), pairs + 2);
  // Positions reach a million, and sums cancel: against the largest of them.
  const double scale = Largest(want.inv_freq);
  double base = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    EXPECT_NEAR(got[i], want.inv_freq[i], 1e-12 * scale) << what << " pair " << i;
    base += derivative[i] * want.inv_freq[i];
  }
  const double elements = static_cast<double>(args.value.NumElements());
  EXPECT_NEAR(got[pairs], want.amplitude, 1e-12 * elements) << what;
  EXPECT_NEAR(got[pairs + 1], base, 1e-12 * scale * static_cast<double>(pairs * pairs)) << what;
  // Without the derivative by the base: the same bits of the rest.
  const std::vector<double> less = internal::RunOnHost(internal::PlanGradient(OnCuda(args), {}));
  EXPECT_EQ(less, std::vector<double>(got.begin(), got.end() - 1)) << what;
}

template <class T>
class GradientDevice : public ::testing::Test {};
using Types = ::testing::Types<double, float, Float16, BFloat16>;
TYPED_TEST_SUITE(GradientDevice, Types);

struct Case {
  const char* what;
  int64_t batch, tokens, heads, head_dim, pairs, first_dim, gap, offset;
  int width;  // of vectors in bytes, in both layouts; 0: of one element
};

// Widths, odd sizes, heads that fill no group, fewer items than rows, more units than a block has
// threads, partial rotation at odd places.
TYPED_TEST(GradientDevice, IsThatOfTheCpu) {
  using T = TypeParam;
  const Case cases[] = {{"one token", 1, 1, 1, 32, 16, 0, 0, 0, 16},
                        {"plain", 2, 37, 9, 64, 32, 0, 0, 0, 16},
                        {"more heads than a group, and gaps", 1, 11, 21, 32, 16, 0, 16, 0, 16},
                        {"partial", 2, 11, 3, 80, 16, 16, 0, 0, 16},
                        {"unaligned memory", 1, 11, 3, 32, 16, 0, 0, 1, 0},
                        {"odd gap", 3, 11, 2, 32, 16, 0, 1, 0, 0},
                        {"odd first element", 1, 11, 3, 41, 13, 7, 0, 0, 0},
                        {"one pair", 1, 300, 2, 3, 1, 1, 0, 0, 0},
                        {"more units than threads", 1, 3, 2, 1202, 600, 1, 0, 0, 0},
                        {"many items", 1, 1500, 9, 16, 8, 0, 0, 0, 16}};
  for (const Case& c : cases) {
    Tensors<T> t(c.batch, c.tokens, c.heads, c.head_dim, c.gap, c.offset);
    const Frequencies f = FrequenciesOf(c.pairs, 1);
    for (const PairLayout layout : kLayouts) {
      const RotaryGradientArgs args{.frequencies = &f,
                                    .layout = layout,
                                    .positions = Positions::From(1048575),
                                    .value = t.value,
                                    .gradient = t.gradient,
                                    .first_dim = c.first_dim};
      const bool wide = c.width == 16 && reinterpret_cast<uintptr_t>(t.value.data) % 16 == 0 &&
                        reinterpret_cast<uintptr_t>(t.gradient.data) % 16 == 0;
      const internal::GradientLaunch launch = internal::PlanGradient(OnCuda(args), {});
      EXPECT_EQ(launch.width, wide ? 16 / static_cast<int>(sizeof(T)) : 1) << c.what;
      EXPECT_GE(FrequencyGradientWorkspace(OnCuda(args)), launch.workspace_bytes);
      if (c.pairs <= internal::kMostGradientPairs) {
        ExpectThatOfTheCpu(args, c.what);
      } else {
        const std::vector<double> got = internal::RunOnHost(launch);
        const RotaryGradient want = FrequencyGradient(args);
        const double scale = Largest(want.inv_freq);
        for (std::size_t i = 0; i < want.inv_freq.size(); ++i) {
          EXPECT_NEAR(got[i], want.inv_freq[i], 1e-12 * scale) << c.what << " pair " << i;
        }
      }
    }
  }
}

TYPED_TEST(GradientDevice, EveryKindOfPositions) {
  using T = TypeParam;
  const int64_t batch = 3, tokens = 11, pairs = 16;
  Tensors<T> t(batch, tokens, 3, 2 * pairs, 0);
  for (const int axes : {1, 3}) {
    std::vector<int32_t> p32;
    std::vector<int64_t> p64;
    for (int64_t i = 0; i < axes * batch * tokens; ++i) {
      p64.push_back(kFar[static_cast<std::size_t>(i * 7 % 11)] + i);
      p32.push_back(static_cast<int32_t>(p64.back()));
    }
    const std::span<const int64_t> shared(p64.data(), static_cast<std::size_t>(axes * tokens));
    const std::vector<int64_t> starts{0, 131071, 1048575}, pads{0, 5, 11}, packed{0, 4, 4, 20, 33};
    const Positions kinds[] = {Positions::From(257),
                               Positions::Each(std::span<const int32_t>(p32), axes),
                               Positions::Each(std::span<const int64_t>(p64), axes),
                               Positions::Each(shared, axes),
                               Positions::Starts(starts),
                               Positions::LeftPadded(pads),
                               Positions::Packed(packed)};
    const Frequencies f = FrequenciesOf(pairs, axes);
    for (const Positions& positions : kinds) {
      for (const PairLayout layout : kLayouts) {
        ExpectThatOfTheCpu({.frequencies = &f,
                            .layout = layout,
                            .positions = positions,
                            .value = t.value,
                            .gradient = t.gradient},
                           std::to_string(static_cast<int>(positions.kind())).c_str());
      }
    }
  }
}

TEST(GradientDevicePlan, EmptyTensorsHaveZeros) {
  float nothing = 0;
  const Frequencies f = FrequenciesOf(4, 1);
  const std::vector<double> derivative(4, 1);
  for (const auto& [tokens, heads] : {std::pair<int64_t, int64_t>{0, 2}, {3, 0}}) {
    TensorView view = TensorView::Of(&nothing, {tokens, heads, 8});
    view.device = Device::kCuda;
    const internal::GradientLaunch launch = internal::PlanGradient({.frequencies = &f,
                                                                    .layout = PairLayout::kHalf,
                                                                    .positions = Positions::From(0),
                                                                    .value = view,
                                                                    .gradient = view},
                                                                   derivative);
    EXPECT_EQ(launch.params.parts, 0);
    EXPECT_EQ(internal::RunOnHost(launch), std::vector<double>(6, 0.0));
  }
}

// 2^40 elements: every item in one part, and in order. Nothing is read.
TEST(GradientDevicePlan, CutsMoreThan2To31ElementsIntoParts) {
  alignas(16) static float memory[4];
  const int64_t tokens = int64_t{1} << 27, heads = 64, head_dim = 128;
  TensorView view = TensorView::Of(memory, {tokens, heads, head_dim});
  view.device = Device::kCuda;
  const Frequencies f = FrequenciesOf(64, 1);
  const RotaryGradientArgs args{.frequencies = &f,
                                .layout = PairLayout::kHalf,
                                .positions = Positions::From(0),
                                .value = view,
                                .gradient = view};
  const internal::GradientParams p = internal::PlanGradient(args, {}).params;
  EXPECT_EQ(p.items, tokens * 8);
  EXPECT_EQ(p.parts, internal::kMostGradientParts);
  int64_t next = 0;
  for (int64_t part = 0; part < p.parts; ++part) {
    const auto [begin, end] = internal::ItemsOf(p, part);
    EXPECT_EQ(begin, next);
    next = end;
  }
  EXPECT_EQ(next, p.items);
  const internal::GradientItem last = internal::ItemAt(p, p.items - 1);
  EXPECT_EQ(last.token, tokens - 1);
  EXPECT_EQ(last.group, 7);
  EXPECT_EQ(internal::HeadsOf(p, last), 8);
  EXPECT_EQ(internal::OffsetOf(p.value_strides, last), (tokens * heads - 8) * head_dim);
}

TEST(GradientDevicePlan, RefusesWithoutAGpu) {
  if (!FindCuda().devices.empty()) GTEST_SKIP() << "there is a GPU";
  const Frequencies f = FrequenciesOf(4, 1);
  Tensors<float> t(1, 2, 1, 8, 0);
  const RotaryGradientArgs args = OnCuda({.frequencies = &f,
                                          .layout = PairLayout::kHalf,
                                          .positions = Positions::From(0),
                                          .value = t.value,
                                          .gradient = t.gradient});
  std::vector<double> workspace(static_cast<std::size_t>(FrequencyGradientWorkspace(args)) / 8);
  double out[5];
  try {
    FrequencyGradientOnDevice(args, workspace.data(), out);
    ADD_FAILURE() << "launched";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  }
}

// Rows that step over several tokens, and over sequences.
TEST(GradientDevicePlan, StepsFromItemToItem) {
  internal::GradientParams p{};
  for (const int rows : {1, 3, 8, 256}) {
    for (const int64_t groups : {1, 2, 5}) {
      for (const int64_t tokens : {1, 2, 7, 100}) {
        p.rows = rows;
        p.groups = groups;
        p.row_tokens = rows / groups;
        p.row_groups = rows % groups;
        p.positions.tokens = tokens;
        internal::GradientItem it = internal::ItemAt(p, 3);
        for (int64_t i = 3; i < 3000; i += rows) {
          const internal::GradientItem want = internal::ItemAt(p, i);
          ASSERT_EQ(it.index, want.index);
          ASSERT_EQ(it.group, want.group);
          ASSERT_EQ(it.batch, want.batch);
          ASSERT_EQ(it.token, want.token);
          internal::NextOfRow(p, it);
        }
      }
    }
  }
}

class GradientDeviceBadInput : public ::testing::Test {
 protected:
  void ExpectRefused(const char* says, const std::function<void(RotaryGradientArgs&)>& change,
                     ErrorCode code = ErrorCode::kInvalidArgument) {
    TensorView view = TensorView::Of(memory_, {2, 2, 8});
    view.device = Device::kCuda;
    RotaryGradientArgs args{.frequencies = &f_,
                            .layout = PairLayout::kHalf,
                            .positions = Positions::From(0),
                            .value = view,
                            .gradient = view};
    change(args);
    try {
      FrequencyGradientOnDevice(args, workspace_, workspace_, base_);
      ADD_FAILURE() << "accepted: " << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code);
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
    }
  }
  alignas(16) float memory_[32] = {};
  double workspace_[1] = {};
  int64_t list_[3] = {};
  Frequencies f_ = FrequenciesOf(4, 1);
  std::vector<double> base_;
};

TEST_F(GradientDeviceBadInput, SaysWhatIsWrong) {
  ExpectRefused("expected memory of a GPU",
                [](RotaryGradientArgs& a) { a.value.device = Device::kCpu; });
  ExpectRefused("got null", [](RotaryGradientArgs& a) { a.frequencies = nullptr; });
  ExpectRefused("f8_e4m3",
                [](RotaryGradientArgs& a) { a.value.dtype = a.gradient.dtype = DType::kF8E4M3; });
  ExpectRefused("PairLayout", [](RotaryGradientArgs& a) { a.layout = static_cast<PairLayout>(7); });
  ExpectRefused("not addressable",
                [](RotaryGradientArgs& a) { a.value.strides[0] = int64_t{1} << 60; });
  ExpectRefused("do not fit head_dim", [](RotaryGradientArgs& a) { a.first_dim = 1; });
  ExpectRefused("expected one per token", [this](RotaryGradientArgs& a) {
    a.positions = Positions::Each(std::span<const int64_t>(list_, 3));
  });
  base_ = {1, 2, 3};
  ExpectRefused("base_derivative: expected one per pair, 4", [](RotaryGradientArgs&) {});
  base_.clear();
  f_.axis = {0, 0, 1, 0};
  ExpectRefused("axis must be empty or name one of the axes", [](RotaryGradientArgs&) {});
}

TEST_F(GradientDeviceBadInput, LimitsWhatTravelsWithTheLaunch) {
  const Frequencies wide = FrequenciesOf(257, 1);
  std::vector<float> memory(2 * 514);
  const auto change = [&](RotaryGradientArgs& a) {
    a.frequencies = &wide;
    a.value = TensorView::Of(memory.data(), {2, 1, 514});
    a.value.device = Device::kCuda;
    a.gradient = a.value;
  };
  base_.assign(257, 1);
  ExpectRefused("at most 256, got 257", change);
}

}  // namespace gradient_device_test
}  // namespace ropewalk
