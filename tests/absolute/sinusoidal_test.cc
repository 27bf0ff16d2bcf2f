// Sinusoidal rows against MPFR at near and far positions, in every layout; their gradients.
#include "ropewalk/absolute/sinusoidal.h"

#include <algorithm>

#include "reference/absolute.h"
#include "ropewalk/absolute/combine.h"
#include "tests/absolute/support.h"
#include "tests/support/mpfr.h"
#include "tests/support/tolerances.h"

namespace ropewalk {
namespace sinusoidal_test {

constexpr int64_t kLast = (int64_t{1} << 31) - 1;
// L is 512.
const std::vector<int64_t> kPositions = {0,   1,    255,  256,     257,     511,
                                         512, 513,  2048, 131071,  1048575, kLast,
                                         -1,  -256, -257, -131071, -kLast};

SinusoidalSpec Spec(SinusoidalLayout layout, int64_t dim, double base = 10000) {
  SinusoidalSpec spec(layout);
  spec.dim = dim;
  spec.base = base;
  return spec;
}

// The frequency of angle i typed again.
Exact Frequency(const SinusoidalSpec& spec, int64_t i) {
  const bool interleaved = spec.layout == SinusoidalLayout::kInterleaved;
  const double d = static_cast<double>(spec.dim), n = std::floor(d / 2);
  const double angles = interleaved ? std::ceil(d / 2) : n;
  const double k = static_cast<double>(i);
  const Exact exponent = spec.ladder == SinusoidalLadder::kToBase
                             ? Exact(-k) / Exact(std::max(angles - 1, 1.0))
                         : interleaved ? Exact(-2 * k) / Exact(d)
                                       : Exact(-k) / Exact(n);
  return Pow(Exact(spec.base), exponent);
}

Exact Element(const SinusoidalSpec& spec, int64_t position, int64_t e) {
  const bool interleaved = spec.layout == SinusoidalLayout::kInterleaved;
  const int64_t n = spec.dim / 2;
  if (!interleaved && e == 2 * n) return Exact(0.0);
  const int64_t i = interleaved ? e / 2 : e % n;
  const bool second = interleaved ? e % 2 == 1 : e >= n;
  const Exact angle = Exact(static_cast<double>(position)) * Frequency(spec, i);
  return second != spec.cosine_first ? Cos(angle) : Sin(angle);
}

void ExpectExact(const SinusoidalSpec& spec) {
  const Sinusoidal encoding(spec);
  const std::size_t dim = static_cast<std::size_t>(spec.dim);
  std::vector<float> out(kPositions.size() * dim);
  encoding.Rows(kPositions, out);
  for (std::size_t p = 0; p < kPositions.size(); ++p) {
    for (std::size_t e = 0; e < dim; ++e) {
      const Exact want = Element(spec, kPositions[p], static_cast<int64_t>(e));
      const double value = std::abs(want.ToDouble());
      const double error = Abs(Exact(static_cast<double>(out[p * dim + e])) - want).ToDouble();
      const double ulp = value == 0 ? 0 : std::ldexp(1.0, std::ilogb(value) - 23);
      const double bound =
          value >= tolerances::kTableUlpFrom
              ? tolerances::kTableUlp * ulp
              : std::max(tolerances::kTableAbsolute, tolerances::kTableSmallUlp * ulp);
      ASSERT_LE(error, bound) << "position " << kPositions[p] << " element " << e << " dim " << dim;
    }
  }
}

TEST(Sinusoidal, RightToTheLastBitInEveryLayout) {
  for (const auto layout : {SinusoidalLayout::kInterleaved, SinusoidalLayout::kConcatenated}) {
    for (const int64_t dim : {2, 3, 7, 16, 33, 64}) {
      for (const double base : {10000.0, 2.0, 0.5, 1e6, 31.7}) {
        for (const auto ladder : {SinusoidalLadder::kPaper, SinusoidalLadder::kToBase}) {
          SinusoidalSpec spec = Spec(layout, dim, base);
          spec.ladder = ladder;
          spec.cosine_first = dim == 7 || dim == 16;
          ExpectExact(spec);
        }
      }
    }
  }
  ExpectExact(Spec(SinusoidalLayout::kInterleaved, 1));
}

TEST(Sinusoidal, ThePaper) {
  const Sinusoidal encoding(Spec(SinusoidalLayout::kInterleaved, 512));
  std::vector<float> out(100 * 512);
  encoding.Rows(2000, out);
  for (int64_t k = 0; k < 100; ++k) {
    for (int64_t e = 0; e < 512; ++e) {
      ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(k * 512 + e)]),
                  reference::Sinusoid(2000 + k, e, 512, 10000), 0x1p-24);
    }
  }
}

