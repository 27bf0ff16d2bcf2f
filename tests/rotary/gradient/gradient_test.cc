// Gradients against finite differences of the scalar reference in double.
#include "ropewalk/rotary/gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "reference/rotary.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace gradient_gradient_test {

RotarySpec SpecOf(int64_t dim, const Scaling& scaling, double base = 10000) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  spec.base = base;
  spec.trained_length = 2048;
  spec.scaling = scaling;
  return spec;
}

// A loss that is linear in what the rotation gives: sum of weights * y.
struct Problem {
  int64_t tokens = 13, heads = 3, head_dim = 24, first_dim = 3;
  PairLayout layout = PairLayout::kHalf;
  std::vector<int64_t> positions = {0,    1,    255,  256,    257,     2047,  2048,
                                    2049, 8192, 9999, 131071, 1048575, 524287};
  Frequencies frequencies = Resolve(SpecOf(16, YarnScaling{4}), 2048);
  std::vector<double> x = RandomValues<double>(static_cast<std::size_t>(13 * 3 * 24), 1);
  std::vector<double> weights = RandomValues<double>(static_cast<std::size_t>(13 * 3 * 24), 2);

  std::vector<double> Y(const Frequencies& f, int sign = 1,
                        const std::vector<double>* of = nullptr) const {
    std::vector<double> y = of ? *of : x;
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<int64_t> at;
      for (int64_t axis = 0; axis < f.axes; ++axis) {
        at.push_back(positions[static_cast<std::size_t>(axis * tokens + t)]);
      }
      for (int64_t h = 0; h < heads; ++h) {
        reference::RotateHead(y.data() + (t * heads + h) * head_dim, f, at,
                              layout == PairLayout::kInterleaved, first_dim, sign);
      }
    }
    return y;
  }
  double Loss(const Frequencies& f, int64_t only_token = -1) const {
    const std::vector<double> y = Y(f);
    const int64_t size = heads * head_dim;
    double sum = 0;
    for (int64_t i = 0; i < tokens * size; ++i) {
      if (only_token >= 0 && i / size != only_token) continue;
      sum += weights[static_cast<std::size_t>(i)] * y[static_cast<std::size_t>(i)];
    }
    return sum;
  }
  template <class T>
  RotaryGradient Gradient(std::vector<T> value, std::vector<T> gradient) const {
    return FrequencyGradient(
        {.frequencies = &frequencies,
         .layout = layout,
         .positions = Positions::Each(std::span<const int64_t>(positions), frequencies.axes),
         .value = TensorView::Of(value.data(), {tokens, heads, head_dim}),
         .gradient = TensorView::Of(gradient.data(), {tokens, heads, head_dim}),
         .first_dim = first_dim});
  }
};

// Central differences, token by token: the step must be small against 1 / position.
std::vector<double> FiniteDifferences(const Problem& p) {
  std::vector<double> out;
  for (std::size_t i = 0; i < p.frequencies.inv_freq.size(); ++i) {
    double sum = 0;
    for (int64_t t = 0; t < p.tokens; ++t) {
      double farthest = 1;
      for (int axis = 0; axis < p.frequencies.axes; ++axis) {
        farthest = std::max(
            farthest,
            static_cast<double>(p.positions[static_cast<std::size_t>(axis * p.tokens + t)]));
      }
      const double step = 1e-4 / farthest;
      Frequencies up = p.frequencies, down = p.frequencies;
      up.inv_freq[i].lo += step;
      down.inv_freq[i].lo -= step;
      sum += (p.Loss(up, t) - p.Loss(down, t)) / (2 * step);
    }
    out.push_back(sum);
  }
  return out;
}

void ExpectClose(const std::vector<double>& got, const std::vector<double>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  double size = 0;
  for (const double w : want) size = std::max(size, std::abs(w));
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], relative * size) << "pair " << i;
  }
}

