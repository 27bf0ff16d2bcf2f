// Positions as the digits of a number, and three ways to extend them beyond the trained length (Su
// 2023, kexue.fm/archives/9675, which interprets RoPE and sinusoids as digits in base b^(2/d)).
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

// The row of a position is its digits in `base`, most significant first: 749 in base 10 is
// [7, 4, 9]. With a factor s, it is the digits of position / s; the last one has the fraction.
struct DigitSpec {
  int64_t base = 10;
  int64_t digits = 3;
  double factor = 1;
};

// Ways to extend to a larger length. For three decimal digits, trained up to 999, and a length of
// 2000, position 1749 is
//   kExtrapolate  more digits in front, which are 0 in training     [1, 7, 4, 9]
//   kInterpolate  factor = length / capacity: a finer last digit    [8, 7, 4.5]
//   kChangeBase   the smallest base with enough capacity            [10, 4, 7]   (base 13)
// A model for kExtrapolate needs the additional digits as inputs (zeros) in training.
enum class DigitExtension : uint8_t { kExtrapolate, kInterpolate, kChangeBase };

// The number of positions that have rows: base^digits * factor, at most 2^53.
int64_t DigitCapacity(const DigitSpec& spec);
// A spec with a capacity of at least `length`; `spec` itself if it has that.
DigitSpec ExtendDigits(const DigitSpec& spec, int64_t length, DigitExtension extension);

// out [positions.size(), digits]. Throws Error for a position that does not fit.
void DigitRows(const DigitSpec& spec, std::span<const int64_t> positions, std::span<float> out);

// The first layer of a model that reads digits: row = weight digits, weight [dim, digits], out
// [positions.size(), dim]. d_weight += dL/dweight.
void ProjectDigits(const DigitSpec& spec, std::span<const float> weight, int64_t dim,
                   std::span<const int64_t> positions, std::span<float> out);
void ProjectDigitsBackward(const DigitSpec& spec, int64_t dim, std::span<const int64_t> positions,
                           std::span<const float> d_out, std::span<double> d_weight);

}  // namespace ropewalk
