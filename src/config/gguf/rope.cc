// What llama.cpp does with positions, by the architecture's name, its keys and its tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ropewalk/base/error.h"
#include "src/config/block.h"
#include "src/config/gguf/alibi.h"
#include "src/config/gguf/config.h"
#include "src/config/json_object.h"
#include "src/config/shipped.h"

namespace ropewalk::internal {
namespace {

// A divisor that a converter writes for a pair with frequency 0 (Gemma 4: 1e30).
constexpr double kZeroFrequency = 1e29;

std::string_view Architecture(const GgufKeys& keys) {
  return std::string_view(keys.prefix()).substr(0, keys.prefix().size() - 1);
}

std::vector<double> ReadDivisors(const GgufKeys& keys, const char* name, int64_t pairs) {
  const Weight& w = keys.gguf().tensors.at(name);
  if (w.rows() != 1 || w.cols() != pairs) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: tensor '{}' has {} x {} elements, expected one for each of the {} "
                            "rotated pairs",
                            keys.File(), name, w.rows(), w.cols(), pairs));
  }
  std::vector<float> values(pairs);
  w.ReadRows(0, 1, values.data());
  for (const float v : values) {
    if (!(v > 0 && std::isfinite(v))) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' holds {}; expected positive divisors", keys.File(),
                              name, v));
    }
  }
  return {values.begin(), values.end()};
}

// Divisors 1, ..., 1, 1e30, ..., 1e30 are p-RoPE.
Scaling FromDivisors(std::vector<double> divisors) {
  const auto pairs = static_cast<double>(divisors.size());
  const auto still =
      std::find_if(divisors.begin(), divisors.end(), [](double d) { return d >= kZeroFrequency; });
  if (still != divisors.end() &&
      std::all_of(divisors.begin(), still, [](double d) { return d == 1; }) &&
      std::all_of(still, divisors.end(), [](double d) { return d >= kZeroFrequency; })) {
    return ProportionalScaling{static_cast<double>(still - divisors.begin()) / pairs, 1};
  }
  return ExplicitScaling{std::move(divisors)};
}

YarnScaling ReadYarn(const GgufKeys& keys, const Family& family, double factor) {
  YarnScaling y;
  y.factor = factor;
  y.beta_fast = keys.Number("rope.scaling.yarn_beta_fast", 1e-3, 1e6).value_or(32);
  y.beta_slow = keys.Number("rope.scaling.yarn_beta_slow", 1e-3, 1e6).value_or(1);
  // A multiplier of YaRN's own amplitude.
  if (const auto attn = keys.Number("rope.scaling.attn_factor", 1e-6, 1e6); attn && *attn != 1) {
    y.attn_factor = *attn;
  }
  // mscale_all_dim: a tenth of it in DeepSeek's files, itself in Ministral's; mscale is not stored
  // and taken for the same in the first, for 1 in the second.
  const auto log = keys.Number("rope.scaling.yarn_log_multiplier", 0, 1e3);
  if (log && *log != 0) {
    const bool deepseek = IsDeepseekGguf(Architecture(keys));
    // Files hold float32; the value meant has few digits.
    const auto digits = [](double v) { return std::round(v * 1e6) / 1e6; };
    y.mscale_all_dim = deepseek ? LatentMscale(*log) : digits(*log);
    y.mscale = deepseek ? *y.mscale_all_dim : 1;
    y.softmax_mscale = family.Has(kSoftmaxMscale);
  }
  return y;
}

LongRopeScaling ReadLongRope(const GgufKeys& keys, int64_t pairs, double factor) {
  if (factor != 1) {
    keys.Fail("rope.scaling.factor",
              fmt::format("no factor beside \"longrope\", whose divisors llama.cpp would divide by "
                          "it once more, got {}",
                          factor));
  }
  const auto& tensors = keys.gguf().tensors;
  if (!tensors.contains("rope_factors_long.weight") ||
      !tensors.contains("rope_factors_short.weight")) {
    keys.Fail("rope.scaling.type",
              "tensors rope_factors_long.weight and rope_factors_short.weight for \"longrope\"");
  }
  LongRopeScaling l;
  l.short_factor = ReadDivisors(keys, "rope_factors_short.weight", pairs);
  l.long_factor = ReadDivisors(keys, "rope_factors_long.weight", pairs);
  l.attention_factor = keys.Number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1);
  return l;
}

