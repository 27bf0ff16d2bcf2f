#include "ropewalk/absolute/sinusoidal.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "ropewalk/absolute/combine.h"
#include "ropewalk/base/buffer.h"
#include "src/absolute/check.h"
#include "src/rotary/reduction.h"

namespace ropewalk {
namespace {

using internal::kPositionLimit;
using internal::Refuse;

// Rows made at a time: 64 fine rows of the table serve all of them, and 512 rows of 1024 elements
// are 2 MiB.
constexpr int64_t kBlockRows = 512;

Frequencies Ladder(const SinusoidalSpec& spec) {
  const bool interleaved = spec.layout == SinusoidalLayout::kInterleaved;
  internal::CheckRange("Sinusoidal: dim", spec.dim, interleaved ? 1 : 2, int64_t{1} << 24);
  if (!(spec.base > 0 && std::isfinite(spec.base))) {
    Refuse("Sinusoidal: base: expected a positive number, got " + std::to_string(spec.base));
  }
  const int64_t n = interleaved ? (spec.dim + 1) / 2 : spec.dim / 2;
  int64_t numerator = 1, denominator = n;
  if (spec.ladder == SinusoidalLadder::kToBase) {
    denominator = std::max<int64_t>(n - 1, 1);
  } else if (interleaved) {
    numerator = 2, denominator = spec.dim;
  }
  Frequencies f;
  for (int64_t i = 0; i < n; ++i) {
    f.inv_freq.push_back(internal::RationalPower({spec.base, 0}, -i * numerator, denominator));
    f.inv_freq_f32.push_back(static_cast<float>(f.inv_freq.back().hi));
  }
  return f;
}

// One row of the encoding from one of a table of cosines and sines, [2, n].
void Place(const SinusoidalSpec& spec, const float* cos_sin, std::size_t n, bool negative,
           float* out) {
  const float* sines = cos_sin + n;
  const std::size_t dim = static_cast<std::size_t>(spec.dim);
  const float sign = negative ? -1.0f : 1.0f;
  const bool interleaved = spec.layout == SinusoidalLayout::kInterleaved;
  const std::size_t step = interleaved ? 2 : 1;
  std::size_t sine_at = 0, cosine_at = interleaved ? 1 : n;
  if (spec.cosine_first) std::swap(sine_at, cosine_at);
  if (!interleaved && dim % 2 == 1) out[dim - 1] = 0;
  const std::size_t whole = dim / 2;  // angles of which both fit
  for (std::size_t i = 0; i < whole; ++i) {
    out[sine_at + i * step] = sign * sines[i];
    out[cosine_at + i * step] = cos_sin[i];
  }
  if (whole < n) out[dim - 1] = spec.cosine_first ? cos_sin[whole] : sign * sines[whole];
}

}  // namespace

Sinusoidal::Sinusoidal(const SinusoidalSpec& spec)
    : spec_(spec), frequencies_(Ladder(spec)), cos_sin_(frequencies_) {}

void Sinusoidal::Rows(std::span<const int64_t> positions, std::span<float> out) const {
  internal::CheckPositions("Sinusoidal: positions", positions, 1 - kPositionLimit, kPositionLimit,
                           "");
  const int64_t count = static_cast<int64_t>(positions.size());
  internal::CheckSpan("Sinusoidal: out", out, {count, spec_.dim});
  // Sine is odd and cosine even, exactly: a negative position is the row of its magnitude.
  std::vector<int64_t> magnitudes(positions.size());
  std::transform(positions.begin(), positions.end(), magnitudes.begin(),
                 [](int64_t p) { return std::abs(p); });
  const std::size_t n = frequencies_.inv_freq.size();
  AlignedBuffer<float> table(positions.size() * 2 * n);
  cos_sin_.Fill(magnitudes, table.data());
  for (std::size_t r = 0; r < positions.size(); ++r) {
    Place(spec_, table.data() + r * 2 * n, n, positions[r] < 0,
          out.data() + r * static_cast<std::size_t>(spec_.dim));
  }
}

void Sinusoidal::Rows(int64_t start, std::span<float> out) const {
  const int64_t tokens = static_cast<int64_t>(out.size()) / spec_.dim;
  internal::CheckSpan("Sinusoidal: out", out, {tokens, spec_.dim});
  internal::CheckRange("Sinusoidal: start", start, 1 - kPositionLimit, kPositionLimit - tokens);
  const int64_t below = std::clamp<int64_t>(-start, 0, tokens);  // tokens at negative positions
  std::vector<int64_t> positions(static_cast<std::size_t>(below));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = start + static_cast<int64_t>(i);
  Rows(positions, out.first(static_cast<std::size_t>(below * spec_.dim)));
  const std::size_t n = frequencies_.inv_freq.size();
  AlignedBuffer<float> table(static_cast<std::size_t>(std::min(kBlockRows, tokens - below)) * 2 *
                             n);
  for (int64_t t = below; t < tokens; t += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, tokens - t);
    cos_sin_.Fill(start + t, rows, table.data());
    for (int64_t r = 0; r < rows; ++r) {
      Place(spec_, table.data() + static_cast<std::size_t>(r) * 2 * n, n, false,
            out.data() + (t + r) * spec_.dim);
    }
  }
}

