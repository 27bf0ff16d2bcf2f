// The positions of a model as JSON; docs/inspect-format.md lists the keys.
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/inspect_page.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

Json ErrorJson(const std::optional<AngleError>& e) {
  if (!e) return nullptr;
  return {{"radians", e->radians}, {"pair", e->pair}};
}

Json PairsJson(const InspectRotation& r) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < r.pairs.size(); ++i) {
    const PairInfo& p = r.pairs[i];
    rows.push_back({{"pair", i},
                    {"frequency", p.frequency},
                    {"trained_frequency", r.trained.inv_freq[i].hi},
                    {"wavelength", Number(p.wavelength_tokens)},
                    {"trained_rotations", p.trained_rotations},
                    {"target_rotations", p.target_rotations},
                    {"unseen_share", p.unseen_share},
                    {"axis", p.axis}});
  }
  return rows;
}

Json Float32Json(const InspectRotation& r) {
  Json rows = Json::array();
  for (const Float32Error& e : r.float32) {
    rows.push_back({{"position", e.position},
                    {"hugging_face", ErrorJson(e.hugging_face)},
                    {"rounded_once", ErrorJson(e.rounded_once)},
                    {"llamacpp_cpu", ErrorJson(e.ggml_cpu)},
                    {"llamacpp_cuda", ErrorJson(e.ggml_cuda)}});
  }
  return rows;
}

Json EnginesJson(const InspectRotation& r) {
  Json rows = Json::array();
  for (const EngineView& v : r.engines) {
    Json row = {{"engine", Name(v.engine)}, {"expressible", v.expressible}, {"same", v.Same()}};
    if (!v.expressible) {
      row["reason"] = v.reason;
    } else {
      row.update({{"angle_rad", v.angle_rad},
                  {"angle_pair", v.angle_pair},
                  {"frequency_ratio", Number(v.frequency_ratio)},
                  {"ratio_pair", v.ratio_pair},
                  {"amplitude", v.amplitude},
                  {"amplitude_ratio", v.amplitude_ratio},
                  {"softmax_ratio", v.softmax_ratio},
                  {"axis_pairs", v.axis_pairs}});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json LayerNumbers(const InspectPage& page, int rotation) {
  Json layers = Json::array();
  for (std::size_t i = 0; i < page.resolved.layers.size(); ++i) {
    if (page.resolved.layers[i].rotation == rotation) layers.push_back(i);
  }
  return layers;
}

Json RotationJson(const InspectPage& page, std::size_t index) {
  const InspectRotation& r = page.rotations[index];
  const RotarySpec& spec = r.rotation.spec;
  Json bounds = Json::array();
  for (const BaseBound& b : r.bounds) {
    bounds.push_back({{"context", b.context}, {"base", b.base}, {"rounded", b.rounded}});
  }
  return {{"layers", LayerNumbers(page, static_cast<int>(index))},
          {"title", r.layers},
          {"reach", r.reach},
          {"layout", spec.layout == PairLayout::kHalf ? "half" : "interleaved"},
          {"head_dim", spec.head_dim},
          {"rotary_dim", spec.rotary_dim},
          {"first_dim", spec.first_dim},
          {"base", spec.base},
          {"scaling", Describe(spec.scaling)},
          {"dialect", Name(spec.dialect)},
          {"amplitude", r.rotation.frequencies.amplitude},
          {"softmax_multiplier", r.rotation.frequencies.softmax_multiplier},
          {"critical_pair", r.critical.first_pair},
          {"critical_dimension", r.critical.dimension},
          {"incomplete_pairs", r.critical.incomplete_pairs},
          {"longest_context", r.longest},
          {"longest_context_trained", r.longest_trained},
          {"base_bounds", std::move(bounds)},
          {"float32", Float32Json(r)},
          {"engines", EnginesJson(r)},
          {"pairs", PairsJson(r)}};
}

}  // namespace

Json PageJson(const InspectPage& page) {
  Json rotations = Json::array(), decay = Json::array(), warnings = Json::array();
  for (std::size_t i = 0; i < page.rotations.size(); ++i) {
    rotations.push_back(RotationJson(page, i));
  }
  Json biases = Json::array();
  for (std::size_t i = 0; i < page.biases.size(); ++i) biases.push_back(BiasJson(page, i));
  for (const InspectDecay& d : page.decay) {
    Json points = Json::array();
    for (const DecayPoint& p : d.points) {
      points.push_back(
          {{"distance", p.distance}, {"bound", Number(p.bound)}, {"expected", Number(p.expected)}});
    }
    decay.push_back({{"method", d.method}, {"factor", d.factor}, {"points", std::move(points)}});
  }
  for (const Finding& f : page.findings) {
    warnings.push_back({{"id", f.id},
                        {"engine", f.engine},
                        {"versions", f.versions},
                        {"text", f.text},
                        {"value", f.measured ? Number(f.value) : Json(nullptr)},
                        {"unit", f.unit},
                        {"position", f.position > 0 ? Json(f.position) : Json(nullptr)},
                        {"rotation", f.rotation >= 0 ? Json(f.rotation) : Json(nullptr)}});
  }
  Json use = nullptr;
  if (page.use) use = {{"tokens", page.use->tokens}, {"share", page.use->share}};
  Json out;
  out["length"] = page.length;
  out["trained_length"] = page.trained_length;
  out["hash"] = page.resolved.hash;
  out["rotations"] = std::move(rotations);
  out["biases"] = std::move(biases);
  out["decay"] = std::move(decay);
  out["warnings"] = std::move(warnings);
  out["frequency_use"] = std::move(use);
  out["attention"] = page.use ? AttentionJson(page) : Json();
  out["attention_note"] = page.attention_note;
  return out;
}

}  // namespace ropewalk::cli
