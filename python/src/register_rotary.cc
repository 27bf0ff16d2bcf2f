// ropewalk/rotary: rotations and tables of cos and sin.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "python/src/arrays.h"
#include "python/src/register.h"
#include "python/src/rotary.h"
#include "ropewalk/eval/ranked_engine.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/gradient.h"
#include "ropewalk/rotary/positions.h"

namespace ropewalk::python {
namespace {

// For properties that are arrays: they have an owner of their own.
constexpr auto kArray = nb::rv_policy::automatic;

constexpr std::array kOrders = {"chunked", "interleaved", "ernie"};

// A setting of a method: a number, a flag or a list of numbers.
void Set(const std::string& name, nb::handle given, double& out) {
  if (!nb::try_cast(given, out)) Bad(name + ": expected a number");
}
void Set(const std::string& name, nb::handle given, std::optional<double>& out) {
  if (given.is_none()) {
    out.reset();
  } else {
    Set(name, given, out.emplace());
  }
}
void Set(const std::string& name, nb::handle given, bool& out) {
  if (!nb::try_cast(given, out, false)) Bad(name + ": expected True or False");
}
void Set(const std::string& name, nb::handle given, std::vector<double>& out) {
  if (!nb::try_cast(given, out)) Bad(name + ": expected a list of numbers");
}

void SetField(const std::string& name, nb::handle given, Scaling& scaling) {
  std::string known;
  bool set = false;
  std::visit(
      [&]<class S>(S& s) {
        VisitFields<S>([&](const auto& field) {
          known += (known.empty() ? "" : ", ") + std::string(field.name);
          if (name != field.name) return;
          Set(name, given, s.*field.member);
          set = true;
        });
      },
      scaling);
  if (set) return;
  Bad(Describe(scaling) + " has no " + name + (known.empty() ? "" : "; it has " + known));
}

Scaling ScalingOf(const std::string& method, const nb::dict& settings) {
  std::string known;
  for (const MethodInfo& info : ScalingMethods()) {
    if (method != info.name) {
      known += (known.empty() ? "" : ", ") + std::string(info.name);
      continue;
    }
    Scaling scaling = info.make(0);
    for (const auto& [name, value] : settings) {
      SetField(nb::cast<std::string>(nb::handle(name)), value, scaling);
    }
    return scaling;
  }
  Bad("method: expected one of " + known + "; got \"" + method + "\"");
}

ResolvedRotation MakeRotation(const std::string& layout, int64_t head_dim, int64_t rotary_dim,
                              int64_t first_dim, double base, int64_t trained_length,
                              int64_t length, const std::string& method, const nb::dict& settings,
                              const std::string& dialect, const std::vector<int64_t>& sections,
                              const std::string& axis_order, bool own_ladders,
                              std::optional<double> xpos_scale_base, double xpos_centre,
                              double xpos_gamma, int64_t rotated_heads) {
  RotarySpec spec(LayoutOf(layout));
  spec.head_dim = head_dim;
  spec.rotary_dim = rotary_dim;
  spec.first_dim = first_dim;
  spec.base = base;
  spec.trained_length = trained_length;
  spec.scaling = ScalingOf(method, settings);
  spec.dialect = ParseDialect(dialect);
  spec.axes.sections = sections;
  spec.axes.order = Choice<AxisOrder>("axis_order", axis_order, kOrders);
  spec.axes.own_ladders = own_ladders;
  if (xpos_scale_base) {
    spec.xpos =
        XposDecay{.scale_base = *xpos_scale_base, .gamma = xpos_gamma, .centre = xpos_centre};
  }
  spec.rotated_heads = rotated_heads;
  return {spec, Unlocked([&] { return Resolve(spec, length); })};
}

nb::ndarray<nb::numpy, double> Exact(const ResolvedRotation& r) {
  std::vector<double> values;
  for (const DoubleDouble& f : r.frequencies.inv_freq) values.push_back(f.hi);
  return Owned(std::move(values));
}

nb::ndarray<nb::numpy, int64_t> AxisOf(const ResolvedRotation& r) {
  std::vector<int64_t> axis(r.frequencies.axis.begin(), r.frequencies.axis.end());
  axis.resize(r.frequencies.inv_freq.size());
  return Owned(std::move(axis));
}

void BindRotation(nb::module_& m) {
  nb::class_<ResolvedRotation>(m, "Rotation")
      .def("__eq__", [](const ResolvedRotation& a, const ResolvedRotation& b) { return a == b; })
      .def("packed",
           [](const ResolvedRotation& r) {  // for pickle, of the same version of the package
             const std::vector<std::byte> bytes = PackRotation(r);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def_prop_ro("inv_freq", Exact, kArray)
      .def_prop_ro(
          "inv_freq_f32",
          [](const ResolvedRotation& r) { return Owned(r.frequencies.inv_freq_f32); }, kArray)
      .def_prop_ro("axis", AxisOf, kArray)
      .def_prop_ro("axes", [](const ResolvedRotation& r) { return r.frequencies.axes; })
      .def_prop_ro("amplitude", [](const ResolvedRotation& r) { return r.frequencies.amplitude; })
      .def_prop_ro("softmax_multiplier",
                   [](const ResolvedRotation& r) { return r.frequencies.softmax_multiplier; })
      .def_prop_ro("layout",
                   [](const ResolvedRotation& r) {
                     return kLayouts[static_cast<std::size_t>(r.spec.layout)];
                   })
      .def_prop_ro("head_dim", [](const ResolvedRotation& r) { return r.spec.head_dim; })
      .def_prop_ro("rotary_dim", [](const ResolvedRotation& r) { return r.spec.rotary_dim; })
      .def_prop_ro("first_dim", [](const ResolvedRotation& r) { return r.spec.first_dim; })
      .def_prop_ro("rotated_heads", [](const ResolvedRotation& r) { return r.spec.rotated_heads; })
      .def_prop_ro("base", [](const ResolvedRotation& r) { return r.spec.base; })
      .def_prop_ro("trained_length",
                   [](const ResolvedRotation& r) { return r.spec.trained_length; })
      .def_prop_ro("dialect", [](const ResolvedRotation& r) { return Name(r.spec.dialect); })
      .def_prop_ro("length_dependent",
                   [](const ResolvedRotation& r) { return IsLengthDependent(r.spec.scaling); })
      .def_prop_ro("decays", [](const ResolvedRotation& r) { return r.spec.xpos.has_value(); })
      .def_prop_ro("method", [](const ResolvedRotation& r) { return Describe(r.spec.scaling); });
  m.def("make_rotation", &MakeRotation);
  m.def("rotation_of_packed", [](const nb::bytes& packed) {
    const auto* begin = reinterpret_cast<const std::byte*>(packed.c_str());
    return UnpackRotation({begin, begin + packed.size()});
  });
  m.def("scaling_methods", [] {
    nb::list methods;
    for (const MethodInfo& info : ScalingMethods()) {
      nb::dict d;
      d["name"] = info.name;
      d["title"] = info.title;
      d["source"] = info.source;
      d["length_dependent"] = info.length_dependent;
      d["needs_trained_length"] = info.needs_trained_length;
      d["by_factor"] = info.by_factor;
      methods.append(d);
    }
    return methods;
  });
}

// Rows for Python: as long as an array or a call holds the table, it does not change.
nb::ndarray<nb::numpy, const float> Rows(const PyTable& t) {
  auto* kept = new std::shared_ptr<const CosSinTable>(t.table);
  nb::capsule owner(
      kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<const CosSinTable>*>(p); });
  const CosSinTable& table = *t.table;
  const std::size_t shape[] = {static_cast<std::size_t>(table.count()), 2,
                               static_cast<std::size_t>(table.pairs())};
  const float* rows = table.count() == 0 ? nullptr : table.Row(table.first());
  return nb::ndarray<nb::numpy, const float>(rows, 3, shape, owner);
}

// Makes another table, because arrays and calls in other threads may read this one.
void Grow(PyTable& t, int64_t count) {
  const std::shared_ptr<const CosSinTable> old = t.table;
  if (count <= old->count()) return;
  if (old->frequencies().inv_freq.empty()) Bad("table: one that was made from rows cannot grow");
  std::shared_ptr<const CosSinTable> grown;
  {
    nb::gil_scoped_release release;
    grown =
        std::make_shared<CosSinTable>(old->frequencies(), old->first(), count, old->precision());
  }
  if (grown->count() > t.table->count()) t.table = std::move(grown);
}

void BindTable(nb::module_& m) {
  nb::class_<PyTable>(m, "Table")
      .def_prop_ro("rows", Rows, kArray)
      .def_prop_ro("first", [](const PyTable& t) { return t.table->first(); })
      .def_prop_ro("count", [](const PyTable& t) { return t.table->count(); })
      .def_prop_ro("pairs", [](const PyTable& t) { return t.table->pairs(); })
      .def_prop_ro("precision",
                   [](const PyTable& t) {
                     return kPrecisions[static_cast<std::size_t>(t.table->precision())];
                   })
      .def("grow", Grow);
  m.def("make_table", [](const ResolvedRotation& rotation, int64_t first, int64_t count,
                         const std::string& precision) {
    const auto angles = Choice<AnglePrecision>("precision", precision, kPrecisions);
    if (count < 0) Bad("count: expected 0 or more, got " + std::to_string(count));
    nb::gil_scoped_release release;
    return PyTable{std::make_shared<CosSinTable>(rotation.frequencies, first, count, angles)};
  });
  m.def("table_from_rows", [](nb::handle given) {
    const Array rows(given, "rows");
    rows.CheckShape({-1, 2, -1});
    const std::span<const float> list = rows.List<const float>();
    AlignedBuffer<float> copied(list.size());
    std::copy(list.begin(), list.end(), copied.begin());
    return PyTable{
        std::make_shared<CosSinTable>(CosSinTable::FromRows(std::move(copied), rows.size(2)))};
  });
  m.def("cos_sin",
        [](const ResolvedRotation& rotation, nb::handle given, const std::string& precision) {
          const Array positions(given, "positions");
          const std::span<const int64_t> list = positions.List<const int64_t>();
          const auto angles = Choice<AnglePrecision>("precision", precision, kPrecisions);
          const std::size_t pairs = rotation.frequencies.inv_freq.size();
          std::vector<float> rows(list.size() * 2 * pairs);
          {
            nb::gil_scoped_release release;
            FillCosSin(rotation.frequencies, list, angles, rows.data());
          }
          return Owned(std::move(rows), {list.size(), 2, pairs});
        });
}

}  // namespace

void RegisterRotary(nb::module_& m) {
  BindRotation(m);
  BindTable(m);
  m.def("base_derivative", [](const ResolvedRotation& r, int64_t length) {
    return Owned(BaseDerivative(r.spec, length));
  });
  m.def("per_unit", [](const ResolvedRotation& r, int64_t denominator) {
    return ResolvedRotation{r.spec, PerUnit(r.frequencies, denominator)};
  });
}

}  // namespace ropewalk::python
