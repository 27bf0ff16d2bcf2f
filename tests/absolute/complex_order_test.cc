// Complex-order embeddings and the complex layers behind them, against std::complex in double and
// MPFR; gradients by finite differences.
#include "ropewalk/absolute/complex_order.h"

#include <complex>

#include "reference/absolute.h"
#include "tests/absolute/support.h"
#include "tests/support/mpfr.h"

namespace ropewalk {
namespace complex_order_test {

using Complex = std::complex<double>;
using ComplexVector = std::vector<Complex>;

// Both parts as the library takes them.
struct Parts {
  explicit Parts(const ComplexVector& z) {
    for (const Complex& v : z) {
      re.push_back(static_cast<float>(v.real()));
      im.push_back(static_cast<float>(v.imag()));
    }
  }
  Parts(std::size_t n, uint64_t seed)
      : re(RandomValues<float>(n, seed)), im(RandomValues<float>(n, seed + 1000)) {}
  ComplexSpan<float> out() { return {re, im}; }
  ComplexSpan<const float> in() const { return {re, im}; }
  Complex at(std::size_t i) const {
    return {static_cast<double>(re[i]), static_cast<double>(im[i])};
  }
  ComplexVector all() const {
    ComplexVector z;
    for (std::size_t i = 0; i < re.size(); ++i) z.push_back(at(i));
    return z;
  }
  std::vector<float> re, im;
};
struct Sums {
  explicit Sums(std::size_t n) : re(n, 0.0), im(n, 0.0) {}
  ComplexSpan<double> out() { return {re, im}; }
  std::vector<double> re, im;
};

// L = sum of Re dy Re y + Im dy Im y.
double Loss(const ComplexVector& y, const Parts& dy) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += (y[i] * std::conj(dy.at(i))).real();
  return sum;
}

// The pair of partial derivatives of f at z[i].
template <class F>
Complex Gradient(const F& f, const ComplexVector& z, std::size_t i) {
  const auto along = [&](Complex direction) {
    return Difference(
        [&](double h) {
          ComplexVector moved = z;
          moved[i] += h * direction;
          return f(moved);
        },
        0.0);
  };
  return {along({1, 0}), along({0, 1})};
}

template <class F>
void ExpectGradient(const F& f, const ComplexVector& z, const std::vector<double>& re,
                    const std::vector<double>& im, double tolerance) {
  for (std::size_t i = 0; i < z.size(); ++i) {
    const Complex want = Gradient(f, z, i);
    EXPECT_NEAR(re[i], want.real(), tolerance * (1 + std::abs(want))) << i;
    EXPECT_NEAR(im[i], want.imag(), tolerance * (1 + std::abs(want))) << i;
  }
}

const std::vector<int64_t> kPositions = {0,   1,    255,    256,     257,        511,
                                         512, 2048, 131071, 1048575, 2147483647, -131071};

TEST(ComplexOrder, ExactAtFarPositions) {
  const int64_t dim = 4, words = 3;
  const ComplexOrderSpec spec = {words, dim};
  const auto r = RandomValues<float>(12, 1), w = RandomValues<float>(12, 2),
             theta = RandomValues<float>(12, 3);
  std::vector<int64_t> ids(kPositions.size());
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<int64_t>(t % 3);
  Parts out(ids.size() * 4, 9);
  ComplexOrder(spec, {r, w, theta}, ids, kPositions, out.out());
  for (std::size_t t = 0; t < ids.size(); ++t) {
    for (std::size_t e = 0; e < 4; ++e) {
      const std::size_t at = static_cast<std::size_t>(ids[t]) * 4 + e;
      const Exact amplitude(static_cast<double>(r[at]));
      const Exact angle =
          Exact(static_cast<double>(w[at])) * Exact(static_cast<double>(kPositions[t])) +
          Exact(static_cast<double>(theta[at]));
      const double c = (amplitude * Cos(angle)).ToDouble(), s = (amplitude * Sin(angle)).ToDouble();
      EXPECT_NEAR(out.at(t * 4 + e).real(), c, 0x1p-24 * std::abs(c) + 1e-14) << kPositions[t];
      EXPECT_NEAR(out.at(t * 4 + e).imag(), s, 0x1p-24 * std::abs(s) + 1e-14) << kPositions[t];
    }
  }
}

// The paper's first property: the way from one position to another is the same everywhere.
TEST(ComplexOrder, PositionFreeOffset) {
  const std::vector<float> r = {2}, w = {0.75f};
  Parts a(4, 1);
  ComplexOrder({1, 1}, {r, w, {}}, std::vector<int64_t>(4, 0),
               std::vector<int64_t>{3, 10, 131071, 131078}, a.out());
  EXPECT_NEAR(std::abs(a.at(1) / a.at(0) - a.at(3) / a.at(2)), 0, 1e-6);
}

TEST(ComplexOrder, GradientsInEverySharing) {
  const std::vector<int64_t> ids = {0, 2, 1, 2}, positions = {0, 3, 5, 7};
  const std::size_t dim = 2;
  for (const auto sharing :
       {ComplexSharing::kNone, ComplexSharing::kWords, ComplexSharing::kDims}) {
    ComplexOrderSpec spec = {3, 2, sharing, sharing};
    const std::size_t n = sharing == ComplexSharing::kNone    ? 6
                          : sharing == ComplexSharing::kWords ? 2
                                                              : 3;
    const auto r = RandomValues<float>(6, 1), w = RandomValues<float>(n, 2),
               p = RandomValues<float>(n, 3);
    const Parts dy(ids.size() * dim, 4);
    // The formula typed again, with all parameters in one vector.
    const auto loss = [&](const std::vector<double>& x) {
      ComplexVector y;
      for (std::size_t t = 0; t < ids.size(); ++t) {
        for (std::size_t e = 0; e < dim; ++e) {
          const std::size_t id = static_cast<std::size_t>(ids[t]);
          const std::size_t at = sharing == ComplexSharing::kNone    ? id * dim + e
                                 : sharing == ComplexSharing::kWords ? e
                                                                     : id;
          y.push_back(
              std::polar(1.0, x[6 + at] * static_cast<double>(positions[t]) + x[6 + n + at]) *
              x[id * dim + e]);
        }
      }
      return Loss(y, dy);
    };
    std::vector<double> x(r.begin(), r.end());
    x.insert(x.end(), w.begin(), w.end());
    x.insert(x.end(), p.begin(), p.end());
    std::vector<double> got(6 + 2 * n, 0.0);
    const std::span<double> all(got);
    ComplexOrderBackward(spec, {r, w, p}, ids, positions, dy.in(),
                         {all.first(6), all.subspan(6, n), all.subspan(6 + n)});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto moved = [&](double v) {
        auto y = x;
        y[i] = v;
        return loss(y);
      };
      EXPECT_NEAR(got[i], Difference(moved, x[i]), 1e-7) << i;
    }
  }
}

