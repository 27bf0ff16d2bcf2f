// Layers that context extension does not change.
#pragma once

#include <algorithm>

#include "ropewalk/plan/plan.h"

namespace ropewalk::internal {

// Whether a layer slides and has another base than the layers that see everything (Gemma 3), or no
// scaling where these have one or its family never has it (OLMo 3): it sees its window alone at any
// length, and rope_scaling is not for it.
inline bool HasLocalBase(const PositionPlan& plan, const LayerPlan& layer) {
  if (!layer.rotation || layer.window_tokens == 0) return false;
  return std::any_of(plan.layers.begin(), plan.layers.end(), [&](const LayerPlan& other) {
    if (!other.rotation || other.window_tokens != 0) return false;
    const bool unscaled =
        std::holds_alternative<NoScaling>(layer.rotation->scaling) &&
        (plan.local_unscaled || !std::holds_alternative<NoScaling>(other.rotation->scaling));
    return unscaled || other.rotation->base != layer.rotation->base;
  });
}

}  // namespace ropewalk::internal