TEST(FrequencyGradient, MatchesFiniteDifferencesFromEitherSide) {
  for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
    for (const bool axes : {false, true}) {
      Problem p;
      p.layout = layout;
      if (axes) {
        p.frequencies.axes = 2;
        p.frequencies.axis = {0, 1, 0, 1, 1, 0, 0, 1};
        for (int64_t t = 0; t < p.tokens; ++t) p.positions.push_back(100000 - 77 * t);
      }
      const std::vector<double> want = FiniteDifferences(p);
      const RotaryGradient out = p.Gradient(p.Y(p.frequencies), p.weights);
      ExpectClose(out.inv_freq, want, 1e-7);
      // The other side: the input and the adjoint of the gradient.
      const RotaryGradient in = p.Gradient(p.x, p.Y(p.frequencies, -1, &p.weights));
      ExpectClose(in.inv_freq, out.inv_freq, 1e-12);
      Frequencies twice = p.frequencies;
      twice.amplitude += 1;  // the loss is linear in the amplitude
      EXPECT_NEAR(out.amplitude, p.Loss(twice) - p.Loss(p.frequencies), 1e-9);
      EXPECT_NEAR(in.amplitude, out.amplitude, 1e-9);
    }
  }
}

TEST(FrequencyGradient, EveryTypeStrideAndKindOfPosition) {
  Problem p;
  for (int64_t t = 0; t < p.tokens; ++t) p.positions[static_cast<std::size_t>(t)] = 2000 + t;
  const std::vector<double> y = p.Y(p.frequencies);
  const RotaryGradient want = p.Gradient(y, p.weights);
  const auto as = [](const std::vector<double>& v, auto type) {
    std::vector<decltype(type)> out;
    for (const double x : v) out.push_back(FromDouble<decltype(type)>(x));
    return out;
  };
  ExpectClose(p.Gradient(as(y, float{}), as(p.weights, float{})).inv_freq, want.inv_freq, 1e-6);
  ExpectClose(p.Gradient(as(y, Float16{}), as(p.weights, Float16{})).inv_freq, want.inv_freq, 1e-3);
  ExpectClose(p.Gradient(as(y, BFloat16{}), as(p.weights, BFloat16{})).inv_freq, want.inv_freq,
              1e-2);
  // Heads first in memory, in a batch of one, positions from a start: the same bits.
  std::vector<double> v(y.size()), g(y.size());
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t i = 0; i < p.head_dim; ++i) {
        const std::size_t from = static_cast<std::size_t>((t * p.heads + h) * p.head_dim + i);
        const std::size_t to = static_cast<std::size_t>((h * p.tokens + t) * p.head_dim + i);
        v[to] = y[from];
        g[to] = p.weights[from];
      }
    }
  }
  TensorView value = TensorView::Of(v.data(), {1, p.tokens, p.heads, p.head_dim});
  value.strides[1] = p.head_dim;
  value.strides[2] = p.tokens * p.head_dim;
  TensorView gradient = value;
  gradient.data = g.data();
  const RotaryGradient strided = FrequencyGradient({.frequencies = &p.frequencies,
                                                    .layout = p.layout,
                                                    .positions = Positions::From(2000),
                                                    .value = value,
                                                    .gradient = gradient,
                                                    .first_dim = p.first_dim});
  EXPECT_EQ(strided.inv_freq, want.inv_freq);
}

TEST(FrequencyGradient, LargeInputOverThreads) {
  const int64_t tokens = 400, heads = 4, dim = 64;
  const Frequencies f = Resolve(SpecOf(dim, NoScaling{}), 1);
  std::vector<float> v = RandomValues<float>(static_cast<std::size_t>(tokens * heads * dim), 3);
  std::vector<float> g = RandomValues<float>(v.size(), 4);
  const int before = NumThreads();
  std::vector<double> results[3];
  for (int i = 0; i < 3; ++i) {
    SetNumThreads(i == 0 ? 1 : 3);
    results[i] = FrequencyGradient({.frequencies = &f,
                                    .layout = PairLayout::kHalf,
                                    .positions = Positions::From(100),
                                    .value = TensorView::Of(v.data(), {tokens, heads, dim}),
                                    .gradient = TensorView::Of(g.data(), {tokens, heads, dim})})
                     .inv_freq;
  }
  SetNumThreads(before);
  EXPECT_EQ(results[1], results[2]);
  ExpectClose(results[1], results[0], 1e-13);
}

