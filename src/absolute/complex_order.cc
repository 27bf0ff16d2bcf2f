#include "ropewalk/absolute/complex_order.h"

#include <cmath>
#include <string>

#include "src/absolute/complex_check.h"
#include "src/rotary/reduction.h"

namespace ropewalk {
namespace {

using internal::kPositionLimit;

int64_t Parameters(const ComplexOrderSpec& spec, ComplexSharing sharing) {
  return sharing == ComplexSharing::kWords  ? spec.dim
         : sharing == ComplexSharing::kDims ? spec.words
                                            : spec.words * spec.dim;
}

std::size_t At(const ComplexOrderSpec& spec, ComplexSharing sharing, int64_t word, int64_t e) {
  return static_cast<std::size_t>(sharing == ComplexSharing::kWords  ? e
                                  : sharing == ComplexSharing::kDims ? word
                                                                     : word * spec.dim + e);
}

template <class T>
void Check(const ComplexOrderSpec& spec, const ComplexOrderTables& tables,
           std::span<const int64_t> words, std::span<const int64_t> positions,
           const ComplexSpan<T>& out) {
  internal::CheckSize("ComplexOrder: words", spec.words);
  internal::CheckSize("ComplexOrder: dim", spec.dim);
  internal::CheckSpan("ComplexOrder: amplitude", tables.amplitude, {spec.words, spec.dim});
  internal::CheckSpan("ComplexOrder: frequency", tables.frequency,
                      {Parameters(spec, spec.frequency)});
  if (!tables.phase.empty()) {
    internal::CheckSpan("ComplexOrder: phase", tables.phase, {Parameters(spec, spec.phase)});
  }
  internal::CheckPositions("ComplexOrder: words", words, 0, spec.words, "; these are token ids");
  internal::CheckPositions("ComplexOrder: positions", positions, 1 - kPositionLimit, kPositionLimit,
                           "");
  const int64_t tokens = static_cast<int64_t>(words.size());
  internal::CheckSpan("ComplexOrder: positions", positions, {tokens});
  internal::CheckComplex("ComplexOrder: out", out, {tokens, spec.dim});
}

struct Unit {
  double cosine, sine;
};

// Of frequency * position + phase. The product is the sum of two doubles without error; the C
// library reduces the large one exactly; the small one and the phase rotate the result further.
Unit Rotation(float frequency, int64_t position, float phase) {
  const double f = static_cast<double>(frequency), p = static_cast<double>(position);
  const double angle = f * p;
  const double rest = std::fma(f, p, -angle) + static_cast<double>(phase);
  const double c = std::cos(angle), s = std::sin(angle);
  const double rc = std::cos(rest), rs = std::sin(rest);
  return {c * rc - s * rs, s * rc + c * rs};
}

// f(element of out, word, dimension, cosine and sine) for all of them.
template <class F>
void ForElements(const ComplexOrderSpec& spec, const ComplexOrderTables& tables,
                 std::span<const int64_t> words, std::span<const int64_t> positions, const F& f) {
  std::size_t at = 0;
  for (std::size_t t = 0; t < words.size(); ++t) {
    for (int64_t e = 0; e < spec.dim; ++e) {
      const float phase =
          tables.phase.empty() ? 0 : tables.phase[At(spec, spec.phase, words[t], e)];
      f(at++, t, e,
        Rotation(tables.frequency[At(spec, spec.frequency, words[t], e)], positions[t], phase));
    }
  }
}

}  // namespace

void ComplexOrder(const ComplexOrderSpec& spec, const ComplexOrderTables& tables,
                  std::span<const int64_t> words, std::span<const int64_t> positions,
                  const ComplexSpan<float>& out) {
  Check(spec, tables, words, positions, out);
  ForElements(spec, tables, words, positions,
              [&](std::size_t at, std::size_t t, int64_t e, const Unit& unit) {
                const double r = static_cast<double>(
                    tables.amplitude[At(spec, ComplexSharing::kNone, words[t], e)]);
                out.re[at] = static_cast<float>(r * unit.cosine);
                out.im[at] = static_cast<float>(r * unit.sine);
              });
}

void ComplexOrderBackward(const ComplexOrderSpec& spec, const ComplexOrderTables& tables,
                          std::span<const int64_t> words, std::span<const int64_t> positions,
                          const ComplexSpan<const float>& d_out,
                          const ComplexOrderGradients& gradients) {
  Check(spec, tables, words, positions, d_out);
  internal::CheckSpan("ComplexOrderBackward: amplitude", gradients.amplitude,
                      {spec.words, spec.dim});
  internal::CheckSpan("ComplexOrderBackward: frequency", gradients.frequency,
                      {Parameters(spec, spec.frequency)});
  if (!tables.phase.empty()) {
    internal::CheckSpan("ComplexOrderBackward: phase", gradients.phase,
                        {Parameters(spec, spec.phase)});
  }
  ForElements(spec, tables, words, positions,
              [&](std::size_t at, std::size_t t, int64_t e, const Unit& unit) {
                const std::size_t a = At(spec, ComplexSharing::kNone, words[t], e);
                const double gr = static_cast<double>(d_out.re[at]);
                const double gi = static_cast<double>(d_out.im[at]);
                gradients.amplitude[a] += gr * unit.cosine + gi * unit.sine;
                const double d_angle =
                    static_cast<double>(tables.amplitude[a]) * (gi * unit.cosine - gr * unit.sine);
                gradients.frequency[At(spec, spec.frequency, words[t], e)] +=
                    static_cast<double>(positions[t]) * d_angle;
                if (!tables.phase.empty()) {
                  gradients.phase[At(spec, spec.phase, words[t], e)] += d_angle;
                }
              });
}

}  // namespace ropewalk
