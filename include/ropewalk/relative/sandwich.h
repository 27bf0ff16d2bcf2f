// Sandwich: what is left of sinusoidal positions when only the product of two positions is kept,
// divided by a number of the head (Chi et al. 2022, arXiv 2212.10356). Nothing learned.
//
//   bias = H / (8 h) sum over i < dim / 2 of cos(d 10000^(-2i / dim)),   h = 1 .. H
#pragma once

#include <cstdint>
#include <tuple>

#include "ropewalk/base/fields.h"
#include "ropewalk/relative/forms.h"

namespace ropewalk {

struct SandwichBias {
  int64_t dim = 128;  // the paper's d-bar; even
  double base = 10000;
  bool causal = true;  // false: keys ahead by |distance| as well

  // Attention refuses distances beyond max_distance.
  DistanceForm Lower(int64_t heads, int64_t max_distance) const;

  static constexpr auto Fields() {
    return std::tuple{Field{"dim", &SandwichBias::dim}, Field{"base", &SandwichBias::base},
                      Field{"causal", &SandwichBias::causal}};
  }
  bool operator==(const SandwichBias&) const = default;
};

}  // namespace ropewalk
