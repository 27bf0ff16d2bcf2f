// LongRoPE (Ding et al. 2024, arXiv 2402.13753) as Phi-3 ships it and Hugging Face computes it:
// pair i is slowed by a searched divisor, `long_factor` when the declared length exceeds L, and cos
// and sin are multiplied by sqrt(1 + ln s / ln L) whichever list is used.
#include <cmath>

#include "src/rotary/scaling/scaling.h"
#include "src/rotary/torch_pow.h"

namespace ropewalk::internal {
namespace {

void CheckDivisors(const std::vector<double>& divisors, const char* name, const RotarySpec& spec) {
  if (static_cast<int64_t>(divisors.size()) != Pairs(spec)) {
    BadScaling(std::string("longrope: ") + name + " must have one entry a pair, " +
               std::to_string(Pairs(spec)) + ", got " + std::to_string(divisors.size()));
  }
  for (const double x : divisors) {
    if (!(x > 0 && std::isfinite(x))) {
      BadScaling(std::string("longrope: ") + name + " must hold positive numbers, got " +
                 std::to_string(x));
    }
  }
}

// Hugging Face: attention_factor, else by factor. vLLM: short_mscale and long_mscale, else by
// factor. llama.cpp: by factor, when the file is converted. Native: whatever is given, the most
// particular first.
double Amplitude(const LongRopeScaling& p, const RotarySpec& spec, bool is_long) {
  const Dialect dialect = spec.dialect;
  const bool reads_mscale = dialect == Dialect::kNative || dialect == Dialect::kVllm;
  const std::optional<double>& mscale = is_long ? p.long_mscale : p.short_mscale;
  if (mscale && reads_mscale) return *mscale;
  const bool reads_attention = dialect == Dialect::kNative || dialect == Dialect::kHuggingFace;
  if (p.attention_factor && reads_attention) return *p.attention_factor;
  if (!p.factor) {
    BadScaling("longrope: needs factor (configured over trained length) or attention_factor");
  }
  if (*p.factor <= 1) return 1;
  if (spec.trained_length < 2) BadScaling("longrope: trained_length must be at least 2");
  return std::sqrt(1 + std::log(*p.factor) / std::log(static_cast<double>(spec.trained_length)));
}

Frequencies Resolved(const LongRopeScaling& scaling, const RotarySpec& spec, int64_t length) {
  CheckDivisors(scaling.short_factor, "short_factor", spec);
  CheckDivisors(scaling.long_factor, "long_factor", spec);
  const std::vector<double>& divisors =
      length > spec.trained_length ? scaling.long_factor : scaling.short_factor;
  Frequencies out;
  out.inv_freq_f32 = TorchPowers(static_cast<float>(spec.base), Pairs(spec));
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    out.inv_freq.push_back(PlainFrequency(spec, static_cast<int64_t>(i)) / divisors[i]);
    out.inv_freq_f32[i] = 1.0f / (static_cast<float>(divisors[i]) * out.inv_freq_f32[i]);
  }
  out.amplitude = Amplitude(scaling, spec, length > spec.trained_length);
  return out;
}

}  // namespace

template <>
ScalingRow<LongRopeScaling> RowOf() {
  return {.name = "longrope",
          .title = "LongRoPE",
          .source = "arXiv 2402.13753; Phi-3",
          .needs_trained_length = true,
          .length_dependent = true,
          .trained_with = false,
          .setting = Setting::kByHand,
          .dialects = Dialects{kPaper | kHuggingFace | kVllm | kLlamaCpp},
          .resolve = Resolved,
          .by_base = ByPlainBase};
}

}  // namespace ropewalk::internal
