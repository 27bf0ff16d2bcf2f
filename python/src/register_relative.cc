// ropewalk/relative: position maps and biases.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "python/src/arrays.h"
#include "python/src/forms.h"
#include "python/src/register.h"
#include "ropewalk/relative/distance_map.h"

namespace ropewalk::python {
namespace {

DistanceMap MakeMap(const std::string& kind, const nb::dict& settings) {
  for (const MapInfo& info : DistanceMaps()) {
    if (kind != info.name) continue;
    DistanceMap map = info.make({}, 2, 2);  // of that kind; every field is set below
    std::visit(
        [&]<class M>(M& made) {
          VisitFields<M>([&](const auto& field) {
            made.*field.member = nb::cast<int64_t>(settings[field.name]);
          });
        },
        map);
    Views(map);  // throws for settings that give no map
    return map;
  }
  Bad("map: got \"" + kind + "\"");
}

nb::dict FieldsOf(const DistanceMap& map) {
  nb::dict fields;
  std::visit(
      [&]<class M>(const M& made) {
        VisitFields<M>([&](const auto& field) { fields[field.name] = made.*field.member; });
      },
      map);
  return fields;
}

// Absent numbers are None.
nb::dict FormulaOf(const PositionMap& map) {
  nb::dict d;
  d["modulus"] = map.modulus > 0 ? nb::object(nb::int_(map.modulus)) : nb::none();
  d["multiplier"] = map.multiplier;
  d["divisor"] = map.divisor;
  d["slope"] = map.slope;
  d["offset"] = map.offset;
  d["limit"] = map.limit < INT64_MAX ? nb::object(nb::int_(map.limit)) : nb::none();
  return d;
}

nb::list ViewsList(const DistanceMap& map) {
  nb::list views;
  for (const DistanceView& view : Views(map)) {
    nb::list shares;
    for (const PairShare& share : view.shares) {
      shares.append(nb::make_tuple(FormulaOf(share.query), FormulaOf(share.key)));
    }
    views.append(
        nb::make_tuple(FormulaOf(view.query), FormulaOf(view.key), view.frequency_divisor, shares));
  }
  return views;
}

// Of each query and key: -1 is masked.
nb::ndarray<nb::numpy, int64_t> ViewsOfPairs(const DistanceMap& map, nb::handle queries,
                                             nb::handle keys) {
  const Array q_array(queries, "query_positions"), k_array(keys, "key_positions");
  const std::span<const int64_t> q = q_array.List<const int64_t>(),
                                 k = k_array.List<const int64_t>();
  std::vector<int64_t> out(q.size() * k.size());
  {
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < q.size(); ++i) {
      for (std::size_t j = 0; j < k.size(); ++j) out[i * k.size() + j] = ViewOf(map, q[i], k[j]);
    }
  }
  return Owned(std::move(out), {q.size(), k.size()});
}

void BindMap(nb::module_& m) {
  m.def("make_map", &MakeMap);
  nb::class_<DistanceMap>(m, "Map")
      .def("__eq__", [](const DistanceMap& a, const DistanceMap& b) { return a == b; })
      .def("__str__", [](const DistanceMap& map) { return Describe(map); })
      .def_prop_ro("kind", [](const DistanceMap& map) { return DistanceMaps()[map.index()].name; })
      .def_prop_ro("fields", FieldsOf)
      .def_prop_ro("views", ViewsList)
      .def("view_of", ViewsOfPairs)
      .def("relative_position", [](const DistanceMap& map, int64_t query, int64_t key,
                                   int share) { return RelativePosition(map, query, key, share); })
      .def("largest_relative_position", [](const DistanceMap& map, int64_t length) {
        return LargestRelativePosition(map, length);
      });
}

}  // namespace

void RegisterRelative(nb::module_& m) {
  BindMap(m);
  BindForms(m);
  BindBiases(m);
  BindEncodings(m);
}

}  // namespace ropewalk::python
