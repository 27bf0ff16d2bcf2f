// How much each rotary frequency contributes to the attention scores of a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk {

// The score of a query and a key is a sum over pairs i of dimensions, to which pair i contributes
// at most |q_i| |k_i|, the product of its norms in query and key, at any positions: a rotation does
// not change norms. share[layer][i] is the mean of that product over all heads, queries and keys of
// the text, divided by the sum over i. Figure 2 of HoPE (Chen et al. 2024, arXiv 2410.21216) and
// "Round and Round We Go" (Barbero et al. 2024, arXiv 2410.06205, section 4) show it: much of the
// weight is on a few low frequencies.
struct FrequencyUse {
  int64_t tokens = 0;
  std::vector<std::vector<double>> share;  // [layers][pairs]; empty for layers without rotation
  // The mean over the layers that rotate the most pairs; empty where no layer rotates.
  std::vector<double> Mean() const;
};
// Throws Error for an empty text, and as Decoder::Forward does.
FrequencyUse MeasureFrequencyUse(const Decoder& decoder, const PositionPlan& plan,
                                 std::span<const int32_t> ids);

}  // namespace ropewalk