double ReadFactor(const GgufKeys& keys) {
  const auto factor = keys.Number("rope.scaling.factor", 0, kMaxFactor);
  const auto legacy = keys.Number("rope.scale_linear", 0, kMaxFactor);
  if (factor && legacy && *factor != *legacy) {
    keys.Fail("rope.scale_linear",
              fmt::format("the value of rope.scaling.factor ({}), got {}; they "
                          "contradict each other",
                          *factor, *legacy));
  }
  double s = factor ? *factor : legacy.value_or(1);
  if (s == 0) s = 1;  // llama.cpp: 0 means unset
  if (s < 1) keys.Fail("rope.scaling.factor", fmt::format("1 to {:g}, got {}", kMaxFactor, s));
  return s;
}

Scaling ReadScaling(const GgufKeys& keys, const Family& family, int64_t pairs) {
  const auto& tensors = keys.gguf().tensors;
  const auto type = keys.String("rope.scaling.type");
  const double s = ReadFactor(keys);
  const bool long_rope = tensors.contains("rope_factors_long.weight");
  Scaling scaling = NoScaling{};
  const std::string name = type.value_or(long_rope ? "longrope" : "linear");
  if (name == "yarn") {
    scaling = ReadYarn(keys, family, s);
  } else if (name == "longrope") {
    scaling = ReadLongRope(keys, pairs, s);
  } else if (name == "linear") {  // llama.cpp's default where the type is absent
    if (s != 1) scaling = LinearScaling{s};
  } else if (name != "none") {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {}: unknown type {}; known are none, linear, yarn, longrope", keys.File(),
                    keys.Name("rope.scaling.type"), Shown(nlohmann::json(name))));
  }
  if (family.axes != Family::Axes::kOne) {  // HunYuan-VL
    const auto alpha = keys.Number("rope.scaling.alpha", 0, kMaxFactor);
    if (alpha && *alpha > 1) scaling = NtkScaling{*alpha};
  }
  if (tensors.contains("rope_freqs.weight")) {
    if (!std::holds_alternative<NoScaling>(scaling)) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: tensor 'rope_freqs.weight' together with {}; expected one of them",
                      keys.File(), Describe(scaling)));
    }
    scaling = FromDivisors(ReadDivisors(keys, "rope_freqs.weight", pairs));
  }
  return scaling;
}

// rope.dimension_sections: pairs of each of four axes, zeros for those that are not there.
RotaryAxes ReadAxes(const GgufKeys& keys, const Family& family, int64_t pairs) {
  RotaryAxes axes;
  const bool known = family.gguf_rope == GgufRope::kMrope ||
                     family.gguf_rope == GgufRope::kImrope || family.axes != Family::Axes::kOne;
  if (!known) return axes;
  auto sections = keys.Ints("rope.dimension_sections", 0, kMaxHeadDim);
  if (!sections) {
    if (std::string_view(family.name) == "hunyuan_vl") return axes;  // text alone
    keys.Fail("rope.dimension_sections", "an array of 3 or 4 integers, but it is missing");
  }
  while (!sections->empty() && sections->back() == 0) sections->pop_back();
  const int64_t sum = std::accumulate(sections->begin(), sections->end(), int64_t{0});
  if (sum != pairs || sections->size() > 4) {
    keys.Fail("rope.dimension_sections",
              fmt::format("at most 4 integers with the sum {}, the number of rotated pairs, got "
                          "[{}]",
                          pairs, fmt::join(*sections, ", ")));
  }
  axes.sections = std::move(*sections);
  axes.order =
      family.gguf_rope == GgufRope::kImrope ? AxisOrder::kInterleaved : AxisOrder::kChunked;
  return axes;
}

// True where a layer slides: the key's array or period, or the period that llama.cpp has for the
// architecture.
std::vector<bool> ReadSliding(const GgufKeys& keys, const Family& family, int64_t layers,
                              int64_t window) {
  std::vector<bool> slides(layers, false);
  const auto pattern = keys.Ints("attention.sliding_window_pattern", 0, kMaxLayers);
  const bool linear = HasWord(family.layer_kinds, "linear_attention");
  const int64_t period = pattern && pattern->size() == 1 ? pattern->front()
                         : linear                        ? 0
                                                         : family.pattern;
  if (pattern && pattern->size() > 1 && static_cast<int64_t>(pattern->size()) != layers) {
    keys.Fail("attention.sliding_window_pattern",
              fmt::format("a period or {} values, got {}", layers, pattern->size()));
  }
  if (window == 0) return slides;
  for (int64_t l = 0; l < layers; ++l) {
    if (pattern && pattern->size() > 1) {
      slides[l] = (*pattern)[l] != 0;
    } else if (period > 0) {
      slides[l] = (l + 1) % period != 0;
    }
  }
  return slides;
}

