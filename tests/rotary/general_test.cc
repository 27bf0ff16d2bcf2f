// The general rotation: closed forms, what makes scores relative, and rotary embeddings as a
// special case.
#include "ropewalk/rotary/general.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "reference/rotary.h"
#include "ropewalk/base/error.h"
#include "tests/support/tolerances.h"
#include "tests/support/values.h"

namespace ropewalk {
namespace general_test {

using Matrix = std::vector<double>;  // [n, n]

Matrix Times(const Matrix& a, const Matrix& b, std::size_t n) {
  Matrix c(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t k = 0; k < n; ++k) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
  return c;
}
Matrix Transposed(const Matrix& a, std::size_t n) {
  Matrix t(n * n);
  for (std::size_t i = 0; i < n * n; ++i) t[i % n * n + i / n] = a[i];
  return t;
}
double Distance(const Matrix& a, const Matrix& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}
Matrix Skew(std::size_t n, uint64_t seed) {
  const std::vector<double> x = RandomValues<double>(n * n, seed);
  Matrix a(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) a[i * n + j] = 0.3 * (x[i * n + j] - x[j * n + i]);
  }
  return a;
}
RotationGenerators Generators(std::size_t n, const std::vector<Matrix>& axes) {
  RotationGenerators g;
  g.axes = static_cast<int64_t>(axes.size());
  g.block = static_cast<int64_t>(n);
  for (const Matrix& a : axes) g.values.insert(g.values.end(), a.begin(), a.end());
  return g;
}

// 2 x 2 is a rotation by position times f; 3 x 3 is Rodrigues' formula.
TEST(General, ClosedForms) {
  for (const double p : {0.0, 1.0, 255.0, 256.0, 257.0, 2048.0, 131071.0, 1048575.0, -17.0, 0.25}) {
    const double f = 0.7310585786300049, tolerance = std::max(1.0, std::abs(p) * f) * 0x1p-50;
    const Matrix two = RotationMatrix(Generators(2, {{0, -f, f, 0}}), std::vector<double>{p});
    const double c = std::cos(p * f), s = std::sin(p * f);
    EXPECT_LE(Distance(two, {c, -s, s, c}), tolerance) << p;
    const double u = 2.0 / 7, v = 3.0 / 7, w = 6.0 / 7;  // a unit vector
    const Matrix k = {0, -w, v, w, 0, -u, -v, u, 0};
    Matrix generator = k;
    for (double& x : generator) x *= f;
    const Matrix kk = Times(k, k, 3);
    Matrix want = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    for (std::size_t i = 0; i < 9; ++i) want[i] += s * k[i] + (1 - c) * kk[i];
    EXPECT_LE(Distance(RotationMatrix(Generators(3, {generator}), std::vector<double>{p}), want),
              2 * tolerance)
        << p;
  }
}

TEST(General, IsARotationAndAddsUp) {
  const std::size_t n = 8;
  const RotationGenerators g = Generators(n, {Skew(n, 1)});
  for (const double p : {1.0, 257.0, 131071.0}) {
    const double tolerance = 10 * (p + 100) * 0x1p-50;
    const Matrix r = RotationMatrix(g, std::vector<double>{p});
    Matrix one(n * n, 0.0);
    for (std::size_t i = 0; i < n; ++i) one[i * n + i] = 1;
    EXPECT_LE(Distance(Times(Transposed(r, n), r, n), one), tolerance);
    const Matrix more = RotationMatrix(g, std::vector<double>{100.0});
    EXPECT_LE(Distance(Times(r, more, n), RotationMatrix(g, std::vector<double>{p + 100})),
              tolerance);
  }
}

// |R(m)^T R(n) - R(n - m)|: what keeps a score from being relative.
double NotRelative(const RotationGenerators& g, const std::vector<double>& m,
                   const std::vector<double>& n) {
  const std::size_t size = static_cast<std::size_t>(g.block);
  std::vector<double> difference(n.size());
  for (std::size_t i = 0; i < n.size(); ++i) difference[i] = n[i] - m[i];
  return Distance(Times(Transposed(RotationMatrix(g, m), size), RotationMatrix(g, n), size),
                  RotationMatrix(g, difference));
}

TEST(General, CommutingGeneratorsGiveScoresOfDifferencesAlone) {
  const std::size_t n = 6;
  const Matrix a = Skew(n, 2);
  Matrix b = Times(a, Times(a, a, n), n);  // an odd power: skew-symmetric, and commutes with a
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) b[i * n + j] = -b[j * n + i];
    b[i * n + i] = 0;
  }
  const RotationGenerators g = Generators(n, {a, b});
  EXPECT_LE(LargestCommutator(g), 1e-14);
  for (const double far : {0.0, 255.0, 131071.0}) {
    EXPECT_LE(NotRelative(g, {3 + far, 5}, {7 + far, -2}), (far + 20) * 20 * 0x1p-50) << far;
  }
}

