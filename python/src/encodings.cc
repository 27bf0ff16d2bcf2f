// PoPE and FoPE: encodings of queries and keys that are neither a rotation nor a bias.
#include <nanobind/stl/string.h>

#include <utility>

#include "python/src/arrays.h"
#include "python/src/forms.h"
#include "ropewalk/relative/fope.h"
#include "ropewalk/relative/pope.h"

namespace ropewalk::python {
namespace {

std::vector<float> Copied(const Array& array) {
  const std::span<const float> list = array.List<const float>();
  return {list.begin(), list.end()};
}

PopeEncoding PopeOf(int64_t heads, int64_t head_dim, double base, nb::handle phase) {
  return {heads, head_dim, base, Copied(Array(phase, "phase"))};
}

FopeEncoding FopeOf(int64_t heads, int64_t head_dim, double base, int64_t trained_length,
                    int64_t frequencies, int64_t table_heads, nb::handle cosines,
                    nb::handle sines) {
  return {heads,
          head_dim,
          base,
          trained_length,
          frequencies,
          table_heads,
          Copied(Array(cosines, "cosines")),
          Copied(Array(sines, "sines"))};
}

// x [tokens, heads, head_dim] and its positions, checked to fit.
struct Input {
  Array x, positions;
  std::span<const float> values;
  std::span<const int64_t> list;

  Input(nb::handle x_given, nb::handle p_given, int64_t heads, int64_t head_dim)
      : x(x_given, "x"),
        positions(p_given, "positions"),
        values(x.List<const float>()),
        list(positions.List<const int64_t>()) {
    x.CheckShape({static_cast<int64_t>(list.size()), heads, head_dim});
  }
};

template <class Encoding>
nb::ndarray<nb::numpy, float> Encode(const Encoding& encoding, nb::handle x, nb::handle positions,
                                     int64_t width) {
  const Input in(x, positions, encoding.heads, encoding.head_dim);
  std::vector<float> out;
  {
    nb::gil_scoped_release release;
    out = encoding.Encode(in.values, in.list);
  }
  return Owned(std::move(out), {in.list.size(), static_cast<std::size_t>(encoding.heads),
                                static_cast<std::size_t>(width)});
}

}  // namespace

void BindEncodings(nb::module_& m) {
  m.def("pope", [](int64_t heads, int64_t head_dim, double base, nb::handle phase, nb::handle x,
                   nb::handle positions) {
    return Encode(PopeOf(heads, head_dim, base, phase), x, positions, 2 * head_dim);
  });
  m.def("pope_backward", [](int64_t heads, int64_t head_dim, double base, nb::handle phase,
                            nb::handle x, nb::handle positions, nb::handle d_out) {
    const PopeEncoding encoding = PopeOf(heads, head_dim, base, phase);
    const Input in(x, positions, heads, head_dim);
    const Array d(d_out, "d_out");
    d.CheckShape({static_cast<int64_t>(in.list.size()), heads, 2 * head_dim});
    const auto values = d.List<const float>();
    PopeEncoding::Gradient g;
    {
      nb::gil_scoped_release release;
      g = encoding.Backward(in.values, in.list, values);
    }
    return nb::make_tuple(Owned(std::move(g.x)), Owned(std::move(g.phase)));
  });
  m.def("fope_kept",
        [](int64_t head_dim, double base, int64_t trained_length, int64_t frequencies) {
          FopeEncoding encoding;
          encoding.heads = 1;
          encoding.head_dim = head_dim;
          encoding.base = base;
          encoding.trained_length = trained_length;
          encoding.frequencies = frequencies;
          return encoding.Kept();
        });
  m.def("fope", [](int64_t heads, int64_t head_dim, double base, int64_t trained_length,
                   int64_t frequencies, int64_t table_heads, nb::handle cosines, nb::handle sines,
                   nb::handle x, nb::handle positions) {
    return Encode(
        FopeOf(heads, head_dim, base, trained_length, frequencies, table_heads, cosines, sines), x,
        positions, head_dim);
  });
  m.def(
      "fope_backward", [](int64_t heads, int64_t head_dim, double base, int64_t trained_length,
                          int64_t frequencies, int64_t table_heads, nb::handle cosines,
                          nb::handle sines, nb::handle x, nb::handle positions, nb::handle d_out) {
        const FopeEncoding encoding =
            FopeOf(heads, head_dim, base, trained_length, frequencies, table_heads, cosines, sines);
        const Input in(x, positions, heads, head_dim);
        const Array d(d_out, "d_out");
        d.CheckShape({static_cast<int64_t>(in.list.size()), heads, head_dim});
        const auto values = d.List<const float>();
        FopeEncoding::Gradient g;
        {
          nb::gil_scoped_release release;
          g = encoding.Backward(in.values, in.list, values);
        }
        return nb::make_tuple(Owned(std::move(g.x)), Owned(std::move(g.cosines)),
                              Owned(std::move(g.sines)));
      });
}

}  // namespace ropewalk::python
