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

// The slopes of H heads; both are 2^(-B k / H), k = 1..H, where H is a power of two (B: max_bias).
//   kPowersOfTwo  else: those of n = the largest power of two below H, then 2^(-B (2k - 1) / 2n),
//                 k = 1..H - n: the authors' code, BLOOM, MPT, llama.cpp
//   kGeometric    2^(-B k / H) for any H: FlexAttention's attention-gym
enum class AlibiSlopes : uint8_t { kPowersOfTwo, kGeometric };

// What a key ahead of its query gets, d = distance < 0.
//   kCausal     never asked
//   kSymmetric  -m |d|: encoders, llama.cpp, FlashAttention without a causal mask
//   kSigned     -m d, which grows with the key's position: m times the key's position up to the
//               softmax's invariance, as BLOOM and MPT write it
//   kZero       0: one-sided, what lies ahead costs nothing
enum class AlibiAhead : uint8_t { kCausal, kSymmetric, kSigned, kZero };

struct AlibiBias {
  AlibiSlopes rule = AlibiSlopes::kPowersOfTwo;
  AlibiAhead ahead = AlibiAhead::kCausal;
  double max_bias = 8;
  // Of the slopes. Falcon adds the bias before it scales scores: 1 / sqrt(head_dim).
  double scale = 1;
  std::vector<float> slopes = {};  // [heads]: learned ones, instead of the rule
  bool bfloat16 = false;           // slopes are rounded to bfloat16, before `scale` (Falcon)

  SlopeForm Lower(int64_t heads, int64_t max_distance) const;
  // With `bfloat16`, as transformers computes Falcon's: scale times slope times the key's position,
  // where slope, position and product are each rounded to bfloat16, less the same of the query's
  // position, which softmax does not see. It falls in steps where eight bits do not hold the
  // products: with slopes that are powers of two from position 257 on, with others before. Nothing
  // is learned.
  PairForm LowerInBfloat16(int64_t heads) const;
  // d(loss) / d(slopes), [heads], of the form's gradient (in the place of each number).
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

// The rule alone, [heads].
std::vector<double> AlibiSlopesOf(AlibiSlopes rule, int64_t heads, double max_bias = 8);

}  // namespace ropewalk
