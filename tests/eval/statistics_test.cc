// Statistics against published tables, R, and numeric integration.
#include "src/eval/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/race.h"

namespace ropewalk {
namespace {

using internal::StudentCdf;
using internal::StudentQuantile;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Student's table, in part (Fisher and Yates 1938, table III; R: qt).
TEST(Student, QuantilesOfTheTable) {
  EXPECT_NEAR(StudentQuantile(0.975, 1), 12.706, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.975, 2), 4.303, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.975, 7), 2.365, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.975, 30), 2.042, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.95, 4), 2.132, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.995, 10), 3.169, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.9995, 3), 12.924, 5e-4);
  EXPECT_NEAR(StudentQuantile(0.9, 2), 1.8856180831641272, 1e-12);
  EXPECT_NEAR(StudentQuantile(0.975, 120), 1.9799304050824402, 1e-12);
  EXPECT_NEAR(StudentQuantile(0.975, 1e7), internal::NormalQuantile(0.975), 1e-6);
}

TEST(Student, ClosedForms) {
  for (const double t : {-40.0, -3.0, -0.2, 0.0, 0.7, 1.0, 12.0, 1e4}) {
    EXPECT_NEAR(StudentCdf(t, 1), 0.5 + std::atan(t) / std::numbers::pi, 1e-14);
    EXPECT_NEAR(StudentCdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-14);
  }
  // Tails keep their digits (R: 2 * pt(-100, 25)).
  EXPECT_NEAR(internal::StudentTwoSided(100, 25) / 4.569046702434187e-34, 1, 1e-10);
  EXPECT_NEAR(internal::StudentTwoSided(-30, 7) / 1.1788468880733144e-08, 1, 1e-10);
  EXPECT_EQ(internal::StudentTwoSided(kInf, 7), 0);
  EXPECT_EQ(StudentCdf(kInf, 7), 1);
}

TEST(Student, QuantileIsTheInverse) {
  for (const double dof : {0.5, 1.0, 3.0, 24.0, 1000.0}) {
    for (const double p : {1e-6, 0.01, 0.3, 0.5, 0.8, 0.999}) {
      EXPECT_NEAR(StudentCdf(StudentQuantile(p, dof), dof) / p, 1, 1e-9) << dof << " " << p;
    }
  }
  EXPECT_EQ(StudentQuantile(0.975, 0), kInf);
  EXPECT_EQ(StudentQuantile(1, 5), kInf);
  EXPECT_EQ(StudentQuantile(0, 5), -kInf);
}

TEST(Distributions, BetaAndNormal) {
  EXPECT_NEAR(internal::IncompleteBeta(2, 3, 0.5), 0.6875, 1e-14);  // a polynomial
  EXPECT_NEAR(internal::IncompleteBeta(0.5, 0.5, 0.25), 1 / 3.0, 1e-14);
  EXPECT_NEAR(internal::IncompleteBeta(50, 0.5, 0.99), 0.3173043978741973, 1e-12);  // R: pbeta
  EXPECT_NEAR(internal::IncompleteBeta(0.5, 12, 0.001), 0.12188002443751801, 1e-13);
  EXPECT_EQ(internal::IncompleteBeta(2, 3, 0), 0);
  EXPECT_EQ(internal::IncompleteBeta(2, 3, 1), 1);
  EXPECT_NEAR(internal::NormalQuantile(0.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(internal::NormalQuantile(1e-6), -4.753424308822899, 1e-11);
  EXPECT_NEAR(internal::NormalQuantile(0.5), 0, 1e-15);
}

// Values of R: pbinom.
TEST(Distributions, Binomial) {
  EXPECT_NEAR(internal::BinomialAtMost(5, 20, 0.5), 21700 / 1048576.0, 1e-12);
  EXPECT_NEAR(internal::BinomialAtMost(6, 20, 0.5), 60460 / 1048576.0, 1e-12);
  EXPECT_EQ(internal::BinomialAtMost(20, 20, 0.5), 1);
  EXPECT_EQ(internal::BinomialAtMost(3, 20, 0), 1);
  EXPECT_EQ(internal::BinomialAtMost(3, 20, 1), 0);
}

// Hollander and Wolfe 1973, table 4.1 (R: t.test(x, y, paired = TRUE)).
TEST(Paired, HamiltonDepression) {
  const std::vector<double> differences = {0.952, -0.147, 1.022, 0.43, 0.62,
                                           0.59,  0.49,   -0.08, 0.01};
  const PairedTest test = TestPaired(differences);
  EXPECT_EQ(test.n, 9);
  EXPECT_NEAR(test.mean / test.standard_error, 3.0353754156485917, 1e-10);
  EXPECT_NEAR(test.p_value, 0.016176627434908088, 1e-10);
}

TEST(Paired, Degenerate) {
  EXPECT_TRUE(std::isnan(TestPaired(std::vector<double>{}).p_value));
  EXPECT_TRUE(std::isnan(TestPaired(std::vector<double>{1.0}).p_value));
  EXPECT_EQ(TestPaired(std::vector<double>{0, 0, 0}).p_value, 1);
  EXPECT_GT(TestPaired(std::vector<double>{1e-8, 1e-8, 1e-8}).p_value, 0.9);
  EXPECT_LT(TestPaired(std::vector<double>{0.5, 0.5, 0.5}).p_value, 1e-9);
  EXPECT_EQ(TestPaired(std::vector<double>{0.5, 0.5, 0.5}).standard_error, 0);
  EXPECT_TRUE(std::isnan(TestPaired(std::vector<double>{0.5, kNaN, 0.5}).p_value));
}

// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
TEST(Holm, AdjustedLikeR) {
  const auto near = [](double v) { return DoubleNear(v, 1e-15); };
  EXPECT_THAT(HolmAdjusted(std::vector<double>{0.01, 0.04, 0.03, 0.005}),
              ElementsAre(near(0.03), near(0.06), near(0.06), near(0.02)));
  EXPECT_THAT(HolmReject(std::vector<double>{0.01, 0.04, 0.03, 0.005}),
              ElementsAre(true, false, false, true));
  EXPECT_THAT(HolmAdjusted(std::vector<double>{0.9, 0.8}), ElementsAre(1, 1));
  EXPECT_THAT(HolmAdjusted(std::vector<double>{}), IsEmpty());
}

// Holm's procedure as he states it: the smallest against alpha / m, the next against alpha / (m -
// 1), until one is not rejected.
TEST(Holm, IsTheStepDownProcedure) {
  uint64_t state = 1;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> p(static_cast<size_t>(trial % 9 + 1));
    for (double& v : p) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      v = std::pow(static_cast<double>(state >> 11) * 0x1p-53, 3);
    }
    std::vector<bool> expected(p.size());
    for (size_t step = 0; step < p.size(); ++step) {
      size_t smallest = p.size();
      for (size_t i = 0; i < p.size(); ++i) {
        if (!expected[i] && (smallest == p.size() || p[i] < p[smallest])) smallest = i;
      }
      if (p[smallest] > 0.05 / static_cast<double>(p.size() - step)) break;
      expected[smallest] = true;
    }
    ASSERT_EQ(HolmReject(p, 0.05), expected);
  }
}

