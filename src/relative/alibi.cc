#include "ropewalk/relative/alibi.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "ropewalk/base/dtype.h"
#include "src/relative/bias_row.h"
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

float RoundedToBfloat16(float x) { return ToFloat(ToBFloat16(x)); }

// Learned or by the rule, [heads], before the scale.
std::vector<double> SlopesOf(const AlibiBias& bias, int64_t heads) {
  std::vector<double> m(bias.slopes.begin(), bias.slopes.end());
  if (bias.slopes.empty()) {
    m = AlibiSlopesOf(bias.rule, heads, bias.max_bias);
  } else {
    internal::CheckNumbers("AlibiBias.slopes", bias.slopes, heads);
  }
  if (bias.bfloat16) {
    for (double& slope : m) slope = RoundedToBfloat16(static_cast<float>(slope));
  }
  return m;
}

// Falcon's product of slope and position, as PyTorch rounds it.
class Bfloat16Alibi final : public PairFunction {
 public:
  Bfloat16Alibi(std::vector<float> slopes, double scale)
      : slopes_(std::move(slopes)), scale_(scale) {}

  int64_t heads() const override { return static_cast<int64_t>(slopes_.size()); }
  int64_t parameters() const override { return 0; }

  void Evaluate(int64_t head, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    const float slope = slopes_[head];
    // One row, then the others, which differ from it by their query alone. The products have eight
    // bits, so that their difference in double is exact.
    std::vector<double> key_terms(keys.size());
    for (std::size_t c = 0; c < keys.size(); ++c) key_terms[c] = Term(slope, keys[c]);
    for (std::size_t r = 0; r < queries.size(); ++r) {
      const double query_term = Term(slope, queries[r]);
      float* row = out + static_cast<int64_t>(r) * stride;
      for (std::size_t c = 0; c < keys.size(); ++c) {
        row[c] = static_cast<float>(scale_ * (key_terms[c] - query_term));
      }
    }
  }
  void Backward(int64_t, std::span<const int64_t>, std::span<const int64_t>, const float*, int64_t,
                std::span<double>) const override {}

 private:
  static double Term(float slope, int64_t position) {
    return RoundedToBfloat16(slope * RoundedToBfloat16(static_cast<float>(position)));
  }

  std::vector<float> slopes_;  // [heads]
  double scale_;
};

std::vector<int64_t> Learned(const AlibiBias& /*alibi*/, int64_t heads) { return {heads}; }

ScoreForm LowerAlibi(const AlibiBias& alibi, int64_t heads, int64_t max_distance) {
  if (alibi.bfloat16) return alibi.LowerInBfloat16(heads);
  return alibi.Lower(heads, max_distance);
}

std::vector<double> BackwardAlibi(const AlibiBias& alibi, const ScoreForm& gradient) {
  if (alibi.slopes.empty() || alibi.bfloat16) {
    internal::Refuse("bias.values: expected learned slopes, got none");
  }
  return alibi.Backward(std::get<SlopeForm>(gradient));
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
  const std::vector<double> m = SlopesOf(*this, heads);
  SlopeForm form;
  for (const double slope : m) {
    form.behind.push_back(static_cast<float>(scale * slope));
    if (ahead != AlibiAhead::kCausal) {
      form.ahead.push_back(static_cast<float>(AheadFactor(ahead) * scale * slope));
    }
  }
  return form;
}

PairForm AlibiBias::LowerInBfloat16(int64_t heads) const {
  internal::CheckLowering("AlibiBias", heads, 0);
  internal::CheckPositive("AlibiBias.scale", scale);
  if (!bfloat16) internal::Refuse("AlibiBias.bfloat16: expected true for LowerInBfloat16");
  const std::vector<double> m = SlopesOf(*this, heads);
  return {std::make_shared<Bfloat16Alibi>(std::vector<float>(m.begin(), m.end()), scale)};
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

template <>
internal::BiasRow<AlibiBias> internal::BiasRowOf() {
  return {.name = "alibi",
          .title = "ALiBi",
          .source = "arXiv 2108.12409",
          .learned_optional = true,
          .learned = Learned,
          .lower = LowerAlibi,
          .backward = BackwardAlibi};
}

}  // namespace ropewalk
