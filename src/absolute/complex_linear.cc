#include <string>

#include "src/absolute/complex_check.h"

namespace ropewalk {
namespace {

using ConstComplex = ComplexSpan<const float>;

struct Complex {
  double re, im;
};
Complex At(const ConstComplex& z, int64_t i) {
  return {static_cast<double>(z.re.data()[i]), static_cast<double>(z.im.data()[i])};
}

int64_t Check(int64_t in, int64_t out, const ConstComplex& x, const ConstComplex& weight) {
  internal::CheckSize("ComplexLinear: in", in);
  internal::CheckSize("ComplexLinear: out", out);
  const int64_t rows = static_cast<int64_t>(x.re.size()) / in;
  internal::CheckComplex("ComplexLinear: x of [rows, in]", x, {rows, in});
  internal::CheckComplex("ComplexLinear: weight", weight, {out, in});
  return rows;
}

}  // namespace

void ComplexLinear(int64_t in, int64_t out, const ConstComplex& x, const ConstComplex& weight,
                   const ConstComplex& bias, const ComplexSpan<float>& y) {
  const int64_t rows = Check(in, out, x, weight);
  internal::CheckComplex("ComplexLinear: y", y, {rows, out});
  if (!internal::Empty(bias)) internal::CheckComplex("ComplexLinear: bias", bias, {out});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      Complex sum = internal::Empty(bias) ? Complex{0, 0} : At(bias, o);
      for (int64_t i = 0; i < in; ++i) {
        const Complex a = At(x, r * in + i), w = At(weight, o * in + i);
        sum.re += a.re * w.re - a.im * w.im;
        sum.im += a.re * w.im + a.im * w.re;
      }
      y.re.data()[r * out + o] = static_cast<float>(sum.re);
      y.im.data()[r * out + o] = static_cast<float>(sum.im);
    }
  }
}

// With gradients as pairs of partial derivatives, those of a product are products with the
// conjugate.
void ComplexLinearBackward(int64_t in, int64_t out, const ConstComplex& x,
                           const ConstComplex& weight, const ConstComplex& dy,
                           const ComplexSpan<float>& dx, const ComplexSpan<double>& d_weight,
                           const ComplexSpan<double>& d_bias) {
  const int64_t rows = Check(in, out, x, weight);
  internal::CheckComplex("ComplexLinearBackward: dy", dy, {rows, out});
  internal::CheckComplex("ComplexLinearBackward: dx", dx, {rows, in});
  internal::CheckComplex("ComplexLinearBackward: d_weight", d_weight, {out, in});
  if (!internal::Empty(d_bias)) {
    internal::CheckComplex("ComplexLinearBackward: d_bias", d_bias, {out});
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < in; ++i) {
      const Complex a = At(x, r * in + i);
      Complex sum = {0, 0};
      for (int64_t o = 0; o < out; ++o) {
        const Complex g = At(dy, r * out + o), w = At(weight, o * in + i);
        sum.re += g.re * w.re + g.im * w.im;
        sum.im += g.im * w.re - g.re * w.im;
        d_weight.re.data()[o * in + i] += g.re * a.re + g.im * a.im;
        d_weight.im.data()[o * in + i] += g.im * a.re - g.re * a.im;
      }
      dx.re.data()[r * in + i] = static_cast<float>(sum.re);
      dx.im.data()[r * in + i] = static_cast<float>(sum.im);
    }
    for (int64_t o = 0; !internal::Empty(d_bias) && o < out; ++o) {
      d_bias.re.data()[o] += static_cast<double>(dy.re.data()[r * out + o]);
      d_bias.im.data()[o] += static_cast<double>(dy.im.data()[r * out + o]);
    }
  }
}

}  // namespace ropewalk