TEST(Holm, WhatWasNotTestedCounts) {
  const std::vector<double> adjusted = HolmAdjusted(std::vector<double>{kNaN, 0.02});
  EXPECT_TRUE(std::isnan(adjusted[0]));
  EXPECT_EQ(adjusted[1], 0.04);
  EXPECT_THAT(HolmReject(std::vector<double>{kNaN, 0.03}), ElementsAre(false, false));
}

// Power of a two-sided t test at noncentrality `shift`: over the density of s / sigma =
// chi(dof) / sqrt(dof), P(Z + shift > critical * s) and the other tail.
double Power(double shift, double critical, double dof) {
  const double log_norm = (1 - dof / 2) * std::log(2.0) - std::lgamma(dof / 2);
  const auto above = [](double z) { return std::erfc(z / std::sqrt(2.0)) / 2; };
  const double end = std::sqrt(dof) + 12;
  constexpr int kSteps = 20'000;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double chi = (i + 0.5) * end / kSteps;
    const double density = std::exp(log_norm + (dof - 1) * std::log(chi) - chi * chi / 2);
    const double bar = critical * chi / std::sqrt(dof);
    sum += density * (above(bar - shift) + above(bar + shift)) * end / kSteps;
  }
  return sum;
}

double ExactDetectable(int64_t n, double alpha, double power) {
  const double dof = static_cast<double>(n - 1);
  const double critical = StudentQuantile(1 - alpha / 2, dof);
  double low = 0, high = 4000;
  while (high - low > 1e-8 * high) {
    const double middle = (low + high) / 2;
    (Power(middle, critical, dof) < power ? low : high) = middle;
  }
  return high;
}

TEST(MinimumDetectable, IsTheNoncentralDistributions) {
  for (const int64_t n : {2, 3, 4, 5, 8, 12, 25, 100}) {
    EXPECT_NEAR(MinimumDetectable(1, n) / ExactDetectable(n, 0.05, 0.8), 1, 1e-5) << n;
    EXPECT_NEAR(MinimumDetectable(1, n, 0.05 / 7, 0.9) / ExactDetectable(n, 0.05 / 7, 0.9), 1, 1e-5)
        << n;
  }
  // Two units: the deviation of one pair is |z|, and the other tail is nothing.
  EXPECT_NEAR(MinimumDetectable(1, 2), 12.7062047 * 1.2816 * 1.0, 0.1);
  // A standardised difference of 0.5 in 34 pairs has power 0.8078 (Cohen 1988; G*Power 3).
  EXPECT_NEAR(MinimumDetectable(1, 34, 0.05, 0.8078) / std::sqrt(34.0), 0.5, 1e-4);
  EXPECT_NEAR(MinimumDetectable(0.01, 1'000'000), 0.01 * (1.959964 + 0.841621), 1e-6);
}

