// A rotary position embedding (RoPE) as data. A scaling method is a struct here and a pure function
// in src/rotary/scaling/<method>.cc; kernels know no methods.
//
// Amplitude, below and in other headers, is YaRN's attention factor: the factor on cos and sin,
// usually 1, which multiplies scores by its square.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "ropewalk/base/fields.h"

namespace ropewalk {

// Which two elements of a head form pair i (rotary_dim = 8; each digit is the pair's index):
//   kHalf         0 1 2 3 0 1 2 3    GPT-NeoX, Hugging Face "rotate_half"
//   kInterleaved  0 0 1 1 2 2 3 3    GPT-J, the RoFormer paper, Meta's llama, llama2.c
enum class PairLayout : uint8_t { kHalf, kInterleaved };

// kExact: cos and sin correct to the last float32 bit at any position below 2^31 (rotary/table.h).
// kFloat32: as Hugging Face computes them, float32 frequencies times float32 positions.
enum class AnglePrecision : uint8_t { kExact, kFloat32 };

// Whose formula to use where implementations of a method differ (docs/rotary/dialects.md lists the
// differences). kNative: the formula documented at the method's struct. Resolve throws Error where
// a dialect has no formula for a method. A dialect ignores the fields that its engine ignores.
enum class Dialect : uint8_t {
  kNative,
  kPaper,
  kHuggingFace,  // transformers 4.57 and 5
  kVllm,
  kLlamaCpp,
  kMegatron,
  kYarnRepo  // github.com/jquesnelle/yarn
};
const char* Name(Dialect dialect);  // "native", "paper", "hf", "vllm", "llamacpp", "megatron", ...
Dialect ParseDialect(const std::string& name);  // Error lists the names

// In all of these `factor` s is target length over trained length, s >= 1;
// f_i = base^(-2i/rotary_dim) is the frequency of pair i, d is rotary_dim, L is
// RotarySpec::trained_length, and length is that given to Resolve. A factor of 0 is not set:
// Resolve refuses it where the method needs one.
struct NoScaling {
  static constexpr auto Fields() { return std::tuple{}; }
  bool operator==(const NoScaling&) const = default;
};

// Position interpolation (Chen et al. 2023, arXiv 2306.15595, eq. 4): f_i / s.
struct LinearScaling {
  double factor = 0;  // required

  static constexpr auto Fields() { return std::tuple{Field{"factor", &LinearScaling::factor}}; }
  bool operator==(const LinearScaling&) const = default;
};

// NTK-aware (bloc97 2023; YaRN paper arXiv 2309.00071, eq. 16): base' = base * s^(d/(d-2)).
struct NtkScaling {
  double factor = 0;  // required

  static constexpr auto Fields() { return std::tuple{Field{"factor", &NtkScaling::factor}}; }
  bool operator==(const NtkScaling&) const = default;
};

// NTK-aware "fixed" (Su 2023, kexue.fm/archives/9706; vLLM "ntk"): (base s)^(-2i/d) / s^(2/d),
// that is f_i s^(-2(i+1)/d): the first pair is scaled too, the last one is f_i / s.
struct NtkFixedScaling {
  double factor = 0;  // required

  static constexpr auto Fields() { return std::tuple{Field{"factor", &NtkFixedScaling::factor}}; }
  bool operator==(const NtkFixedScaling&) const = default;
};

// NTK-aware "mixed" (Su 2023, kexue.fm/archives/9706; vLLM "ntk" with mixed_b):
// f_i exp(-a (i+1)^exponent), a = ln s / (d/2)^exponent.
struct NtkMixedScaling {
  double factor = 0;  // required
  double exponent = 0.75;

  static constexpr auto Fields() {
    return std::tuple{Field{"factor", &NtkMixedScaling::factor},
                      Field{"exponent", &NtkMixedScaling::exponent}};
  }
  bool operator==(const NtkMixedScaling&) const = default;
};

// Position interpolation that grows with the sequence (jquesnelle/yarn, "dynamic linear"):
// f_i / max(1, length / L). kMegatron (TransformerEngine): f_i / s up to length s L, f_i L / length
// beyond.
struct DynamicLinearScaling {
  std::optional<double> factor = {};  // read by kMegatron alone, which requires it

