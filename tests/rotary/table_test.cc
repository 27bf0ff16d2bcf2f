// Tables against MPFR, and that their bits depend on nothing but frequency, amplitude and position.
#include "ropewalk/rotary/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"
#include "src/rotary/table_cpu.h"
#include "tests/support/mpfr.h"
#include "tests/support/targets.h"
#include "tests/support/tolerances.h"

namespace ropewalk {
namespace table_test {

constexpr int64_t kLast = (int64_t{1} << 31) - 1;

Frequencies FrequenciesOf(int64_t dim, double base, const Scaling& scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  spec.base = base;
  spec.trained_length = 4096;
  spec.scaling = scaling;
  return Resolve(spec, 4096);
}

double Ulp(double value) { return std::ldexp(1.0, std::ilogb(value) - 23); }

// The contract for one value; returns the error in ULP, or 0 where the bound is absolute.
double ExpectWithin(float got, const Exact& want) {
  const double value = std::abs(want.ToDouble());
  const double error = Abs(Exact(got) - want).ToDouble();
  if (value < tolerances::kTableUlpFrom) {
    const double small = value == 0 ? 0 : tolerances::kTableSmallUlp * Ulp(value);
    EXPECT_LE(error, std::max(tolerances::kTableAbsolute, small)) << got;
    return 0;
  }
  EXPECT_LE(error / Ulp(value), tolerances::kTableUlp) << got;
  return error / Ulp(value);
}

// Checks all pairs of a row; returns the largest error in ULP.
double CheckRow(const Frequencies& f, int64_t position, const float* row) {
  const std::size_t pairs = f.inv_freq.size();
  double worst = 0;
  for (std::size_t i = 0; i < pairs; ++i) {
    const Exact angle =
        Exact(static_cast<double>(position)) * (Exact(f.inv_freq[i].hi) + Exact(f.inv_freq[i].lo));
    worst = std::max(worst, ExpectWithin(row[i], Exact(f.amplitude) * Cos(angle)));
    worst = std::max(worst, ExpectWithin(row[pairs + i], Exact(f.amplitude) * Sin(angle)));
  }
  return worst;
}

// Positions below 2^31 at which `frequency` times position comes closest to a multiple of pi/2: the
// denominators of the continued fraction of frequency / (pi/2), and their first multiples.
std::vector<int64_t> WorstPositions(const DoubleDouble& frequency) {
  Exact x = (Exact(frequency.hi) + Exact(frequency.lo)) / (Exact::Pi() / Exact(2));
  int64_t q0 = 0, q1 = 1;
  std::vector<int64_t> found = {1};
  for (int k = 0; k < 40; ++k) {
    const Exact whole = Floor(x);
    const Exact rest = x - whole;
    if (!(Exact(0) < rest)) break;
    x = Exact(1) / rest;
    const double a = Floor(x).ToDouble();
    if (a > 1e10 || static_cast<double>(q1) * a + static_cast<double>(q0) > 2147483647.0) break;
    const int64_t q = static_cast<int64_t>(a) * q1 + q0;
    q0 = q1;
    q1 = q;
    for (int64_t m = 1; m <= 3; ++m) {
      if (q * m <= kLast) found.push_back(q * m);
    }
  }
  return found;
}

std::vector<int64_t> InterestingPositions() {
  return {0,         1,      63,      64,       255,
          256,       257,    2047,    2048,     2049,
          8192,      131071, 1048575, 16777217, (int64_t{1} << 30) + 1,
          kLast - 1, kLast};
}

TEST(CosSinTable, IsRightToHalfAnUlpAtAnyPosition) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (const Scaling& scaling : {Scaling(NoScaling{}), Scaling(YarnScaling{16})}) {
    for (const double base : {10000.0, 500000.0}) {
      const Frequencies f = FrequenciesOf(64, base, scaling);
      std::vector<int64_t> positions = InterestingPositions();
      for (int i = 0; i < 100; ++i) positions.push_back(static_cast<int64_t>(random() % kLast));
      std::vector<float> rows(positions.size() * 64);
      FillCosSin(f, positions, AnglePrecision::kExact, rows.data());
      for (std::size_t i = 0; i < positions.size(); ++i) {
        worst = std::max(worst, CheckRow(f, positions[i], rows.data() + i * 64));
      }
    }
  }
  EXPECT_GT(worst, 0.49);  // the check looked at something
}

TEST(CosSinTable, IsRightWhereTheAngleIsNearlyAMultipleOfHalfPi) {
  for (const double amplitude : {1.0, 1.2772588722239782}) {
    Frequencies f = FrequenciesOf(64, 10000);
    f.amplitude = amplitude;
    double closest = 1;
    for (std::size_t pair = 0; pair < f.inv_freq.size(); ++pair) {
      const std::vector<int64_t> positions = WorstPositions(f.inv_freq[pair]);
      std::vector<float> rows(positions.size() * 64);
      FillCosSin(f, positions, AnglePrecision::kExact, rows.data());
      for (std::size_t i = 0; i < positions.size(); ++i) {
        const float* row = rows.data() + i * 64;
        const Exact angle = Exact(static_cast<double>(positions[i])) *
                            (Exact(f.inv_freq[pair].hi) + Exact(f.inv_freq[pair].lo));
        ExpectWithin(row[pair], Exact(amplitude) * Cos(angle));
        ExpectWithin(row[32 + pair], Exact(amplitude) * Sin(angle));
        const double c = std::abs(Cos(angle).ToDouble());
        const double s = std::abs(Sin(angle).ToDouble());
        closest = std::min(closest, std::min(c, s));
      }
    }
    EXPECT_LT(closest, 1e-10);  // the search found what it is for
  }
}

// Frequencies above 1 (divisors below 1) reduce as well.
TEST(CosSinTable, FastPairs) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 4;
  spec.scaling = ExplicitScaling{{1.0 / 700, 0.001}};
  const Frequencies f = Resolve(spec, 1);
  const CosSinTable table(f, 1000000, 4, AnglePrecision::kExact);
  for (int64_t p = 1000000; p < 1000004; ++p) CheckRow(f, p, table.Row(p));
}

