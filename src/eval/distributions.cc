// Distribution functions and their inverses.
#include <algorithm>
#include <cmath>

#include "src/eval/statistics.h"

namespace ropewalk::internal {
namespace {

double LogChoose(int64_t n, int64_t k) {
  const auto lg = [](int64_t x) { return std::lgamma(static_cast<double>(x) + 1); };
  return lg(n) - lg(k) - lg(n - k);
}

// The continued fraction of I_x(a, b), by Lentz's method; converges fast for x < (a+1)/(a+b+2).
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr int kTerms = 10'000;
  const auto not_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / not_zero(1 - (a + b) * x / (a + 1)), value = d;
  for (int i = 1; i < kTerms; ++i) {
    const double even = i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i));
    const double odd = -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1));
    double step = 1;
    for (const double term : {even, odd}) {
      d = 1 / not_zero(1 + term * d);
      c = not_zero(1 + term / c);
      step = d * c;
      value *= step;
    }
    if (std::abs(step - 1) < 1e-15) break;
  }
  return value;
}

double NormalCdf(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

// P(|T| > critical) of the noncentral t: Z + shift against critical * r, integrated by midpoints
// over r = s / sigma, whose square times dof is chi-squared. r lies within 12 of its standard
// deviations of 1.
double NoncentralPower(double shift, double critical, double dof) {
  constexpr int kSteps = 2000;
  const double reach = 12 / std::sqrt(2 * dof);
  const double begin = std::max(0.0, 1 - reach), step = (1 + reach - begin) / kSteps;
  const double log_norm = std::log(2.0) + dof / 2 * std::log(dof / 2) - std::lgamma(dof / 2);
  double power = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double r = begin + (i + 0.5) * step;
    const double density = std::exp(log_norm + (dof - 1) * std::log(r) - dof * r * r / 2);
    power += density * step * (NormalCdf(shift - critical * r) + NormalCdf(-shift - critical * r));
  }
  return power;
}

// The x with cdf(x) = p, p in (0, 1): brackets, then halves.
template <typename Cdf>
double Inverse(double p, Cdf cdf) {
  double low = -1, high = 1;
  while (cdf(low) > p) low *= 2;
  while (cdf(high) < p) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (cdf(middle) < p ? low : high) = middle;
  }
  return high;
}

}  // namespace

double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1 - front * BetaFraction(b, a, 1 - x) / b;
}

double StudentTwoSided(double t, double dof) {
  if (std::isinf(t)) return 0;
  const double square = t * t;
  // Each form where its argument keeps its digits.
  return square < dof ? 1 - IncompleteBeta(0.5, dof / 2, square / (dof + square))
                      : IncompleteBeta(dof / 2, 0.5, dof / (dof + square));
}

double StudentCdf(double t, double dof) {
  const double tail = StudentTwoSided(t, dof) / 2;
  return t < 0 ? tail : 1 - tail;
}

double StudentQuantile(double p, double dof) {
  if (!(dof > 0) || !(p > 0 && p < 1)) return p < 0.5 ? -kInfinity : kInfinity;
  if (p > 0.5) return -StudentQuantile(1 - p, dof);
  return Inverse(p, [dof](double t) { return StudentCdf(t, dof); });
}

double NormalQuantile(double p) {
  if (!(p > 0 && p < 1)) return p < 0.5 ? -kInfinity : kInfinity;
  return Inverse(p, NormalCdf);
}

double DetectableShift(double dof, double alpha, double power) {
  const double critical = StudentQuantile(1 - alpha / 2, dof);
  return Inverse(power, [=](double shift) {
    return shift <= 0 ? alpha : NoncentralPower(shift, critical, dof);
  });
}

double BinomialAtMost(int64_t k, int64_t n, double p) {
  if (k >= n || p <= 0) return 1;
  if (p >= 1) return 0;
  double sum = 0;
  for (int64_t i = 0; i <= k; ++i) {
    sum += std::exp(LogChoose(n, i) + i * std::log(p) + (n - i) * std::log1p(-p));
  }
  return std::min(sum, 1.0);
}

double SignTest(int64_t wins, int64_t losses) {
  return std::min(1.0, 2 * BinomialAtMost(std::min(wins, losses), wins + losses, 0.5));
}

}  // namespace ropewalk::internal