  static constexpr auto Fields() {
    return std::tuple{Field{"factor", &DynamicLinearScaling::factor}};
  }
  bool operator==(const DynamicLinearScaling&) const = default;
};

// Qwen 1 (QwenLM/Qwen issue 401): NTK-aware with alpha = 2^ceil(log2(length / L) + 1) - 1, at least
// 1. Its log-n attention is LayerPlan::temperature.
struct QwenNtkScaling {
  static constexpr auto Fields() { return std::tuple{}; }
  bool operator==(const QwenNtkScaling&) const = default;
};

// Dynamic NTK (emozilla 2023; Hugging Face "dynamic"): NTK-aware with
// s' = s * length / L - (s - 1) for length > L, and no scaling up to L.
struct DynamicNtkScaling {
  double factor = 0;  // required

  static constexpr auto Fields() { return std::tuple{Field{"factor", &DynamicNtkScaling::factor}}; }
  bool operator==(const DynamicNtkScaling&) const = default;
};

// NTK-by-parts (YaRN paper, arXiv 2309.00071, section 3.2, eq. 17-20): a ramp over the rotations
// r = L f_i / 2 pi that a pair makes within L.
struct ByPartsScaling {
  double factor = 0;  // required
  double alpha = 1;   // r <= alpha: f_i / s
  double beta = 32;   // r >= beta: f_i; linear between

  static constexpr auto Fields() {
    return std::tuple{Field{"factor", &ByPartsScaling::factor},
                      Field{"alpha", &ByPartsScaling::alpha}, Field{"beta", &ByPartsScaling::beta}};
  }
  bool operator==(const ByPartsScaling&) const = default;
};

// NTK-by-parts as the authors' repository jquesnelle/yarn computes it: linear, NTK and plain
// frequencies, blended over two ramps in the pair index.
struct ByPartsRepoScaling {
  double factor = 0;  // required
  double ntk_factor = 1;
  double extrapolation_factor = 1;
  double beta_0 = 1.25, beta_1 = 0.75;  // rotations at the ends of the linear / NTK ramp
  double gamma_0 = 16, gamma_1 = 2;     // rotations at the ends of the NTK / plain ramp

  static constexpr auto Fields() {
    return std::tuple{Field{"factor", &ByPartsRepoScaling::factor},
                      Field{"ntk_factor", &ByPartsRepoScaling::ntk_factor},
                      Field{"extrapolation_factor", &ByPartsRepoScaling::extrapolation_factor},
                      Field{"beta_0", &ByPartsRepoScaling::beta_0, Written::kNamed, "beta"},
                      Field{"beta_1", &ByPartsRepoScaling::beta_1, Written::kWithPrevious},
                      Field{"gamma_0", &ByPartsRepoScaling::gamma_0, Written::kNamed, "gamma"},
                      Field{"gamma_1", &ByPartsRepoScaling::gamma_1, Written::kWithPrevious}};
  }
  bool operator==(const ByPartsRepoScaling&) const = default;
};

// YaRN (Peng et al. 2023, arXiv 2309.00071) as Hugging Face computes it: the ramp runs over pair
// indices, and the amplitude is 0.1 ln s + 1.
struct YarnScaling {
  double factor = 0;  // required
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the ramp's ends are rounded outwards to whole pair indices
  std::optional<double> attention_factor = {};  // replaces the amplitude
  std::optional<double> attn_factor = {};       // multiplies the default amplitude
  std::optional<double> mscale = {};  // amplitude g(mscale) / g(mscale_all_dim), both needed
  std::optional<double> mscale_all_dim = {};  // g(m) = 0.1 m ln s + 1
  // DeepSeek: scores are multiplied by g(mscale_all_dim)^2 (Frequencies::softmax_multiplier).
  // Implementations do this in the attention module of that family, not in the rope function, so
  // the reader of the family's configuration sets it.
  bool softmax_mscale = false;
  double extrapolation_factor = 1;  // largest share of the plain frequencies in the blend

  static constexpr auto Fields() {
    return std::tuple{
        Field{"factor", &YarnScaling::factor},
        Field{"beta_fast", &YarnScaling::beta_fast},
        Field{"beta_slow", &YarnScaling::beta_slow},
        Field{"truncate", &YarnScaling::truncate},
        Field{"attention_factor", &YarnScaling::attention_factor},
        Field{"attn_factor", &YarnScaling::attn_factor},
        Field{"mscale", &YarnScaling::mscale},
        Field{"mscale_all_dim", &YarnScaling::mscale_all_dim},
        Field{"softmax_mscale", &YarnScaling::softmax_mscale, Written::kUnlessDefault,
              "softmax times mscale_all_dim's squared"},
        Field{"extrapolation_factor", &YarnScaling::extrapolation_factor, Written::kUnlessDefault}};
  }
  bool operator==(const YarnScaling&) const = default;
};

// Dynamic YaRN (jquesnelle/yarn): YaRN with s = max(1, length / L); plain RoPE up to L.
struct DynamicYarnScaling {
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;

