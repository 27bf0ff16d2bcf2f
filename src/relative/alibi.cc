#include "ropewalk/relative/alibi.h"

#include <bit>
#include <cmath>

#include "src/relative/check.h"

namespace ropewalk {
namespace {

// What a slope is multiplied by for keys ahead: bias = -factor m |d|.
double AheadFactor(AlibiAhead ahead) {
  switch (ahead) {
    case AlibiAhead::kSymmetric:
      return 1;
    case AlibiAhead::kSigned:
      return -1;
    default:
      return 0;
  }
}

}  // namespace

std::vector<double> AlibiSlopesOf(AlibiSlopes rule, int64_t heads, double max_bias) {
  internal::CheckLowering("AlibiBias", heads, 0);
  internal::CheckPositive("AlibiBias.max_bias", max_bias);
  const int64_t n = rule == AlibiSlopes::kGeometric
                        ? heads
                        : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<double> slopes;
  for (int64_t k = 1; k <= n; ++k) slopes.push_back(std::exp2(-max_bias * k / n));
  for (int64_t k = 1; k <= heads - n; ++k) {
    slopes.push_back(std::exp2(-max_bias * (2 * k - 1) / (2 * n)));
  }
  return slopes;
}

SlopeForm AlibiBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("AlibiBias", heads, max_distance);
  internal::CheckPositive("AlibiBias.scale", scale);
  std::vector<double> m(slopes.begin(), slopes.end());
  if (slopes.empty()) {
    m = AlibiSlopesOf(rule, heads, max_bias);
  } else {
    internal::CheckNumbers("AlibiBias.slopes", slopes, heads);
  }
  SlopeForm form;
  for (const double slope : m) {
    form.behind.push_back(static_cast<float>(scale * slope));
    if (ahead != AlibiAhead::kCausal) {
      form.ahead.push_back(static_cast<float>(AheadFactor(ahead) * scale * slope));
    }
  }
  return form;
}

std::vector<double> AlibiBias::Backward(const SlopeForm& gradient) const {
  const auto heads = static_cast<int64_t>(gradient.behind.size());
  if (!gradient.ahead.empty()) {
    internal::CheckNumbers("AlibiBias.Backward: gradient.ahead", gradient.ahead, heads);
  }
  std::vector<double> d(gradient.behind.begin(), gradient.behind.end());
  for (std::size_t h = 0; h < d.size(); ++h) {
    if (!gradient.ahead.empty()) d[h] += AheadFactor(ahead) * gradient.ahead[h];
    d[h] *= scale;
  }
  return d;
}

}  // namespace ropewalk
