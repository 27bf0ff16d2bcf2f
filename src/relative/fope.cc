#include "ropewalk/relative/fope.h"

#include <numbers>

#include "src/relative/angles.h"
#include "src/relative/check.h"

namespace ropewalk {
namespace {

void CheckSizes(const FopeEncoding& fope) {
  internal::CheckAtLeast("FopeEncoding.heads", fope.heads, 1);
  if (fope.head_dim < 2 || fope.head_dim % 2 != 0) {
    internal::Refuse("FopeEncoding.head_dim: expected an even number, 2 or more, got " +
                     std::to_string(fope.head_dim));
  }
  internal::CheckPositive("FopeEncoding.base", fope.base);
  if (fope.frequencies == 0) {
    internal::CheckAtLeast("FopeEncoding.trained_length", fope.trained_length, 1);
  } else if (fope.frequencies < 0 || fope.frequencies > fope.head_dim / 2) {
    internal::Refuse("FopeEncoding.frequencies: expected 0 to " +
                     std::to_string(fope.head_dim / 2) + ", got " +
                     std::to_string(fope.frequencies));
  }
}

int64_t CheckInput(const FopeEncoding& fope, std::span<const float> x,
                   std::span<const int64_t> positions) {
  const int64_t kept = fope.Kept();
  if (fope.table_heads < 1 || fope.heads % fope.table_heads != 0) {
    internal::Refuse("FopeEncoding.table_heads: expected a divisor of " +
                     std::to_string(fope.heads) + ", got " + std::to_string(fope.table_heads));
  }
  const int64_t size = fope.table_heads * kept * kept;
  internal::CheckNumbers("FopeEncoding.cosines", fope.cosines, size);
  internal::CheckNumbers("FopeEncoding.sines", fope.sines, size);
  internal::CheckNumbers("FopeEncoding: x", x,
                         static_cast<int64_t>(positions.size()) * fope.heads * fope.head_dim);
  internal::CheckPositions("FopeEncoding", positions);
  return kept;
}

// out[table][d] = sum over w of coefficients[table][w][d] values[w]
std::vector<double> Mix(std::span<const float> coefficients, const std::vector<double>& values,
                        int64_t tables, int64_t kept) {
  std::vector<double> out(tables * kept);
  for (int64_t row = 0; row < tables * kept; ++row) {
    for (int64_t d = 0; d < kept; ++d) {
      out[row / kept * kept + d] += coefficients[row * kept + d] * values[row % kept];
    }
  }
  return out;
}

// d_coefficients[table][w][d] += values[w] d_out[table][d]
void MixBackward(const std::vector<double>& values, const std::vector<double>& d_out,
                 int64_t tables, int64_t kept, std::vector<double>& d_coefficients) {
  for (int64_t row = 0; row < tables * kept; ++row) {
    for (int64_t d = 0; d < kept; ++d) {
      d_coefficients[row * kept + d] += values[row % kept] * d_out[row / kept * kept + d];
    }
  }
}

}  // namespace

int64_t FopeEncoding::Kept() const {
  CheckSizes(*this);
  if (frequencies > 0) return frequencies;
  const internal::Angles angles(base, head_dim);
  int64_t kept = 0;
  while (kept < head_dim / 2 && angles.Frequency(kept) > 2 * std::numbers::pi / trained_length) {
    ++kept;
  }
  return kept;
}

std::vector<float> FopeEncoding::Encode(std::span<const float> x,
                                        std::span<const int64_t> positions) const {
  const int64_t kept = CheckInput(*this, x, positions);
  std::vector<float> out(x.begin(), x.end());
  internal::Angles angles(base, head_dim);
  int64_t head_start = 0;
  for (const int64_t position : positions) {
    angles.MoveTo(position);
    const std::vector<double> c = Mix(cosines, angles.cosine, table_heads, kept);
    const std::vector<double> s = Mix(sines, angles.sine, table_heads, kept);
    for (int64_t h = 0; h < heads; ++h, head_start += head_dim) {
      const int64_t table = h / (heads / table_heads) * kept;
      for (int64_t d = 0; d < kept; ++d) {
        const double x1 = x[head_start + d];
        const double x2 = x[head_start + head_dim / 2 + d];
        out[head_start + d] = static_cast<float>(x1 * c[table + d] - x2 * s[table + d]);
        out[head_start + head_dim / 2 + d] =
            static_cast<float>(x2 * c[table + d] + x1 * s[table + d]);
      }
    }
  }
  return out;
}

FopeEncoding::Gradient FopeEncoding::Backward(std::span<const float> x,
                                              std::span<const int64_t> positions,
                                              std::span<const float> d_out) const {
  const int64_t kept = CheckInput(*this, x, positions);
  internal::CheckNumbers("FopeEncoding.Backward: d_out", d_out, static_cast<int64_t>(x.size()));
  Gradient g{{d_out.begin(), d_out.end()},
             std::vector<double>(cosines.size()),
             std::vector<double>(sines.size())};
  internal::Angles angles(base, head_dim);
  int64_t head_start = 0;
  for (const int64_t position : positions) {
    angles.MoveTo(position);
    const std::vector<double> c = Mix(cosines, angles.cosine, table_heads, kept);
    const std::vector<double> s = Mix(sines, angles.sine, table_heads, kept);
    std::vector<double> d_c(c.size());
    std::vector<double> d_s(s.size());
    for (int64_t h = 0; h < heads; ++h, head_start += head_dim) {
      const int64_t table = h / (heads / table_heads) * kept;
      for (int64_t d = 0; d < kept; ++d) {
        const int64_t first = head_start + d;
        const int64_t second = first + head_dim / 2;
        const double d1 = d_out[first];
        const double d2 = d_out[second];
        g.x[first] = d1 * c[table + d] + d2 * s[table + d];
        g.x[second] = d2 * c[table + d] - d1 * s[table + d];
        d_c[table + d] += d1 * x[first] + d2 * x[second];
        d_s[table + d] += d2 * x[first] - d1 * x[second];
      }
    }
    MixBackward(angles.cosine, d_c, table_heads, kept, g.cosines);
    MixBackward(angles.sine, d_s, table_heads, kept, g.sines);
  }
  return g;
}

}  // namespace ropewalk