// The counter-example: the two smallest rotations of space, about x and about y.
TEST(General, NonCommutingGeneratorsDoNot) {
  const RotationGenerators g = Generators(3, {{0, 0, 0, 0, 0, -1, 0, 1, 0},    // about x
                                              {0, 0, 1, 0, 0, 0, -1, 0, 0}});  // about y
  EXPECT_EQ(LargestCommutator(g), 1);
  EXPECT_LE(NotRelative(g, {3, 0}, {7, 0}), 1e-14) << "one axis alone commutes with itself";
  EXPECT_GT(NotRelative(g, {1, 0}, {0, 1}), 0.4);
  // The same difference of positions, (1, 1), at two places: two different scores.
  const std::vector<double> q = {1, 0, 0}, k = {0, 1, 0};
  const auto score = [&](const std::vector<double>& m, const std::vector<double>& n) {
    const Matrix r = Times(Transposed(RotationMatrix(g, m), 3), RotationMatrix(g, n), 3);
    double sum = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) sum += q[i] * r[i * 3 + j] * k[j];
    }
    return sum;
  };
  EXPECT_GT(std::abs(score({0, 0}, {1, 1}) - score({1, 0}, {2, 1})), 0.1);
}

// RoPE on one axis and on several, in both layouts, is this rotation with sparse generators; and a
// change of basis of it (the generic form of the articles) is as relative.
TEST(General, RotaryEmbeddingsAreASpecialCase) {
  const int64_t dim = 12;
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  for (const int64_t axes : {1, 2, 3}) {
    if (axes > 1) spec.axes.sections.assign(static_cast<std::size_t>(axes), 6 / axes);
    spec.axes.own_ladders = axes == 2;  // the 2-D rotary of vision
    const Frequencies f = Resolve(spec, 1);
    for (const PairLayout layout : {PairLayout::kHalf, PairLayout::kInterleaved}) {
      const RotationGenerators g = RotaryGenerators(f, layout);
      EXPECT_EQ(LargestCommutator(g), 0);
      const int64_t at[3][4] = {{0, 255, 4096, 131071}, {1, 257, 17, 1048575}, {5, 0, 256, 2047}};
      std::vector<double> positions;
      for (int64_t axis = 0; axis < axes; ++axis) {
        for (const int64_t p : at[axis]) positions.push_back(static_cast<double>(p));
      }
      std::vector<double> x = RandomValues<double>(static_cast<std::size_t>(4 * 2 * dim), 3);
      const std::vector<double> before = x;
      const RotateGeneralArgs args{
          .generators = &g, .positions = positions, .x = TensorView::Of(x.data(), {4, 2, dim})};
      RotateGeneral(args);
      for (int64_t t = 0; t < 4; ++t) {
        const int64_t stand[] = {at[0][t], at[1][t], at[2][t]};
        for (int64_t h = 0; h < 2; ++h) {
          std::vector<double> want(before.begin() + (t * 2 + h) * dim,
                                   before.begin() + (t * 2 + h + 1) * dim);
          reference::RotateHead(want.data(), f, stand, layout == PairLayout::kInterleaved);
          for (int64_t i = 0; i < dim; ++i) {
            EXPECT_NEAR(x[static_cast<std::size_t>((t * 2 + h) * dim + i)],
                        want[static_cast<std::size_t>(i)], 4 * 1048575 * 0x1p-50);
          }
        }
      }
      RotateGeneralArgs back = args;
      back.transpose = true;
      RotateGeneral(back);
      EXPECT_LE(Distance(x, before), 4 * 1048575 * 0x1p-50);
    }
  }
}

