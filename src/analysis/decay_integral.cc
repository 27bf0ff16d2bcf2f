// The expected score of plain RoPE as the number of pairs grows without bound, and how far a number
// of pairs is from it.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <string>

#include "ropewalk/analysis/analysis.h"
#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

using Complex = std::complex<double>;

Complex Unit(double angle) { return {std::cos(angle), std::sin(angle)}; }

// gamma + ln x + sum_k (-1)^k x^2k / (2k (2k)!), for small x.
double CosineIntegralSeries(double x) {
  double sum = 0, power = 1;  // power: (-1)^k x^2k / (2k)!
  for (int k = 1; k < 40; ++k) {
    power *= -x * x / ((2.0 * k - 1) * (2.0 * k));
    sum += power / (2.0 * k);
  }
  return std::numbers::egamma + std::log(x) + sum;
}

// Ci(x) = Re -E1(ix), x > 0: the series below 2, then the continued fraction of E1 by Lentz's
// method. `unit` is e^(ix), since the caller may know the angle better than x.
double CosineIntegral(double x, Complex unit) {
  if (x < 2) return CosineIntegralSeries(x);
  Complex b{1, x}, c = 1e300, d = 1.0 / b, h = d;
  for (int i = 1; i < 1000; ++i) {
    const double a = -static_cast<double>(i) * i;
    b += 2;
    d = 1.0 / (a * d + b);
    c = b + a / c;
    const Complex factor = c * d;
    h *= factor;
    if (std::abs(factor - 1.0) < 1e-16) break;
  }
  return -(h * std::conj(unit)).real();
}

// The integral where the angle changes by less than a few radians between t = 0 and 1: Gauss and
// Legendre's rule with 8 points on each of 8 parts. cos(m base^-t) = Re e^(im) e^(-ip),
// p = m (1 - base^-t), so that nothing cancels for bases next to 1.
double ByQuadrature(double m, double log_base) {
  constexpr double kNodes[] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                               0.9602898564975363};
  constexpr double kWeights[] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                 0.1012285362903763};
  constexpr int kParts = 8;
  Complex sum = 0;
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < 4; ++i) {
      for (const double node : {-kNodes[i], kNodes[i]}) {
        const double t = (part + 0.5 + 0.5 * node) / kParts;
        sum += kWeights[i] * Unit(m * std::expm1(-t * log_base));
      }
    }
  }
  return (Unit(m) * sum).real() / (2 * kParts);
}

}  // namespace

double DecayIntegral(double base, int64_t distance) {
  if (!(base >= 1 && std::isfinite(base))) {
    throw Error(ErrorCode::kInvalidArgument,
                "analysis: base must be a number of at least 1, got " + std::to_string(base));
  }
  const double m = std::abs(static_cast<double>(distance));
  if (m == 0) return 1;
  const double log_base = std::log(base);
  const double turned = -m * std::expm1(-log_base);  // m - m / base
  if (log_base <= 1 && turned < 8) return ByQuadrature(m, log_base);
  // For small bases the angle m / base is m less what it turned, which is known better.
  const double near = m / base;
  const Complex unit = Unit(m);
  const Complex near_unit = log_base <= 1 ? unit * std::conj(Unit(turned)) : Unit(near);
  return (CosineIntegral(m, unit) - CosineIntegral(near, near_unit)) / log_base;
}

Smoothness SmoothnessOf(double base, int64_t rotary_dim, int64_t longest) {
  if (longest < 1 || longest > 65536) {
    throw Error(ErrorCode::kInvalidArgument,
                "analysis: longest must be 1 to 65536 tokens, got " + std::to_string(longest));
  }
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = rotary_dim;
  spec.base = base;
  const Frequencies f = Resolve(spec, 1);
  const auto pairs = static_cast<double>(f.inv_freq.size());
  const auto at = [&](int64_t m) { return CosineSum(f, m) / pairs; };
  Smoothness out;
  out.rotary_dim = rotary_dim;
  double before = at(0), now = at(1);
  for (int64_t m = 1; m <= longest; ++m) {
    const double after = at(m + 1);
    const double bend = before - 2 * now + after;
    const double off = now - DecayIntegral(base, m);
    out.roughness += bend * bend;
    out.deviation += off * off;
    out.largest_deviation = std::max(out.largest_deviation, std::abs(off));
    before = now;
    now = after;
  }
  out.roughness = std::sqrt(out.roughness / static_cast<double>(longest));
  out.deviation = std::sqrt(out.deviation / static_cast<double>(longest));
  return out;
}

}  // namespace ropewalk
