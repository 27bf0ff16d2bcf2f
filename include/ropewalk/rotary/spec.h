// What a rotary embedding is, as data. A scaling method is a struct here and a pure function in
// src/rotary/scaling/<method>.cc; no kernel knows its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ropewalk {

// Which two elements of a head form pair i (rotary_dim = 8, the digit is the pair):
//   kHalf         0 1 2 3 0 1 2 3    GPT-NeoX, Hugging Face "rotate_half"
//   kInterleaved  0 0 1 1 2 2 3 3    GPT-J, the RoFormer paper, Meta's llama, llama2.c
enum class PairLayout : uint8_t { kHalf, kInterleaved };

// kExact: cos and sin right to the last float bit at any position below 2^31.
// kFloat32: what Hugging Face computes: float32 frequencies times float32 positions.
enum class AnglePrecision : uint8_t { kExact, kFloat32 };

// In all of these `factor` s is target length over trained length, s >= 1, and
// f_i = base^(-2i/rotary_dim) is the frequency of pair i; L is RotarySpec::trained_length.
struct NoScaling {};

// Position interpolation (Chen et al. 2023, arXiv 2306.15595, eq. 4): f_i / s.
struct LinearScaling {
  double factor = 1;
};

// NTK-aware (bloc97 2023; YaRN paper arXiv 2309.00071, eq. 16): base' = base * s^(d/(d-2)).
struct NtkScaling {
  double factor = 1;
};

// Dynamic NTK (emozilla 2023; Hugging Face "dynamic"): NTK-aware with
// s' = s * length / L - (s - 1) for length > L, and no scaling up to L.
struct DynamicNtkScaling {
  double factor = 1;
};

// NTK-by-parts of the YaRN paper (section 3.2, eq. 17-20): a ramp over rotations r = L f / 2 pi.
struct ByPartsScaling {
  double factor = 1;
  double alpha = 1;  // at most this many rotations within L: interpolated by s
  double beta = 32;  // at least this many: untouched
};

// NTK-by-parts as the authors' repository jquesnelle/yarn computes it: a blend of linear, NTK and
// plain frequencies over two ramps in pair index.
struct ByPartsRepoScaling {
  double factor = 1;
  double ntk_factor = 1;
  double extrapolation_factor = 1;
  double beta_0 = 1.25, beta_1 = 0.75;  // rotations that bound the linear / NTK ramp
  double gamma_0 = 16, gamma_1 = 2;     // rotations that bound the NTK / plain ramp
};

// YaRN (arXiv 2309.00071) as Hugging Face computes it: the ramp runs over pair indices.
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;                         // floor / ceil of the ramp's ends
  std::optional<double> attention_factor = {};  // replaces the amplitude
  std::optional<double> mscale = {};  // amplitude g(mscale) / g(mscale_all_dim), both needed
  std::optional<double> mscale_all_dim = {};  // g(m) = 0.1 m ln s + 1
};

// Llama 3.1 (Meta 2024): by-parts in wavelengths; equals ByParts with alpha = low_freq_factor.
struct Llama3Scaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
};

// LongRoPE (Ding et al. 2024, arXiv 2402.13753) as Phi-3 ships it: a divisor per pair,
// `long_factor` when the declared length exceeds L.
struct LongRopeScaling {
  std::vector<double> short_factor = {};        // [pairs]
  std::vector<double> long_factor = {};         // [pairs]
  std::optional<double> factor = {};            // for the amplitude sqrt(1 + ln s / ln L)
  std::optional<double> attention_factor = {};  // replaces the amplitude
};

// Divisors of f_i given outright (GGUF tensor `rope_freqs.weight`).
struct ExplicitScaling {
  std::vector<double> divisors = {};  // [pairs]
};

using Scaling =
    std::variant<NoScaling, LinearScaling, NtkScaling, DynamicNtkScaling, ByPartsScaling,
                 ByPartsRepoScaling, YarnScaling, Llama3Scaling, LongRopeScaling, ExplicitScaling>;

struct RotarySpec {
  explicit RotarySpec(PairLayout pair_layout) : layout(pair_layout) {}

  PairLayout layout;       // required: nothing in a model's weights says which
  int64_t head_dim = 0;    // elements of one head
  int64_t rotary_dim = 0;  // how many of them rotate; even; [first_dim, first_dim + rotary_dim)
  int64_t first_dim = 0;
  double base = 10000;
  int64_t trained_length = 0;  // tokens; needed by all scalings but none, linear, ntk
  Scaling scaling = NoScaling{};
};

// One list of the methods: the names that every command, result and chart uses.
struct MethodInfo {
  const char* name;       // "by-parts"
  const char* title;      // "NTK-by-parts (paper)"
  const char* source;     // paper or repository
  bool length_dependent;  // frequencies depend on the declared final length of the sequence
  Scaling (*make)(double factor);  // with the method's published defaults
};
const std::vector<MethodInfo>&
Methods();  // none, linear, ntk, dynamic, by-parts, by-parts-repo, yarn, llama3
const MethodInfo& FindMethod(const std::string& name);  // Error lists the names
std::string Describe(
    const Scaling& scaling);  // "yarn(factor 4, beta_fast 32, beta_slow 1, truncate)"
bool IsLengthDependent(const Scaling& scaling);
double FactorOf(const Scaling& scaling);  // 1 where the method has none

}  // namespace ropewalk
