// RotarySpec -> frequencies: a pure function.
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
  double amplitude = 1;                // multiplies cos and sin
  double softmax_multiplier = 1;       // multiplies 1 / sqrt(head_dim)
  std::vector<uint8_t> axis = {};      // [pairs], which position turns the pair; empty: all axis 0
  int axes = 1;
  // xPos, else empty: ln zeta_i / scale_base, [pairs]. Queries grow by e^(log_decay (n - centre)),
  // keys shrink by it.
  std::vector<double> log_decay = {};
  double decay_centre = 0;

  bool operator==(const Frequencies&) const = default;
};

// `length`: the declared final length of the sequence in tokens; only length-dependent methods look
// at it. Throws Error for an odd rotary_dim, dims outside the head, a factor below 1, betas that
// are swapped, divisors of the wrong count, a missing trained_length.
Frequencies Resolve(const RotarySpec& spec, int64_t length);

// The angle position * inv_freq modulo a turn, in [-pi, pi] radians, to 2^-51; exact reduction at
// any position of magnitude below 2^31.
double ExactAngle(const DoubleDouble& inv_freq, int64_t position);

}  // namespace ropewalk
