// The frequencies of a RotarySpec, computed by a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// An unevaluated sum hi + lo with |lo| <= ulp(hi) / 2: about 106 bits.
struct DoubleDouble {
  double hi = 0;
  double lo = 0;

  bool operator==(const DoubleDouble&) const = default;
};

struct Frequencies {
  std::vector<DoubleDouble> inv_freq;  // [pairs], radians per position, exact
  std::vector<float> inv_freq_f32;     // [pairs], bit for bit what Hugging Face computes in float32
  double amplitude = 1;                // YaRN's attention factor: multiplies cos and sin
  double softmax_multiplier = 1;       // multiplies the score scale 1 / sqrt(head_dim)
  std::vector<uint8_t> axis = {};      // [pairs], the position axis of the pair; empty: all 0
  int axes = 1;
  // xPos, else empty: ln zeta_i / scale_base, [pairs]. A query is multiplied by
  // e^(log_decay (n - centre)), a key divided by it.
  std::vector<double> log_decay = {};
  double decay_centre = 0;

  bool operator==(const Frequencies&) const = default;
};

// `length`: the final length of the sequence in tokens, which only length-dependent methods read.
// Throws Error for an odd rotary_dim, dims outside the head, a factor below 1, swapped betas, a
// wrong number of divisors, a missing trained_length, settings or frequencies that are no finite
// numbers, and for a method without a formula in the dialect.
Frequencies Resolve(const RotarySpec& spec, int64_t length);

// The angle position * inv_freq modulo 2 pi, in [-pi, pi] radians, with an error of at most 2^-51
// at any position of magnitude below 2^31.
double ExactAngle(const DoubleDouble& inv_freq, int64_t position);

}  // namespace ropewalk