  static constexpr auto Fields() {
    return std::tuple{Field{"beta_fast", &DynamicYarnScaling::beta_fast},
                      Field{"beta_slow", &DynamicYarnScaling::beta_slow},
                      Field{"truncate", &DynamicYarnScaling::truncate}};
  }
  bool operator==(const DynamicYarnScaling&) const = default;
};

// Llama 3.1 (Meta 2024): NTK-by-parts, written with wavelengths. Equals ByPartsScaling with
// alpha = low_freq_factor and beta = high_freq_factor.
struct Llama3Scaling {
  double factor = 0;  // required
  double low_freq_factor = 1;
  double high_freq_factor = 4;

  static constexpr auto Fields() {
    return std::tuple{Field{"factor", &Llama3Scaling::factor},
                      Field{"low_freq_factor", &Llama3Scaling::low_freq_factor},
                      Field{"high_freq_factor", &Llama3Scaling::high_freq_factor}};
  }
  bool operator==(const Llama3Scaling&) const = default;
};

// LongRoPE (Ding et al. 2024, arXiv 2402.13753) as Phi-3 ships it: one divisor of f_i per pair,
// from `long_factor` where length > L, else from `short_factor`.
struct LongRopeScaling {
  std::vector<double> short_factor = {};        // [pairs]
  std::vector<double> long_factor = {};         // [pairs]
  std::optional<double> factor = {};            // s of the amplitude sqrt(1 + ln s / ln L)
  std::optional<double> attention_factor = {};  // replaces the amplitude
  std::optional<double> short_mscale = {};      // replaces it with short_factor (Phi-3 small, vLLM)
  std::optional<double> long_mscale = {};       // replaces it with long_factor

  static constexpr auto Fields() {
    return std::tuple{
        Field{"short_factor", &LongRopeScaling::short_factor, Written::kNamed, "divisors"},
        Field{"long_factor", &LongRopeScaling::long_factor, Written::kNot},
        Field{"factor", &LongRopeScaling::factor},
        Field{"attention_factor", &LongRopeScaling::attention_factor},
        Field{"short_mscale", &LongRopeScaling::short_mscale},
        Field{"long_mscale", &LongRopeScaling::long_mscale}};
  }
  bool operator==(const LongRopeScaling&) const = default;
};

// Proportional, or p-RoPE (Barbero et al. 2024, arXiv 2410.06205; Gemma 4): of the head_dim / 2
// pairs the first int(fraction * head_dim / 2) have frequency base^(-2i/head_dim), the others 0.
// Unlike partial rotary (rotary_dim < head_dim), the exponent is divided by head_dim and a pair is
// (i, i + head_dim / 2).
struct ProportionalScaling {
  double fraction = 1;  // p
  double factor = 1;    // divides the frequencies

  static constexpr auto Fields() {
    return std::tuple{Field{"fraction", &ProportionalScaling::fraction},
                      Field{"factor", &ProportionalScaling::factor}};
  }
  bool operator==(const ProportionalScaling&) const = default;
};

// HoPE (Chen et al. 2024, arXiv 2410.21216): pairs that make less than one rotation within L
// (f_i < 2 pi / L) have frequency 0: they carry content without position.
struct HopeScaling {
  static constexpr auto Fields() { return std::tuple{}; }
  bool operator==(const HopeScaling&) const = default;
};

// Another base, or ABF (adjusted base frequency, Xiong et al. 2023, arXiv 2309.16039), given
// directly. NtkScaling computes a base from s instead.
struct BaseScaling {
  double base = 10000;

  static constexpr auto Fields() {
    return std::tuple{Field{"base", &BaseScaling::base, Written::kValue}};
  }
  bool operator==(const BaseScaling&) const = default;
};

// Divisors of f_i given directly (GGUF tensor `rope_freqs.weight`).
struct ExplicitScaling {
  std::vector<double> divisors = {};  // [pairs]

