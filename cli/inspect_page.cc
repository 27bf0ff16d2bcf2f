#include "cli/inspect_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/engines.h"
#include "cli/input.h"
#include "ropewalk/base/error.h"
#include "ropewalk/plan/method.h"

namespace ropewalk::cli {
namespace {

std::string LayersOf(const ResolvedPlan& plan, int rotation) {
  std::vector<int64_t> layers;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (plan.layers[i].rotation == rotation) layers.push_back(static_cast<int64_t>(i));
  }
  return LayerNames(layers);
}

PositionPlan PlanOf(const Options& options, const PositionPlan& shipped) {
  PositionPlan plan = shipped;
  if (options.rope_scaling.size() > 1) {
    throw UsageError("inspect takes one setting: give --rope-scaling once");
  }
  if (!options.rope_scaling.empty()) {
    plan = ParseRopeDictionary(options.rope_scaling[0], "--rope-scaling", shipped,
                               options.allow_unknown);
  }
  if (!options.trained.empty()) {
    plan.trained_length = ParseLength(options.trained);
    for (LayerPlan& layer : plan.layers) {
      if (layer.rotation) layer.rotation->trained_length = plan.trained_length;
    }
  }
  if (!options.dialect.empty()) {
    for (LayerPlan& layer : plan.layers) {
      if (layer.rotation) layer.rotation->dialect = ParseDialect(options.dialect);
    }
  }
  return plan;
}

std::vector<int64_t> FarPositions(const InspectPage& page) {
  std::vector<int64_t> positions = {page.trained_length - 1, page.length - 1, 131071, 1048575};
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  std::erase_if(positions, [](int64_t p) { return p < 1; });
  return positions;
}

InspectRotation RotationOf(const InspectPage& page, std::size_t index, bool bounds) {
  InspectRotation out = {.layers = LayersOf(page.resolved, static_cast<int>(index)),
                         .rotation = page.resolved.rotations[index]};
  const RotarySpec& spec = out.rotation.spec;
  out.trained = TrainedFrequencies(spec);
  const int64_t trained = page.trained_length > 0 ? page.trained_length : page.length;
  out.reach = Reach(page.resolved, static_cast<int>(index));
  out.pairs = Pairs(out.trained, trained, out.rotation.frequencies, out.reach);
  out.critical = Critical(out.trained, trained);
  out.longest_trained = LongestContext(out.trained);
  out.longest = LongestContext(out.rotation.frequencies);
  // The bound holds for the plain frequencies of one axis.
  if (bounds && spec.axes.sections.empty() &&
      !std::holds_alternative<ProportionalScaling>(spec.scaling)) {
    out.bounds = BaseBounds(spec.rotary_dim, std::min(page.length, kMostBounds));
  }
  for (const int64_t position : FarPositions(page)) {
    out.float32.push_back(Float32AngleError(spec, out.rotation.frequencies, position));
  }
  out.engines = Narrow(CompareEngines(spec, page.length, out.reach - 1), page.choices);
  return out;
}

// Of a query and a key that a view scores. Where shares of the pairs have positions of their own,
// each pair is one position away at the angle that it comes to.
DecayPoint DecayAt(const Frequencies& frequencies, const DistanceView& view, int64_t query,
                   int64_t key) {
  Frequencies slower = frequencies;
  const auto divisor = static_cast<double>(view.frequency_divisor);
  for (std::size_t p = 0; p < slower.inv_freq.size(); ++p) {
    DoubleDouble& f = slower.inv_freq[p];
    f = {f.hi / divisor, f.lo / divisor};
    if (view.shares.empty()) continue;
    const PairShare& share = view.shares[view.shares.size() * p / slower.inv_freq.size()];
    const auto relative = static_cast<double>(share.query(query) - share.key(key));
    f = {std::fmod(f.hi * relative, 2 * std::acos(-1.0)), 0};
  }
  const int64_t relative = view.shares.empty() ? view.query(query) - view.key(key) : 1;
  return Decay(slower, {relative}).front();
}

// Expected scores of the last token by distance, with the first rotation and the distance map of
// its layer. NaN where the map masks a key.
std::vector<DecayPoint> DecayOf(const ResolvedPlan& plan) {
  const Frequencies& frequencies = plan.rotations[0].frequencies;
  const int64_t query = plan.length - 1;
  const auto layer = std::find_if(plan.layers.begin(), plan.layers.end(),
                                  [](const ResolvedLayer& l) { return l.rotation == 0; });
  std::vector<int64_t> distances = LogDistances(query);
  if (layer == plan.layers.end() || !layer->map) return Decay(frequencies, distances);
  const std::vector<DistanceView> views = Views(*layer->map);
  std::vector<DecayPoint> points;
  for (const int64_t distance : distances) {
    const int64_t key = query - distance;
    const int view = ViewOf(*layer->map, query, key);
    DecayPoint point{distance, std::nan(""), std::nan("")};
    if (view >= 0) {
      point = DecayAt(frequencies, views[static_cast<std::size_t>(view)], query, key);
      point.distance = distance;
    }
    points.push_back(point);
  }
  return points;
}

// The methods of --methods at the factors of --factors. By default "none" and the model as shipped,
// and for lengths beyond the trained one the usual methods at the ratio of the two.
std::vector<InspectDecay> DecayLines(const Options& options, const InspectPage& page) {
  std::vector<InspectDecay> lines;
  const auto add = [&](const std::string& method, double factor, const PositionPlan& plan) {
    lines.push_back({method, factor, DecayOf(Resolve(plan, page.length))});
  };
  add("as shipped", 1, page.plan);
  std::vector<SweepMethod> methods = NamedMethods(options.methods, page.plan);
  std::vector<double> factors = options.factors;
  const double ratio = page.trained_length > 0 ? static_cast<double>(page.length) /
                                                     static_cast<double>(page.trained_length)
                                               : 1;
  if (factors.empty()) factors = {std::max(1.0, ratio)};
  const bool asked = !methods.empty();
  if (!asked) methods = {PositionMethod()};
  if (!asked && factors.back() > 1) {
    for (const char* name : {"linear", "ntk", "yarn"}) {
      methods.emplace_back(PositionMethod::Parse(name));
    }
  }
  for (const SweepMethod& m : methods) {
    if (std::holds_alternative<FixedPlan>(m)) continue;  // as shipped is always there
    const auto& method = std::get<PositionMethod>(m);
    for (const double factor : factors) {
      const bool scales = method.uses_factor() && !method.length_dependent();
      if (factor == 1 && scales) continue;  // as none
      try {
        add(method.name(), method.uses_factor() ? factor : 1,
            method.Apply(page.plan, factor, page.trained_length));
      } catch (const Error&) {
        if (asked) throw;
      }
      if (!method.uses_factor()) break;
    }
  }
  return lines;
}

}  // namespace

