#include "ropewalk/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "src/plan/facts.h"
#include "src/plan/local_base.h"

namespace ropewalk {
namespace {

// Rotates the same elements by the same angles, wherever these come from.
bool SameRotation(const ResolvedRotation& a, const ResolvedRotation& b) {
  RotarySpec spec = a.spec;
  spec.base = b.spec.base;
  spec.trained_length = b.spec.trained_length;
  spec.scaling = b.spec.scaling;
  spec.dialect = b.spec.dialect;
  spec.axes = b.spec.axes;
  spec.xpos = b.spec.xpos;
  return spec == b.spec && a.frequencies == b.frequencies;
}

// The exact frequencies rounded to float32, so that a file that stores divisors in float32 hashes
// like the formula they came from wherever the divisors are exact.
void HashRotation(const ResolvedRotation& rotation, Hasher& hasher) {
  hasher.UpdateValue(static_cast<int64_t>(rotation.frequencies.inv_freq.size()));
  hasher.UpdateValue(rotation.spec.first_dim);
  for (const DoubleDouble& f : rotation.frequencies.inv_freq) {
    hasher.UpdateValue(static_cast<float>(f.hi));
  }
  hasher.UpdateValue(static_cast<float>(rotation.frequencies.amplitude));
  hasher.UpdateValue(static_cast<float>(rotation.frequencies.softmax_multiplier));
  // What few models have is hashed where it is there, so that the others keep their hash. A letter
  // marks each, which keeps one from passing for another.
  if (!rotation.frequencies.axis.empty()) {
    hasher.UpdateValue('a');
    for (const uint8_t axis : rotation.frequencies.axis) hasher.UpdateValue(axis);
  }
  if (!rotation.frequencies.log_decay.empty()) {
    hasher.UpdateValue('x');
    for (const double decay : rotation.frequencies.log_decay) hasher.UpdateValue(decay);
  }
  if (rotation.spec.rotated_heads > 0) {
    hasher.UpdateValue('h');
    hasher.UpdateValue(rotation.spec.rotated_heads);
  }
}

std::string DescribeRest(const RotarySpec& spec) {
  std::string text;
  if (spec.dialect != Dialect::kNative)
    text += fmt::format(", as {} computes it", Name(spec.dialect));
  if (!spec.axes.sections.empty()) {
    constexpr const char* kOrders[] = {"chunked", "interleaved", "Ernie's order"};
    text += fmt::format(", {} axes of {} pairs, {}{}", spec.axes.sections.size(),
                        fmt::join(spec.axes.sections, "+"),
                        kOrders[static_cast<std::size_t>(spec.axes.order)],
                        spec.axes.own_ladders ? ", each with its own frequencies" : "");
  }
  if (spec.xpos) {
    text += fmt::format(", xPos decay with scale_base {} and gamma {}", spec.xpos->scale_base,
                        spec.xpos->gamma);
  }
  if (spec.rotated_heads > 0) text += fmt::format(", only the first {} heads", spec.rotated_heads);
  return text;
}

std::string DescribeRotation(const ResolvedRotation& rotation) {
  const RotarySpec& spec = rotation.spec;
  const std::vector<DoubleDouble>& f = rotation.frequencies.inv_freq;
  double fastest = 0, slowest = 0;  // radians per token
  int still = 0;
  for (const DoubleDouble& x : f) {
    still += x.hi == 0 ? 1 : 0;
    if (x.hi == 0) continue;
    fastest = std::max(fastest, x.hi);
    slowest = slowest == 0 ? x.hi : std::min(slowest, x.hi);
  }
  std::string where = fmt::format("{} of {} dims", spec.rotary_dim, spec.head_dim);
  if (spec.first_dim != 0) where += fmt::format(" from {}", spec.first_dim);
  std::string text = fmt::format(
      "rotary, {} pairs, {}, base {}, scaling {}, wavelengths {:.6g} to {:.6g} tokens",
      spec.layout == PairLayout::kHalf ? "half" : "interleaved", where, spec.base,
      Describe(spec.scaling), 2 * std::numbers::pi / fastest, 2 * std::numbers::pi / slowest);
  if (still > 0) text += fmt::format(", {} of {} pairs have frequency 0", still, f.size());
  if (rotation.frequencies.amplitude != 1) {
    text += fmt::format(", cos and sin times {:.10g}", rotation.frequencies.amplitude);
  }
  if (rotation.frequencies.softmax_multiplier != 1) {
    text += fmt::format(", scores times {:.10g}", rotation.frequencies.softmax_multiplier);
  }
  text += DescribeRest(spec);
  return text;
}

void CheckLayer(const LayerPlan& layer, std::size_t i) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("plan: layer {}: {}", i, what));
  };
  if (layer.window_tokens < 0) {
    fail(fmt::format("window_tokens must be 0 (all) or more, got {}", layer.window_tokens));
  }
  if (layer.chunk_tokens < 0) {
    fail(fmt::format("chunk_tokens must be 0 (all) or more, got {}", layer.chunk_tokens));
  }
  if (layer.rotates_values && (!layer.rotation || layer.map)) {
    fail("values are rotated with keys, by a rotation without a distance map");
  }
  if (layer.encoding && layer.rotation) {
    fail(Describe(*layer.encoding) + ": stands in the place of a rotation, and there is one");
  }
  if (layer.recurrent && (layer.rotation || layer.encoding)) {
    fail("recurrent layers have no rotation");
  }
  if (layer.recurrent && layer.bias) fail("recurrent layers have no scores that a bias could join");
  if (layer.map) {
    if (!layer.rotation) {
      fail(Describe(*layer.map) + ": expected a layer that rotates, whose distances it maps");
    }
    if (layer.rotation->rotated_heads > 0) {
      fail(Describe(*layer.map) + ": expected a layer whose heads all rotate");
    }
    try {
      CheckComposition(*layer.map, *layer.rotation, layer.window_tokens);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("plan: layer {}: {}", i, e.what()));
    }
  }
  if (!layer.temperature) return;
  const QueryTemperature& t = *layer.temperature;
  const int64_t least = t.kind == QueryTemperature::Kind::kLogN ? 2 : 1;
  if (t.period < least || t.offset < 0 || !std::isfinite(t.beta) || t.beta < 0) {
    fail(
        fmt::format("temperature: expected period of at least {} tokens, offset and beta not "
                    "negative; got {}, {} and {}",
                    least, t.period, t.offset, t.beta));
  }
}

