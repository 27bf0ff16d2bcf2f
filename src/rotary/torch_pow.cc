#include "src/rotary/torch_pow.h"

#include <cmath>

namespace ropewalk::internal {
namespace {

// x^y = e^(y ln x) in pairs of floats (48 bits), after N. Shibata and F. Petrogalli, "SLEEF: A
// Portable Vectorized Library of C Standard Mathematical Functions", IEEE TPDS 2019, pow with error
// bound 1.0 ULP and fused multiply-add. The constants and the order of the operations decide the
// last bit; changing either breaks the goldens.
struct FloatPair {
  float hi, lo;
};

FloatPair Add(float x, float y) {
  const float s = x + y;
  const float v = s - x;
  return {s, (x - (s - v)) + (y - v)};
}
FloatPair Add(FloatPair x, float y) {
  const FloatPair s = Add(x.hi, y);
  return {s.hi, s.lo + x.lo};
}
FloatPair Add(FloatPair x, FloatPair y) {
  const FloatPair s = Add(x.hi, y.hi);
  return {s.hi, s.lo + (x.lo + y.lo)};
}
// |x| >= |y|.
FloatPair AddOrdered(FloatPair x, FloatPair y) {
  const float s = x.hi + y.hi;
  return {s, (((x.hi - s) + y.hi) + x.lo) + y.lo};
}
FloatPair AddOrdered(float x, FloatPair y) {
  const float s = x + y.hi;
  return {s, ((x - s) + y.hi) + y.lo};
}
FloatPair Normalize(FloatPair x) {
  const float s = x.hi + x.lo;
  return {s, (x.hi - s) + x.lo};
}
FloatPair Multiply(FloatPair x, float y) {
  const float p = x.hi * y;
  return {p, std::fma(x.lo, y, std::fma(x.hi, y, -p))};
}
FloatPair Multiply(FloatPair x, FloatPair y) {
  const float p = x.hi * y.hi;
  return {p, std::fma(x.hi, y.lo, std::fma(x.lo, y.hi, std::fma(x.hi, y.hi, -p)))};
}
FloatPair Square(FloatPair x) {
  const float p = x.hi * x.hi;
  return {p, std::fma(x.hi + x.hi, x.lo, std::fma(x.hi, x.hi, -p))};
}
FloatPair Divide(FloatPair n, FloatPair d) {
  const float t = 1.0f / d.hi;
  const float q = n.hi * t;
  const float u = std::fma(t, n.hi, -q);
  const float v = std::fma(-d.lo, t, std::fma(-d.hi, t, 1.0f));
  return {q, std::fma(q, v, std::fma(n.lo, t, u))};
}

// ln of d > 0: with d = m 2^e, m in [0.75, 1.5), a polynomial in x = (m - 1) / (m + 1).
FloatPair Log(float d) {
  const int e = std::ilogb(d * (1.0f / 0.75f));
  const float m = std::ldexp(d, -e);
  const FloatPair x = Divide(Add(-1.0f, m), Add(1.0f, m));
  const FloatPair x2 = Square(x);
  float t = 0.240320354700088500976562f;
  t = std::fma(t, x2.hi, 0.285112679004669189453125f);
  t = std::fma(t, x2.hi, 0.400007992982864379882812f);
  const FloatPair third = {0.66666662693023681640625f, 3.69183861259614332084311e-09f};
  FloatPair s =
      Multiply({0.69314718246459960938f, -1.904654323148236017e-09f}, static_cast<float>(e));
  s = AddOrdered(s, {2 * x.hi, 2 * x.lo});
  return AddOrdered(s, Multiply(Multiply(x2, x), Add(Multiply(x2, t), third)));
}

float Exp(FloatPair d) {
  const float q = std::nearbyint((d.hi + d.lo) * 1.442695040888963407359924681001892137426645954f);
  FloatPair s = Add(d, q * -0.693145751953125f);
  s = Add(s, q * -1.428606765330187045e-06f);
  s = Normalize(s);
  float u = 0.00136324646882712841033936f;
  u = std::fma(u, s.hi, 0.00836596917361021041870117f);
  u = std::fma(u, s.hi, 0.0416710823774337768554688f);
  u = std::fma(u, s.hi, 0.166665524244308471679688f);
  u = std::fma(u, s.hi, 0.499999850988388061523438f);
  FloatPair t = AddOrdered(s, Multiply(Square(s), u));
  t = AddOrdered(1.0f, t);
  return std::ldexp(t.hi + t.lo, static_cast<int>(q));
}

}  // namespace

float VectorPow(float x, float y) {
  if (!(x > 0 && std::isfinite(x * (1.0f / 0.75f)))) return std::pow(x, y);  // Log has no exponent
  return Exp(Multiply(Log(x), y));
}

std::vector<float> TorchPowers(float base, int64_t pairs) {
  return TorchPowers(base, pairs, 2 * pairs);
}

std::vector<float> TorchPowers(float base, int64_t count, int64_t dim) {
  constexpr int64_t kAtOnce = 32;
  const int64_t vectorized = count / kAtOnce * kAtOnce;
  std::vector<float> powers(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    powers[static_cast<std::size_t>(i)] =
        i < vectorized ? VectorPow(base, exponent) : std::pow(base, exponent);
  }
  return powers;
}

}  // namespace ropewalk::internal
