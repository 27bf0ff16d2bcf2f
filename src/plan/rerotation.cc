#include "ropewalk/plan/rerotation.h"

#include <fmt/format.h>

namespace ropewalk {
namespace {

bool SameFrequencies(const Frequencies& a, const Frequencies& b) {
  if (a.amplitude != b.amplitude || a.inv_freq.size() != b.inv_freq.size()) return false;
  for (std::size_t i = 0; i < a.inv_freq.size(); ++i) {
    if (a.inv_freq[i].hi != b.inv_freq[i].hi || a.inv_freq[i].lo != b.inv_freq[i].lo) return false;
  }
  return true;
}

// The method of the rotation that depends on the declared length, if there is one.
const Scaling* LengthDependent(const RotarySpec& spec) {
  if (!spec.axes.own_ladders || spec.axes.scalings.empty()) {
    return IsLengthDependent(spec.scaling) ? &spec.scaling : nullptr;
  }
  for (const AxisScaling& axis : spec.axes.scalings) {
    if (IsLengthDependent(axis.scaling)) return &axis.scaling;
  }
  return nullptr;
}

// Of PoPE and FoPE, which Rerotate does not know.
std::string EncodingReason(std::size_t layer, const QueryKeyEncoding& encoding) {
  return fmt::format("layer {}: keys hold their position by {}; recompute them", layer,
                     Describe(encoding));
}

std::string XposReason(std::size_t layer) {
  return fmt::format("layer {}: xPos keys decay with their position; cache them unrotated", layer);
}

}  // namespace

std::string CanRerotate(const PositionPlan& plan) {
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (const auto& encoding = plan.layers[i].encoding) return EncodingReason(i, *encoding);
    const std::optional<RotarySpec>& spec = plan.layers[i].rotation;
    if (!spec || plan.layers[i].map) continue;
    if (spec->xpos) return XposReason(i);
    if (const Scaling* scaling = LengthDependent(*spec)) {
      return fmt::format(
          "layer {}: the frequencies of {} depend on the declared length of the sequence; keys "
          "move "
          "while that length is pinned (ask with the old and the new length)",
          i, Describe(*scaling));
    }
  }
  return {};
}

std::string CanRerotate(const PositionPlan& plan, int64_t old_length, int64_t new_length) {
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (const auto& encoding = plan.layers[i].encoding) return EncodingReason(i, *encoding);
    const std::optional<RotarySpec>& spec = plan.layers[i].rotation;
    if (!spec || plan.layers[i].map) continue;
    if (spec->xpos) return XposReason(i);
    if (SameFrequencies(Resolve(*spec, old_length), Resolve(*spec, new_length))) continue;
    return fmt::format(
        "layer {}: {} has other frequencies at length {} than at {}; Rerotate with both repairs "
        "phases alone, recomputing the keys is exact",
        i, Describe(spec->scaling), new_length, old_length);
  }
  return {};
}

std::vector<LayerRerotation> RerotatedLayers(const ResolvedPlan& plan) {
  std::vector<LayerRerotation> out;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (plan.layers[i].rotation < 0 || plan.layers[i].map) continue;
    out.push_back({static_cast<int64_t>(i),
                   &plan.rotations[static_cast<std::size_t>(plan.layers[i].rotation)]});
  }
  return out;
}

}  // namespace ropewalk
