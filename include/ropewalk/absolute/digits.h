// Positions as the digits of a number, and three ways to read more of them than training showed (Su
// 2023, kexue.fm/archives/9675, which reads RoPE and sinusoids as digits in base b^(2/d)).
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

// A position has the row of its digits in `base`, most significant first: 749 in base 10 is
// [7, 4, 9]. With factor s it is position / s that is written, its fraction on the last digit.
struct DigitSpec {
  int64_t base = 10;
  int64_t digits = 3;
  double factor = 1;
};

// The same model at another length. With three decimal digits, trained to 999, position 1749 of
// 2000:
//   kExtrapolate  more digits in front, 0 in training             [1, 7, 4, 9]
//   kInterpolate  factor = length / capacity: the last is crowded  [8, 7, 4.5]
//   kChangeBase   the smallest base that has room for length      [10, 4, 7]   (base 13)
// Reserved dimensions are kExtrapolate's: give them to the model before training, as zeros.
enum class DigitExtension : uint8_t { kExtrapolate, kInterpolate, kChangeBase };

// Positions 0 .. capacity - 1 have rows, base^digits * factor; at most 2^53.
int64_t DigitCapacity(const DigitSpec& spec);
// Room for positions 0 .. length - 1; `spec` itself where it has that.
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
