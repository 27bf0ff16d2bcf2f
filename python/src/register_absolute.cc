// ropewalk/absolute: encodings that are added to, or multiplied with, token embeddings. Python gives
// float32 and int64 arrays without gaps; gradients are float64.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "python/src/absolute.h"
#include "python/src/arrays.h"
#include "python/src/register.h"
#include "ropewalk/absolute/combine.h"
#include "ropewalk/absolute/convolutional.h"
#include "ropewalk/absolute/digits.h"
#include "ropewalk/absolute/floater.h"
#include "ropewalk/absolute/hierarchical.h"
#include "ropewalk/absolute/learned.h"
#include "ropewalk/absolute/recurrent.h"
#include "ropewalk/absolute/sinusoidal.h"

namespace ropewalk::python {
namespace {

// ---- sinusoidal ----

SinusoidalSpec SpecOf(int64_t dim, const std::string& layout, double base,
                      const std::string& ladder, bool cosine_first) {
  constexpr std::array kLayouts = {"interleaved", "concatenated"};
  constexpr std::array kLadders = {"paper", "to-base"};
  SinusoidalSpec spec(Choice<SinusoidalLayout>("layout", layout, kLayouts));
  spec.dim = dim;
  spec.base = base;
  spec.ladder = Choice<SinusoidalLadder>("ladder", ladder, kLadders);
  spec.cosine_first = cosine_first;
  return spec;
}

struct PySinusoidal {
  SinusoidalSpec spec;
  Sinusoidal encoding;
};

void BindSinusoidal(nb::module_& m) {
  nb::class_<PySinusoidal>(m, "Sinusoidal")
      .def_prop_ro(
          "frequencies",
          [](const PySinusoidal& s) {
            std::vector<double> out;
            for (const DoubleDouble& f : s.encoding.frequencies()) out.push_back(f.hi);
            return Owned(std::move(out));
          },
          nb::rv_policy::automatic)
      .def("rows",
           [](const PySinusoidal& s, nb::handle given) {
             const Array positions(given, "positions");
             const auto list = positions.List<const int64_t>();
             return Filled({list.size(), Size(s.encoding.dim())},
                           [&](std::span<float> out) { s.encoding.Rows(list, out); });
           })
      .def("add",
           [](const PySinusoidal& s, nb::handle x, int64_t batch, int64_t start, float scale) {
             const Array array = Array::Written(x, "x");
             const std::span<float> list = array.List<float>();
             nb::gil_scoped_release release;
             s.encoding.Add(list, batch, start, scale);
           })
      .def("scale_gradient",
           [](const PySinusoidal& s, nb::handle dy, int64_t batch, int64_t start) {
             const Array array(dy, "d_out");
             const auto list = array.List<const float>();
             nb::gil_scoped_release release;
             return s.encoding.ScaleGradient(list, batch, start);
           })
      .def("frequency_gradient",
           [](const PySinusoidal& s, nb::handle dy, int64_t batch, int64_t start, float scale) {
             const Array array(dy, "d_out");
             const auto list = array.List<const float>();
             return Filled<double>({s.encoding.frequencies().size()}, [&](std::span<double> out) {
               s.encoding.FrequencyGradient(list, batch, start, out, scale);
             });
           });
  m.def("make_sinusoidal", [](int64_t dim, const std::string& layout, double base,
                              const std::string& ladder, bool cosine_first) {
    const SinusoidalSpec spec = SpecOf(dim, layout, base, ladder, cosine_first);
    return PySinusoidal{spec, Sinusoidal(spec)};
  });
  m.def("sinusoidal_grid", [](const std::vector<int>& axes, const nb::list& encodings,
                              const std::vector<int64_t>& sizes) {
    std::vector<SinusoidalBlock> blocks;
    int64_t dim = 0, patches = 1;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const auto& encoding = nb::cast<const PySinusoidal&>(encodings[i]);
      blocks.push_back({axes[i], encoding.spec});
      dim += encoding.spec.dim;
    }
    for (const int64_t n : sizes) {
      if (n < 0 || __builtin_mul_overflow(patches, n, &patches)) Bad("sizes: too large");
    }
    return Filled({Size(patches), Size(dim)},
                  [&](std::span<float> out) { SinusoidalGrid(blocks, sizes, out); });
  });
}

// ---- tables ----

void BindTables(nb::module_& m) {
  m.def("hierarchical_rows", [](nb::handle table, nb::handle given, double alpha) {
    const Array t(table, "table"), p(given, "positions");
    t.CheckShape({-1, -1});
    const HierarchicalSpec spec{t.size(0), t.size(1), alpha};
    const auto list = p.List<const int64_t>();
    const auto values = t.List<const float>();
    return Filled({list.size(), Size(spec.dim)},
                  [&](std::span<float> out) { HierarchicalRows(spec, values, list, out); });
  });
  m.def("hierarchical_rows_backward", [](nb::handle table, nb::handle given, double alpha,
                                         nb::handle d_out) {
    const Array t(table, "table"), p(given, "positions"), d(d_out, "d_rows");
    t.CheckShape({-1, -1});
    const HierarchicalSpec spec{t.size(0), t.size(1), alpha};
    double d_alpha = 0;
    const auto values = t.List<const float>(), d_values = d.List<const float>();
    const auto list = p.List<const int64_t>();
    Doubles d_table = Filled<double>({Size(spec.rows), Size(spec.dim)}, [&](std::span<double> out) {
      d_alpha = HierarchicalRowsBackward(spec, values, list, d_values, out);
    });
    return nb::make_tuple(d_table, d_alpha);
  });
  m.def("learned_rows", [](nb::handle table, nb::handle given, int64_t offset) {
    const Array t(table, "table"), p(given, "positions");
    t.CheckShape({-1, -1});
    const auto list = p.List<const int64_t>();
    const auto values = t.List<const float>();
    return Filled({list.size(), Size(t.size(1))},
                  [&](std::span<float> out) { LookUpRows(values, t.size(1), list, out, offset); });
  });
  m.def("learned_rows_backward",
        [](int64_t rows, int64_t dim, nb::handle given, int64_t offset, nb::handle d_out) {
          const Array p(given, "positions"), d(d_out, "d_rows");
          const auto list = p.List<const int64_t>();
          const auto values = d.List<const float>();
          return Filled<double>({Size(rows), Size(dim)}, [&](std::span<double> out) {
            LookUpRowsBackward(values, dim, list, out, offset);
          });
        });
  const auto spec_of = [](const std::vector<int64_t>& from, const std::vector<int64_t>& to,
                          int64_t dim, int64_t prefix_rows, const std::string& kernel,
                          bool antialias) {
    constexpr std::array kKernels = {"linear", "cubic"};
    return ResizeSpec{
        from, to, dim, prefix_rows, Choice<ResizeKernel>("kernel", kernel, kKernels), antialias};
  };
  m.def("resize_table", [spec_of](nb::handle table, const std::vector<int64_t>& from,
                                  const std::vector<int64_t>& to, int64_t prefix_rows,
                                  const std::string& kernel, bool antialias) {
    const Array t(table, "table");
    t.CheckShape({-1, -1});
    const ResizeSpec spec = spec_of(from, to, t.size(1), prefix_rows, kernel, antialias);
    const auto values = t.List<const float>();
    std::vector<float> out;
    {
      nb::gil_scoped_release release;
      out = ResizeTable(spec, values);
    }
    const std::size_t dim = Size(spec.dim), rows = dim == 0 ? 0 : out.size() / dim;
    return Owned(std::move(out), {rows, dim});
  });
  m.def("resize_table_backward", [spec_of](int64_t rows, int64_t dim, nb::handle d_out,
                                           const std::vector<int64_t>& from,
                                           const std::vector<int64_t>& to, int64_t prefix_rows,
                                           const std::string& kernel, bool antialias) {
    const Array d(d_out, "d_table");
    const ResizeSpec spec = spec_of(from, to, dim, prefix_rows, kernel, antialias);
    const auto values = d.List<const float>();
    return Filled<double>({Size(rows), Size(dim)},
                          [&](std::span<double> out) { ResizeTableBackward(spec, values, out); });
  });
}

// ---- digits ----

void BindDigits(nb::module_& m) {
  m.def("digit_capacity", [](int64_t base, int64_t digits, double factor) {
    return DigitCapacity({base, digits, factor});
  });
  m.def("extend_digits",
        [](int64_t base, int64_t digits, double factor, int64_t length, const std::string& how) {
          constexpr std::array kWays = {"extrapolate", "interpolate", "change-base"};
          const DigitSpec spec = ExtendDigits({base, digits, factor}, length,
                                              Choice<DigitExtension>("how", how, kWays));
          return nb::make_tuple(spec.base, spec.digits, spec.factor);
        });
  m.def("digit_rows", [](int64_t base, int64_t digits, double factor, nb::handle given) {
    const Array p(given, "positions");
    const DigitSpec spec{base, digits, factor};
    DigitCapacity(spec);  // refuses sizes that make no digits
    const auto list = p.List<const int64_t>();
    return Filled({list.size(), Size(digits)},
                  [&](std::span<float> out) { DigitRows(spec, list, out); });
  });
  m.def("project_digits",
        [](int64_t base, int64_t digits, double factor, nb::handle weight, nb::handle given) {
          const Array w(weight, "weight"), p(given, "positions");
          w.CheckShape({-1, digits});
          const auto list = p.List<const int64_t>();
          const auto values = w.List<const float>();
          return Filled({list.size(), Size(w.size(0))}, [&](std::span<float> out) {
            ProjectDigits({base, digits, factor}, values, w.size(0), list, out);
          });
        });
  m.def("project_digits_backward", [](int64_t base, int64_t digits, double factor, int64_t dim,
                                      nb::handle given, nb::handle d_out) {
    const Array p(given, "positions"), d(d_out, "d_out");
    const auto list = p.List<const int64_t>();
    const auto values = d.List<const float>();
    return Filled<double>({Size(dim), Size(digits)}, [&](std::span<double> out) {
      ProjectDigitsBackward({base, digits, factor}, dim, list, values, out);
    });
  });
}

// ---- floater and recurrent ----

// A learned field, or that of sinusoids.
std::unique_ptr<OdeField> FieldOf(int64_t dim, int64_t hidden, const Array& parameters) {
  if (hidden > 0) return std::make_unique<TanhField>(dim, hidden, parameters.List<const float>());
  std::vector<DoubleDouble> frequencies;
  for (const double f : parameters.List<const double>()) frequencies.push_back({f, 0});
  return std::make_unique<TurningField>(frequencies);
}

void BindPaths(nb::module_& m) {
  m.def("floater_rows", [](int64_t dim, int64_t hidden, nb::handle given, double spacing,
                           int64_t substeps, nb::handle start, int64_t count) {
    const Array parameters(given, "parameters"), s(start, "start");
    s.CheckShape({dim});
    const std::unique_ptr<OdeField> field = FieldOf(dim, hidden, parameters);
    const auto first = s.List<const float>();
    double error = 0;
    Floats rows = Filled({Size(count), Size(dim)}, [&](std::span<float> out) {
      error = FloaterRows(*field, {spacing, substeps}, first, out);
    });
    return nb::make_tuple(rows, error);
  });
  m.def("floater_rows_backward", [](int64_t dim, int64_t hidden, nb::handle given, double spacing,
                                    int64_t substeps, nb::handle start, nb::handle d_rows) {
    const Array parameters(given, "parameters"), s(start, "start"), d(d_rows, "d_rows");
    const std::unique_ptr<OdeField> field = FieldOf(dim, hidden, parameters);
    const auto first = s.List<const float>(), values = d.List<const float>();
    std::vector<double> d_start(first.size()), gradient(Size(field->parameters()));
    {
      nb::gil_scoped_release release;
      FloaterRowsBackward(*field, {spacing, substeps}, first, values, d_start, gradient);
    }
    return nb::make_tuple(Owned(std::move(d_start)), Owned(std::move(gradient)));
  });
  constexpr static std::array kCells = {"tanh", "gru"};
  m.def("recurrent_rows", [](const std::string& cell, nb::handle start, nb::handle weight,
                             nb::handle input_bias, nb::handle hidden_bias, int64_t count) {
    const Array s(start, "start"), w(weight, "weight"), b(input_bias, "input_bias"),
        c(hidden_bias, "hidden_bias");
    const RecurrentParameters p{s.List<const float>(), w.List<const float>(), b.List<const float>(),
                                c.List<const float>()};
    const auto kind = Choice<RecurrentCell>("cell", cell, kCells);
    return Filled({Size(count), p.start.size()},
                  [&](std::span<float> out) { RecurrentRows(kind, p, out); });
  });
  m.def("recurrent_rows_backward",
        [](const std::string& cell, nb::handle start, nb::handle weight, nb::handle input_bias,
           nb::handle hidden_bias, nb::handle d_rows) {
          const Array s(start, "start"), w(weight, "weight"), b(input_bias, "input_bias"),
              c(hidden_bias, "hidden_bias"), d(d_rows, "d_rows");
          const RecurrentParameters p{s.List<const float>(), w.List<const float>(),
                                      b.List<const float>(), c.List<const float>()};
          const auto kind = Choice<RecurrentCell>("cell", cell, kCells);
          const auto values = d.List<const float>();
          std::vector<double> ds(p.start.size()), dw(p.weight.size()), db(p.input_bias.size()),
              dc(p.hidden_bias.size());
          {
            nb::gil_scoped_release release;
            RecurrentRowsBackward(kind, p, values, {ds, dw, db, dc});
          }
          return nb::make_tuple(Owned(std::move(ds)), Owned(std::move(dw)), Owned(std::move(db)),
                                Owned(std::move(dc)));
        });
}

// ---- convolution and combination ----

void BindConvolution(nb::module_& m) {
  const auto spec_of = [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& kernel,
                          int64_t channels, int64_t groups, int64_t prefix_rows,
                          const std::string& border, bool gelu, bool residual) {
    constexpr std::array kBorders = {"zero", "circular"};
    return PositionConvolutionSpec{
        sizes,  kernel,      channels,
        groups, prefix_rows, Choice<ConvolutionBorder>("border", border, kBorders),
        gelu,   residual};
  };
  m.def(
      "position_convolution",
      [spec_of](nb::handle x, nb::handle weight, nb::handle bias, const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& kernel, int64_t groups, int64_t prefix_rows,
                const std::string& border, bool gelu, bool residual) {
        const Array in(x, "x"), w(weight, "weight"), b(bias, "bias");
        in.CheckShape({-1, -1, -1});
        const PositionConvolutionSpec spec =
            spec_of(sizes, kernel, in.size(2), groups, prefix_rows, border, gelu, residual);
        const auto values = in.List<const float>(), taps = w.List<const float>(),
                   added = b.List<const float>();
        return Filled({Size(in.size(0)), Size(in.size(1)), Size(in.size(2))},
                      [&](std::span<float> out) {
                        PositionConvolution(spec, values, in.size(0), taps, added, out);
                      });
      });
  m.def("position_convolution_backward",
        [spec_of](nb::handle x, nb::handle weight, nb::handle bias, nb::handle d_out,
                  const std::vector<int64_t>& sizes, const std::vector<int64_t>& kernel,
                  int64_t groups, int64_t prefix_rows, const std::string& border, bool gelu,
                  bool residual) {
          const Array in(x, "x"), w(weight, "weight"), b(bias, "bias"), d(d_out, "d_out");
          in.CheckShape({-1, -1, -1});
          d.CheckShape({in.size(0), in.size(1), in.size(2)});
          const PositionConvolutionSpec spec =
              spec_of(sizes, kernel, in.size(2), groups, prefix_rows, border, gelu, residual);
          const auto values = in.List<const float>(), taps = w.List<const float>(),
                     added = b.List<const float>(), dy = d.List<const float>();
          std::vector<double> d_weight(taps.size()), d_bias(added.size());
          Floats dx = Filled({Size(in.size(0)), Size(in.size(1)), Size(in.size(2))},
                             [&](std::span<float> out) {
                               PositionConvolutionBackward(spec, values, in.size(0), taps, added,
                                                           dy, out, d_weight, d_bias);
                             });
          return nb::make_tuple(dx, Owned(std::move(d_weight)), Owned(std::move(d_bias)));
        });
  m.def("merge_weight_norm", [](nb::handle v_given, nb::handle g_given) {
    const Array v(v_given, "v"), g(g_given, "g");
    v.CheckShape({-1, -1});
    const auto values = v.List<const float>(), norms = g.List<const float>();
    return Filled({Size(v.size(0)), Size(v.size(1))},
                  [&](std::span<float> out) { MergeWeightNorm(values, norms, out); });
  });
  m.def("merge_weight_norm_backward", [](nb::handle v_given, nb::handle g_given,
                                         nb::handle d_given) {
    const Array v(v_given, "v"), g(g_given, "g"), d(d_given, "d_weight");
    v.CheckShape({-1, -1});
    const auto values = v.List<const float>(), norms = g.List<const float>();
    const auto d_weight = d.List<const double>();
    std::vector<double> d_g(norms.size());
    Doubles d_v = Filled<double>({Size(v.size(0)), Size(v.size(1))}, [&](std::span<double> out) {
      MergeWeightNormBackward(values, norms, d_weight, out, d_g);
    });
    return nb::make_tuple(d_v, Owned(std::move(d_g)));
  });
  m.def("add_rows", [](nb::handle x, int64_t batch, nb::handle rows, float scale) {
    const Array in = Array::Written(x, "x"), r(rows, "rows");
    const auto values = in.List<float>();
    const auto added = r.List<const float>();
    nb::gil_scoped_release release;
    AddRows(values, batch, added, scale);
  });
  m.def("multiply_rows", [](nb::handle x, int64_t batch, nb::handle rows) {
    const Array in = Array::Written(x, "x"), r(rows, "rows");
    const auto values = in.List<float>();
    const auto factors = r.List<const float>();
    nb::gil_scoped_release release;
    MultiplyRows(values, batch, factors);
  });
  m.def("add_rows_backward", [](nb::handle dy, int64_t batch, int64_t size, float scale) {
    const Array d(dy, "d_out");
    const auto values = d.List<const float>();
    return Filled<double>(
        {Size(size)}, [&](std::span<double> out) { AddRowsBackward(values, batch, out, scale); });
  });
  m.def("multiply_rows_backward", [](nb::handle x, nb::handle dy, int64_t batch, nb::handle rows) {
    const Array in(x, "x"), d(dy, "d_out"), r(rows, "rows");
    const auto values = in.List<const float>(), d_values = d.List<const float>(),
               factors = r.List<const float>();
    std::vector<double> d_rows(factors.size());
    Floats dx = Filled({values.size()}, [&](std::span<float> out) {
      MultiplyRowsBackward(values, d_values, batch, factors, out, d_rows);
    });
    return nb::make_tuple(dx, Owned(std::move(d_rows)));
  });
}

}  // namespace

void RegisterAbsolute(nb::module_& m) {
  BindSinusoidal(m);
  BindTables(m);
  BindDigits(m);
  BindPaths(m);
  BindConvolution(m);
}

}  // namespace ropewalk::python
