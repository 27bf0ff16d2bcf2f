// How queries and keys are rotated.
#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "src/config/hf/positions_object.h"

namespace ropewalk::internal {

void ReadRotationPart(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  RopeContext around;
  around.type_required = false;
  around.allow_unknown = context.allow_unknown;
  around.max_position = c.plan.configured_length;
  const RopeDictionary rope = ParseRope(part, around);
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = c.head_dim;
  if (rope.partial && rope.type != "proportional") {
    spec.rotary_dim = RotaryDim(c.head_dim, *rope.partial, part.where());
  }
  spec.base = rope.theta.value_or(10000);
  spec.scaling = rope.scaling;
  if (rope.original) c.plan.trained_length = *rope.original;
  spec.trained_length = c.plan.trained_length;
  for (LayerPlan& layer : c.plan.layers) layer.rotation = spec;
}

}  // namespace ropewalk::internal