int64_t ReadWindow(const GgufKeys& keys, const Family& family, PositionPlan& plan) {
  const int64_t window = keys.Int("attention.sliding_window", 0, kMaxTokens).value_or(0);
  if (window > 0 && family.pattern == 0 && !keys.Has("attention.sliding_window_pattern")) {
    plan.notes.push_back(fmt::format(
        "sliding window of {} tokens on every layer; llama.cpp ignores it for this architecture",
        window));
  }
  return window;
}

// The rotation of full layers, and the one of sliding layers where the file has another.
struct Rotations {
  RotarySpec full{PairLayout::kHalf};
  RotarySpec sliding{PairLayout::kHalf};
};

Rotations ReadRotations(const GgufKeys& keys, const Family& family, ModelConfig& c) {
  PositionPlan& plan = c.plan;
  Rotations out;
  RotarySpec& spec = out.full;
  c.permuted_qk = family.Has(kGgufPermuted);
  if (family.gguf_rope == GgufRope::kNorm && !c.permuted_qk) spec.layout = PairLayout::kInterleaved;
  if (c.permuted_qk) {
    plan.notes.push_back(
        "q and k are stored for the interleaved layout and permuted at load to the half layout");
  } else {
    plan.notes.push_back(fmt::format(
        "pairs of {} elements: llama.cpp's rule for the architecture, not a key of the file",
        spec.layout == PairLayout::kHalf ? "half a rotary_dim apart" : "consecutive"));
  }
  spec.head_dim = c.head_dim;
  spec.rotary_dim = keys.Int("rope.dimension_count", 2, c.head_dim).value_or(c.head_dim);
  if (spec.rotary_dim % 2 != 0) {
    keys.Fail("rope.dimension_count", fmt::format("an even number, got {}", spec.rotary_dim));
  }
  if (family.Has(kMla)) spec.first_dim = spec.head_dim - spec.rotary_dim;
  const auto base = keys.Number("rope.freq_base", 1, 1e18);
  spec.base = base.value_or(1e4);
  if (!base) plan.notes.push_back("rope.freq_base is absent: 10000, llama.cpp's default");
  spec.trained_length = plan.trained_length;
  spec.scaling = ReadScaling(keys, family, spec.rotary_dim / 2);
  spec.axes = ReadAxes(keys, family, spec.rotary_dim / 2);
  if (family.Runs() && !spec.axes.sections.empty()) {  // Qwen2-VL and 3-VL, as their folders are
    const bool interleaved = spec.axes.order == AxisOrder::kInterleaved;
    nlohmann::ordered_json rope_keys = {{"mrope_section", spec.axes.sections}};
    if (interleaved) rope_keys["mrope_interleaved"] = true;
    plan.place.text_part = "text_config";
    plan.place.flat_file = !interleaved;
    plan.place.rope_keys = rope_keys.dump();
  }
  const auto* yarn = std::get_if<YarnScaling>(&spec.scaling);
  if (yarn != nullptr && (yarn->beta_fast != 32 || yarn->beta_slow != 1) &&
      !LlamaCppReadsBetas(Architecture(keys))) {
    plan.notes.push_back(fmt::format(
        "YaRN's beta_fast {:g} and beta_slow {:g} are in the file; llama.cpp does not read "
        "these keys of the architecture {} and takes 32 and 1",
        yarn->beta_fast, yarn->beta_slow, Architecture(keys)));
  }

  if (yarn != nullptr && Architecture(keys) == "gpt-oss") {
    plan.notes.push_back(
        "YaRN's ramp is truncated to whole pairs, as llama.cpp has it; the folders of gpt-oss say "
        "truncate: false");
  }

  out.sliding = spec;
  const bool two_heads = family.Has(kGlobalHeadDim);
  const bool own_base = family.Has(kLocalBase) || two_heads;
  if (own_base || family.Has(kLocalUnscaled)) out.sliding.scaling = NoScaling{};
  if (own_base) out.sliding.base = 1e4;
  if (family.pattern > 0) {
    out.sliding.base = keys.Number("rope.freq_base_swa", 1, 1e18).value_or(out.sliding.base);
  }
  if (two_heads) {
    out.sliding.head_dim =
        keys.Int("attention.key_length_swa", 2, kMaxHeadDim).value_or(spec.head_dim);
    keys.Int("attention.value_length_swa", 2, kMaxHeadDim);
    out.sliding.rotary_dim = keys.Int("rope.dimension_count_swa", 2, out.sliding.head_dim)
                                 .value_or(out.sliding.head_dim);
  }
  return out;
}

