#include "ropewalk/relative/pope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/relative/angles.h"
#include "src/relative/check.h"

namespace ropewalk {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

int64_t CheckInput(const PopeEncoding& pope, std::span<const float> x,
                   std::span<const int64_t> positions) {
  internal::CheckAtLeast("PopeEncoding.heads", pope.heads, 1);
  internal::CheckAtLeast("PopeEncoding.head_dim", pope.head_dim, 1);
  internal::CheckPositive("PopeEncoding.base", pope.base);
  const int64_t width = pope.heads * pope.head_dim;
  if (!pope.phase.empty()) internal::CheckNumbers("PopeEncoding.phase", pope.phase, width);
  const auto tokens = static_cast<int64_t>(positions.size());
  internal::CheckNumbers("PopeEncoding: x", x, tokens * width);
  internal::CheckPositions("PopeEncoding", positions);
  return tokens;
}

// Calls body(index into x, index of the cosine in the output, cos and sin of the whole angle).
template <class Body>
void Visit(const PopeEncoding& pope, std::span<const int64_t> positions, const Body& body) {
  std::vector<double> cos_phase(pope.phase.size());
  std::vector<double> sin_phase(pope.phase.size());
  for (std::size_t i = 0; i < pope.phase.size(); ++i) {
    const double phase = std::clamp<double>(pope.phase[i], -kTurn, 0);
    cos_phase[i] = std::cos(phase);
    sin_phase[i] = std::sin(phase);
  }
  int64_t index = 0;
  internal::Angles a(pope.base, 2 * pope.head_dim);  // one frequency per element, not per pair
  for (const int64_t position : positions) {
    a.MoveTo(position);
    for (int64_t h = 0; h < pope.heads; ++h) {
      for (int64_t e = 0; e < pope.head_dim; ++e, ++index) {
        double c = a.cosine[e];
        double s = a.sine[e];
        if (!pope.phase.empty()) {
          const int64_t own = h * pope.head_dim + e;
          const double rotated = c * cos_phase[own] - s * sin_phase[own];
          s = s * cos_phase[own] + c * sin_phase[own];
          c = rotated;
        }
        body(index, index + index / pope.head_dim * pope.head_dim, c, s);
      }
    }
  }
}

}  // namespace

std::vector<float> PopeEncoding::Encode(std::span<const float> x,
                                        std::span<const int64_t> positions) const {
  CheckInput(*this, x, positions);
  std::vector<float> out(2 * x.size());
  Visit(*this, positions, [&](int64_t i, int64_t o, double c, double s) {
    const double length = Softplus(x[i]);
    out[o] = static_cast<float>(length * c);
    out[o + head_dim] = static_cast<float>(length * s);
  });
  return out;
}

PopeEncoding::Gradient PopeEncoding::Backward(std::span<const float> x,
                                              std::span<const int64_t> positions,
                                              std::span<const float> d_out) const {
  const int64_t tokens = CheckInput(*this, x, positions);
  internal::CheckNumbers("PopeEncoding.Backward: d_out", d_out, 2 * tokens * heads * head_dim);
  Gradient g{std::vector<double>(x.size()), std::vector<double>(phase.size())};
  Visit(*this, positions, [&](int64_t i, int64_t o, double c, double s) {
    const double d_cosine = d_out[o];
    const double d_sine = d_out[o + head_dim];
    // d softplus(x) = sigmoid(x)
    g.x[i] = (d_cosine * c + d_sine * s) / (1 + std::exp(-static_cast<double>(x[i])));
    if (phase.empty()) return;
    const int64_t own = i % (heads * head_dim);
    if (phase[own] < -kTurn || phase[own] > 0) return;  // clipped: nothing changes
    g.phase[own] += Softplus(x[i]) * (d_sine * c - d_cosine * s);
  });
  return g;
}

}  // namespace ropewalk