TEST(MinimumDetectable, Edges) {
  EXPECT_TRUE(std::isnan(MinimumDetectable(1, 1)));
  EXPECT_TRUE(std::isnan(MinimumDetectable(kNaN, 8)));
  EXPECT_EQ(MinimumDetectable(0, 8), 0);
  EXPECT_THROW(MinimumDetectable(1, 8, 0, 0.8), Error);
  EXPECT_THROW(MinimumDetectable(1, 8, 0.05, 1), Error);
  EXPECT_THROW(MinimumDetectable(1, 8, 0.05, 0.05), Error);
}

// Newcombe 1998 (Statistics in Medicine 17, 857-872), table I, method 3.
TEST(Wilson, NewcombesTable) {
  const auto expect = [](double hits, double trials, double low, double high) {
    const Interval interval = WilsonInterval(hits / trials, trials);
    EXPECT_NEAR(interval.low, low, 5e-5);
    EXPECT_NEAR(interval.high, high, 5e-5);
  };
  expect(81, 263, 0.2553, 0.3662);
  expect(15, 148, 0.0624, 0.1605);
  expect(0, 20, 0, 0.1611);
  expect(1, 29, 0.0061, 0.1718);
}

TEST(Wilson, Edges) {
  EXPECT_EQ(WilsonInterval(0, 20).low, 0);
  EXPECT_EQ(WilsonInterval(1, 20).high, 1);
  EXPECT_NEAR(WilsonInterval(1, 20).low, 1 - 0.1611, 5e-5);
  EXPECT_EQ(WilsonInterval(0.5, 0).low, 0);
  EXPECT_EQ(WilsonInterval(0.5, 0).high, 1);
  for (const double bad : {-0.1, 1.1, kNaN}) {
    try {
      WilsonInterval(bad, 20);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr("between 0 and 1"));
    }
  }
  EXPECT_THROW(WilsonInterval(0.5, 20, 1), Error);
}

TEST(Clusters, AreTheUnits) {
  // Of equal size they are a mean of means; here 4, 6 and 11, of which the variance is 13.
  const std::vector<double> sums = {8, 12, 22}, counts = {2, 2, 2};
  const internal::ClusteredMean equal = internal::MeanOfClusters(sums, counts);
  EXPECT_NEAR(equal.mean, 7, 1e-12);
  EXPECT_NEAR(equal.standard_error, std::sqrt(13 / 3.0), 1e-12);
  // Of others the formula of docs/results-format.md: mean 3, residuals 1, -3, 2.
  const std::vector<double> others = {4, 6, 8}, sizes = {1, 3, 2};
  EXPECT_NEAR(internal::MeanOfClusters(others, sizes).mean, 3, 1e-12);
  EXPECT_NEAR(internal::MeanOfClusters(others, sizes).standard_error,
              std::sqrt(3 / 2.0 * (1 + 9 + 4)) / 6, 1e-12);
  EXPECT_TRUE(std::isnan(
      internal::MeanOfClusters(std::vector<double>{4}, std::vector<double>{2}).standard_error));
}

TEST(Weighted, OfEqualWeightsItIsThePairedTest) {
  const std::vector<double> differences = {0.1, 0.3, -0.2, 0.25}, weights(4, 128);
  const PairedTest plain = TestPaired(differences);
  const PairedTest test = internal::TestWeighted(differences, weights);
  EXPECT_EQ(test.mean, plain.mean);
  EXPECT_EQ(test.standard_error, plain.standard_error);
  EXPECT_EQ(test.p_value, plain.p_value);
}

// The clusters above, given by their means: t = 3 / sqrt(7 / 12) with 2 degrees of freedom, whose
// two-sided probability is 1 - t / sqrt(2 + t^2).
TEST(Weighted, OfOthersItIsThatOfTheClusteredMean) {
  const std::vector<double> differences = {4, 2, 4}, weights = {1, 3, 2};
  const PairedTest test = internal::TestWeighted(differences, weights);
  EXPECT_NEAR(test.mean, 3, 1e-12);
  EXPECT_NEAR(test.standard_error, std::sqrt(7 / 12.0), 1e-12);
  const double t = 3 / std::sqrt(7 / 12.0);
  EXPECT_NEAR(test.p_value, 1 - t / std::sqrt(2 + t * t), 1e-12);
  // A constant difference has no spread, however unequal the weights are.
  EXPECT_LT(internal::TestWeighted(std::vector<double>{0.5, 0.5, 0.5}, weights).p_value, 1e-9);
  const std::vector<double> broken = {0.5, kNaN, 0.5};
  EXPECT_TRUE(std::isnan(internal::TestWeighted(broken, weights).p_value));
}

}  // namespace
}  // namespace ropewalk
