#include "ropewalk/relative/kerple.h"

#include <cmath>
#include <string>

#include "src/relative/bias_row.h"
#include "src/relative/distance_table.h"

namespace ropewalk {
namespace {

void CheckParameters(const KerpleBias& kerple, int64_t heads) {
  internal::CheckNumbers("KerpleBias.r1", kerple.r1, heads);
  internal::CheckNumbers("KerpleBias.r2", kerple.r2, heads);
  for (int64_t h = 0; h < heads; ++h) {
    const std::string head = "[" + std::to_string(h) + "]";
    internal::CheckPositive("KerpleBias.r1" + head, kerple.r1[h]);
    internal::CheckPositive("KerpleBias.r2" + head, kerple.r2[h]);
    if (kerple.kernel == KerpleKernel::kPower && kerple.r2[h] > 2) {
      internal::Refuse("KerpleBias.r2" + head +
                       ": expected at most 2, beyond which the power is no kernel, got " +
                       std::to_string(kerple.r2[h]));
    }
  }
}

std::vector<int64_t> Learned(const KerpleBias& /*kerple*/, int64_t heads) { return {heads, heads}; }

std::vector<double> BackwardKerple(const KerpleBias& kerple, const ScoreForm& gradient) {
  KerpleBias::Gradient g = kerple.Backward(std::get<DistanceForm>(gradient));
  g.r1.insert(g.r1.end(), g.r2.begin(), g.r2.end());
  return g.r1;
}

}  // namespace

DistanceForm KerpleBias::Lower(int64_t heads, int64_t max_distance) const {
  internal::CheckLowering("KerpleBias", heads, max_distance);
  CheckParameters(*this, heads);
  return internal::MakeDistanceForm(
      heads, causal ? 0 : -max_distance, max_distance, [&](int64_t h, int64_t distance) {
        const auto d = static_cast<double>(std::abs(distance));
        const double a = r1[h];
        const double b = r2[h];
        return kernel == KerpleKernel::kPower ? -a * std::pow(d, b) : -a * std::log1p(b * d);
      });
}

KerpleBias::Gradient KerpleBias::Backward(const DistanceForm& gradient) const {
  const auto heads = static_cast<int64_t>(r1.size());
  CheckParameters(*this, heads);
  Gradient g{std::vector<double>(heads), std::vector<double>(heads)};
  internal::VisitDistanceForm("KerpleBias.Backward", gradient, heads,
                              [&](int64_t h, int64_t distance, float number) {
                                const auto d = static_cast<double>(std::abs(distance));
                                const double a = r1[h];
                                const double b = r2[h];
                                if (d == 0) return;  // the bias is 0 whatever is learned
                                if (kernel == KerpleKernel::kPower) {
                                  const double power = std::pow(d, b);
                                  g.r1[h] -= number * power;
                                  g.r2[h] -= number * a * power * std::log(d);
                                } else {
                                  g.r1[h] -= number * std::log1p(b * d);
                                  g.r2[h] -= number * a * d / (1 + b * d);
                                }
                              });
  return g;
}

template <>
internal::BiasRow<KerpleBias> internal::BiasRowOf() {
  return {.name = "kerple",
          .title = "KERPLE",
          .source = "arXiv 2205.09921",
          .learned_optional = false,
          .learned = Learned,
          .lower = LowerOf,
          .backward = BackwardKerple};
}

}  // namespace ropewalk
