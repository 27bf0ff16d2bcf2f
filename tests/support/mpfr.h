// A number of 320 bits, for expected values; the few operations that tests need.
#pragma once

#include <mpfr.h>

#include <cstdint>

namespace ropewalk {

class Exact {
 public:
  Exact() { mpfr_init2(x_, 320); }
  Exact(double v) : Exact() { mpfr_set_d(x_, v, MPFR_RNDN); }  // NOLINT: reads as arithmetic
  Exact(const Exact& o) : Exact() { mpfr_set(x_, o.x_, MPFR_RNDN); }
  Exact& operator=(const Exact& o) {
    mpfr_set(x_, o.x_, MPFR_RNDN);
    return *this;
  }
  ~Exact() { mpfr_clear(x_); }

  static Exact Pi() {
    Exact r;
    mpfr_const_pi(r.x_, MPFR_RNDN);
    return r;
  }
  friend Exact operator+(const Exact& a, const Exact& b) { return Do(mpfr_add, a, b); }
  friend Exact operator-(const Exact& a, const Exact& b) { return Do(mpfr_sub, a, b); }
  friend Exact operator*(const Exact& a, const Exact& b) { return Do(mpfr_mul, a, b); }
  friend Exact operator/(const Exact& a, const Exact& b) { return Do(mpfr_div, a, b); }
  friend bool operator<(const Exact& a, const Exact& b) { return mpfr_cmp(a.x_, b.x_) < 0; }
  friend Exact Pow(const Exact& a, const Exact& b) { return Do(mpfr_pow, a, b); }
  friend Exact Log(const Exact& a) { return Do(mpfr_log, a); }
  friend Exact Exp(const Exact& a) { return Do(mpfr_exp, a); }
  friend Exact Cos(const Exact& a) { return Do(mpfr_cos, a); }
  friend Exact Sin(const Exact& a) { return Do(mpfr_sin, a); }
  friend Exact Abs(const Exact& a) { return Do(mpfr_abs, a); }
  friend Exact Floor(const Exact& a) {
    Exact r;
    mpfr_floor(r.x_, a.x_);
    return r;
  }
  double ToDouble() const { return mpfr_get_d(x_, MPFR_RNDN); }
  float ToFloat() const { return mpfr_get_flt(x_, MPFR_RNDN); }

 private:
  template <class F>
  static Exact Do(F f, const Exact& a, const Exact& b) {
    Exact r;
    f(r.x_, a.x_, b.x_, MPFR_RNDN);
    return r;
  }
  template <class F>
  static Exact Do(F f, const Exact& a) {
    Exact r;
    f(r.x_, a.x_, MPFR_RNDN);
    return r;
  }
  mpfr_t x_;
};

}  // namespace ropewalk
