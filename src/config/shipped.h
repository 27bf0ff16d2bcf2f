// What settings for engines have to know of the scaling that a model's files have.
#pragma once

#include <variant>

#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/spec.h"
#include "src/plan/local_base.h"

namespace ropewalk::internal {

// Divisors that llama.cpp's converter writes as tensors, and a factor on YaRN's amplitude: no flag
// replaces them.
inline bool KeptInGguf(const Scaling& scaling) {
  if (const auto* yarn = std::get_if<YarnScaling>(&scaling)) {
    return yarn->attention_factor || yarn->attn_factor;
  }
  return std::holds_alternative<Llama3Scaling>(scaling) ||
         std::holds_alternative<LongRopeScaling>(scaling) ||
         std::holds_alternative<ProportionalScaling>(scaling) ||
         std::holds_alternative<ExplicitScaling>(scaling);
}

// Of a plan as it was read.
inline void NoteShipped(PositionPlan& plan) {
  for (const LayerPlan& layer : plan.layers) {
    if (!layer.rotation || HasLocalBase(plan, layer)) continue;
    const Scaling& scaling = layer.rotation->scaling;
    if (std::holds_alternative<NoScaling>(scaling)) continue;
    plan.place.shipped = InfoOf(scaling).name;
    plan.place.kept_in_gguf = KeptInGguf(scaling);
    plan.place.stated_length = plan.stated_length > 0 ? plan.stated_length : plan.configured_length;
    plan.place.configured_length = plan.configured_length;
    return;
  }
}

}  // namespace ropewalk::internal