ComplexVector LinearOf(const ComplexVector& x, const ComplexVector& w, const ComplexVector& b,
                       std::size_t in) {
  ComplexVector y;
  for (std::size_t r = 0; r < x.size() / in; ++r) {
    for (std::size_t o = 0; o < b.size(); ++o) {
      Complex sum = b[o];
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y.push_back(sum);
    }
  }
  return y;
}

TEST(ComplexLinear, ForwardAndGradients) {
  const std::size_t in = 3, out = 2, rows = 4;
  const Parts x(rows * in, 1), w(out * in, 2), b(out, 3), dy(rows * out, 4);
  Parts y(rows * out, 5), dx(rows * in, 6);
  ComplexLinear(3, 2, x.in(), w.in(), b.in(), y.out());
  const ComplexVector want = LinearOf(x.all(), w.all(), b.all(), in);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(std::abs(y.at(i) - want[i]), 0, 1e-7 * (1 + std::abs(want[i])));
  }
  Sums dw(out * in), db(out);
  ComplexLinearBackward(3, 2, x.in(), w.in(), dy.in(), dx.out(), dw.out(), db.out());
  const auto of = [&](const ComplexVector& a, const ComplexVector& v, const ComplexVector& c) {
    return Loss(LinearOf(a, v, c, in), dy);
  };
  ExpectGradient([&](const ComplexVector& z) { return of(z, w.all(), b.all()); }, x.all(),
                 {dx.re.begin(), dx.re.end()}, {dx.im.begin(), dx.im.end()}, 1e-6);
  ExpectGradient([&](const ComplexVector& z) { return of(x.all(), z, b.all()); }, w.all(), dw.re,
                 dw.im, 1e-8);
  ExpectGradient([&](const ComplexVector& z) { return of(x.all(), w.all(), z); }, b.all(), db.re,
                 db.im, 1e-8);
}

