// The rules about YaRN and about length-dependent methods.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/engines/facts.h"
#include "src/engines/rules.h"

namespace ropewalk::internal {
namespace {

// The shortest decimal that reads back as the same double, or the same float32 if it is one (GGUF).
std::string AsWritten(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? fmt::format("{}", narrow)
                                              : fmt::format("{}", value);
}

// "transformers since 5.0.0, before 5.13.0 never resets ..."
std::string SinceWhen(Fact fact) {
  const FactRow& row = Row(fact);
  return fmt::format("{} {} {}", Title(row.engine), Versions(fact), row.text);
}

// max_position_embeddings of the file; it is the trained length if the factor is given apart.
int64_t Configured(const Scene& s) {
  return s.plan.stated_length > 0 ? s.plan.stated_length : s.plan.configured_length;
}

double Magnitude(double s, double m) { return s <= 1 ? 1 : 0.1 * m * std::log(s) + 1; }

}  // namespace

Finding Radians(const AngleError& error, int64_t position, const std::string& text) {
  Finding f = Words(text + fmt::format(" Largest at pair {}.", error.pair));
  f.measured = true;
  f.value = error.radians;
  f.unit = "rad";
  f.position = position;
  return f;
}
// ---- YaRN ---------------------------------------------------------------------------------------

Result YarnTruncate(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  if (yarn == nullptr || yarn->truncate) return std::nullopt;
  YarnScaling rounded = *yarn;
  rounded.truncate = true;
  return Radians(s.Against(s.With(rounded)), s.last,
                 fmt::format("The file has \"truncate\": false, but GGUF has no key for it and {}, "
                             "so pairs on the ramp have other frequencies.",
                             Sentence(Fact::kYarnAlwaysTruncates)));
}

Result YarnTruncateNested(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  if (yarn == nullptr || yarn->truncate || s.resolved.rotations.size() < 2) return std::nullopt;
  YarnScaling rounded = *yarn;
  rounded.truncate = true;
  return Radians(
      s.Against(s.With(rounded)), s.last,
      fmt::format("Layers differ in their rotation. {}, so in a dictionary per layer type it is "
                  "ignored and the ramp is rounded.",
                  SinceWhen(Fact::kYarnTruncateAtTopLevel)));
}

Result YarnAttentionFactor(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  if (yarn == nullptr || !yarn->attention_factor) return std::nullopt;
  const double usual = Magnitude(yarn->factor, 1);
  if (std::abs(usual / *yarn->attention_factor - 1) < 1e-6) return std::nullopt;
  return Measured(
      usual / *yarn->attention_factor, "x",
      fmt::format("The file sets attention_factor {}. {}; {}. That is {:.10g} here, and scores "
                  "change by the square.",
                  AsWritten(*yarn->attention_factor), Sentence(Fact::kYarnDropsAttentionFactor),
                  Sentence(Fact::kYarnOwnAmplitude), usual));
}

Result YarnAttnFactor(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  if (yarn == nullptr || !yarn->attn_factor || *yarn->attn_factor == 1) return std::nullopt;
  return Measured(1 / *yarn->attn_factor, "x",
                  fmt::format("The file sets attn_factor {}, which multiplies the attention factor "
                              "in vLLM and in the YaRN repository; transformers ignores the key.",
                              AsWritten(*yarn->attn_factor)));
}

Result YarnMscaleAlone(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  if (yarn == nullptr || yarn->attention_factor) return std::nullopt;
  const double m = yarn->mscale.value_or(0), all = yarn->mscale_all_dim.value_or(0);
  if ((m != 0) == (all != 0)) return std::nullopt;
  const double other =
      Magnitude(yarn->factor, yarn->mscale.value_or(1)) / Magnitude(yarn->factor, all);
  const double hf = Magnitude(yarn->factor, 1);
  return Measured(other / hf, "x",
                  fmt::format("Of mscale and mscale_all_dim only one is given: transformers then "
                              "ignores both (attention factor {:.10g}), vLLM's DeepSeek class and "
                              "Megatron take the other as 0 ({:.10g}).",
                              hf, other));
}

Result YarnSoftmax(const Scene& s) {
  const double multiplier = s.rotation.frequencies.softmax_multiplier;
  if (multiplier == 1) return std::nullopt;
  return Measured(
      multiplier, "x",
      fmt::format("YaRN's temperature is in the softmax scale here, not on cos and sin. "
                  "An engine that only has an attention factor loses it ({}).",
                  SinceWhen(Fact::kDeepSeekV2LosesSoftmax)));
}

Result YarnPaper(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  if (yarn == nullptr || yarn->beta_slow >= yarn->beta_fast) return std::nullopt;
  ByPartsScaling paper;
  paper.factor = yarn->factor;
  paper.alpha = yarn->beta_slow;
  paper.beta = yarn->beta_fast;
  return Radians(s.Against(s.With(paper)), s.last,
                 "Every engine runs YaRN's ramp over pair indices; the paper's equations run it "
                 "over rotations. Code written from the paper does not reproduce this model.");
}

Result YarnMrope(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  if (yarn == nullptr || s.spec().axes.sections.empty() || s.spec().axes.own_ladders) {
    return std::nullopt;
  }
  return Radians(
      s.Against(s.With(*yarn, s.length, 4 * s.spec().trained_length)), s.last,
      "vLLM's M-RoPE class uses four times the trained length for YaRN's ramp (as read in "
      "its source), which moves the ramp.");
}

Result YarnOldHuggingFace(const Scene& s) {
  const auto* yarn = s.As<YarnScaling>();
  const int64_t configured = Configured(s);
  if (yarn == nullptr || configured <= s.spec().trained_length) return std::nullopt;
  return Radians(s.Against(s.With(*yarn, s.length, configured)), s.last,
                 fmt::format("{}: {} instead of {}.", SinceWhen(Fact::kYarnLengthFromConfig),
                             configured, s.spec().trained_length));
}

Result YarnMegatronPartial(const Scene& s) {
  if (s.As<YarnScaling>() == nullptr || !s.Partial()) return std::nullopt;
  return Words(
      fmt::format("Only {} of {} dims are rotated. Megatron computes YaRN's frequencies from the "
                  "whole head and ignores rotary_percent (as read in its source).",
                  s.spec().rotary_dim, s.spec().head_dim));
}

Result AmplitudeShift(const Scene& s) {
  const double a = s.rotation.frequencies.amplitude;
  if (a == 1) return std::nullopt;
  return Measured(a, "x",
                  "llama.cpp's context shift multiplies cached keys by the attention factor again "
                  "at each shift (as read in its source). Moving a key must be a pure rotation.");
}

// ---- length-dependent methods -------------------------------------------------------------------

Result DynamicCache(const Scene& s) {
  const auto* dynamic = s.As<DynamicNtkScaling>();
  const int64_t trained = s.spec().trained_length;
  if (dynamic == nullptr || s.length <= trained + 1) return std::nullopt;
  return Radians(
      s.Against(s.With(*dynamic, trained + 1, trained)), s.last,
      fmt::format("Frequencies depend on the length. Keys cached when the sequence was {} "
                  "tokens long keep the frequencies of that length, while queries at {} "
                  "tokens use others; transformers mixes them without a warning.",
                  trained + 1, s.length));
}

Result DynamicState(const Scene& s) {
  if (s.As<DynamicNtkScaling>() == nullptr || s.length <= s.spec().trained_length) {
    return std::nullopt;
  }
  return Radians(s.Against(s.With(NoScaling{})), s.last,
                 SinceWhen(Fact::kDynamicKeepsLongest) + ".");
}

Result DynamicVllm(const Scene& s) {
  const auto* dynamic = s.As<DynamicNtkScaling>();
  if (dynamic == nullptr) return std::nullopt;
  const int64_t trained = s.spec().trained_length;
  const int64_t pinned = std::llround(dynamic->factor * static_cast<double>(trained));
  return Radians(s.Against(s.With(*dynamic, pinned, trained)), s.last,
                 fmt::format("{}. The former is {} tokens here.",
                             Sentence(Fact::kDynamicAtTrainedLength), pinned));
}

Result LongRopeSwitch(const Scene& s) {
  const auto* longrope = s.As<LongRopeScaling>();
  if (longrope == nullptr) return std::nullopt;
  const int64_t trained = s.spec().trained_length;
  const Frequencies below = s.With(*longrope, trained, trained);
  const Frequencies above = s.With(*longrope, trained + 1, trained);
  return Radians(AngleDifference(below, above, trained), trained,
                 fmt::format("The divisors switch from short to long at {} tokens: transformers by "
                             "the positions of each call (the cache has to be dropped there), vLLM "
                             "by --max-model-len and llama.cpp by the context size, for every "
                             "prompt.",
                             trained + 1));
}

Result LongRopeInteger(const Scene& s) {
  const auto* longrope = s.As<LongRopeScaling>();
  const int64_t trained = s.spec().trained_length, configured = s.plan.configured_length;
  if (longrope == nullptr || longrope->attention_factor || trained < 2 || configured <= trained ||
      configured % trained == 0) {
    return std::nullopt;
  }
  const int64_t whole = configured / trained;  // in integers, as there
  const double other =
      std::sqrt(1 + std::log(static_cast<double>(whole)) / std::log(static_cast<double>(trained)));
  return Measured(other / s.rotation.frequencies.amplitude, "x",
                  fmt::format("{} / {} is not an integer. CTranslate2 divides them as integers, so "
                              "its attention factor is {:.7f} instead of {:.7f} (as read in its "
                              "source).",
                              configured, trained, other, s.rotation.frequencies.amplitude));
}

Result LongRopeOldHuggingFace(const Scene& s) {
  const auto* longrope = s.As<LongRopeScaling>();
  const int64_t configured = Configured(s);
  const int64_t original = s.plan.place.original_inside ? configured : s.spec().trained_length;
  if (longrope == nullptr || longrope->long_mscale || original < 2) return std::nullopt;
  LongRopeScaling old = *longrope;
  if (!s.plan.place.original_inside && configured > 0) {
    old.factor = std::max(1.0, static_cast<double>(configured) / static_cast<double>(original));
  }
  const Frequencies there = s.With(old, s.length, original);
  const AngleError error = s.Against(there);
  const double amplitude = s.rotation.frequencies.amplitude;
  if (error.radians == 0 && std::abs(there.amplitude / amplitude - 1) < 1e-6) return std::nullopt;
  const std::string text = fmt::format(
      "{}. Here that is an original length of {} instead of {} and an attention factor "
      "of {:.7f} instead of {:.7f}.",
      SinceWhen(Fact::kLongRopeFromTopLevel), original, s.spec().trained_length, there.amplitude,
      amplitude);
  if (error.radians == 0) return Measured(there.amplitude / amplitude, "x", text);
  return Radians(error, s.last, text);
}

Result LongRopeLayerTypes(const Scene& s) {
  const auto count = std::count_if(s.resolved.rotations.begin(), s.resolved.rotations.end(),
                                   [](const ResolvedRotation& r) {
                                     return std::holds_alternative<LongRopeScaling>(r.spec.scaling);
                                   });
  if (count == 0 || s.resolved.rotations.size() < 2) return std::nullopt;
  return Words(SinceWhen(Fact::kLongRopePerTypeFails) + " (as read in its source).");
}

}  // namespace ropewalk::internal
