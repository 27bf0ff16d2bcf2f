// The input of the rules in rules.cc, and functions for the text of their findings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ropewalk/analysis/analysis.h"
#include "ropewalk/engines/engines.h"
#include "src/engines/angles.h"

namespace ropewalk::internal {

// The input of a rule: the plan, and one of its rotations.
struct Scene {
  const PositionPlan& plan;
  const ResolvedPlan& resolved;
  const ResolvedRotation& rotation;
  int64_t length;  // of the sequence
  int64_t last;    // the largest distance: length - 1, or less with windows

  const RotarySpec& spec() const { return rotation.spec; }
  template <class S>
  const S* As() const {
    return std::get_if<S>(&rotation.spec.scaling);
  }
  // The same rotation with another scaling, at another length or trained length.
  Frequencies With(const Scaling& scaling, int64_t length, int64_t trained_length) const {
    RotarySpec other = spec();
    other.dialect = Dialect::kNative;
    other.scaling = scaling;
    other.trained_length = trained_length;
    return Resolve(other, length);
  }
  Frequencies With(const Scaling& scaling) const {
    return With(scaling, length, spec().trained_length);
  }
  AngleError Against(const Frequencies& other) const {
    return AngleDifference(rotation.frequencies, other, last);
  }
  int64_t TrainedLength() const {
    return plan.trained_length > 0 ? plan.trained_length : spec().trained_length;
  }
  bool Partial() const { return spec().rotary_dim < spec().head_dim; }
};

using Result = std::optional<Finding>;

inline Finding Words(std::string text) {
  Finding f;
  f.text = std::move(text);
  return f;
}
// The text with the largest difference and its pair.
Finding Radians(const AngleError& error, int64_t position, const std::string& text);
inline Finding Measured(double value, const char* unit, std::string text) {
  Finding f = Words(std::move(text));
  f.measured = true;
  f.value = value;
  f.unit = unit;
  return f;
}

// The rules of rules_scaling.cc; nothing where a rule does not apply.
Result YarnTruncate(const Scene& s);
Result YarnTruncateNested(const Scene& s);
Result YarnAttentionFactor(const Scene& s);
Result YarnAttnFactor(const Scene& s);
Result YarnMscaleAlone(const Scene& s);
Result YarnSoftmax(const Scene& s);
Result YarnPaper(const Scene& s);
Result YarnMrope(const Scene& s);
Result YarnOldHuggingFace(const Scene& s);
Result YarnMegatronPartial(const Scene& s);
Result AmplitudeShift(const Scene& s);
Result DynamicCache(const Scene& s);
Result DynamicState(const Scene& s);
Result DynamicVllm(const Scene& s);
Result LongRopeSwitch(const Scene& s);
Result LongRopeInteger(const Scene& s);
Result LongRopeOldHuggingFace(const Scene& s);
Result LongRopeLayerTypes(const Scene& s);

}  // namespace ropewalk::internal
