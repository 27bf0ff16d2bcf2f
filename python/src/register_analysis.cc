// ropewalk/analysis and ropewalk/engines: what frequencies support, and what engines make of a plan.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "python/src/arrays.h"
#include "python/src/plan.h"
#include "python/src/register.h"
#include "ropewalk/analysis/analysis.h"
#include "ropewalk/engines/engines.h"
#include "ropewalk/engines/settings.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/plan/rerotation.h"

namespace ropewalk::python {
namespace {

// A column of a list of structs.
template <class T, class S>
nb::ndarray<nb::numpy, T> Column(const std::vector<S>& rows, T S::*field) {
  std::vector<T> column;
  column.reserve(rows.size());
  for (const S& row : rows) column.push_back(row.*field);
  return Owned(std::move(column));
}

// Of each pair, against the frequencies of training.
nb::dict PairsOf(const ResolvedRotation& r, int64_t trained_length, int64_t length) {
  const std::vector<PairInfo> pairs = Unlocked(
      [&] { return Pairs(TrainedFrequencies(r.spec), trained_length, r.frequencies, length); });
  nb::dict d;
  d["frequency"] = Column(pairs, &PairInfo::frequency);
  d["wavelength"] = Column(pairs, &PairInfo::wavelength_tokens);
  d["trained_rotations"] = Column(pairs, &PairInfo::trained_rotations);
  d["rotations"] = Column(pairs, &PairInfo::target_rotations);
  d["unseen_share"] = Column(pairs, &PairInfo::unseen_share);
  return d;
}

void BindAnalysis(nb::module_& m) {
  m.def("pairs", &PairsOf);
  m.def("critical", [](const ResolvedRotation& r, int64_t length) {
    const CriticalDimension c = Critical(r.frequencies, length);
    return nb::make_tuple(c.first_pair, c.dimension, c.incomplete_pairs);
  });
  m.def("longest_context", [](const ResolvedRotation& r, int64_t limit) {
    return Unlocked([&] { return LongestContext(r.frequencies, limit); });
  });
  m.def("decay", [](const ResolvedRotation& r, const std::vector<int64_t>& distances) {
    const std::vector<DecayPoint> points =
        Unlocked([&] { return Decay(r.frequencies, distances); });
    return nb::make_tuple(Column(points, &DecayPoint::bound),
                          Column(points, &DecayPoint::expected));
  });
  m.def("base_bounds", [](int64_t rotary_dim, int64_t context) {
    const std::vector<BaseBound> bounds = Unlocked([&] { return BaseBounds(rotary_dim, context); });
    nb::list out;
    for (const BaseBound& b : bounds) out.append(nb::make_tuple(b.context, b.base));
    return out;
  });
}

std::vector<EngineChoice> ChoicesOf(const std::vector<std::string>& engines) {
  std::vector<EngineChoice> choices;
  choices.reserve(engines.size());
  for (const std::string& text : engines) choices.push_back(ParseEngineChoice(text));
  return choices;
}

nb::list WarningsOf(const PyPlan& p, const std::vector<std::string>& engines) {
  const std::vector<Finding> findings =
      Unlocked([&] { return Narrow(Warnings(p.plan, p.resolved), ChoicesOf(engines)); });
  nb::list out;
  for (const Finding& f : findings) {
    nb::dict d;
    d["id"] = f.id;
    d["engine"] = f.engine;
    d["text"] = f.text;
    d["versions"] = f.versions;
    d["value"] = f.measured ? nb::cast(f.value) : nb::none();
    d["unit"] = f.unit;
    d["position"] = f.position;
    d["rotation"] = f.rotation < 0 ? nb::none() : nb::cast(f.rotation);
    out.append(d);
  }
  return out;
}

// The setting of each engine for a method on this model.
nb::list SettingsOf(const PyPlan& p, const std::string& method, double factor, int64_t length,
                    const std::vector<std::string>& engines) {
  const std::vector<EngineSetting> settings = Unlocked([&] {
    const std::vector<EngineChoice> choices = ChoicesOf(engines);
    if (method == kAsShipped) return Narrow(SettingsAsShipped(length, p.plan.place), choices);
    const RotarySpec& spec = OnlyRotation(p.plan);
    const SettingsTarget target{.trained_length = p.plan.trained_length,
                                .target_length = length,
                                .base = spec.base,
                                .rotary_dim = spec.rotary_dim,
                                .local_base = LocalBase(p.plan),
                                .place = p.plan.place};
    return Narrow(method.starts_with('{')
                      ? SettingsForDictionary(method, factor, target)
                      : SettingsFor(PositionMethod::Parse(method), factor, target),
                  choices);
  });
  nb::list out;
  for (const EngineSetting& s : settings) {
    nb::dict d;
    d["engine"] = s.Title();
    d["setting"] = s.expressible ? nb::cast(s.setting) : nb::none();
    d["note"] = s.note;
    out.append(d);
  }
  return out;
}

nb::list ViewsOf(const ResolvedRotation& r, int64_t length, int64_t position) {
  const std::vector<EngineView> views =
      Unlocked([&] { return CompareEngines(r.spec, length, position); });
  nb::list out;
  for (const EngineView& v : views) {
    nb::dict d;
    d["engine"] = Name(v.engine);
    d["expressible"] = v.expressible;
    d["reason"] = v.reason;
    d["same"] = v.Same();
    d["angle_rad"] = v.angle_rad;
    d["frequency_ratio"] = v.frequency_ratio;
    d["amplitude"] = v.amplitude;
    out.append(d);
  }
  return out;
}

}  // namespace

void RegisterAnalysis(nb::module_& m) {
  BindAnalysis(m);
  m.def("engine_warnings", &WarningsOf);
  m.def("engine_settings", &SettingsOf);
  m.def("compare_engines", &ViewsOf);
  m.def(
      "can_rerotate",
      [](const PyPlan& p, std::optional<int64_t> old_length, std::optional<int64_t> new_length) {
        return Unlocked([&] {
          return old_length && new_length ? CanRerotate(p.plan, *old_length, *new_length)
                                          : CanRerotate(p.plan);
        });
      },
      nb::arg("plan"), nb::arg("old_length").none(), nb::arg("new_length").none());
}

}  // namespace ropewalk::python
