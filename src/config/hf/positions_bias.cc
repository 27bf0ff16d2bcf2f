// What is added to the scores.
#include <fmt/format.h>

#include <cmath>

#include "ropewalk/base/error.h"
#include "src/config/hf/positions_object.h"

namespace ropewalk::internal {
namespace {

using ReadBias = LayerBias (*)(const JsonObject& part, const PositionsContext& context,
                               ModelConfig& c);

constexpr int64_t kMaxRows = int64_t{1} << 20;  // of a table of an encoding

LayerBias ReadAlibi(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  if (part.Bool("learned").value_or(false)) {
    return {c.heads, LearnedAlibiLayerBias{context.causal}};
  }
  AlibiBias alibi;
  if (!context.causal) alibi.ahead = AlibiAhead::kSymmetric;
  return {c.heads, alibi};
}

// Buckets of distances, of which some are logarithmic.
T5Bias ReadBuckets(const JsonObject& part, bool bidirectional) {
  T5Bias t5;
  t5.buckets = part.Int("buckets", 4, kMaxRows).value_or(t5.buckets);
  t5.last_distance = part.Int("last_distance", 2, kMaxTokens).value_or(t5.last_distance);
  t5.bidirectional = bidirectional;
  return t5;
}

LayerBias ReadT5(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  const T5Bias t5 = ReadBuckets(part, !context.causal);
  return {c.heads, T5LayerBias{.bias = t5, .per_layer = true, .scaled = true}};
}

LayerBias ReadKerple(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  KerpleBias kerple;
  kerple.causal = context.causal;
  const std::string kernel = part.String("kernel").value_or("log");
  if (kernel != "log" && kernel != "power") RefuseType(part, "kernel", kernel, {"log", "power"});
  kerple.kernel = kernel == "log" ? KerpleKernel::kLog : KerpleKernel::kPower;
  return {c.heads, kerple};
}

LayerBias ReadSandwich(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  SandwichBias sandwich;
  sandwich.causal = context.causal;
  sandwich.dim = part.Int("dim", 2, kMaxRows).value_or(sandwich.dim);
  if (sandwich.dim % 2 != 0) part.Fail("dim", "an even number");
  sandwich.base = part.Number("base", 1.0001, 1e12).value_or(sandwich.base);
  return {c.heads, sandwich};
}

LayerBias ReadFire(const JsonObject& part, const PositionsContext& /*context*/, ModelConfig& c) {
  FireLayerBias fire;
  fire.width = part.Int("width", 1, kMaxRows).value_or(fire.width);
  return {c.heads, fire};
}

LayerBias ReadShaw(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  ShawLayerBias shaw;
  shaw.head_dim = c.head_dim;
  shaw.left = part.Int("left", 0, kMaxRows).value_or(shaw.left);
  shaw.right = part.Int("right", 0, kMaxRows).value_or(context.causal ? 0 : shaw.left);
  shaw.values = part.Bool("values").value_or(shaw.values);
  shaw.per_head = part.Bool("per_head").value_or(shaw.per_head);
  return {c.heads, shaw};
}

LayerBias ReadTransformerXl(const JsonObject& part, const PositionsContext& context,
                            ModelConfig& c) {
  TransformerXlBias xl;
  xl.model_dim = c.hidden;
  xl.head_dim = c.head_dim;
  xl.causal = context.causal;
  xl.clamp_distance = part.Int("clamp_distance", 0, kMaxTokens).value_or(xl.clamp_distance);
  if (c.hidden % 2 != 0) {
    part.Fail("type", "another one for a hidden_size that is odd: sinusoids come in pairs");
  }
  return {c.heads, xl};
}

// A table with a row for each position reaches as far as the trained length, unless it says so.
int64_t ReadReach(const JsonObject& part, const char* key, const ModelConfig& c) {
  if (const auto reach = part.Int(key, 2, kMaxRows)) return *reach;
  if (c.plan.configured_length < 2) part.Fail(key, "a number: max_position_embeddings is absent");
  return c.plan.configured_length;
}

LayerBias ReadDeberta(const JsonObject& part, const PositionsContext& /*context*/, ModelConfig& c) {
  DebertaLayerBias deberta;
  deberta.bias.model_dim = c.hidden;
  deberta.bias.head_dim = c.head_dim;
  deberta.bias.buckets = part.Int("buckets", 0, kMaxRows).value_or(32);
  deberta.bias.max_position = ReadReach(part, "max_position", c);
  deberta.content_to_position = deberta.position_to_content = true;
  c.layer.attention.score_scale = 1 / std::sqrt(3.0 * static_cast<double>(c.head_dim));
  return {c.heads, deberta};
}

LayerBias ReadTupe(const JsonObject& part, const PositionsContext& /*context*/, ModelConfig& c) {
  TupeLayerBias tupe;
  tupe.head_dim = c.head_dim;
  tupe.positions = ReadReach(part, "positions", c);
  tupe.reset = part.Bool("reset").value_or(tupe.reset);
  tupe.relative = part.Bool("relative").value_or(tupe.relative);
  const T5Bias t5 = ReadBuckets(part, /*bidirectional=*/true);
  tupe.buckets = t5.buckets;
  tupe.last_distance = t5.last_distance;
  c.layer.attention.score_scale = 1 / std::sqrt(2.0 * static_cast<double>(c.head_dim));
  return {c.heads, tupe};
}

LayerBias ReadCope(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  if (!context.causal) part.Fail("type", "another one where bidirectional is true");
  CopeLayerBias cope;
  cope.head_dim = c.head_dim;
  cope.rows = part.Int("rows", 1, kMaxRows).value_or(cope.rows);
  cope.per_head = part.Bool("per_head").value_or(cope.per_head);
  return {c.heads, cope};
}

LayerBias ReadGate(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  if (!context.causal) part.Fail("type", "another one where bidirectional is true");
  return {c.heads, GateLayerBias{}};
}

struct Row {
  const char* type;
  ReadBias read;
};
constexpr Row kRows[] = {{"alibi", ReadAlibi},
                         {"t5", ReadT5},
                         {"kerple", ReadKerple},
                         {"sandwich", ReadSandwich},
                         {"fire", ReadFire},
                         {"shaw", ReadShaw},
                         {"transformer_xl", ReadTransformerXl},
                         {"deberta", ReadDeberta},
                         {"tupe", ReadTupe},
                         {"cope", ReadCope},
                         {"gate", ReadGate}};

// Fused rotation reads the keys as they are: products with rows of distances, and positions that
// queries count, would see keys that are not rotated.
bool ReadsKeys(const LayerBias& bias) {
  return std::holds_alternative<TransformerXlBias>(bias.method) ||
         std::holds_alternative<DebertaLayerBias>(bias.method) ||
         std::holds_alternative<ShawLayerBias>(bias.method) ||
         std::holds_alternative<CopeLayerBias>(bias.method);
}

// PoPE's queries and keys have twice as many elements as their rows.
bool HasHeadRows(const LayerBias& bias) {
  return ReadsKeys(bias) || std::holds_alternative<TupeLayerBias>(bias.method);
}

}  // namespace

void RefuseCombinations(const std::string& where, const ModelConfig& c) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidConfig, fmt::format("{}: {}; give one of the two", where, why));
  };
  for (const LayerPlan& layer : c.plan.layers) {
    if (layer.map && layer.bias && ReadsKeys(*layer.bias)) {
      refuse("a map leaves keys unrotated, which this bias multiplies: " + Describe(*layer.bias));
    }
    if (layer.map && layer.encoding) {
      refuse(
          fmt::format("{} maps the distances of a rotation, which is not there: queries and "
                      "keys are encoded by {}",
                      Describe(*layer.map), Describe(*layer.encoding)));
    }
    const bool wider = EncodedDim(layer.encoding, c.head_dim) > c.head_dim;
    if (wider && layer.bias && HasHeadRows(*layer.bias)) {
      refuse(
          "pope makes queries and keys twice as wide, and this bias has rows of head_dim elements "
          "for them: " +
          Describe(*layer.bias));
    }
  }
}

void ReadBiasPart(const JsonObject& part, const PositionsContext& context, ModelConfig& c) {
  const std::string type = part.Require(part.String("type"), "type", "the name of a bias");
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.type);
    if (type != row.type) continue;
    const LayerBias bias = row.read(part, context, c);
    RefuseUnknownKeys(part);
    for (LayerPlan& layer : c.plan.layers) layer.bias = bias;
    return;
  }
  RefuseType(part, "type", type, names);
}

}  // namespace ropewalk::internal
