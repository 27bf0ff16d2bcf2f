// The limit of the decay curve against mpmath's cosine integral with 50 digits, and against the mean
// over very many pairs; the smoothness of a curve against its definition typed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/analysis/analysis.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace decay_integral_test {

using test::MessageOf;
using testing::HasSubstr;

double Mean(double base, int64_t pairs, int64_t m) {
  double sum = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(pairs);
    sum += std::cos(static_cast<double>(m) * std::pow(base, -share));
  }
  return sum / static_cast<double>(pairs);
}

TEST(DecayIntegral, IsTheCosineIntegral) {
  struct Row {
    double base;
    int64_t distance;
    double integral;
  };
  // (mp.ci(m) - mp.ci(m / base)) / mp.log(base); base 1: mp.cos(m)
  const Row rows[] = {
      {1, 1, 0.540302305868139717},
      {1, 7, 0.753902254343304638},
      {1, 8, -0.145500033808613526},
      {1, 255, -0.862303607831082382},
      {1, 256, -0.0397907599311577095},
      {1, 257, 0.8193055291449822},
      {1, 4095, -0.0659759965580648963},
      {1, 131071, -0.817983499387949081},
      {1, 1048575, 0.788042239528927469},
      {1, 1073741824, 0.78670712294118812},
      {1, 2147483647, -0.688836691877943835},
      {0x1.0000000001p+0, 1, 0.540302305868522374},
      {0x1.0000000001p+0, 7, 0.753902254345395979},
      {0x1.0000000001p+0, 8, -0.145500033805014262},
      {0x1.0000000001p+0, 255, -0.862303607889803847},
      {0x1.0000000001p+0, 256, -0.0397907600474808344},
      {0x1.0000000001p+0, 257, 0.819305529077973907},
      {0x1.0000000001p+0, 4095, -0.0659759984161979769},
      {0x1.0000000001p+0, 131071, -0.817983533674761774},
      {0x1.0000000001p+0, 1048575, 0.788041945978037277},
      {0x1.0000000001p+0, 1073741824, 0.786405569007823414},
      {0x1.0000000001p+0, 2147483647, -0.689544180025463091},
      {1.001, 1, 0.540722601134918278},
      {1.001, 7, 0.756193637493213341},
      {1.001, 8, -0.141544367483887767},
      {1.001, 255, -0.917167963345678677},
      {1.001, 256, -0.166455359509479655},
      {1.001, 257, 0.737120353939292692},
      {1.001, 4095, -0.372702732793798481},
      {1.001, 131071, 0.00324083065774777634},
      {1.001, 1048575, -0.00143915648233993017},
      {1.001, 1073741824, -1.46956306324089567e-6},
      {1.001, 2147483647, -5.29305557735593862e-7},
      {1.5, 1, 0.677560313263018927},
      {1.5, 7, 0.677936560290736569},
      {1.5, 8, 0.701362207967286285},
      {1.5, 255, -0.00981355009479600482},
      {1.5, 256, -0.0218982979854632172},
      {1.5, 257, -0.0198385821736972896},
      {1.5, 4095, -0.000641032030304542408},
      {1.5, 131071, -0.0000220380654825456252},
      {1.5, 1048575, -4.96434850724078719e-6},
      {1.5, 1073741824, 6.06613757120928892e-11},
      {1.5, 2147483647, 8.8990470133737741e-10},
      {2.8, 1, 0.797893303708175474},
      {2.8, 7, -0.203158482049484413},
      {2.8, 8, -0.0435468786904711977},
      {2.8, 255, -0.00240324699201305371},
      {2.8, 256, -0.000535464460727653894},
      {2.8, 257, 0.00437974473125670604},
      {2.8, 4095, 0.000424869627202011728},
      {2.8, 131071, -0.0000244643803266676352},
      {2.8, 1048575, -2.16184706884475824e-6},
      {2.8, 1073741824, 1.04675559345660555e-9},
      {2.8, 2147483647, 9.22477506515443183e-10},
      {10, 1, 0.896936367668738927},
      {10, 7, -0.0103446463712404958},
      {10, 8, -0.0329389492059278908},
      {10, 255, -0.00633559559663390347},
      {10, 256, -0.00872706517069192804},
      {10, 257, -0.00947758279580221208},
      {10, 4095, -0.00104637572120277744},
      {10, 131071, -0.000014053680032874499},
      {10, 1048575, 1.9520537919980921e-6},
      {10, 1073741824, 2.3400086647694798e-9},
      {10, 2147483647, 1.86909279380600183e-9},
      {10000, 1, 0.973962771209821163},
      {10000, 7, 0.734382192821202456},
      {10000, 8, 0.724850215985490529},
      {10000, 255, 0.335498045307754898},
      {10000, 256, 0.334863701380513399},
      {10000, 257, 0.334620689144252636},
      {10000, 4095, 0.038759673027042623},
      {10000, 131071, -0.00369318373310636409},
      {10000, 1048575, 0.000955359119846139639},
      {10000, 1073741824, -7.45332988009274624e-7},
      {10000, 2147483647, -5.0373299088462939e-7},
      {500000, 1, 0.981724957989465406},
      {500000, 7, 0.813567841015725764},
      {500000, 8, 0.806877522661116729},
      {500000, 255, 0.533586176696749361},
      {500000, 256, 0.533140845300702376},
      {500000, 257, 0.532970181887200294},
      {500000, 4095, 0.322152244941884511},
      {500000, 131071, 0.059347493553553851},
      {500000, 1048575, -0.0305734954301002204},
      {500000, 1073741824, 0.0000347458457996658067},
      {500000, 2147483647, 7.07094884695543599e-6},
      {1e300, 1, 0.999652836945845161},
      {1e300, 7, 0.996458429060279123},
      {1e300, 8, 0.996331335981516156},
      {1e300, 255, 0.991139738610490321},
      {1e300, 256, 0.99113127884219037},
      {1e300, 257, 0.991128036822533106},
      {1e300, 4095, 0.987123195645808735},
      {1e300, 131071, 0.982106033009973749},
      {1e300, 1048575, 0.97909572889261819},
      {1e300, 1073741824, 0.969061395172320077},
      {1e300, 2147483647, 0.968057961854457873},
  };
  for (const Row& row : rows) {
    EXPECT_NEAR(DecayIntegral(row.base, row.distance), row.integral, 1e-14)
        << row.base << " " << row.distance;
    EXPECT_EQ(DecayIntegral(row.base, -row.distance), DecayIntegral(row.base, row.distance));
  }
  EXPECT_EQ(DecayIntegral(10000, 0), 1);
}