// Whether an encoding other than a rotation gives the layers positions.
bool HasOther(OtherEncoding other) {
  return other != OtherEncoding::kNone && other != OtherEncoding::kNoPositions;
}

std::string DescribeLayer(const ResolvedPlan& plan, const ResolvedLayer& layer, bool other) {
  const bool some = plan.learned || plan.absolute || plan.recurrent_layer || layer.bias >= 0 ||
                    layer.encoding || other;
  std::string text =
      layer.recurrent ? "recurrent (linear attention or state space), no positions"
      : layer.rotation < 0
          ? (some ? "no rotation" : "no position information (NoPE)")
          : DescribeRotation(plan.rotations[static_cast<std::size_t>(layer.rotation)]);
  if (layer.bias >= 0) {
    text += ", scores plus " + Describe(plan.biases[static_cast<std::size_t>(layer.bias)]);
  }
  const std::string facts = Describe(static_cast<const LayerFacts&>(layer));
  if (!facts.empty()) text += ", " + facts;
  return text;
}

}  // namespace

std::string HashPlan(const ResolvedPlan& plan) {
  std::vector<std::string> biases;  // each once, whatever the number of layers
  for (const LayerBias& bias : plan.biases) {
    Hasher hasher;
    HashBias(bias, hasher);
    biases.push_back(hasher.Hex());
  }
  Hasher hasher;
  hasher.UpdateValue(static_cast<int64_t>(plan.layers.size()));
  for (const ResolvedLayer& layer : plan.layers) {
    internal::HashFacts(layer, internal::Hashed::kAlways, hasher);
    hasher.UpdateValue(static_cast<uint8_t>(layer.rotation >= 0));
    if (layer.rotation >= 0) {
      HashRotation(plan.rotations[static_cast<std::size_t>(layer.rotation)], hasher);
    }
    internal::HashFacts(layer, internal::Hashed::kWhereSet, hasher);
    if (layer.bias >= 0) {
      hasher.UpdateValue('b');
      hasher.Update(biases[static_cast<std::size_t>(layer.bias)]);
    }
  }
  if (plan.learned) {
    hasher.UpdateValue('l');
    hasher.UpdateValue(plan.learned->positions);
    hasher.UpdateValue(plan.learned->first_row);
  }
  if (plan.absolute) {
    hasher.UpdateValue('e');
    Hash(*plan.absolute, hasher);
  }
  if (plan.recurrent_layer) {
    hasher.UpdateValue('n');
    hasher.UpdateValue(plan.recurrent_layer->cell);
  }
  return hasher.Hex();
}