TEST(General, AChangeOfBasisKeepsScoresRelative) {
  const std::size_t n = 4;
  const double f = 0.5;
  const Matrix x = {0, -f, 0, 0, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const Matrix y = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -f, 0, 0, f, 0};
  const Matrix basis = RotationMatrix(Generators(n, {Skew(n, 4)}), std::vector<double>{1.0});
  const auto turned = [&](const Matrix& m) {
    Matrix out = Times(basis, Times(m, Transposed(basis, n), n), n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < i; ++j) out[i * n + j] = -out[j * n + i];
      out[i * n + i] = 0;
    }
    return out;
  };
  const RotationGenerators g = Generators(n, {turned(x), turned(y)});
  EXPECT_LE(LargestCommutator(g), 1e-15);
  EXPECT_LE(NotRelative(g, {300, 20}, {17, 4000}), 5000 * 0x1p-50);
}

template <class T>
void CheckType(double tolerance) {
  const RotationGenerators g = Generators(4, {Skew(4, 5)});
  const std::vector<double> positions = {3, 1000};
  std::vector<T> x = RandomValues<T>(16, 6);
  std::vector<double> want;
  for (const T v : x) want.push_back(ToDouble(v));
  RotateGeneral(
      {.generators = &g, .positions = positions, .x = TensorView::Of(want.data(), {2, 2, 4})});
  RotateGeneral(
      {.generators = &g, .positions = positions, .x = TensorView::Of(x.data(), {2, 2, 4})});
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(ToDouble(x[i]), want[i], tolerance * 4);
}

TEST(General, EveryType) {
  CheckType<float>(0x1p-24);
  CheckType<Float16>(0x1p-11);
  CheckType<BFloat16>(0x1p-8);
}

TEST(General, BadInput) {
  const auto refused = [](const char* says, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected: " << says;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(says));
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    }
  };
  const std::vector<double> one = {1}, two = {1, 2}, bad = {std::nan("")}, huge = {1e308};
  const RotationGenerators g = Generators(2, {{0, -10, 10, 0}});
  refused("not skew-symmetric", [&] { RotationMatrix(Generators(2, {{0, 1, 1, 0}}), one); });
  refused("not skew-symmetric", [&] { RotationMatrix(Generators(2, {{1, 0, 0, 1}}), one); });
  refused("one number per axis", [&] { RotationMatrix(g, two); });
  refused("finite", [&] { RotationMatrix(g, bad); });
  refused("overflow", [&] { RotationMatrix(g, huge); });
  RotationGenerators wrong = g;
  wrong.blocks = 2;
  refused("[axes, blocks, block, block]", [&] { LargestCommutator(wrong); });
  std::vector<float> x(4, 1.0f);
  refused("x: expected [tokens, heads, 2]", [&] {
    RotateGeneral({.generators = &g, .positions = one, .x = TensorView::Of(x.data(), {1, 1, 4})});
  });
  refused("positions: expected 1 x 2", [&] {
    RotateGeneral({.generators = &g, .positions = one, .x = TensorView::Of(x.data(), {2, 1, 2})});
  });
  EXPECT_EQ(x, std::vector<float>(4, 1.0f));
}

}  // namespace general_test
}  // namespace ropewalk