TEST(ComplexAttention, ForwardAndGradients) {
  for (const bool hermitian : {false, true}) {
    for (const bool causal : {false, true}) {
      ComplexAttentionSpec spec = {3, 5, 2, 3};
      spec.hermitian = hermitian;
      spec.causal = causal;
      const Parts q(18, 1), k(30, 2), v(30, 3), dy(18, 4);
      Parts out(18, 5);
      ComplexAttention(spec, q.in(), k.in(), v.in(), out.out());
      const auto of = [&](const ComplexVector& a, const ComplexVector& b, const ComplexVector& c) {
        return reference::ComplexAttention(a, b, c, 3, 5, 2, 3, causal, hermitian);
      };
      const ComplexVector want = of(q.all(), k.all(), v.all());
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(std::abs(out.at(i) - want[i]), 0, 1e-7 * (1 + std::abs(want[i])));
      }
      Sums dq(18), dk(30), dv(30);
      ComplexAttentionBackward(spec, q.in(), k.in(), v.in(), dy.in(), dq.out(), dk.out(), dv.out());
      ExpectGradient([&](const ComplexVector& z) { return Loss(of(z, k.all(), v.all()), dy); },
                     q.all(), dq.re, dq.im, 1e-8);
      ExpectGradient([&](const ComplexVector& z) { return Loss(of(q.all(), z, v.all()), dy); },
                     k.all(), dk.re, dk.im, 1e-8);
      ExpectGradient([&](const ComplexVector& z) { return Loss(of(q.all(), k.all(), z), dy); },
                     v.all(), dv.re, dv.im, 1e-8);
    }
  }
}

// Complex-order queries and keys of one frequency a dimension: with the conjugate the output does
// not change when all positions move, at far positions either; with the authors' product it does.
TEST(ComplexAttention, HermitianScoresSeeDistances) {
  const std::vector<float> r = {1, 2, 0.5f, 1, 1.5f, 1}, w = {0.7f, 0.01f};
  const ComplexOrderSpec words = {3, 2, ComplexSharing::kWords};
  const auto attend = [&](int64_t start, bool hermitian) {
    Parts x(6, 1), out(6, 1);
    const std::vector<float> no_frequency = {0, 0};
    Parts v(6, 1);
    const std::vector<int64_t> ids = {0, 1, 2};
    ComplexOrder(words, {r, w, {}}, ids, std::vector<int64_t>{start, start + 1, start + 2},
                 x.out());
    ComplexOrder(words, {r, no_frequency, {}}, ids, std::vector<int64_t>{0, 0, 0}, v.out());
    ComplexAttentionSpec spec = {3, 3, 1, 2};
    spec.hermitian = hermitian;
    ComplexAttention(spec, x.in(), x.in(), v.in(), out.out());
    return out.re;
  };
  const auto near = attend(0, true), far = attend(131071, true);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(near[i], far[i], 1e-5);
  double moved = 0;
  const auto plain = attend(0, false), shifted = attend(131071, false);
  for (std::size_t i = 0; i < 6; ++i) {
    moved =
        std::max(moved, std::abs(static_cast<double>(plain[i]) - static_cast<double>(shifted[i])));
  }
  EXPECT_GT(moved, 0.01);
}

TEST(ComplexOrder, BadInput) {
  const std::vector<float> four(4), two(2);
  Parts out(2, 1), six(6, 1);
  const auto embed = [&](int64_t word, int64_t position) {
    return [&, word, position] {
      ComplexOrder({2, 2}, {four, four, {}}, std::vector<int64_t>{word},
                   std::vector<int64_t>{position}, out.out());
    };
  };
  embed(1, 131071)();
  ExpectRefused(embed(2, 0), "words: expected 0 to 1, got 2 at 0; these are token ids");
  ExpectRefused(embed(0, int64_t{1} << 31), "positions");
  ExpectRefused(
      [&] {
        ComplexOrder({2, 2}, {four, two, {}}, std::vector<int64_t>{0}, std::vector<int64_t>{0},
                     out.out());
      },
      "frequency: expected [4], got 2 numbers");
  ExpectRefused([&] { ComplexLinear(3, 2, six.in(), six.in(), out.in(), out.out()); },
                "y.re: expected [2, 2]");
  ExpectRefused(
      [&] {
        ComplexAttentionSpec spec = {3, 2, 1, 1};
        spec.causal = true;
        ComplexAttention(spec, six.in(), out.in(), out.in(), six.out());
      },
      "causal: expected at most as many queries as keys, got 3 and 2");
}

}  // namespace complex_order_test
}  // namespace ropewalk
