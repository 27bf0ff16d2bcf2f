// The score bias of a model: how fast each head's weights fall with distance.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/inspect_page.h"

namespace ropewalk::cli {
namespace {

using Json = nlohmann::ordered_json;

const double kLn2 = std::log(2.0);
constexpr double kLastBit = 24;  // of float32
constexpr int64_t kMostKeys = int64_t{1} << 18;

std::vector<int64_t> LayersOf(const InspectPage& page, std::size_t index) {
  std::vector<int64_t> layers;
  for (std::size_t i = 0; i < page.resolved.layers.size(); ++i) {
    if (page.resolved.layers[i].bias == static_cast<int>(index)) {
      layers.push_back(static_cast<int64_t>(i));
    }
  }
  return layers;
}

double Bfloat16Error(const AlibiBias& alibi, const std::vector<float>& slopes, int64_t length) {
  const int64_t last = length - 1, first = std::max<int64_t>(0, length - kMostKeys);
  std::vector<int64_t> keys(static_cast<std::size_t>(length - first));
  std::iota(keys.begin(), keys.end(), first);
  std::vector<float> stepped(keys.size());
  const PairForm form = alibi.LowerInBfloat16(static_cast<int64_t>(slopes.size()));
  double most = 0;
  for (std::size_t h = 0; h < slopes.size(); ++h) {
    form.function->Evaluate(static_cast<int64_t>(h), {&last, 1}, keys, stepped.data(),
                            static_cast<int64_t>(keys.size()));
    for (std::size_t c = 0; c < keys.size(); ++c) {
      const double line = -double{slopes[h]} * static_cast<double>(last - keys[c]);
      most = std::max(most, std::abs(stepped[c] - line));
    }
  }
  return most;
}

Json AlibiJson(const InspectBias& b, const AlibiBias& alibi) {
  Json halves = Json::array(), sight = Json::array();
  for (std::size_t h = 0; h < b.slopes.size(); ++h) {
    halves.push_back(b.HalvesEvery(h));
    sight.push_back(b.SightEnds(h));
  }
  const char* rule = alibi.rule == AlibiSlopes::kGeometric ? "geometric" : "powers_of_two";
  return {{"method", "alibi"},
          {"heads", b.bias.heads},
          {"rule", alibi.slopes.empty() ? rule : "learned"},
          {"max_bias", alibi.max_bias},
          {"scale", alibi.scale},
          {"bfloat16", alibi.bfloat16},
          {"slopes", b.slopes},
          {"halves_every", std::move(halves)},
          {"sight_ends", std::move(sight)},
          {"bfloat16_error", b.bfloat16_error ? Json(*b.bfloat16_error) : Json(nullptr)}};
}

// What a configuration has; learned values are in the model's tensors.
struct MethodJson {
  const InspectBias& b;
  Json operator()(const AlibiBias& alibi) const { return AlibiJson(b, alibi); }
  Json operator()(const T5LayerBias& t5) const {
    return {{"method", "t5"},
            {"heads", b.bias.heads},
            {"buckets", t5.bias.buckets},
            {"last_distance", t5.bias.last_distance},
            {"bidirectional", t5.bias.bidirectional},
            {"per_layer", t5.per_layer}};
  }
  Json operator()(const DebertaLayerBias& deberta) const {
    return {{"method", "deberta"},
            {"heads", b.bias.heads},
            {"buckets", deberta.bias.buckets},
            {"last_distance", deberta.bias.max_position},
            {"content_to_position", deberta.content_to_position},
            {"position_to_content", deberta.position_to_content},
            {"shared_keys", deberta.shared_keys},
            {"normalized_embedding", deberta.normalized_embedding}};
  }
  Json operator()(const TransformerXlBias& xl) const {
    return {{"method", "transformer_xl"},
            {"heads", b.bias.heads},
            {"bidirectional", !xl.causal},
            {"last_distance", xl.clamp_distance > 0 ? Json(xl.clamp_distance) : Json()}};
  }
  Json operator()(const NezhaLayerBias& nezha) const {
    return {{"method", "nezha"}, {"heads", b.bias.heads}, {"last_distance", nezha.reach}};
  }
  Json operator()(const LearnedAlibiLayerBias& alibi) const {
    return {{"method", "alibi"},
            {"heads", b.bias.heads},
            {"rule", "learned"},
            {"bidirectional", !alibi.causal}};
  }
  Json operator()(const KerpleBias& kerple) const {
    return {{"method", "kerple"},
            {"heads", b.bias.heads},
            {"kernel", kerple.kernel == KerpleKernel::kLog ? "log" : "power"},
            {"bidirectional", !kerple.causal}};
  }
  Json operator()(const SandwichBias& sandwich) const {
    return {{"method", "sandwich"},
            {"heads", b.bias.heads},
            {"dim", sandwich.dim},
            {"base", sandwich.base},
            {"bidirectional", !sandwich.causal}};
  }
  Json operator()(const FireLayerBias& fire) const {
    return {{"method", "fire"}, {"heads", b.bias.heads}, {"width", fire.width}};
  }
  Json operator()(const ShawLayerBias& shaw) const {
    return {{"method", "shaw"},    {"heads", b.bias.heads}, {"left", shaw.left},
            {"right", shaw.right}, {"values", shaw.values}, {"per_head", shaw.per_head}};
  }
  Json operator()(const TupeLayerBias& tupe) const {
    return {{"method", "tupe"},
            {"heads", b.bias.heads},
            {"positions", tupe.positions},
            {"reset", tupe.reset},
            {"relative", tupe.relative},
            {"buckets", tupe.buckets},
            {"last_distance", tupe.last_distance}};
  }
  Json operator()(const CopeLayerBias& cope) const {
    return {{"method", "cope"},
            {"heads", b.bias.heads},
            {"rows", cope.rows},
            {"per_head", cope.per_head}};
  }
  Json operator()(const GateLayerBias& /*gate*/) const {
    return {{"method", "gate"}, {"heads", b.bias.heads}};
  }
};

}  // namespace

double InspectBias::HalvesEvery(std::size_t head) const { return kLn2 / slopes[head]; }
double InspectBias::SightEnds(std::size_t head) const { return kLastBit * HalvesEvery(head); }

InspectBias BiasOf(const InspectPage& page, std::size_t index) {
  InspectBias out = {.layers = LayerNames(LayersOf(page, index)),
                     .bias = page.resolved.biases[index]};
  if (const auto* alibi = std::get_if<AlibiBias>(&out.bias.method)) {
    out.slopes = alibi->Lower(out.bias.heads, 0).behind;
    if (alibi->bfloat16) out.bfloat16_error = Bfloat16Error(*alibi, out.slopes, page.length);
  }
  return out;
}

std::string BiasText(const InspectPage& page, const InspectBias& b) {
  if (b.slopes.empty()) return "";  // the plan has a line for it
  const std::size_t heads = b.slopes.size();
  std::string out = fmt::format(
      "\nBias of {}: slope x distance is subtracted from a score\n"
      "  {:>4}  {:>12}  {:>16}  {:>16}  {:>16}\n"
      "  {:>4}  {:>12}  {:>16}  {:>16}  {:>16}\n",
      b.layers, "head", "slope", "weight halves", "weight is 2^-24", "subtracted", "", "per token",
      "every, tokens", "after, tokens", fmt::format("at {}", page.length - 1));
  std::size_t widest = 0;
  for (std::size_t h = 0; h < heads; ++h) {
    if (b.slopes[h] < b.slopes[widest]) widest = h;
    if (heads > 16 && h % 8 != 0 && h + 1 != heads) continue;
    out += fmt::format("  {:>4}  {:>12.6g}  {:>16.4g}  {:>16.0f}  {:>16.4g}\n", h, b.slopes[h],
                       b.HalvesEvery(h), b.SightEnds(h),
                       double{b.slopes[h]} * static_cast<double>(page.length - 1));
  }
  if (heads > 16) out += "  every 8th head; --json has all\n";
  out += fmt::format(
      "  weights are relative to an equal key at distance 0; below 2^-24 float32 rounds them away\n"
      "  beyond the trained length: the bias depends on the distance alone, so no position is out "
      "of\n"
      "  range and no scaling applies; but a head attends no further than its slope permits (at "
      "most\n"
      "  {1:.0f} tokens, head {0}), so text further back has no effect\n",
      widest, b.SightEnds(widest));
  if (b.bfloat16_error) {
    out += fmt::format(
        "  transformers computes slope x position in bfloat16: at {} tokens scores differ by up to "
        "{:.3g};\n"
        "  --angles float32 reproduces it\n",
        page.length, *b.bfloat16_error);
  }
  return out;
}

Json BiasJson(const InspectPage& page, std::size_t index) {
  const InspectBias& b = page.biases[index];
  Json json = {{"layers", LayersOf(page, index)}, {"title", b.layers}};
  json.update(std::visit(MethodJson{b}, b.bias.method));
  return json;
}

}  // namespace ropewalk::cli