std::string LayerNames(const std::vector<int64_t>& layers) {
  if (layers.empty()) return "no layers";
  if (layers.size() == 1) return fmt::format("layer {}", layers[0]);
  const auto count = static_cast<int64_t>(layers.size());
  if (layers.back() - layers[0] + 1 == count) {
    return fmt::format("layers {}-{}", layers[0], layers.back());
  }
  const int64_t step = layers[1] - layers[0];
  bool regular = true;
  for (std::size_t i = 1; i < layers.size(); ++i) regular &= layers[i] - layers[i - 1] == step;
  if (regular && count > 4) {
    return fmt::format("layers {}, {}, {}, ... {}", layers[0], layers[1], layers[2], layers.back());
  }
  return fmt::format("layers {}", fmt::join(layers, ", "));
}

double Temperature(const QueryTemperature& t, int64_t position) {
  const int64_t least = t.kind == QueryTemperature::Kind::kLogN ? 2 : 1;
  if (t.period < least) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Temperature: period: expected {} or more, got {}", least, t.period));
  }
  if (t.kind == QueryTemperature::Kind::kLogN) {
    return std::max(
        1.0, std::log(static_cast<double>(position + 1)) / std::log(static_cast<double>(t.period)));
  }
  if (t.kind == QueryTemperature::Kind::kMscale) {
    const double amplitude = 1 + t.beta * std::log(static_cast<double>(t.period));
    return amplitude * amplitude;
  }
  // Further below 0 the formula would take the logarithm of 0 or less.
  const int64_t steps = std::max<int64_t>(0, position + t.offset) / t.period;
  return 1 + t.beta * std::log1p(static_cast<double>(steps));
}

int64_t PositionsOf(const PositionPlan& plan) {
  const int64_t learned = plan.learned ? plan.learned->positions : INT64_MAX;
  return std::min(learned, plan.absolute ? PositionsOf(*plan.absolute) : INT64_MAX);
}

std::string DescribeEnd(const PositionPlan& plan) {
  const int64_t last = PositionsOf(plan) - 1;
  if (plan.learned && plan.learned->positions == last + 1) {
    return fmt::format("no learned vector: there are learned vectors for {} positions, 0 to {}",
                       last + 1, last);
  }
  return fmt::format("no row: {} has {} positions, 0 to {}", Describe(*plan.absolute), last + 1,
                     last);
}

PositionPlan WithScaling(const PositionPlan& plan, const Scaling& scaling, int64_t trained_length) {
  const auto rotates = [](const LayerPlan& layer) { return layer.rotation.has_value(); };
  if (!std::holds_alternative<NoScaling>(scaling) &&
      std::none_of(plan.layers.begin(), plan.layers.end(), rotates)) {
    const auto biased = [](const LayerPlan& layer) { return layer.bias.has_value(); };
    const auto encoded = [](const LayerPlan& layer) { return layer.encoding.has_value(); };
    std::string instead;
    if (plan.learned) instead = " (its positions are learned vectors)";
    if (plan.absolute) instead = " (its positions are in the embeddings)";
    if (std::any_of(plan.layers.begin(), plan.layers.end(), biased)) {
      instead = " (its positions are a bias on the scores)";
    }
    if (const auto layer = std::find_if(plan.layers.begin(), plan.layers.end(), encoded);
        layer != plan.layers.end()) {
      instead = fmt::format(" (queries and keys by {})", Describe(*layer->encoding));
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} scales rotary frequencies, and no layer of this model rotates{}; "
                            "only the method none applies",
                            Describe(scaling), instead));
  }
  PositionPlan out = plan;
  if (trained_length > 0) out.trained_length = trained_length;
  for (LayerPlan& layer : out.layers) {
    if (!layer.rotation) continue;
    const bool local = internal::HasLocalBase(plan, layer);
    if (!local) layer.rotation->scaling = scaling;
    // A scaling that the file gives the sliding layers alone has an original length of its own.
    const bool own = local && InfoOf(layer.rotation->scaling).needs_trained_length;
    if (out.trained_length > 0 && !own) layer.rotation->trained_length = out.trained_length;
  }
  return out;
}

