// Arithmetic on unevaluated sums of two doubles, about 104 bits, for the few hundred operations
// that compute frequencies from a spec. Error-free transformations: Dekker 1971, Knuth TAOCP 2,
// 4.2.2. Relies on round-to-nearest and on contraction being off (cmake/RopewalkTargets.cmake).
#pragma once

#include <cmath>
#include <cstdint>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk::internal {

inline constexpr DoubleDouble kPi = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53};
inline constexpr DoubleDouble kTwoPi = {0x1.921fb54442d18p+2, 0x1.1a62633145c07p-52};
inline constexpr DoubleDouble kLn2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

// |a| >= |b| or a == 0.
inline DoubleDouble FastTwoSum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}

inline DoubleDouble TwoSum(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}

inline DoubleDouble TwoProduct(double a, double b) {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}

inline DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }

inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  DoubleDouble s = TwoSum(a.hi, b.hi);
  const DoubleDouble t = TwoSum(a.lo, b.lo);
  s = FastTwoSum(s.hi, s.lo + t.hi);
  return FastTwoSum(s.hi, s.lo + t.lo);
}
inline DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }

inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const DoubleDouble p = TwoProduct(a.hi, b.hi);
  return FastTwoSum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  const double q1 = a.hi / b.hi;
  DoubleDouble r = a - b * DoubleDouble{q1, 0};
  const double q2 = r.hi / b.hi;
  r = r - b * DoubleDouble{q2, 0};
  const double q3 = r.hi / b.hi;
  return FastTwoSum(q1, q2) + DoubleDouble{q3, 0};
}

inline DoubleDouble operator+(DoubleDouble a, double b) { return a + DoubleDouble{b, 0}; }
inline DoubleDouble operator+(double a, DoubleDouble b) { return DoubleDouble{a, 0} + b; }
inline DoubleDouble operator-(DoubleDouble a, double b) { return a - DoubleDouble{b, 0}; }
inline DoubleDouble operator-(double a, DoubleDouble b) { return DoubleDouble{a, 0} - b; }
inline DoubleDouble operator*(DoubleDouble a, double b) { return a * DoubleDouble{b, 0}; }
inline DoubleDouble operator*(double a, DoubleDouble b) { return DoubleDouble{a, 0} * b; }
inline DoubleDouble operator/(DoubleDouble a, double b) { return a / DoubleDouble{b, 0}; }
inline DoubleDouble operator/(double a, DoubleDouble b) { return DoubleDouble{a, 0} / b; }

inline bool operator<(DoubleDouble a, DoubleDouble b) {
  return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
}
inline bool operator>(DoubleDouble a, DoubleDouble b) { return b < a; }
inline bool operator<=(DoubleDouble a, DoubleDouble b) { return !(b < a); }
inline bool operator>=(DoubleDouble a, DoubleDouble b) { return !(a < b); }

inline DoubleDouble Ldexp(DoubleDouble a, int e) {
  return {std::ldexp(a.hi, e), std::ldexp(a.lo, e)};
}

inline DoubleDouble Floor(DoubleDouble a) {
  const double hi = std::floor(a.hi);
  return hi == a.hi ? FastTwoSum(hi, std::floor(a.lo)) : DoubleDouble{hi, 0};
}
inline DoubleDouble Ceil(DoubleDouble a) { return -Floor(-a); }

inline DoubleDouble Clamp01(DoubleDouble a) {
  if (a.hi <= 0) return {0, 0};
  return a >= DoubleDouble{1, 0} ? DoubleDouble{1, 0} : a;
}

// e^x for |x| <= 0.75: the Taylor series, whose 29th term is below 2^-114.
inline DoubleDouble ExpSmall(DoubleDouble x) {
  DoubleDouble term = x;
  DoubleDouble tail = {0, 0};  // sum of the terms from x^2 / 2 on
  for (int n = 2; n <= 28; ++n) {
    term = term * x / static_cast<double>(n);
    tail = tail + term;
  }
  return 1.0 + (x + tail);
}

// ln x for a normal x in [0.5, 2]: one Newton step from the double result, whose error 2^-53
// squares.
inline DoubleDouble LogNearOne(DoubleDouble x) {
  const double y = std::log(x.hi);
  return y + (x * ExpSmall({-y, 0}) - 1.0);
}

// x = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)).
inline DoubleDouble SplitExponent(DoubleDouble x, int64_t* exponent) {
  int e = 0;
  const double m = std::frexp(x.hi, &e);  // [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) --e;
  *exponent = e;
  return Ldexp(x, -e);
}

// ln x for x > 0.
inline DoubleDouble Log(DoubleDouble x) {
  int64_t e = 0;
  const DoubleDouble m = SplitExponent(x, &e);
  return LogNearOne(m) + kLn2 * static_cast<double>(e);
}

// e^x for |x| below 700.
inline DoubleDouble Exp(DoubleDouble x) {
  const double n = std::round(x.hi / kLn2.hi);
  return Ldexp(ExpSmall(x - kLn2 * n), static_cast<int>(n));
}

// x^(p/q) for x > 0 and |p| <= q, q > 0. The power of two in x is taken out with integers, so that
// the exponential's argument is at most 0.7 for any x and the result is right to over 100 bits;
// exp(p/q ln x) would lose a bit for every doubling of the logarithm.
inline DoubleDouble RationalPower(DoubleDouble x, int64_t p, int64_t q) {
  int64_t e = 0;
  const DoubleDouble m = SplitExponent(x, &e);
  const int64_t scaled = e * p;
  int64_t whole = scaled / q;
  int64_t rest = scaled % q;  // x^(p/q) = m^(p/q) 2^(rest/q) 2^whole
  if (2 * rest > q) ++whole, rest -= q;
  if (2 * rest < -q) --whole, rest += q;
  const DoubleDouble argument =
      (LogNearOne(m) * static_cast<double>(p) + kLn2 * static_cast<double>(rest)) /
      static_cast<double>(q);
  return Ldexp(ExpSmall(argument), static_cast<int>(whole));
}

}  // namespace ropewalk::internal
