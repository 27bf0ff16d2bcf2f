// A position plan from the rotary modules of a loaded model, for families that the reader of
// config.json does not know (python/ropewalk/transformers.py).
#include <nanobind/stl/string.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "python/src/plan.h"
#include "python/src/register.h"
#include "ropewalk/config/config.h"

namespace ropewalk::python {
namespace {

using nlohmann::json;

LayerPlan ReadLayer(const json& given, const PositionPlan& model, PositionPlan& read) {
  LayerPlan layer;
  layer.window_tokens = given.at("window").get<int64_t>();
  layer.chunk_tokens = given.at("chunk").get<int64_t>();
  layer.recurrent = given.at("recurrent").get<bool>();
  if (!given.contains("rotation")) return layer;
  const json& rotation = given.at("rotation");
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = rotation.at("head_dim").get<int64_t>();
  spec.rotary_dim = rotation.at("rotary_dim").get<int64_t>();
  spec.base = rotation.at("base").get<double>();
  spec.trained_length = model.trained_length;
  layer.rotation = spec;
  PositionPlan one = model;
  one.layers = {layer};
  read = ParseRopeDictionary(rotation.at("rope").dump(), rotation.at("name").get<std::string>(),
                             one, true);
  return read.layers[0];
}

// {"trained_length", "configured_length", "layers": [{"window", "chunk", "recurrent", "rotation":
// {"name", "head_dim", "rotary_dim", "base", "rope": rope dictionary}}]}
PyPlan PlanOfLayers(const std::string& text) {
  nb::gil_scoped_release release;
  const json given = json::parse(text);
  PositionPlan plan;
  plan.trained_length = given.at("trained_length").get<int64_t>();
  plan.configured_length = given.at("configured_length").get<int64_t>();
  plan.stated_length = plan.configured_length;
  const PositionPlan model = plan;
  for (const json& layer : given.at("layers")) {
    PositionPlan read = model;
    plan.layers.push_back(ReadLayer(layer, model, read));
    plan.trained_length = read.trained_length;
  }
  const int64_t length = std::max(plan.trained_length, plan.configured_length);
  return {std::move(plan), length > 0 ? length : 4096};
}

}  // namespace

void RegisterLayers(nb::module_& m) { m.def("plan_of_layers", &PlanOfLayers); }

}  // namespace ropewalk::python