ResolvedPlan Resolve(const PositionPlan& plan, int64_t length) {
  ResolvedPlan out;
  out.length = length;
  out.learned = plan.learned;
  out.absolute = plan.absolute;
  out.recurrent_layer = plan.recurrent_layer;
  if (plan.learned && (plan.learned->positions < 1 || plan.learned->first_row < 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("plan: learned: expected 1 position or more and a first row not "
                            "negative, got {} and {}",
                            plan.learned->positions, plan.learned->first_row));
  }
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    CheckLayer(layer, i);
    ResolvedLayer resolved;
    static_cast<LayerFacts&>(resolved) = layer;
    if (layer.rotation) {
      ResolvedRotation rotation{*layer.rotation, Resolve(*layer.rotation, length)};
      const auto same = std::find_if(
          out.rotations.begin(), out.rotations.end(),
          [&](const ResolvedRotation& other) { return SameRotation(rotation, other); });
      resolved.rotation = static_cast<int>(same - out.rotations.begin());
      if (same == out.rotations.end()) out.rotations.push_back(std::move(rotation));
    }
    if (layer.bias) {
      const auto same = std::find(out.biases.begin(), out.biases.end(), *layer.bias);
      resolved.bias = static_cast<int>(same - out.biases.begin());
      if (same == out.biases.end()) out.biases.push_back(*layer.bias);
    }
    out.layers.push_back(resolved);
  }
  out.hash = HashPlan(out);
  return out;
}

std::string Describe(const PositionPlan& plan, int64_t length) {
  const ResolvedPlan resolved = Resolve(plan, length);
  std::string text =
      fmt::format("positions of {} layers, resolved for {} tokens", plan.layers.size(), length);
  if (plan.trained_length > 0) text += fmt::format(", trained at {}", plan.trained_length);
  if (plan.configured_length > 0 && plan.configured_length != plan.trained_length) {
    text += fmt::format(", configured for {}", plan.configured_length);
  }
  text += '\n';
  if (resolved.learned) {
    text += fmt::format("  embeddings: plus a learned vector for each of {} positions{}\n",
                        resolved.learned->positions,
                        resolved.learned->first_row > 0
                            ? fmt::format(", from row {} of the table", resolved.learned->first_row)
                            : "");
  }
  if (resolved.absolute) text += "  embeddings: " + Describe(*resolved.absolute) + "\n";
  if (resolved.recurrent_layer) {
    text += fmt::format("  in front of the layers: {}\n", Describe(*resolved.recurrent_layer));
  }
  // Layers that alternate make two lines, not one each.
  std::vector<bool> told(resolved.layers.size());
  for (std::size_t first = 0; first < resolved.layers.size(); ++first) {
    if (told[first]) continue;
    const ResolvedLayer& layer = resolved.layers[first];
    std::vector<int64_t> alike;
    for (std::size_t l = first; l < resolved.layers.size(); ++l) {
      if (resolved.layers[l] != layer) continue;
      told[l] = true;
      alike.push_back(static_cast<int64_t>(l));
    }
    text += "  " + LayerNames(alike) + ": " + DescribeLayer(resolved, layer, HasOther(plan.other)) +
            '\n';
  }
  for (const std::string& note : plan.notes) text += "  note: " + note + '\n';
  return text + "  hash: " + resolved.hash + '\n';
}

}  // namespace ropewalk
