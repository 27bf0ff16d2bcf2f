// What ropewalk/eval/statistics.h and the recommendation are made of.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "ropewalk/eval/statistics.h"

namespace ropewalk::internal {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Moments {
  int64_t n = 0;
  double mean = 0;
  double standard_error = 0;  // NaN for n < 2
  // The same, taking a standard deviation below kLossRounding for that: never 0.
  double rounded_error = 0;
  double T() const { return mean / rounded_error; }
};
Moments MomentsOf(std::span<const double> values);

// A mean over elements that come in clusters (tokens of windows, questions of prompts), with the
// standard error of clusters that are independent and of any size:
// sqrt(n / (n - 1) * sum (sum_c - mean * count_c)^2) / sum count_c; NaN for one cluster.
struct ClusteredMean {
  double mean = 0;
  double standard_error = 0;
};
ClusteredMean MeanOfClusters(std::span<const double> sums, std::span<const double> counts);
// TestPaired of the mean in which each difference weighs as given, with the standard error above. Of
// equal weights it is TestPaired, bit by bit.
PairedTest TestWeighted(std::span<const double> differences, std::span<const double> weights);

// Whether a score reaches a threshold that is a product: equality in exact arithmetic counts, which
// rounding may miss (17/29 against 0.85 * 20/29).
inline bool ReachesScore(double score, double threshold) {
  return score >= threshold * (1 - 1e-12);
}

// P(T <= t) and its inverse, of Student's t with `dof` > 0 degrees of freedom.
double StudentCdf(double t, double dof);
double StudentQuantile(double p, double dof);
// P(|T| >= |t|), exact in the tails too.
double StudentTwoSided(double t, double dof);
// The noncentrality (mean / its true standard error) at which a two-sided t test has this power.
double DetectableShift(double dof, double alpha, double power);
// I_x(a, b) (Abramowitz and Stegun 26.5.8).
double IncompleteBeta(double a, double b, double x);
double NormalQuantile(double p);

// P(X <= k) for k successes in n trials of probability p.
double BinomialAtMost(int64_t k, int64_t n, double p);
// Exact two-sided sign test of pairs of which `wins` are decided one way and `losses` the other: the
// probability of a split at least as uneven of as many fair coins. Of pairs of right and wrong
// answers it is McNemar's exact test (1947). 1 without a decided pair.
double SignTest(int64_t wins, int64_t losses);

}  // namespace ropewalk::internal
