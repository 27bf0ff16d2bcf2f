#include "ropewalk/absolute/digits.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/absolute/check.h"

namespace ropewalk {
namespace {

constexpr int64_t kMost = int64_t{1} << 53;  // whole numbers of a double

void Check(const DigitSpec& spec) {
  internal::CheckRange("DigitSpec: base", spec.base, 2, int64_t{1} << 20);
  internal::CheckRange("DigitSpec: digits", spec.digits, 1, 53);
  if (!(spec.factor >= 1 && spec.factor <= 0x1p53)) {
    internal::Refuse("DigitSpec: factor: expected 1 or more, got " + std::to_string(spec.factor));
  }
}

// base^digits, at most 2^53.
int64_t Power(int64_t base, int64_t digits) {
  int64_t power = 1;
  for (int64_t i = 0; i < digits && power < kMost; ++i) power = std::min(power * base, kMost);
  return power;
}

// The digits of one position, most significant first.
void Write(const DigitSpec& spec, int64_t position, double* out) {
  const double scaled = static_cast<double>(position) / spec.factor;
  const double whole = std::floor(scaled);
  int64_t rest = static_cast<int64_t>(whole);
  for (int64_t i = spec.digits - 1; i >= 0; --i, rest /= spec.base) {
    out[i] = static_cast<double>(rest % spec.base);
  }
  out[spec.digits - 1] += scaled - whole;
}

void CheckDigitPositions(const DigitSpec& spec, std::span<const int64_t> positions) {
  internal::CheckPositions("DigitRows: positions", positions, 0, DigitCapacity(spec),
                           "; ExtendDigits makes room");
}

}  // namespace

int64_t DigitCapacity(const DigitSpec& spec) {
  Check(spec);
  const double power = static_cast<double>(Power(spec.base, spec.digits));
  // The last position whose quotient is below power, which the quotient itself may round up to.
  int64_t end = static_cast<int64_t>(std::min(std::ceil(power * spec.factor), 0x1p53));
  while (end > 1 && static_cast<double>(end - 1) / spec.factor >= power) --end;
  return end;
}

DigitSpec ExtendDigits(const DigitSpec& spec, int64_t length, DigitExtension extension) {
  internal::CheckRange("ExtendDigits: length", length, 1, kMost);
  DigitSpec out = spec;
  if (DigitCapacity(spec) >= length) return out;
  switch (extension) {
    case DigitExtension::kExtrapolate:
      while (DigitCapacity(out) < length) ++out.digits;
      break;
    case DigitExtension::kInterpolate:
      out.factor = static_cast<double>(length) / static_cast<double>(Power(spec.base, spec.digits));
      break;
    case DigitExtension::kChangeBase:
      while (DigitCapacity(out) < length) ++out.base;
      break;
  }
  return out;
}

void DigitRows(const DigitSpec& spec, std::span<const int64_t> positions, std::span<float> out) {
  CheckDigitPositions(spec, positions);
  internal::CheckSpan("DigitRows: out", out, {static_cast<int64_t>(positions.size()), spec.digits});
  std::vector<double> row(static_cast<std::size_t>(spec.digits));
  float* to = out.data();
  for (const int64_t position : positions) {
    Write(spec, position, row.data());
    for (const double digit : row) *to++ = static_cast<float>(digit);
  }
}

void ProjectDigits(const DigitSpec& spec, std::span<const float> weight, int64_t dim,
                   std::span<const int64_t> positions, std::span<float> out) {
  CheckDigitPositions(spec, positions);
  internal::CheckSize("ProjectDigits: dim", dim);
  internal::CheckSpan("ProjectDigits: weight", weight, {dim, spec.digits});
  internal::CheckSpan("ProjectDigits: out", out, {static_cast<int64_t>(positions.size()), dim});
  std::vector<double> row(static_cast<std::size_t>(spec.digits));
  float* to = out.data();
  for (const int64_t position : positions) {
    Write(spec, position, row.data());
    const float* w = weight.data();
    for (int64_t e = 0; e < dim; ++e) {
      double sum = 0;
      for (const double digit : row) sum += digit * static_cast<double>(*w++);
      *to++ = static_cast<float>(sum);
    }
  }
}

void ProjectDigitsBackward(const DigitSpec& spec, int64_t dim, std::span<const int64_t> positions,
                           std::span<const float> d_out, std::span<double> d_weight) {
  CheckDigitPositions(spec, positions);
  internal::CheckSize("ProjectDigitsBackward: dim", dim);
  internal::CheckSpan("ProjectDigitsBackward: d_out", d_out,
                      {static_cast<int64_t>(positions.size()), dim});
  internal::CheckSpan("ProjectDigitsBackward: d_weight", d_weight, {dim, spec.digits});
  std::vector<double> row(static_cast<std::size_t>(spec.digits));
  const float* from = d_out.data();
  for (const int64_t position : positions) {
    Write(spec, position, row.data());
    double* w = d_weight.data();
    for (int64_t e = 0; e < dim; ++e, ++from) {
      for (const double digit : row) *w++ += digit * static_cast<double>(*from);
    }
  }
}

}  // namespace ropewalk
