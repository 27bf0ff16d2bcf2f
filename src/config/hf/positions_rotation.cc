// How queries and keys are rotated.
#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "src/config/hf/positions_object.h"

namespace ropewalk::internal {

namespace {

// Of the pairs of a rotation; its centre follows from the sequence.
std::optional<XposDecay> ReadXpos(const JsonObject& part) {
  const nlohmann::json* value = part.Find("xpos");
  if (value == nullptr) return std::nullopt;
  const JsonObject object(*value, part.where() + ".xpos");
  XposDecay xpos;
  xpos.scale_base = object.Number("scale_base", 1e-3, 1e12).value_or(xpos.scale_base);
  xpos.gamma = object.Number("gamma", 1e-6, 1e6).value_or(xpos.gamma);
  RefuseUnknownKeys(object);
  return xpos;
}

// Trained with the trained length, HoPE has no settings, and transformers has no name for it.
RopeDictionary ReadHope(const JsonObject& part) {
  RopeDictionary rope;
  rope.type = *part.String("rope_type");
  rope.theta = part.Number("rope_theta", 1.0001, 1e12);
  rope.scaling = HopeScaling{};
  RefuseUnknownKeys(part);
  return rope;
}

}  // namespace

void ReadRotationPart(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  RopeContext around;
  around.type_required = false;
  around.allow_unknown = context.allow_unknown;
  around.max_position = c.plan.configured_length;
  nlohmann::json scaling = part.value();
  const std::optional<XposDecay> xpos = ReadXpos(part);
  const bool values = part.Bool("values").value_or(false);
  scaling.erase("xpos");
  scaling.erase("values");
  const JsonObject dictionary(scaling, part.where());
  const bool hope = scaling.is_object() && scaling.value("rope_type", nlohmann::json()) == "hope";
  const RopeDictionary rope = hope ? ReadHope(dictionary) : ParseRope(dictionary, around);
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = c.head_dim;
  if (rope.partial && rope.type != "proportional") {
    spec.rotary_dim = RotaryDim(c.head_dim, *rope.partial, part.where());
  }
  spec.base = rope.theta.value_or(10000);
  spec.scaling = rope.scaling;
  if (rope.original) c.plan.trained_length = *rope.original;
  spec.trained_length = c.plan.trained_length;
  spec.xpos = xpos;
  for (LayerPlan& layer : c.plan.layers) layer.rotation = spec, layer.rotates_values = values;
}

}  // namespace ropewalk::internal
