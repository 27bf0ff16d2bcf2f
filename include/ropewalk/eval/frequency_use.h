// How much each frequency contributes to the scores of a real model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/model/model.h"

namespace ropewalk {

// The score of a query and a key is a sum over pairs, and pair i can give at most |q_i| |k_i|, the
// product of the lengths of its two elements in each, whatever their positions: rotation changes no
// length. share[layer][i] is the mean of that product over all heads and all pairs of a query and a
// key of the text, as a share of the sum over i. It is what figure 2 of HoPE (Chen et al. 2024,
// arXiv 2410.21216) and "Round and Round We Go" (Barbero et al. 2024, arXiv 2410.06205, section 4)
// look at: models put much weight on a few low frequencies.
struct FrequencyUse {
  int64_t tokens = 0;
  std::vector<std::vector<double>> share;  // [layers][pairs], a layer without rotation: empty
  // Over the layers that rotate the most pairs; empty where none does.
  std::vector<double> Mean() const;
};
// Throws Error for an empty text, and what Decoder::Forward throws.
FrequencyUse MeasureFrequencyUse(const Decoder& decoder, const PositionPlan& plan,
                                 std::span<const int32_t> ids);

}  // namespace ropewalk