TEST(DecayIntegral, IsTheMeanOverManyPairs) {
  for (const double base : {10.0, 10000.0, 500000.0}) {
    for (const int64_t m : {1, 16, 255, 4096}) {
      // The left Riemann sum is off by (f(0) - f(1)) / 2 pairs.
      EXPECT_NEAR(DecayIntegral(base, m), Mean(base, 1000000, m), 2e-6) << base << " " << m;
    }
  }
}

TEST(Smoothness, IsItsDefinition) {
  for (const double base : {1.0, 100.0, 10000.0}) {
    for (const int64_t d : {8, 64, 128}) {
      double bends = 0, off = 0, largest = 0;
      for (int64_t m = 1; m <= 300; ++m) {
        const double now = Mean(base, d / 2, m);
        bends += std::pow(Mean(base, d / 2, m - 1) - 2 * now + Mean(base, d / 2, m + 1), 2);
        off += std::pow(now - DecayIntegral(base, m), 2);
        largest = std::max(largest, std::abs(now - DecayIntegral(base, m)));
      }
      const Smoothness s = SmoothnessOf(base, d, 300);
      EXPECT_EQ(s.rotary_dim, d);
      EXPECT_NEAR(s.roughness, std::sqrt(bends / 300), 1e-12);
      EXPECT_NEAR(s.deviation, std::sqrt(off / 300), 1e-12);
      EXPECT_NEAR(s.largest_deviation, largest, 1e-12);
    }
  }
}

// "The higher the dimension, the smoother the curve", for every base but 1, where all pairs are one.
// It ends where a curve follows its limit over all distances: base 10 at 512 dimensions, within 512.
TEST(Smoothness, GrowsWithTheDimension) {
  for (const double base : {10.0, 100.0, 10000.0, 500000.0}) {
    for (int64_t d = 8; d < 512; d *= 2) {
      const Smoothness less = SmoothnessOf(base, d, 512), more = SmoothnessOf(base, 2 * d, 512);
      EXPECT_LT(more.roughness, 0.8 * less.roughness) << base << " " << d;
      EXPECT_LT(more.deviation, 0.8 * less.deviation) << base << " " << d;
    }
  }
  EXPECT_NEAR(SmoothnessOf(1, 1024, 512).roughness, SmoothnessOf(1, 8, 512).roughness, 1e-12);
}

TEST(DecayIntegral, RefusesWhatIsNoBaseAndNoLength) {
  for (const double base : {0.0, -1.0, 0.5, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(MessageOf([&] { DecayIntegral(base, 5); }),
                HasSubstr("base must be a number of at"));
    EXPECT_THAT(MessageOf([&] { SmoothnessOf(base, 128, 5); }), HasSubstr("base must be a number"));
  }
  EXPECT_THAT(MessageOf([] { SmoothnessOf(10, 127, 5); }), HasSubstr("even"));
  for (const int64_t longest : {int64_t{0}, int64_t{-1}, int64_t{65537}, int64_t{1} << 40}) {
    EXPECT_THAT(MessageOf([&] { SmoothnessOf(10, 128, longest); }), HasSubstr("1 to 65536"));
  }
}

}  // namespace decay_integral_test
}  // namespace ropewalk