// f(offset of the first element in a sequence, rows) a block of rows at a time.
template <class F>
void Sinusoidal::ForRows(const char* op, std::span<const float> x, int64_t batch, int64_t start,
                         const F& f) const {
  internal::CheckSize(std::string(op) + ": batch", batch);
  const int64_t tokens = static_cast<int64_t>(x.size()) / batch / spec_.dim;
  internal::CheckSpan(std::string(op) + ": x of [batch, tokens, dim]", x,
                      {batch, tokens, spec_.dim});
  internal::CheckRange(std::string(op) + ": start", start, 1 - kPositionLimit,
                       kPositionLimit - tokens);
  AlignedBuffer<float> rows(static_cast<std::size_t>(std::min(kBlockRows, tokens) * spec_.dim));
  for (int64_t t = 0; t < tokens; t += kBlockRows) {
    const int64_t count = std::min(kBlockRows, tokens - t);
    const std::span<float> some = rows.span().first(static_cast<std::size_t>(count * spec_.dim));
    Rows(start + t, some);
    for (int64_t b = 0; b < batch; ++b) {
      f(static_cast<std::size_t>((b * tokens + t) * spec_.dim), start + t, some);
    }
  }
}

void Sinusoidal::Add(std::span<float> x, int64_t batch, int64_t start, float scale) const {
  ForRows("Sinusoidal::Add", x, batch, start,
          [&](std::size_t at, int64_t, std::span<const float> rows) {
            AddRows(x.subspan(at, rows.size()), 1, rows, scale);
          });
}

double Sinusoidal::ScaleGradient(std::span<const float> dy, int64_t batch, int64_t start) const {
  double sum = 0;
  ForRows("Sinusoidal::ScaleGradient", dy, batch, start,
          [&](std::size_t at, int64_t, std::span<const float> rows) {
            for (std::size_t i = 0; i < rows.size(); ++i) {
              sum += static_cast<double>(dy[at + i]) * static_cast<double>(rows[i]);
            }
          });
  return sum;
}

void Sinusoidal::FrequencyGradient(std::span<const float> dy, int64_t batch, int64_t start,
                                   std::span<double> d_frequencies, float scale) const {
  const std::size_t n = frequencies_.inv_freq.size();
  internal::CheckSpan("Sinusoidal::FrequencyGradient: d_frequencies", d_frequencies,
                      {static_cast<int64_t>(n)});
  // The derivative by the angle is the row at an angle pi / 2 larger: cosine for sine, minus sine
  // for cosine.
  SinusoidalSpec turned = spec_;
  turned.cosine_first = !spec_.cosine_first;
  const std::size_t dim = static_cast<std::size_t>(spec_.dim);
  const bool interleaved = spec_.layout == SinusoidalLayout::kInterleaved;
  const Sinusoidal quarter(turned);
  quarter.ForRows("Sinusoidal::FrequencyGradient", dy, batch, start,
                  [&](std::size_t at, int64_t first, std::span<const float> rows) {
                    for (std::size_t i = 0; i < rows.size(); ++i) {
                      const std::size_t e = i % dim;
                      if (!interleaved && e >= 2 * n) continue;  // the zero of an odd size
                      const bool second = interleaved ? e % 2 == 1 : e >= n;
                      const double position =
                          static_cast<double>(first + static_cast<int64_t>(i / dim));
                      const double sign = second == spec_.cosine_first ? 1 : -1;
                      d_frequencies[interleaved ? e / 2 : e % n] +=
                          static_cast<double>(scale) * sign * position *
                          static_cast<double>(rows[i]) * static_cast<double>(dy[at + i]);
                    }
                  });
}

void SinusoidalGrid(std::span<const SinusoidalBlock> blocks, std::span<const int64_t> sizes,
                    std::span<float> out) {
  internal::CheckRange("SinusoidalGrid: axes of sizes", static_cast<int64_t>(sizes.size()), 1, 3);
  int64_t extent[3] = {1, 1, 1};
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    internal::CheckRange("SinusoidalGrid: sizes", sizes[a], 1, int64_t{1} << 20);
    extent[a] = sizes[a];
  }
  const int64_t patches = extent[0] * extent[1] * extent[2];
  int64_t dim = 0;
  for (const SinusoidalBlock& b : blocks) dim += b.spec.dim;
  internal::CheckSpan("SinusoidalGrid: out", out, {patches, dim});
  int64_t at = 0;
  for (const SinusoidalBlock& b : blocks) {
    internal::CheckRange("SinusoidalGrid: axis of a block", b.axis, 0,
                         static_cast<int64_t>(sizes.size()) - 1);
    const Sinusoidal encoding(b.spec);
    std::vector<float> rows(static_cast<std::size_t>(extent[b.axis] * b.spec.dim));
    encoding.Rows(0, rows);
    for (int64_t patch = 0; patch < patches; ++patch) {
      const int64_t coordinates[] = {patch / extent[2] / extent[1], patch / extent[2] % extent[1],
                                     patch % extent[2]};
      std::copy_n(rows.data() + coordinates[b.axis] * b.spec.dim, b.spec.dim,
                  out.data() + patch * dim + at);
    }
    at += b.spec.dim;
  }
}

}  // namespace ropewalk
