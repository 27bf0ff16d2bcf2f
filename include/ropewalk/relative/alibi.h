// ALiBi: scores fall linearly with the distance, each head with its own slope (Press et al. 2021,
// arXiv 2108.12409, section 3).
//
//   bias = -m_h (position of query - position of key)
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "ropewalk/base/fields.h"
#include "ropewalk/relative/forms.h"

namespace ropewalk {

// The slopes of H heads: 2^(-B k / H), k = 1..H, where H is a power of two (B: max_bias);
//   kPowersOfTwo  for other H: the slopes of n, the largest power of two below H, followed by
//                 2^(-B (2k - 1) / 2n), k = 1..H - n (the authors' code, BLOOM, MPT, llama.cpp)
//   kGeometric    2^(-B k / H) for any H (attention-gym of FlexAttention)
enum class AlibiSlopes : uint8_t { kPowersOfTwo, kGeometric };

// The bias of keys after their query, d = distance < 0.
//   kCausal     none: for causal attention, which masks them
//   kSymmetric  -m |d| (encoders; llama.cpp and FlashAttention without a causal mask)
//   kSigned     -m d, which grows with the key's position. Equals m times the key's position, as
//               BLOOM and MPT write it, up to a constant per query, which softmax ignores
//   kZero       0
enum class AlibiAhead : uint8_t { kCausal, kSymmetric, kSigned, kZero };

struct AlibiBias {
  AlibiSlopes rule = AlibiSlopes::kPowersOfTwo;
  AlibiAhead ahead = AlibiAhead::kCausal;
  double max_bias = 8;
  // Multiplies the slopes. 1 / sqrt(head_dim) for Falcon, which adds the bias before the scale.
  double scale = 1;
  std::vector<float> slopes = {};  // [heads], learned; empty: those of `rule`
  bool bfloat16 = false;           // slopes are rounded to bfloat16, before `scale` (Falcon)

  SlopeForm Lower(int64_t heads, int64_t max_distance) const;
  // With `bfloat16`, as transformers computes Falcon's bias: scale times slope times the key's
  // position, with slope, position and product each rounded to bfloat16 (8 significant bits), minus
  // the same for the query's position, which softmax ignores. Rounding makes it a step function:
  // from position 257 on for slopes that are powers of two, earlier for others. Nothing is learned.
  PairForm LowerInBfloat16(int64_t heads) const;
  // d(loss) / d(slopes), [heads], from a form that holds the gradient in place of each value.
  std::vector<double> Backward(const SlopeForm& gradient) const;

  static constexpr auto Fields() {
    return std::tuple{Field{"rule", &AlibiBias::rule, Written::kNamed, nullptr, 1},
                      Field{"ahead", &AlibiBias::ahead, Written::kNamed, nullptr, 3},
                      Field{"max_bias", &AlibiBias::max_bias},
                      Field{"scale", &AlibiBias::scale},
                      Field{"slopes", &AlibiBias::slopes},
                      Field{"bfloat16", &AlibiBias::bfloat16}};
  }

  bool operator==(const AlibiBias&) const = default;
};

// The slopes of a rule, [heads].
std::vector<double> AlibiSlopesOf(AlibiSlopes rule, int64_t heads, double max_bias = 8);

}  // namespace ropewalk