bool SameBits(const float* a, const float* b, std::size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

TEST(CosSinTable, RowsDoNotDependOnTheRangeTheOrderOrGrowth) {
  for (const AnglePrecision precision : {AnglePrecision::kExact, AnglePrecision::kFloat32}) {
    const Frequencies f = FrequenciesOf(74, 10000, YarnScaling{4});
    const std::size_t n = 74;
    const CosSinTable whole(f, 0, 1000, precision);
    CosSinTable grown(f, 0, 1, precision);
    for (const int64_t count : {2, 63, 64, 65, 130, 999, 1000}) grown.Grow(count);
    const CosSinTable part(f, 777, 100, precision);
    std::vector<int64_t> order;
    for (int64_t p = 999; p >= 0; p -= 7) order.push_back(p);
    std::vector<float> listed(order.size() * n);
    FillCosSin(f, order, precision, listed.data());
    for (int64_t p = 0; p < 1000; ++p) {
      ASSERT_TRUE(SameBits(whole.Row(p), grown.Row(p), n)) << p;
      if (part.Contains(p)) {
        ASSERT_TRUE(SameBits(whole.Row(p), part.Row(p), n)) << p;
      }
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      ASSERT_TRUE(SameBits(whole.Row(order[i]), listed.data() + i * n, n)) << order[i];
    }
  }
}

TEST(CosSinTable, RowsDoNotDependOnThreads) {
  const Frequencies f = FrequenciesOf(128, 10000);
  const int before = NumThreads();
  SetNumThreads(1);
  const CosSinTable one(f, 5, 3000, AnglePrecision::kExact);
  SetNumThreads(3);
  const CosSinTable three(f, 5, 3000, AnglePrecision::kExact);
  SetNumThreads(before);
  EXPECT_TRUE(SameBits(one.Row(5), three.Row(5), 3000 * 128));
}

TEST(CosSinTable, EveryTargetGivesTheSameBits) {
  const Frequencies f = FrequenciesOf(74, 500000, YarnScaling{4});  // 37 pairs: every kind of tail
  std::vector<int64_t> positions = InterestingPositions();
  for (int64_t p = 0; p < 500; ++p) positions.push_back(p * 104729);
  std::vector<float> first;
  ForEachTarget(internal::TableTarget, [&](const char* name) {
    std::vector<float> rows(positions.size() * 74);
    FillCosSin(f, positions, AnglePrecision::kExact, rows.data());
    const CosSinTable range(f, 0, 300, AnglePrecision::kExact);
    rows.insert(rows.end(), range.Row(0), range.Row(0) + 300 * 74);
    if (first.empty()) first = rows;
    EXPECT_TRUE(SameBits(first.data(), rows.data(), rows.size())) << name;
  });
}

TEST(CosSinTable, Float32ModeIsTheCosineOfTheFloat32Angle) {
  const Frequencies f = FrequenciesOf(64, 10000, YarnScaling{4});
  for (const int64_t position : InterestingPositions()) {
    const CosSinTable table(f, position, 1, AnglePrecision::kFloat32);
    for (std::size_t i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(position) * f.inv_freq_f32[i];
      const float values[] = {table.Row(position)[i], table.Row(position)[32 + i]};
      const Exact truths[] = {Cos(Exact(angle)), Sin(Exact(angle))};
      for (int k = 0; k < 2; ++k) {
        // The amplitude multiplies in float32, as in Hugging Face: undone by trying both
        // neighbours.
        const float amplitude = static_cast<float>(f.amplitude);
        const float nearest = truths[k].ToFloat();
        const float up = std::nextafter(nearest, 2.0f);
        const float down = std::nextafter(nearest, -2.0f);
        EXPECT_TRUE(values[k] == nearest * amplitude || values[k] == up * amplitude ||
                    values[k] == down * amplitude)
            << position << " pair " << i;
      }
    }
  }
}

// Rows that another library owns, at an address that is a multiple of nothing but a float.
TEST(CosSinTable, ViewReadsRowsWhereTheyLie) {
  const Frequencies f = FrequenciesOf(48, 10000, YarnScaling{16});
  const CosSinTable own(f, 100, 300, AnglePrecision::kExact);
  std::vector<float> memory(1 + 300 * 48);
  std::memcpy(memory.data() + 1, own.Row(100), 300 * 48 * sizeof(float));
  CosSinTable view = CosSinTable::View(memory.data() + 1, 100, 300, 24, f.amplitude);
  EXPECT_EQ(view.Row(255), memory.data() + 1 + 155 * 48);
  EXPECT_EQ(view.amplitude(), f.amplitude);
  EXPECT_FALSE(view.Contains(99));
  EXPECT_FALSE(view.Contains(400));
  EXPECT_THROW(view.Grow(301), Error);
  std::vector<float> x(256 * 64), from_own(x.size()), from_view(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (const Direction direction :
       {Direction::kForward, Direction::kAdjoint, Direction::kInverse}) {
    const auto rotate = [&](const CosSinTable& table, std::vector<float>& out) {
      Rotate({.table = &table,
              .layout = PairLayout::kHalf,
              .positions = Positions::From(143),
              .q = TensorView::Of(x.data(), {256, 1, 64}),
              .q_out = TensorView::Of(out.data(), {256, 1, 64}),
              .direction = direction});
    };
    rotate(own, from_own);
    rotate(view, from_view);
    EXPECT_EQ(std::memcmp(from_own.data(), from_view.data(), x.size() * sizeof(float)), 0);
  }
}

TEST(CosSinTable, ViewOfRowsOnSeveralAxes) {
  Frequencies f = FrequenciesOf(8, 10000);
  f.axis = {0, 1, 1, 0};
  f.axes = 2;
  const CosSinTable own(f, 0, 10, AnglePrecision::kExact);
  const CosSinTable view = CosSinTable::View(own.Row(0), 0, 10, 4, 1, f.axis);
  const std::vector<int64_t> positions = {1, 9, 4, 0, 2, 7};  // [axes, tokens]
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  std::vector<float> expected(x.size());
  const auto rotate = [&](const CosSinTable& table, std::vector<float>& out) {
    Rotate({.table = &table,
            .layout = PairLayout::kInterleaved,
            .positions = Positions::Each(positions, 2),
            .q = TensorView::Of(x.data(), {3, 1, 8}),
            .q_out = TensorView::Of(out.data(), {3, 1, 8})});
  };
  rotate(own, expected);
  std::vector<float> got(x.size());
  rotate(view, got);
  EXPECT_EQ(got, expected);
}

TEST(CosSinTable, ViewOfBadRows) {
  const float rows[8] = {};
  const auto view = [&](const float* at, int64_t first, int64_t count, int64_t pairs) {
    CosSinTable::View(at, first, count, pairs);
  };
  EXPECT_NO_THROW(view(rows, 0, 1, 4));
  EXPECT_NO_THROW(view(nullptr, 0, 0, 4));
  EXPECT_THROW(view(nullptr, 0, 1, 4), Error);
  EXPECT_THROW(view(rows, -1, 1, 4), Error);
  EXPECT_THROW(view(rows, 0, -1, 4), Error);
  EXPECT_THROW(view(rows, 0, 1, 0), Error);
  EXPECT_THROW(view(rows, kLast, 2, 4), Error);
}

TEST(CosSinTable, EmptyAndBadInput) {
  const Frequencies f = FrequenciesOf(8, 10000);
  const CosSinTable empty(f, 0, 0, AnglePrecision::kExact);
  EXPECT_EQ(empty.count(), 0);
  EXPECT_FALSE(empty.Contains(0));
  FillCosSin(f, {}, AnglePrecision::kExact, nullptr);
  EXPECT_FALSE(CosSinTable().Contains(0));
  const auto table = [&](int64_t first, int64_t count) {
    CosSinTable(f, first, count, AnglePrecision::kExact);
  };
  EXPECT_THROW(table(-1, 1), Error);
  EXPECT_THROW(table(0, -1), Error);
  EXPECT_THROW(table(kLast + 1, 1), Error);
  EXPECT_THROW(table(kLast, 2), Error);
  EXPECT_THROW(table(1, INT64_MAX), Error);
  EXPECT_NO_THROW(table(kLast, 1));
  float out[8];
  const int64_t bad[] = {0, -5};
  try {
    FillCosSin(f, bad, AnglePrecision::kExact, out);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("-5"));
  }
  Frequencies broken = f;
  broken.inv_freq_f32.pop_back();
  EXPECT_THROW(CosSinTable(broken, 0, 1, AnglePrecision::kExact), Error);
}

}  // namespace table_test
}  // namespace ropewalk