// A range is the list of its positions, also across zero and across blocks of 512.
TEST(Sinusoidal, AnyStart) {
  const Sinusoidal encoding(Spec(SinusoidalLayout::kConcatenated, 6));
  for (const int64_t start :
       {int64_t{-700}, int64_t{-3}, int64_t{0}, int64_t{131071}, kLast - 1199, -kLast}) {
    std::vector<int64_t> positions(1200);
    for (std::size_t i = 0; i < 1200; ++i) positions[i] = start + static_cast<int64_t>(i);
    std::vector<float> range(1200 * 6), list(1200 * 6);
    encoding.Rows(start, range);
    encoding.Rows(positions, list);
    EXPECT_EQ(range, list) << start;
    // A step of a decoder asks for one row.
    for (std::size_t i = 0; i < 1200; i += 37) {
      std::vector<float> row(6);
      encoding.Rows(positions[i], row);
      ASSERT_TRUE(std::equal(row.begin(), row.end(), range.begin() + static_cast<int64_t>(6 * i)))
          << positions[i];
    }
  }
}

TEST(Sinusoidal, AddIsRowsAndAddRows) {
  const Sinusoidal encoding(Spec(SinusoidalLayout::kInterleaved, 10));
  const int64_t tokens = 1100, batch = 2;
  const auto x = RandomValues<float>(static_cast<std::size_t>(batch * tokens * 10), 1);
  std::vector<float> rows(static_cast<std::size_t>(tokens * 10));
  encoding.Rows(131071, rows);
  auto want = x, got = x;
  AddRows(want, batch, rows, 0.25f);
  encoding.Add(got, batch, 131071, 0.25f);
  EXPECT_EQ(got, want);
  std::vector<float> nothing;
  encoding.Add(nothing, 2, 5);
}

// The row of m + n is that of m turned by the angles of n: the paper's reason for sinusoids.
TEST(Sinusoidal, ShiftIsARotation) {
  const Sinusoidal encoding(Spec(SinusoidalLayout::kInterleaved, 8));
  const int64_t m = 1048575, n = 257;
  std::vector<float> rows(3 * 8);
  encoding.Rows(std::vector<int64_t>{m, n, m + n}, rows);
  const auto at = [&](std::size_t row, std::size_t e) {
    return static_cast<double>(rows[row * 8 + e]);
  };
  for (std::size_t e = 0; e < 8; e += 2) {
    EXPECT_NEAR(at(2, e), at(0, e) * at(1, e + 1) + at(0, e + 1) * at(1, e), 2e-7);
    EXPECT_NEAR(at(2, e + 1), at(0, e + 1) * at(1, e + 1) - at(0, e) * at(1, e), 2e-7);
  }
}