InspectPage MakePage(const Options& options, const std::string& name, const PositionPlan& plan,
                     bool bounds) {
  InspectPage page;
  page.name = name;
  page.choices = EnginesOf(options.engines);
  page.plan = PlanOf(options, plan);
  page.trained_length = page.plan.trained_length;
  const bool measures = !options.text.empty() || !options.ids.empty();
  if (options.lengths.size() > 1 && !measures) {
    throw UsageError("inspect takes several lengths with --text or --ids alone: give one");
  }
  // The configured length where it is larger: some scalings apply only beyond the trained length.
  page.length = std::max(page.plan.trained_length, page.plan.configured_length);
  if (page.length <= 0) page.length = 4096;  // the model does not state one
  if (!options.lengths.empty()) page.length = 0;
  for (const std::string& length : options.lengths) {
    page.length = std::max(page.length, ParseLength(length));
  }
  page.resolved = Resolve(page.plan, page.length);
  for (std::size_t i = 0; i < page.resolved.rotations.size(); ++i) {
    page.rotations.push_back(RotationOf(page, i, bounds));
  }
  for (std::size_t i = 0; i < page.resolved.biases.size(); ++i) {
    page.biases.push_back(BiasOf(page, i));
  }
  if (!page.rotations.empty()) page.decay = DecayLines(options, page);
  page.findings = Narrow(Warnings(page.plan, page.resolved), page.choices);
  return page;
}

}  // namespace ropewalk::cli