  static constexpr auto Fields() {
    return std::tuple{Field{"divisors", &ExplicitScaling::divisors}};
  }
  bool operator==(const ExplicitScaling&) const = default;
};

using Scaling =
    std::variant<NoScaling, LinearScaling, NtkScaling, NtkFixedScaling, NtkMixedScaling,
                 DynamicNtkScaling, DynamicLinearScaling, QwenNtkScaling, ByPartsScaling,
                 ByPartsRepoScaling, YarnScaling, DynamicYarnScaling, Llama3Scaling,
                 LongRopeScaling, ProportionalScaling, HopeScaling, BaseScaling, ExplicitScaling>;

// The position axis of each pair where a token has several coordinates (M-RoPE, 2-D, 3-D). Letters
// are the axes of 8 pairs with sections {4, 2, 2} of axes t, h, w:
//   kChunked      t t t t h h w w   Qwen2-VL (arXiv 2409.12191), XD-RoPE (four axes), and 2-D and
//                                   3-D rotary of vision models
//   kInterleaved  t h w t h w t t   Qwen3-VL: axis h if i % 3 == 1 and i < 3 sections[1],
//                                   w if i % 3 == 2 and i < 3 sections[2], else t (pair i)
//   kErnie        h w h w t t t t   Ernie 4.5-VL
enum class AxisOrder : uint8_t { kChunked, kInterleaved, kErnie };

// The frequencies of one axis, where each axis has its own.
struct AxisScaling {
  double base = 10000;
  Scaling scaling = NoScaling{};
  int64_t trained_length = 0;

  bool operator==(const AxisScaling&) const = default;
};

struct RotaryAxes {
  std::vector<int64_t> sections = {};  // pairs of each axis, at most 4 axes; empty: one axis
  AxisOrder order = AxisOrder::kChunked;
  // false: pair i has the frequency that it has in 1-D (M-RoPE). true: pair j of each axis has
  // f_j = base^(-j / sections[axis]) (2-D and 3-D rotary of vision models).
  bool own_ladders = false;
  // With own_ladders: one per axis, or empty, where base and scaling of the spec hold for all axes.
  std::vector<AxisScaling> scalings = {};

  bool operator==(const RotaryAxes&) const = default;
};

// xPos (Sun et al. 2022, arXiv 2212.10554): pair i of a query at position n is multiplied by
// zeta_i^((n - centre) / scale_base), of a key by the inverse, zeta_i = (2i/d + gamma) / (1 +
// gamma). `centre` cancels in the scores; near the positions of a call it keeps both factors near
// 1.
struct XposDecay {
  double scale_base = 512;
  double gamma = 0.4;
  double centre = 0;  // position

  bool operator==(const XposDecay&) const = default;
};

struct RotarySpec {
  explicit RotarySpec(PairLayout pair_layout) : layout(pair_layout) {}

  PairLayout layout;       // required: weights do not tell it
  int64_t head_dim = 0;    // elements of one head
  int64_t rotary_dim = 0;  // elements that are rotated, even: [first_dim, first_dim + rotary_dim)
  int64_t first_dim = 0;
  double base = 10000;
  int64_t trained_length = 0;  // tokens; MethodInfo says which scalings need it
  Scaling scaling = NoScaling{};
  Dialect dialect = Dialect::kNative;
  RotaryAxes axes = {};                // absent: 1-D
  std::optional<XposDecay> xpos = {};  // absent: no decay
  int64_t rotated_heads = 0;           // the first n heads of q and of k rotate; 0: all

  bool operator==(const RotarySpec&) const = default;
};

// Name, source and requirements of a scaling method: one row per alternative of Scaling, from the
// end of src/rotary/scaling/<method>.cc. Every command, result and chart uses these names.
struct MethodInfo {
  const char* name;           // "by-parts"
  const char* title;          // "NTK-by-parts (paper)"
  const char* source;         // paper or repository
  bool length_dependent;      // frequencies depend on the declared final length of the sequence
  bool needs_trained_length;  // RotarySpec::trained_length is required
  bool by_factor;             // needs no setting but a factor or the length
  bool usual;                 // measured by a sweep that names no methods
  // The method with its published defaults and this factor; 0: the struct's default factor.
  Scaling (*make)(double factor);
};
const std::vector<MethodInfo>& ScalingMethods();        // all, in the order of Scaling
const std::vector<MethodInfo>& Methods();               // those with by_factor
const MethodInfo& FindMethod(const std::string& name);  // of Methods(); Error lists the names
const MethodInfo& InfoOf(const Scaling& scaling);
std::string Describe(
    const Scaling& scaling);  // "yarn(factor 4, beta_fast 32, beta_slow 1, truncate)"
bool IsLengthDependent(const Scaling& scaling);
double FactorOf(const Scaling& scaling);  // 1 where the method has none

// The scaling that the model was trained with: the method itself with factor 1 where models are
// trained with it (proportional, HoPE, base), otherwise none.
Scaling TrainedScaling(const Scaling& scaling);

}  // namespace ropewalk