// Against central differences of the formula in double, where rounding leaves 1e-10.
TEST(Sinusoidal, Gradients) {
  for (const auto layout : {SinusoidalLayout::kInterleaved, SinusoidalLayout::kConcatenated}) {
    for (const bool cosine_first : {false, true}) {
      SinusoidalSpec spec = Spec(layout, 7, 100);
      spec.cosine_first = cosine_first;
      const Sinusoidal encoding(spec);
      const int64_t tokens = 5, batch = 2, start = 3;
      const auto dy = RandomValues<float>(static_cast<std::size_t>(batch * tokens * 7), 2);
      const std::size_t n = encoding.frequencies().size();
      const bool interleaved = layout == SinusoidalLayout::kInterleaved;
      const double scale = 0.5;
      // L = sum of dy * scale * row with frequency `which` replaced.
      const auto loss = [&](std::size_t which, double frequency, double s) {
        double sum = 0;
        for (std::size_t i = 0; i < dy.size(); ++i) {
          const std::size_t e = i % 7;
          if (!interleaved && e == 6) continue;
          const std::size_t angle = interleaved ? e / 2 : e % n;
          const bool second = interleaved ? e % 2 == 1 : e >= n;
          const double f = angle == which ? frequency : encoding.frequencies()[angle].hi;
          const double a = f * static_cast<double>(start + static_cast<int64_t>(i / 7) % tokens);
          sum +=
              static_cast<double>(dy[i]) * s * (second != cosine_first ? std::cos(a) : std::sin(a));
        }
        return sum;
      };
      std::vector<double> got(n, 0.0);
      encoding.FrequencyGradient(dy, batch, start, got, 0.5f);
      for (std::size_t i = 0; i < n; ++i) {
        const double f = encoding.frequencies()[i].hi;
        const double want = Difference([&](double x) { return loss(i, x, scale); }, f);
        EXPECT_NEAR(got[i], want, 1e-5 * (1 + std::abs(want)));
      }
      const double f0 = encoding.frequencies()[0].hi;
      EXPECT_NEAR(encoding.ScaleGradient(dy, batch, start), loss(0, f0, 1.0), 1e-5);
    }
  }
}

// Width first, then height, each concatenated: transformers' ViT-MAE on 5 x 5 patches.
TEST(SinusoidalGrid, MaskedAutoencoder) {
  const SinusoidalSpec half = Spec(SinusoidalLayout::kConcatenated, 6);
  const SinusoidalBlock blocks[] = {{1, half}, {0, half}};
  std::vector<float> out(25 * 12);
  SinusoidalGrid(blocks, std::vector<int64_t>{5, 5}, out);
  ExpectGolden(out, Golden()["vit_mae"]["out"]);
}

TEST(SinusoidalGrid, Video) {
  const SinusoidalBlock blocks[] = {{0, Spec(SinusoidalLayout::kInterleaved, 3)},
                                    {2, Spec(SinusoidalLayout::kConcatenated, 6, 100)},
                                    {1, Spec(SinusoidalLayout::kInterleaved, 6)}};
  const std::vector<int64_t> sizes = {3, 2, 5};
  std::vector<float> out(30 * 15);
  SinusoidalGrid(blocks, sizes, out);
  std::size_t patch = 0;
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t w = 0; w < 5; ++w, ++patch) {
        const int64_t coordinates[] = {t, h, w};
        std::size_t at = patch * 15;
        for (const SinusoidalBlock& b : blocks) {
          for (int64_t e = 0; e < b.spec.dim; ++e, ++at) {
            ASSERT_EQ(out[at], Element(b.spec, coordinates[b.axis], e).ToFloat()) << at;
          }
        }
      }
    }
  }
}

TEST(Sinusoidal, BadInput) {
  const auto make = [](SinusoidalLayout layout, int64_t dim, double base) {
    return [=] { Sinusoidal(Spec(layout, dim, base)); };
  };
  ExpectRefused(make(SinusoidalLayout::kInterleaved, 0, 10000), "dim: expected 1 to");
  ExpectRefused(make(SinusoidalLayout::kConcatenated, 1, 10000), "dim: expected 2 to");
  ExpectRefused(make(SinusoidalLayout::kInterleaved, 4, 0), "base: expected a positive number");
  ExpectRefused(make(SinusoidalLayout::kInterleaved, 4, NAN), "base");
  const Sinusoidal encoding(Spec(SinusoidalLayout::kInterleaved, 4));
  std::vector<float> out(8);
  ExpectRefused([&] { encoding.Rows(std::vector<int64_t>{0, kLast + 1}, out); }, "2147483648 at 1");
  ExpectRefused([&] { encoding.Rows(std::vector<int64_t>{0}, out); }, "expected [1, 4], got 8");
  ExpectRefused([&] { encoding.Rows(kLast, out); }, "start");
  ExpectRefused([&] { encoding.Add(out, 3, 0); }, "[batch, tokens, dim]");
  const SinusoidalBlock block[] = {{2, Spec(SinusoidalLayout::kInterleaved, 4)}};
  ExpectRefused(
      [&] {
        SinusoidalGrid(block, std::vector<int64_t>{1, 2}, out);
      },
      "axis of a block: expected 0 to 1, got 2");
}

}  // namespace sinusoidal_test
}  // namespace ropewalk
