// Other output types, norms in front, heads that do not
// rotate. Against the scalar reference in double, in every type and layout, on every SIMD target.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "ropewalk/rotary/rotate.h"
#include "src/rotary/rotate/cpu.h"
#include "tests/rotary/rotate/support.h"
#include "tests/support/targets.h"

namespace ropewalk {
namespace rotate_norm_and_dtype_test {

// Every pair of types: rotated elements within one rounding of the result's type, the others
// converted.
template <class In, class Out>
void CheckConversion() {
  const int64_t dim = 21, heads = 3, tokens = kTokens;
  const Frequencies f = FrequenciesOf(16, YarnScaling{4});
  for (const PairLayout layout : kLayouts) {
    std::vector<In> x = RandomValues<In>(static_cast<std::size_t>(tokens * heads * dim), 6);
    x[0] = FromDouble<In>(std::nan(""));  // in an element that does not rotate
    std::vector<Out> y(x.size());
    std::vector<int64_t> positions(std::begin(kFar), std::end(kFar));
    std::vector<double> want = Reference(Doubles(x), f, positions, heads, dim, layout, 2);
    Rotate({.layout = layout,
            .positions = Positions::Each(std::span<const int64_t>(positions)),
            .q = TensorView::Of(x.data(), {tokens, heads, dim}),
            .q_out = TensorView::Of(y.data(), {tokens, heads, dim}),
            .first_dim = 2,
            .frequencies = &f});
    EXPECT_TRUE(std::isnan(ToDouble(y[0])));
    y[0] = FromDouble<Out>(0);
    want[0] = 0;
    ExpectHeads(y, want, dim, std::max(Epsilon<Out>(), Epsilon<float>()), "to");
    for (std::size_t i = 1; i < x.size(); ++i) {
      const int64_t e = static_cast<int64_t>(i) % dim;
      if (e >= 2 && e < 18) continue;
      EXPECT_EQ(ToDouble(y[i]), ToDouble(FromDouble<Out>(ToDouble(x[i])))) << i;
    }
  }
}

template <class In>
void CheckConversions() {
  CheckConversion<In, double>();
  CheckConversion<In, float>();
  CheckConversion<In, Float16>();
  CheckConversion<In, BFloat16>();
}

TEST(RotateNormAndDtype, AnyTypeToAnyTypeOnEveryTarget) {
  ForEachTarget(internal::RotateGeneralTarget, [](const char*) {
    CheckConversions<double>();
    CheckConversions<float>();
    CheckConversions<Float16>();
    CheckConversions<BFloat16>();
  });
}

// A NaN of any payload stays one on its way to a smaller type.
TEST(RotateNormAndDtype, NaNStaysNaNOnEveryTarget) {
  ForEachTarget(internal::RotateGeneralTarget, [](const char*) {
    const Frequencies f = FrequenciesOf(2);
    std::vector<float> x;
    for (const uint32_t bits : {0x7fffffffu, 0x7f800001u, 0xffffffffu, 0x7fc00000u, 0x7fbfffffu}) {
      for (int i = 0; i < 7; ++i) x.push_back(std::bit_cast<float>(bits));
    }
    std::vector<BFloat16> y(x.size());
    Rotate({.layout = PairLayout::kHalf,
            .positions = Positions::From(0),
            .q = TensorView::Of(x.data(), {1, 1, 35}),
            .q_out = TensorView::Of(y.data(), {1, 1, 35}),
            .frequencies = &f});
    for (const BFloat16 v : y) EXPECT_TRUE(std::isnan(ToFloat(v)));
  });
}

template <class T>
void CheckNorms() {
  for (const int64_t dim : {16, 64, 77, 128}) {
    const int64_t heads = 3, kv = 2, tokens = 5, rotary = dim == 77 ? 64 : dim;
    const Frequencies f = FrequenciesOf(rotary);
    const std::vector<float> qw = RandomValues<float>(static_cast<std::size_t>(dim), 7);
    const std::vector<float> kw = RandomValues<float>(static_cast<std::size_t>(dim), 8);
    for (const PairLayout layout : kLayouts) {
      std::vector<T> q = RandomValues<T>(static_cast<std::size_t>(tokens * heads * dim), 9);
      std::vector<T> k = RandomValues<T>(static_cast<std::size_t>(tokens * kv * dim), 10);
      const auto normed = [&](const std::vector<T>& x, const std::vector<float>& w, double eps) {
        std::vector<double> out = Doubles(x);
        for (std::size_t h = 0; h < out.size(); h += static_cast<std::size_t>(dim)) {
          double squares = 0;
          for (int64_t i = 0; i < dim; ++i)
            squares += std::pow(out[h + static_cast<std::size_t>(i)], 2);
          const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + eps);
          for (int64_t i = 0; i < dim; ++i) {
            out[h + static_cast<std::size_t>(i)] *= scale * w[static_cast<std::size_t>(i)];
          }
        }
        return out;
      };
      std::vector<int64_t> positions;
      for (int64_t t = 0; t < tokens; ++t) positions.push_back(131071 + t);
      const std::vector<double> want_q =
          Reference(normed(q, qw, 1e-6), f, positions, heads, dim, layout);
      const std::vector<double> want_k =
          Reference(normed(k, kw, 0.5), f, positions, kv, dim, layout);
      Rotate({.layout = layout,
              .positions = Positions::From(131071),
              .q = TensorView::Of(q.data(), {tokens, heads, dim}),
              .k = TensorView::Of(k.data(), {tokens, kv, dim}),
              .frequencies = &f,
              .q_norm = {qw, 1e-6},
              .k_norm = {kw, 0.5}});
      // The norm adds the roundings of a sum, a root and two products.
      const double epsilon = std::max(Epsilon<T>(), 10 * 0x1p-24);
      ExpectHeads(q, want_q, dim, epsilon, "normalised q");
      ExpectHeads(k, want_k, dim, epsilon, "normalised k");
    }
  }
}

TEST(RotateNormAndDtype, NormInFrontOnEveryTarget) {
  ForEachTarget(internal::RotateGeneralTarget, [](const char*) {
    CheckNorms<double>();
    CheckNorms<float>();
    CheckNorms<Float16>();
    CheckNorms<BFloat16>();
  });
}

TEST(RotateNormAndDtype, SomeHeadsDoNotRotate) {
  const int64_t dim = 32, tokens = 4;
  const Frequencies f = FrequenciesOf(dim);
  for (const bool in_place : {true, false}) {
    std::vector<float> q = RandomValues<float>(tokens * 5 * 32, 11),
                       k = RandomValues<float>(tokens * 3 * 32, 12);
    const std::vector<float> q0 = q, k0 = k;
    std::vector<float> q_out(q.size()), k_out(k.size());
    RotateArgs args{.layout = PairLayout::kHalf,
                    .positions = Positions::From(1000),
                    .q = TensorView::Of(q.data(), {tokens, 5, dim}),
                    .k = TensorView::Of(k.data(), {tokens, 3, dim}),
                    .frequencies = &f,
                    .rotated_heads = 2};
    if (!in_place) {
      args.q_out = TensorView::Of(q_out.data(), {tokens, 5, dim});
      args.k_out = TensorView::Of(k_out.data(), {tokens, 3, dim});
    }
    Rotate(args);
    const auto check = [&](const std::vector<float>& got, const std::vector<float>& before,
                           std::size_t heads) {
      for (std::size_t head = 0; head < got.size() / 32; ++head) {
        const bool same = std::equal(got.begin() + static_cast<int64_t>(head) * 32,
                                     got.begin() + static_cast<int64_t>(head + 1) * 32,
                                     before.begin() + static_cast<int64_t>(head) * 32);
        EXPECT_EQ(same, head % heads >= 2) << "head " << head;
      }
    };
    check(in_place ? q : q_out, q0, 5);
    check(in_place ? k : k_out, k0, 3);
  }
}

}  // namespace rotate_norm_and_dtype_test
}  // namespace ropewalk
