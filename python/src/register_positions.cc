// ropewalk/rotary: positions of text, images and videos, and rotations by any generators.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "python/src/arrays.h"
#include "python/src/register.h"
#include "python/src/rotary.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/general.h"
#include "ropewalk/rotary/positions.h"

namespace ropewalk::python {
namespace {

// Values [axes, tokens], their denominator, the position of the next text token.
nb::tuple Built(TokenPositions p) {
  return nb::make_tuple(Owned(std::move(p.values), {static_cast<std::size_t>(p.axes),
                                                    static_cast<std::size_t>(p.tokens)}),
                        p.denominator, p.next);
}

void BindBuilder(nb::module_& m) {
  nb::class_<PositionBuilder>(m, "PositionBuilder")
      .def_prop_ro("axes", [](const PositionBuilder& b) { return b.axes(); })
      .def("text", &PositionBuilder::Text)
      .def("image", &PositionBuilder::Image)
      .def("video", &PositionBuilder::Video)
      .def("timestamped_video",
           [](PositionBuilder& b, const std::vector<int64_t>& tokens, int64_t height,
              int64_t width) { b.TimestampedVideo(tokens, height, width); })
      .def("build", [](const PositionBuilder& b) { return Built(b.Build()); });
  m.def("make_position_builder",
        [](const std::string& rule, int64_t spatial_merge, int64_t temporal_merge,
           double tokens_per_second, int64_t start) {
          constexpr std::array kRules = {"flat",  "qwen2-vl", "qwen2.5-vl", "qwen3-vl",
                                         "ernie", "xd-rope",  "rope-tie",   "rope-tv"};
          return PositionBuilder({.rule = Choice<PositionRule>("rule", rule, kRules),
                                  .spatial_merge = spatial_merge,
                                  .temporal_merge = temporal_merge,
                                  .tokens_per_second = tokens_per_second},
                                 start);
        });
  m.def("vision_positions", [](int64_t frames, int64_t height, int64_t width, int64_t merge) {
    return Built(VisionTowerPositions(frames, height, width, merge));
  });
}

RotationGenerators GeneratorsOf(const Array& values) {
  values.CheckShape({-1, -1, -1, -1});
  if (values.size(2) != values.size(3)) {
    Bad("generators: expected [axes, blocks, block, block], got " + values.ShapeString());
  }
  const auto list = values.List<const double>();
  return {values.size(0), values.size(1), values.size(2), {list.begin(), list.end()}};
}

void BindGenerators(nb::module_& m) {
  m.def("rotary_generators", [](const ResolvedRotation& r) {
    RotationGenerators g = RotaryGenerators(r.frequencies, r.spec.layout);
    const auto block = static_cast<std::size_t>(g.block);
    return Owned(std::move(g.values), {static_cast<std::size_t>(g.axes),
                                       static_cast<std::size_t>(g.blocks), block, block});
  });
  m.def("largest_commutator", [](nb::handle given) {
    const Array values(given, "generators");
    const RotationGenerators g = GeneratorsOf(values);
    return Unlocked([&] { return LargestCommutator(g); });
  });
  m.def("rotation_matrix", [](nb::handle given, nb::handle where) {
    const Array values(given, "generators"), position(where, "position");
    const RotationGenerators g = GeneratorsOf(values);
    const auto at = position.List<const double>();
    const auto block = static_cast<std::size_t>(g.block);
    return Owned(Unlocked([&] { return RotationMatrix(g, at); }),
                 {static_cast<std::size_t>(g.blocks), block, block});
  });
  m.def("rotate_general", [](nb::handle given, nb::handle x, nb::handle where, bool transpose) {
    const Array values(given, "generators"), positions(where, "positions");
    const Array written = Array::Written(x, "x");
    const RotationGenerators g = GeneratorsOf(values);
    const RotateGeneralArgs args{.generators = &g,
                                 .positions = positions.List<const double>(),
                                 .x = written.View(),
                                 .transpose = transpose};
    nb::gil_scoped_release release;
    RotateGeneral(args);
  });
}

}  // namespace

void RegisterPositions(nb::module_& m) {
  BindBuilder(m);
  BindGenerators(m);
}

}  // namespace ropewalk::python