// Llama 4 on layers that do not rotate; Ministral 3, Mistral 4 and Mistral Large 3, whose files are
// DeepSeek V2's, on all.
std::optional<QueryTemperature> ReadTemperature(const GgufKeys& keys, const Family& family,
                                                int64_t trained_length) {
  QueryTemperature t;
  if (family.Has(kStepTemperature)) {
    t.offset = 1;  // 0.1 and 8192 are constants of llama.cpp
    return t;
  }
  if (!family.Has(kTemperatureKeys) && !IsDeepseekGguf(Architecture(keys))) return std::nullopt;
  const auto beta = keys.Number("attention.temperature_scale", 0, 1e3);
  const auto period = keys.Int("attention.temperature_length", 1, kMaxTokens);
  if (!beta || *beta == 0) return std::nullopt;
  t.beta = std::round(*beta * 1e6) / 1e6;
  t.period = period.value_or(trained_length);
  return t;
}

bool Rotates(const Family& family, int64_t layer, bool slides, bool some_slide) {
  if (family.Has(kOnlySlidingRotate) && some_slide && !slides) return false;
  return family.no_rope_interval == 0 || (layer + 1) % family.no_rope_interval != 0;
}

// Granite's files say by this key whether anything rotates.
bool SaysNoRotation(const GgufKeys& keys, const Family& family) {
  if (std::string_view(family.name) != "granite") return false;
  return keys.Bool("rope.scaling.finetuned") == false;
}

}  // namespace

void ReadGgufPlan(const GgufKeys& keys, const Family& family, ModelConfig& c) {
  PositionPlan& plan = c.plan;
  plan.yarn_scales_scores = family.Has(kSoftmaxMscale);
  plan.local_unscaled = family.Has(kLocalUnscaled);
  const bool rotates = family.gguf_rope != GgufRope::kNone;
  plan.configured_length =
      rotates || keys.Has("context_length") ? keys.RequiredInt("context_length", 1, kMaxTokens) : 0;
  plan.trained_length = plan.configured_length;
  plan.layers.resize(c.layers);
  if (std::string_view(family.name) == "baichuan" && ReadBaichuanAlibi(keys, c)) return;
  if (!rotates) {
    keys.Int("attention.relative_buckets_count", 0, kMaxTokens);
    ReadGgufAlibi(keys, family, c);
    const Block* block = family.block;
    if (block != nullptr && block->learned_first_row >= 0) {
      plan.learned = LearnedPositions{keys.RequiredInt("context_length", 1, kMaxTokens),
                                      block->learned_first_row};
    }
    return;
  }
  // 0 stands for unset in some converters' files.
  const int64_t original =
      keys.Int("rope.scaling.original_context_length", 0, kMaxTokens).value_or(0);
  if (original > 0) plan.trained_length = original;
  const Rotations rotations = ReadRotations(keys, family, c);
  const bool chunked = family.Has(kChunks);
  const auto window_key = keys.Int("attention.sliding_window", 0, kMaxTokens);
  // Llama 4: always 8192 unless the key is 0, which means neither chunks nor layers without
  // rotation.
  const bool plain = chunked && window_key && *window_key == 0;
  const int64_t window = chunked ? (plain ? 0 : 8192) : ReadWindow(keys, family, plan);
  std::vector<bool> slides = ReadSliding(keys, family, c.layers, window);
  const bool all_slide = window > 0 && !chunked && family.pattern == 0 &&
                         !keys.Has("attention.sliding_window_pattern");
  const bool some_slide = std::find(slides.begin(), slides.end(), true) != slides.end();
  int64_t linear_period = 0;
  if (HasWord(family.layer_kinds, "linear_attention")) {
    linear_period = keys.Int("full_attention_interval", 1, kMaxLayers).value_or(family.pattern);
  }
  const auto temperature = ReadTemperature(keys, family, plan.trained_length);
  const bool rotated = !SaysNoRotation(keys, family);
  for (int64_t l = 0; l < c.layers; ++l) {
    LayerPlan& layer = plan.layers[l];
    // Of families that have recurrent layers, all but every n-th.
    layer.recurrent = linear_period > 0 && (l + 1) % linear_period != 0;
    const bool rotates =
        rotated && (plain || (!layer.recurrent && Rotates(family, l, slides[l], some_slide)));
    if (rotates) layer.rotation = slides[l] ? rotations.sliding : rotations.full;
    if (chunked) {
      if (rotates) layer.chunk_tokens = window;
      if (!rotates) layer.temperature = temperature;
    } else {
      if (slides[l] || all_slide) layer.window_tokens = window;
      layer.temperature = temperature;
    }
  }
  try {  // refuses here what would fail later
    Resolve(rotations.full, plan.trained_length);
    if (some_slide) Resolve(rotations.sliding, plan.trained_length);
  } catch (const Error& e) {
    throw Error(ErrorCode::kInvalidConfig, keys.File() + ": " + e.what());
  }
  NoteShipped(plan);
}

}  // namespace ropewalk::internal
