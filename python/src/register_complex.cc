// ropewalk/absolute: complex-order embeddings and the complex layers after them. A complex array is
// its real and its imaginary part, float32 without gaps; gradients are float64.
#include <nanobind/stl/string.h>

#include <utility>
#include <vector>

#include "python/src/absolute.h"
#include "python/src/arrays.h"
#include "python/src/register.h"
#include "ropewalk/absolute/complex_order.h"

namespace ropewalk::python {
namespace {

constexpr std::array kSharing = {"none", "words", "dims"};

struct ComplexOrderCall {
  Array amplitude, frequency, phase, words, positions;
  ComplexOrderSpec spec;
  ComplexOrderTables tables;

  ComplexOrderCall(nb::handle a, nb::handle f, nb::handle p, const std::string& frequency_sharing,
                   const std::string& phase_sharing, nb::handle w, nb::handle n)
      : amplitude(a, "amplitude"),
        frequency(f, "frequency"),
        phase(p, "phase"),
        words(w, "words"),
        positions(n, "positions") {
    amplitude.CheckShape({-1, -1});
    spec = {amplitude.size(0), amplitude.size(1),
            Choice<ComplexSharing>("frequency_shared", frequency_sharing, kSharing),
            Choice<ComplexSharing>("phase_shared", phase_sharing, kSharing)};
    tables = {amplitude.List<const float>(), frequency.List<const float>(),
              phase.List<const float>()};
  }
};

void BindComplexOrder(nb::module_& m) {
  m.def("complex_order", [](nb::handle a, nb::handle f, nb::handle p, const std::string& f_sharing,
                            const std::string& p_sharing, nb::handle w, nb::handle n) {
    const ComplexOrderCall c(a, f, p, f_sharing, p_sharing, w, n);
    const auto words = c.words.List<const int64_t>(), positions = c.positions.List<const int64_t>();
    const std::vector<std::size_t> shape = {words.size(), Size(c.spec.dim)};
    std::vector<float> im(shape[0] * shape[1]);
    Floats re = Filled(shape, [&](std::span<float> out) {
      ComplexOrder(c.spec, c.tables, words, positions, {out, im});
    });
    return nb::make_tuple(re, Owned(std::move(im), shape));
  });
  m.def("complex_order_backward", [](nb::handle a, nb::handle f, nb::handle p,
                                     const std::string& f_sharing, const std::string& p_sharing,
                                     nb::handle w, nb::handle n, nb::handle d_re, nb::handle d_im) {
    const ComplexOrderCall c(a, f, p, f_sharing, p_sharing, w, n);
    const auto words = c.words.List<const int64_t>(), positions = c.positions.List<const int64_t>();
    const Array re(d_re, "d_out"), im(d_im, "d_out");
    std::vector<double> amplitude(c.tables.amplitude.size()), frequency(c.tables.frequency.size()),
        phase(c.tables.phase.size());
    const ComplexSpan<const float> d_out{re.List<const float>(), im.List<const float>()};
    {
      nb::gil_scoped_release release;
      ComplexOrderBackward(c.spec, c.tables, words, positions, d_out,
                           {amplitude, frequency, phase});
    }
    return nb::make_tuple(Owned(std::move(amplitude)), Owned(std::move(frequency)),
                          Owned(std::move(phase)));
  });
}

// A complex array as it is given.
struct ComplexArray {
  Array re, im;
  ComplexArray(nb::handle re_given, nb::handle im_given, const char* name)
      : re(re_given, name), im(im_given, name) {}
  ComplexSpan<const float> Span() const { return {re.List<const float>(), im.List<const float>()}; }
};

// The parts of a gradient of n elements.
struct ComplexGradient {
  std::vector<double> re, im;
  explicit ComplexGradient(std::size_t n) : re(n), im(n) {}
  ComplexSpan<double> Span() { return {re, im}; }
};

nb::tuple Both(ComplexGradient& g) {
  return nb::make_tuple(Owned(std::move(g.re)), Owned(std::move(g.im)));
}

struct ComplexLinearCall {
  ComplexArray x, weight, bias;
  int64_t in, out;

