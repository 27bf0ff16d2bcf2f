// Sandwich: the dot product of two sinusoidal position vectors as a bias, scaled per head (Chi et
// al. 2022, arXiv 2212.10356). Nothing is learned.
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
  bool causal = true;  // false: keys after the query too, by |distance|

  // Attention refuses distances beyond max_distance.
  DistanceForm Lower(int64_t heads, int64_t max_distance) const;

  static constexpr auto Fields() {
    return std::tuple{Field{"dim", &SandwichBias::dim}, Field{"base", &SandwichBias::base},
                      Field{"causal", &SandwichBias::causal}};
  }
  bool operator==(const SandwichBias&) const = default;
};

}  // namespace ropewalk
