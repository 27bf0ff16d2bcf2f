// The rotary modules of a loaded model (python/ropewalk/transformers): a position plan of them, for
// families that the reader of config.json does not know, and the hash of a plan with their numbers.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "python/src/arrays.h"
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

// {"trained_length", "configured_length", "latent" (attention), "layers": [{"window", "chunk", "recurrent", "rotation":
// {"name", "head_dim", "rotary_dim", "base", "rope": rope dictionary}}]}
PyPlan PlanOfLayers(const std::string& text) {
  nb::gil_scoped_release release;
  const json given = json::parse(text);
  PositionPlan plan;
  plan.trained_length = given.at("trained_length").get<int64_t>();
  plan.configured_length = given.at("configured_length").get<int64_t>();
  plan.stated_length = plan.configured_length;
  plan.yarn_scales_scores = given.at("latent").get<bool>();
  const PositionPlan model = plan;
  for (const json& layer : given.at("layers")) {
    PositionPlan read = model;
    plan.layers.push_back(ReadLayer(layer, model, read));
    plan.trained_length = read.trained_length;
  }
  const int64_t length = std::max(plan.trained_length, plan.configured_length);
  return {std::move(plan), length > 0 ? length : 4096};
}

// What a layer rotates by: float32 frequencies and the factor of cos and sin.
using Buffer = std::optional<std::pair<std::vector<float>, double>>;

// The hash of the plan with what the buffers of a model hold in place of its own frequencies. A
// number that is the plan's frequency as transformers rounds it stands for that frequency.
std::string HashOfBuffers(const PyPlan& p, const std::vector<Buffer>& layers) {
  nb::gil_scoped_release release;
  ResolvedPlan plan = p.resolved;
  if (layers.size() != plan.layers.size()) {
    Bad("layers: expected " + std::to_string(plan.layers.size()) + ", got " +
        std::to_string(layers.size()));
  }
  plan.rotations.clear();
  for (std::size_t l = 0; l < layers.size(); ++l) {
    ResolvedLayer& layer = plan.layers[l];
    const int own = layer.rotation;
    layer.rotation = -1;
    if (!layers[l]) continue;
    const auto& [numbers, amplitude] = *layers[l];
    layer.rotation = static_cast<int>(plan.rotations.size());
    ResolvedRotation& live =
        plan.rotations.emplace_back(own >= 0 ? p.resolved.rotations[static_cast<std::size_t>(own)]
                                             : ResolvedRotation{RotarySpec(PairLayout::kHalf), {}});
    Frequencies& f = live.frequencies;
    const std::vector<float> rounded = f.inv_freq_f32;
    f.inv_freq.resize(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i >= rounded.size() || numbers[i] != rounded[i]) f.inv_freq[i] = {numbers[i], 0};
    }
    f.amplitude = amplitude;
  }
  return HashPlan(plan);
}

}  // namespace

void RegisterLayers(nb::module_& m) {
  m.def("plan_of_layers", &PlanOfLayers);
  m.def("hash_of_buffers", &HashOfBuffers);
}

}  // namespace ropewalk::python
