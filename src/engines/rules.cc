// The warnings: one table of rules, each with its condition and its text. A rule returns nothing
// where it does not apply.
#include "src/engines/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/engines/facts.h"

namespace ropewalk {
namespace internal {
namespace {

// ---- what a conversion loses --------------------------------------------------------------------

Result Llama3Converter(const Scene& s) {
  const auto* llama3 = s.As<Llama3Scaling>();
  if (llama3 == nullptr || s.spec().trained_length == 8192) return std::nullopt;
  return Radians(s.Against(s.With(*llama3, s.length, 8192)), s.last,
                 fmt::format("llama.cpp's converter reads original_max_position_embeddings at the "
                             "top level of config.json and otherwise assumes 8192; this model has "
                             "{} in its rope dictionary.",
                             s.spec().trained_length));
}

Result Llama3Tensor(const Scene& s) {
  if (s.As<Llama3Scaling>() == nullptr) return std::nullopt;
  return Radians(
      s.Against(s.With(NoScaling{})), s.last,
      "GGUF has no type for llama3 scaling and stores it in the tensor rope_freqs.weight. "
      "A conversion without that tensor, or an engine that ignores it, runs plain RoPE.");
}

Result Proportional(const Scene& s) {
  const auto* p = s.As<ProportionalScaling>();
  if (p == nullptr) return std::nullopt;
  RotarySpec partial = s.spec();
  const auto pairs = static_cast<int64_t>(p->fraction * static_cast<double>(s.spec().head_dim) / 2);
  if (pairs < 1) return std::nullopt;
  partial.rotary_dim = 2 * pairs;
  partial.first_dim = 0;
  partial.scaling = NoScaling{};
  partial.dialect = Dialect::kNative;
  return Radians(
      AngleDifference(s.rotation.frequencies, Resolve(partial, s.length), s.last), s.last,
      "Proportional RoPE differs from partial rotary with the same fraction: the exponent "
      "is divided by head_dim, and a pair is (i, i + head_dim / 2).");
}

// ---- axes and the rest --------------------------------------------------------------------------

Result MropeTail(const Scene& s) {
  const RotaryAxes& axes = s.spec().axes;
  const int64_t pairs = s.spec().rotary_dim / 2;
  if (axes.order != AxisOrder::kInterleaved || axes.sections.size() < 3) return std::nullopt;
  // In ggml pair i has axis i % 3 if i < 3 sections[i % 3], else a fourth axis whose position is 0.
  // In transformers and vLLM the remaining pairs have axis t.
  AngleError largest;
  for (int64_t i = 0; i < pairs; ++i) {
    const auto axis = static_cast<std::size_t>(i % 3);
    if (i < 3 * axes.sections[axis]) continue;
    const double angle = s.rotation.frequencies.inv_freq[static_cast<std::size_t>(i)].hi *
                         static_cast<double>(s.last);
    if (angle > largest.radians) largest = {angle, i};
  }
  if (largest.radians == 0) return std::nullopt;
  return Radians(largest, s.last,
                 "The last pairs of interleaved M-RoPE use the first position axis in transformers "
                 "and vLLM; in ggml they use a fourth axis, whose position is 0 in llama.cpp, so "
                 "that they are not rotated there.");
}

Result XposCentre(const Scene& s) {
  if (!s.spec().xpos) return std::nullopt;
  return Words(
      "xPos: the factor of a key depends on the centre, which differs between implementations; "
      "keys cached with one centre are wrong with another.");
}

Result PlanNope(const Scene& s) {
  const auto nope =
      std::count_if(s.resolved.layers.begin(), s.resolved.layers.end(), [](const ResolvedLayer& l) {
        // Recurrent ones have no keys.
        return l.rotation < 0 && !l.recurrent && l.bias < 0 && !l.encoding;
      });
  if (nope == 0) return std::nullopt;
  return Measured(static_cast<double>(nope), "layers",
                  "These layers have no rotation (NoPE). llama.cpp's context shift rotates the "
                  "cached keys of every layer, including these (as read in its source).");
}

Result PlanTemperature(const Scene& s) {
  for (const ResolvedLayer& layer : s.resolved.layers) {
    if (!layer.temperature || layer.temperature->kind != QueryTemperature::Kind::kStepLog) continue;
    QueryTemperature other = *layer.temperature;
    other.offset = 1 - other.offset;
    const int64_t edge = other.period - 1;
    const double ratio = Temperature(other, edge) / Temperature(*layer.temperature, edge);
    if (ratio == 1) continue;
    Finding f = Measured(ratio, "x",
                         "Queries are multiplied by 1 + beta ln(1 + floor((position + offset) / "
                         "period)). Offset is 1 in Llama 4 and 0 in Ministral: with the wrong one "
                         "the steps are shifted by one position.");
    f.position = edge;
    return f;
  }
  return std::nullopt;
}

Result DualChunkKey(const Scene& s) {
  if (!s.plan.has_dual_chunk_key) return std::nullopt;
  return Words(fmt::format("The file has dual_chunk_attention_config. Only vLLM {} {}.",
                           Versions(Fact::kDualChunk), Row(Fact::kDualChunk).text));
}

Result UnseenAngles(const Scene& s) {
  const int64_t trained = s.TrainedLength();
  if (trained < 1 || s.last < trained) return std::nullopt;
  int64_t pairs = 0;
  double most = 0;
  for (const PairInfo& p :
       Pairs(TrainedFrequencies(s.spec()), trained, s.rotation.frequencies, s.last + 1)) {
    pairs += p.unseen_share > 0.01 ? 1 : 0;
    most = std::max(most, p.unseen_share);
  }
  if (pairs == 0) return std::nullopt;
  return Measured(static_cast<double>(pairs), "pairs",
                  fmt::format("At {} tokens these pairs have angles that were not seen in training "
                              "at {} tokens, at over 1 % of the distances (at most {:.0f} %). "
                              "Quality is likely to fall, unless the model was trained further at "
                              "this length.",
                              s.length, trained, 100 * most));
}

Result BaseBoundRule(const Scene& s) {
  const int64_t longest = LongestContext(s.rotation.frequencies, s.last + 1);
  if (longest > s.last) return std::nullopt;
  return Measured(
      static_cast<double>(longest), "tokens",
      fmt::format("The sum of cos(distance x frequency) first falls below 0 after this distance; "
                  "these layers attend over distances up to {}. By arXiv 2405.14591 a key similar "
                  "to the query then no longer scores higher than a random key on average: "
                  "retrieval gets harder, though perplexity may stay low.",
                  s.last));
}

Result PastConfigured(const Scene& s) {
  const int64_t configured = s.plan.configured_length;
  if (configured < 1 || s.length <= configured) return std::nullopt;
  return Measured(static_cast<double>(s.length) / static_cast<double>(configured), "x",
                  fmt::format("{} tokens exceed the {} that the file declares. The tables of vLLM "
                              "and FlashInfer end there, and their kernels do not check positions.",
                              s.length, configured));
}

Result NoTrainedLength(const Scene& s) {
  if (s.TrainedLength() > 0) return std::nullopt;
  return Words(
      "The file does not state the trained length, so angles that were not seen in training "
      "cannot be determined; give the length with --trained.");
}

Result Float32(const Scene& s) {
  const Float32Error e = Float32AngleError(s.spec(), s.rotation.frequencies, s.length - 1);
  if (e.hugging_face.radians < 1e-3) return std::nullopt;
  return Radians(
      e.hugging_face, s.length - 1,
      "Engines compute angles in float32, with this error at the last position. Training "
      "had such errors too, but smaller ones at smaller positions, and they differ "
      "between engines.");
}

// ---- the table ----------------------------------------------------------------------------------

struct Rule {
  RuleInfo info;
  bool once;  // for the plan as a whole, not for each rotation
  Result (*apply)(const Scene&);
  std::vector<EngineKind> kinds = {};       // the only engines that it is about; empty: others
  std::optional<Fact> fact = std::nullopt;  // its versions are those of this fact
};

const std::vector<Rule>& Table() {
  constexpr EngineKind kHf = EngineKind::kTransformers, kVllm = EngineKind::kVllm,
                       kLlama = EngineKind::kLlamaCpp;
  static const std::vector<Rule> table = {
      {{"no-trained-length", "the model"}, true, NoTrainedLength},
      {{"past-configured", "vLLM"}, true, PastConfigured, {kVllm}},
      {{"unseen-angles", "the model"}, false, UnseenAngles},
      {{"base-bound", "the model"}, false, BaseBoundRule},
      {{"yarn-truncate", "llama.cpp"}, false, YarnTruncate, {kLlama}},
      {{"yarn-truncate-nested", "Hugging Face"},
       false,
       YarnTruncateNested,
       {kHf},
       Fact::kYarnTruncateAtTopLevel},
      {{"yarn-attention-factor", "vLLM, llama.cpp"}, false, YarnAttentionFactor, {kVllm, kLlama}},
      {{"yarn-attn-factor", "Hugging Face"}, false, YarnAttnFactor, {kHf}},
      {{"yarn-mscale-alone", "Hugging Face, vLLM"}, false, YarnMscaleAlone, {kHf, kVllm}},
      {{"yarn-softmax", "every engine"}, false, YarnSoftmax},
      {{"yarn-mrope", "vLLM"}, false, YarnMrope, {kVllm}},
      {{"yarn-max-positions", "Hugging Face, old"},
       false,
       YarnOldHuggingFace,
       {kHf},
       Fact::kYarnLengthFromConfig},
      {{"yarn-partial", "Megatron"}, false, YarnMegatronPartial},
      {{"yarn-paper", "the paper"}, false, YarnPaper},
      {{"dual-chunk", "vLLM"}, true, DualChunkKey, {kVllm}},
      {{"dynamic-cache", "Hugging Face"}, false, DynamicCache, {kHf}},
      {{"dynamic-state", "Hugging Face"}, false, DynamicState, {kHf}, Fact::kDynamicKeepsLongest},
      {{"dynamic-static", "vLLM"}, false, DynamicVllm, {kVllm}},
      {{"longrope-switch", "every engine"}, false, LongRopeSwitch},
      {{"longrope-integer", "CTranslate2"}, false, LongRopeInteger},
      {{"longrope-top-level", "Hugging Face, old"},
       false,
       LongRopeOldHuggingFace,
       {kHf},
       Fact::kLongRopeFromTopLevel},
      {{"longrope-layer-types", "Hugging Face"},
       true,
       LongRopeLayerTypes,
       {kHf},
       Fact::kLongRopePerTypeFails},
      {{"llama3-tensor", "llama.cpp, CTranslate2"}, false, Llama3Tensor},
      {{"llama3-converter", "llama.cpp"}, false, Llama3Converter, {kLlama}},
      {{"proportional-partial", "every engine"}, false, Proportional},
      {{"mrope-tail", "llama.cpp"}, false, MropeTail, {kLlama}},
      {{"xpos-centre", "every engine"}, false, XposCentre},
      {{"query-temperature", "every engine"}, true, PlanTemperature},
      {{"shift-amplitude", "llama.cpp"}, false, AmplitudeShift, {kLlama}},
      {{"shift-nope", "llama.cpp"}, true, PlanNope, {kLlama}},
      {{"float32-angles", "every engine"}, false, Float32},
  };
  return table;
}

// The variant that a rule compares with may not exist for this spec (for example a ramp without
// room); then the rule does not apply.
Result Apply(const Rule& rule, const Scene& scene) {
  try {
    return rule.apply(scene);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace
}  // namespace internal

const std::vector<RuleInfo>& Rules() {
  static const std::vector<RuleInfo> rules = [] {
    std::vector<RuleInfo> list;
    for (const internal::Rule& rule : internal::Table()) list.push_back(rule.info);
    return list;
  }();
  return rules;
}

std::vector<Finding> Warnings(const PositionPlan& plan, const ResolvedPlan& resolved) {
  std::vector<Finding> findings;
  for (const internal::Rule& rule : internal::Table()) {
    for (std::size_t r = 0; r < resolved.rotations.size(); ++r) {
      if (rule.once && r > 0) break;
      const internal::Scene scene{plan, resolved, resolved.rotations[r], resolved.length,
                                  Reach(resolved, static_cast<int>(r)) - 1};
      internal::Result found = internal::Apply(rule, scene);
      if (!found) continue;
      found->id = rule.info.id;
      found->engine = rule.info.engine;
      found->rotation = rule.once ? -1 : static_cast<int>(r);
      found->kinds = rule.kinds;
      if (rule.fact) {
        const internal::FactRow& row = internal::Row(*rule.fact);
        found->range = row.versions;
        found->versions = Text(row.engine, row.versions);
      }
      findings.push_back(std::move(*found));
    }
  }
  return findings;
}

std::vector<Finding> Narrow(std::vector<Finding> findings,
                            const std::vector<EngineChoice>& choices) {
  std::erase_if(findings, [&](const Finding& f) {
    return !f.kinds.empty() && std::none_of(f.kinds.begin(), f.kinds.end(), [&](EngineKind kind) {
      return AnyMeets(choices, kind, f.range);
    });
  });
  return findings;
}

}  // namespace ropewalk
