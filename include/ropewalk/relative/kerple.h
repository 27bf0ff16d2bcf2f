// KERPLE: a bias from a conditionally positive definite kernel of the distance d, with learned
// parameters per head (Chi et al. 2022, arXiv 2205.09921, section 4).
//
//   kPower  bias = -r1 |d|^r2       r1 > 0, 0 < r2 <= 2
//   kLog    bias = -r1 ln(1 + r2 |d|)       r1 > 0, r2 > 0
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "ropewalk/base/fields.h"
#include "ropewalk/relative/forms.h"

namespace ropewalk {

enum class KerpleKernel : uint8_t { kPower, kLog };

struct KerpleBias {
  KerpleKernel kernel = KerpleKernel::kLog;
  std::vector<float> r1 = {}, r2 = {};  // [heads]
  bool causal = true;                   // false: keys after the query too, by |distance|

  // Attention refuses distances beyond max_distance.
  DistanceForm Lower(int64_t heads, int64_t max_distance) const;
  struct Gradient {
    std::vector<double> r1, r2;  // [heads]
  };
  Gradient Backward(const DistanceForm& gradient) const;

  static constexpr auto Fields() {
    return std::tuple{Field{"kernel", &KerpleBias::kernel, Written::kNamed, nullptr, 1},
                      Field{"r1", &KerpleBias::r1}, Field{"r2", &KerpleBias::r2},
                      Field{"causal", &KerpleBias::causal}};
  }
  bool operator==(const KerpleBias&) const = default;
};

}  // namespace ropewalk