// Every method whose derivative is known, against differences of its own frequencies.
TEST(BaseDerivative, MatchesFiniteDifferences) {
  const std::vector<double> divisors(32, 1.5);
  const std::vector<Scaling> scalings = {NoScaling{},
                                         LinearScaling{4},
                                         NtkScaling{4},
                                         NtkFixedScaling{4},
                                         NtkMixedScaling{4},
                                         DynamicNtkScaling{2},
                                         DynamicLinearScaling{},
                                         QwenNtkScaling{},
                                         ByPartsScaling{4},
                                         ByPartsRepoScaling{4},
                                         YarnScaling{4},
                                         DynamicYarnScaling{},
                                         Llama3Scaling{8},
                                         LongRopeScaling{divisors, divisors, 4.0},
                                         ProportionalScaling{0.5, 2},
                                         HopeScaling{},
                                         BaseScaling{20000},
                                         ExplicitScaling{divisors}};
  for (const Scaling& scaling : scalings) {
    const RotarySpec spec = SpecOf(64, scaling, 12345);
    const double step = 1e-6;
    RotarySpec up = spec, down = spec;
    if (BaseScaling* b = std::get_if<BaseScaling>(&up.scaling)) {
      b->base *= 1 + step;
      std::get<BaseScaling>(down.scaling).base *= 1 - step;
    }
    up.base *= 1 + step;
    down.base *= 1 - step;
    const double base = std::holds_alternative<BaseScaling>(scaling) ? 20000 : spec.base;
    const Frequencies high = Resolve(up, 8192), low = Resolve(down, 8192);
    const std::vector<double> got = BaseDerivative(spec, 8192);
    ASSERT_EQ(got.size(), high.inv_freq.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double difference =
          (high.inv_freq[i].hi - low.inv_freq[i].hi) + (high.inv_freq[i].lo - low.inv_freq[i].lo);
      EXPECT_NEAR(got[i], difference / (2 * step * base),
                  1e-6 * std::abs(got[i]) + 1e-16 * high.inv_freq[i].hi)
          << Describe(scaling) << " pair " << i;
    }
  }
}

TEST(BaseGradient, IsTheChainRule) {
  const RotarySpec spec = SpecOf(64, YarnScaling{4});
  const std::vector<double> derivative = BaseDerivative(spec, 8192);
  const std::vector<double> gradient = RandomValues<double>(32, 5);
  double want = 0;
  for (std::size_t i = 0; i < 32; ++i) want += gradient[i] * derivative[i];
  EXPECT_EQ(BaseGradient(gradient, spec, 8192), want);
}

TEST(BaseDerivative, RefusesWhatHasNone) {
  const auto refused = [](const RotarySpec& spec, const char* says) {
    try {
      BaseDerivative(spec, 4096);
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    }
  };
  YarnScaling yarn{4};
  yarn.truncate = false;
  refused(SpecOf(64, yarn), "truncate off");
  RotarySpec axes = SpecOf(64, NoScaling{});
  axes.axes.sections = {16, 16};
  axes.axes.own_ladders = true;
  refused(axes, "a base each");
  const std::vector<double> wrong(31, 1.0);
  EXPECT_THROW(BaseGradient(wrong, SpecOf(64, NoScaling{}), 1), Error);
}

TEST(FrequencyGradient, BadInput) {
  Problem p;
  const auto refused = [&](const char* says,
                           const std::function<void(RotaryGradientArgs&)>& change) {
    RotaryGradientArgs args{
        .frequencies = &p.frequencies,
        .layout = p.layout,
        .positions = Positions::From(0),
        .value = TensorView::Of(p.x.data(), {p.tokens, p.heads, p.head_dim}),
        .gradient = TensorView::Of(p.weights.data(), {p.tokens, p.heads, p.head_dim}),
        .first_dim = p.first_dim};
    change(args);
    try {
      FrequencyGradient(args);
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
    }
  };
  const std::vector<int64_t> three(3, 0);
  refused("frequencies", [](RotaryGradientArgs& a) { a.frequencies = nullptr; });
  refused("do not fit head_dim", [](RotaryGradientArgs& a) { a.first_dim = 9; });
  refused("shape and dtype of value", [](RotaryGradientArgs& a) { a.gradient.shape[0] = 2; });
  refused("shape and dtype of value",
          [](RotaryGradientArgs& a) { a.gradient.dtype = DType::kF32; });
  refused("contiguous", [](RotaryGradientArgs& a) { a.value.strides[2] = 2; });
  refused("expected one per token", [&](RotaryGradientArgs& a) {
    a.positions = Positions::Each(std::span<const int64_t>(three));
  });
  refused("give a row of positions an axis", [&](RotaryGradientArgs& a) {
    a.positions = Positions::Each(std::span<const int64_t>(p.positions), 2);
  });
}

}  // namespace gradient_gradient_test
}  // namespace ropewalk
