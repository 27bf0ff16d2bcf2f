#include "src/config/hf/positions_write.h"

#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "src/config/hf/positions_object.h"
#include "src/config/rope_dictionary.h"
#include "src/io/json.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;

void WriteSetting(Json& out, const char* key, double value) { out[key] = value; }
void WriteSetting(Json& out, const char* key, bool value) { out[key] = value; }
void WriteSetting(Json& out, const char* key, const std::vector<double>& value) {
  out[key] = value;
}
void WriteSetting(Json& out, const char* key, const std::optional<double>& value) {
  if (value) out[key] = *value;
}

// Of YaRN's numbers those that other engines' code has, not their files.
void RefuseWithoutKey(const YarnScaling& yarn) {
  const YarnScaling usual;
  if (yarn.softmax_mscale == usual.softmax_mscale &&
      yarn.extrapolation_factor == usual.extrapolation_factor) {
    return;
  }
  throw Error(ErrorCode::kUnsupported,
              fmt::format("positions.rotation has no key for softmax_mscale and "
                          "extrapolation_factor: {}",
                          Describe(Scaling(yarn))));
}

template <class S>
void WriteSettings(Json& out, const S& scaling) {
  VisitFields<S>([&](const auto& field) {
    if constexpr (std::is_same_v<S, YarnScaling>) {
      const std::string_view name = field.name;
      if (name == "softmax_mscale" || name == "extrapolation_factor") return;
    }
    WriteSetting(out, field.name, scaling.*field.member);
  });
}

struct RotationWriter {
  double base;

  template <class S>
  Json operator()(const S& scaling) const {
    Json out = Typed(InfoOf(Scaling(scaling)).name);
    WriteSettings(out, scaling);
    return out;
  }
  Json operator()(const NoScaling& /*none*/) const { return Typed("default"); }
  Json operator()(const BaseScaling& other) const {
    return RotationWriter{other.base}.Typed("default");
  }
  // "ntk" is the name of another formula in vLLM's dictionaries.
  Json operator()(const NtkScaling& ntk) const {
    Json out = Typed("dynamic");
    out["alpha"] = ntk.factor;
    return out;
  }
  Json operator()(const YarnScaling& yarn) const {
    RefuseWithoutKey(yarn);
    Json out = Typed("yarn");
    WriteSettings(out, yarn);
    return out;
  }
  Json operator()(const ProportionalScaling& proportional) const {
    Json out = Typed("proportional");
    out["partial_rotary_factor"] = proportional.fraction;
    out["factor"] = proportional.factor;
    return out;
  }

  Json Typed(const char* type) const { return {{"rope_type", type}, {"rope_theta", base}}; }
};

// What the object has besides the method, from the spec and the file.
Json RotationObject(const LayerPlan& layer, int64_t trained_length, int64_t max_position) {
  const RotarySpec& spec = *layer.rotation;
  Json out = RotationKeys(spec.scaling, spec.base);
  if (spec.rotary_dim != spec.head_dim) {
    out["partial_rotary_factor"] =
        static_cast<double>(spec.rotary_dim) / static_cast<double>(spec.head_dim);
  }
  if (trained_length != max_position) {
    if (!IsRopeType(out["rope_type"].get<std::string>())) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("positions.rotation of {} has no key for a trained length of {}: it "
                              "is max_position_embeddings, {}",
                              Describe(spec.scaling), trained_length, max_position));
    }
    out["original_max_position_embeddings"] = trained_length;
  }
  if (spec.xpos) {
    out["xpos"] = {{"scale_base", spec.xpos->scale_base}, {"gamma", spec.xpos->gamma}};
  }
  if (layer.rotates_values) out["values"] = true;
  return out;
}

}  // namespace

Json RotationKeys(const Scaling& scaling, double base) {
  return std::visit(RotationWriter{base}, scaling);
}

Json MapObject(const DistanceMap& map) {
  Json out = {{"type", DistanceMaps().at(map.index()).name}};
  std::visit(
      [&]<class M>(const M& m) {
        VisitFields<M>([&](const auto& field) { out[field.name] = m.*field.member; });
      },
      map);
  return out;
}

Json TemperatureObject(const QueryTemperature& t) {
  return {{"type", TemperatureName(t.kind)},
          {"beta", t.beta},
          {"period", t.period},
          {"offset", t.offset}};
}

std::string WithPositions(const std::string& config_text, const std::string& file,
                          const PositionPlan& plan) {
  Json config = ParseOrderedObject(config_text, file);
  Json& positions = config.at("positions");
  const LayerPlan& layer = plan.layers.at(0);  // as all layers
  positions.erase("map");
  positions.erase("temperature");
  if (layer.rotation) {
    positions["rotation"] = RotationObject(layer, plan.trained_length, plan.configured_length);
  }
  if (layer.map) positions["map"] = MapObject(*layer.map);
  if (layer.temperature) positions["temperature"] = TemperatureObject(*layer.temperature);
  return config.dump(2) + "\n";
}

}  // namespace ropewalk::internal
