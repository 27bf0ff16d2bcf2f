// How queries and keys are rotated, or encoded in the place of a rotation.
#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "ropewalk/relative/fope.h"
#include "src/config/hf/positions_object.h"

namespace ropewalk::internal {

namespace {

constexpr double kLeastBase = 1.0001, kMostBase = 1e12;

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

// Of the methods of this library those that no rope dictionary of an engine names. A base is not
// among them: rope_theta says it.
bool IsOwnType(const MethodInfo& method) {
  return !IsRopeType(method.name) && method.name != std::string_view("base");
}

void ReadField(const JsonObject& part, const char* key, double& value) {
  value = part.Number(key, 0, 1e9).value_or(value);
}
void ReadField(const JsonObject& part, const char* key, std::optional<double>& value) {
  value = part.Number(key, 0, 1e9);
}
void ReadField(const JsonObject& part, const char* key, bool& value) {
  value = part.Bool(key).value_or(value);
}
void ReadField(const JsonObject& part, const char* key, std::vector<double>& value) {
  value = part.Numbers(key, 1e-6, 1e9).value_or(value);
}

// Settings are the fields of the method's struct. What they may be, Resolve knows.
RopeDictionary ReadOwnMethod(const JsonObject& part, const MethodInfo& method) {
  RopeDictionary rope;
  rope.type = *part.String("rope_type");
  rope.theta = part.Number("rope_theta", kLeastBase, kMostBase);
  rope.partial = part.Number("partial_rotary_factor", 0, 1);
  rope.scaling = method.make(0);
  std::visit(
      [&]<class S>(S& scaling) {
        VisitFields<S>(
            [&](const auto& field) { ReadField(part, field.name, scaling.*field.member); });
      },
      rope.scaling);
  RefuseUnknownKeys(part);
  return rope;
}

QueryKeyEncoding ReadPope(const JsonObject& part, const ModelConfig& /*c*/) {
  return PopeLayer{part.Number("rope_theta", kLeastBase, kMostBase).value_or(10000)};
}

// Those that make a whole rotation within the trained length, unless the file says how many.
QueryKeyEncoding ReadFope(const JsonObject& part, const ModelConfig& c) {
  FopeEncoding fope;
  fope.heads = 1;
  fope.head_dim = c.head_dim;
  fope.base = part.Number("rope_theta", kLeastBase, kMostBase).value_or(10000);
  fope.trained_length = c.plan.trained_length;
  fope.frequencies = part.Int("frequencies", 0, c.head_dim / 2).value_or(0);
  int64_t kept = 0;
  try {
    kept = fope.Kept();
  } catch (const Error& e) {
    throw Error(ErrorCode::kInvalidConfig, fmt::format("{}: {}", part.where(), e.what()));
  }
  if (kept == 0) {
    part.Fail("frequencies",
              fmt::format("1 to {}: none makes a whole rotation within the trained {} tokens",
                          c.head_dim / 2, c.plan.trained_length));
  }
  return FopeLayer{fope.base, kept};
}

struct EncodingRow {
  const char* type;
  QueryKeyEncoding (*read)(const JsonObject& part, const ModelConfig& c);
};
constexpr EncodingRow kEncodings[] = {{"pope", ReadPope}, {"fope", ReadFope}};

RopeDictionary ReadRope(const JsonObject& part, const PositionsContext& context,
                        const ModelConfig& c) {
  RopeContext around;
  around.type_required = false;
  around.allow_unknown = context.allow_unknown;
  around.max_position = c.plan.configured_length;
  for (const EncodingRow& row : kEncodings) around.further_types += fmt::format(", {}", row.type);
  const auto* type = part.Find("rope_type");
  for (const MethodInfo& method : ScalingMethods()) {
    if (!IsOwnType(method)) continue;
    if (type != nullptr && *type == method.name) return ReadOwnMethod(part, method);
    around.further_types += fmt::format(", {}", method.name);
  }
  return ParseRope(part, around);
}

// Whether it is one of those in the place of a rotation, which have settings of their own alone.
bool ReadEncoding(const JsonObject& part, ModelConfig& c) {
  const auto* type = part.Find("rope_type");
  for (const EncodingRow& row : kEncodings) {
    if (type == nullptr || *type != row.type) continue;
    const QueryKeyEncoding encoding = row.read(part, c);
    RefuseUnknownKeys(part);
    for (LayerPlan& layer : c.plan.layers) layer.encoding = encoding;
    return true;
  }
  return false;
}

}  // namespace

void ReadRotationPart(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  if (ReadEncoding(part, c)) return;
  nlohmann::json scaling = part.value();
  const std::optional<XposDecay> xpos = ReadXpos(part);
  const bool values = part.Bool("values").value_or(false);
  scaling.erase("xpos");
  scaling.erase("values");
  const RopeDictionary rope = ReadRope(JsonObject(scaling, part.where()), context, c);
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