  // x [rows, in], weight [out, in], bias [out] or empty.
  ComplexLinearCall(nb::handle x_re, nb::handle x_im, nb::handle w_re, nb::handle w_im,
                    nb::handle b_re, nb::handle b_im)
      : x(x_re, x_im, "x"), weight(w_re, w_im, "weight"), bias(b_re, b_im, "bias") {
    weight.re.CheckShape({-1, -1});
    in = weight.re.size(1);
    out = weight.re.size(0);
    x.re.CheckShape({-1, in});
  }
};

void BindComplexLinear(nb::module_& m) {
  m.def("complex_linear", [](nb::handle x_re, nb::handle x_im, nb::handle w_re, nb::handle w_im,
                             nb::handle b_re, nb::handle b_im) {
    const ComplexLinearCall c(x_re, x_im, w_re, w_im, b_re, b_im);
    const std::vector<std::size_t> shape = {Size(c.x.re.size(0)), Size(c.out)};
    std::vector<float> im(shape[0] * shape[1]);
    const ComplexSpan<const float> x = c.x.Span(), w = c.weight.Span(), b = c.bias.Span();
    Floats re = Filled(shape, [&](std::span<float> out) {
      ComplexLinear(c.in, c.out, x, w, b, {out, im});
    });
    return nb::make_tuple(re, Owned(std::move(im), shape));
  });
  m.def("complex_linear_backward",
        [](nb::handle x_re, nb::handle x_im, nb::handle w_re, nb::handle w_im, nb::handle b_re,
           nb::handle b_im, nb::handle d_re, nb::handle d_im) {
          const ComplexLinearCall c(x_re, x_im, w_re, w_im, b_re, b_im);
          const ComplexArray dy(d_re, d_im, "d_out");
          const ComplexSpan<const float> x = c.x.Span(), w = c.weight.Span(), b = c.bias.Span(),
                                         d = dy.Span();
          ComplexGradient d_weight(w.re.size()), d_bias(b.re.size());
          const std::vector<std::size_t> shape = {Size(c.x.re.size(0)), Size(c.in)};
          std::vector<float> im(shape[0] * shape[1]);
          Floats re = Filled(shape, [&](std::span<float> out) {
            ComplexLinearBackward(c.in, c.out, x, w, d, {out, im}, d_weight.Span(), d_bias.Span());
          });
          return nb::make_tuple(re, Owned(std::move(im), shape), Both(d_weight), Both(d_bias));
        });
}

struct ComplexAttentionCall {
  ComplexArray q, k, v;
  ComplexAttentionSpec spec;

  ComplexAttentionCall(const nb::tuple& parts, bool causal, bool hermitian)
      : q(nb::handle(parts[0]), nb::handle(parts[1]), "q"),
        k(nb::handle(parts[2]), nb::handle(parts[3]), "k"),
        v(nb::handle(parts[4]), nb::handle(parts[5]), "v") {
    q.re.CheckShape({-1, -1, -1});
    k.re.CheckShape({-1, q.re.size(1), q.re.size(2)});
    spec = {q.re.size(0), k.re.size(0), q.re.size(1), q.re.size(2), causal, hermitian};
  }
};

void BindComplexAttention(nb::module_& m) {
  m.def("complex_attention", [](const nb::tuple& parts, bool causal, bool hermitian) {
    const ComplexAttentionCall c(parts, causal, hermitian);
    const std::vector<std::size_t> shape = {Size(c.spec.queries), Size(c.spec.heads),
                                            Size(c.spec.head_dim)};
    const ComplexSpan<const float> q = c.q.Span(), k = c.k.Span(), v = c.v.Span();
    std::vector<float> im(q.re.size());
    Floats re = Filled(shape, [&](std::span<float> out) {
      ComplexAttention(c.spec, q, k, v, {out, im});
    });
    return nb::make_tuple(re, Owned(std::move(im), shape));
  });
  m.def("complex_attention_backward", [](const nb::tuple& parts, bool causal, bool hermitian,
                                         nb::handle d_re, nb::handle d_im) {
    const ComplexAttentionCall c(parts, causal, hermitian);
    const ComplexArray d_out(d_re, d_im, "d_out");
    const ComplexSpan<const float> q = c.q.Span(), k = c.k.Span(), v = c.v.Span(), d = d_out.Span();
    ComplexGradient dq(q.re.size()), dk(k.re.size()), dv(v.re.size());
    {
      nb::gil_scoped_release release;
      ComplexAttentionBackward(c.spec, q, k, v, d, dq.Span(), dk.Span(), dv.Span());
    }
    return nb::make_tuple(Both(dq), Both(dk), Both(dv));
  });
}

}  // namespace

void RegisterComplex(nb::module_& m) {
  BindComplexOrder(m);
  BindComplexLinear(m);
  BindComplexAttention(m);
}

}  // namespace ropewalk::python
