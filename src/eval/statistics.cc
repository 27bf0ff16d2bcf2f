// Tests and intervals of a sweep, which has few windows and few trials.
#include "src/eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/race.h"

namespace ropewalk {
namespace internal {

Moments MomentsOf(std::span<const double> values) {
  Moments m{.n = static_cast<int64_t>(values.size()),
            .standard_error = internal::kNaN,
            .rounded_error = internal::kNaN};
  const double n = static_cast<double>(m.n);
  for (const double v : values) m.mean += v / n;
  if (m.n < 2) return m;
  double squares = 0;
  for (const double v : values) squares += (v - m.mean) * (v - m.mean);
  m.standard_error = std::sqrt(squares / (n - 1) / n);
  m.rounded_error = std::max(m.standard_error, kLossRounding / std::sqrt(n));
  return m;
}

ClusteredMean MeanOfClusters(std::span<const double> sums, std::span<const double> counts) {
  const double all = std::reduce(counts.begin(), counts.end());
  // A cluster without elements says nothing.
  const auto n = static_cast<double>(
      std::count_if(counts.begin(), counts.end(), [](double count) { return count > 0; }));
  ClusteredMean m{.mean = std::accumulate(sums.begin(), sums.end(), 0.0) / all,
                  .standard_error = internal::kNaN};
  if (n < 2) return m;
  double squares = 0;
  for (size_t c = 0; c < sums.size(); ++c) {
    const double off = sums[c] - m.mean * counts[c];
    squares += off * off;
  }
  m.standard_error = std::sqrt(squares * n / (n - 1)) / all;
  return m;
}

PairedTest TestWeighted(std::span<const double> differences, std::span<const double> weights) {
  const bool equal = std::ranges::all_of(weights, [&](double w) { return w == weights[0]; });
  if (equal) return TestPaired(differences);
  std::vector<double> sums(differences.begin(), differences.end());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] *= weights[i];
  const ClusteredMean m = MeanOfClusters(sums, weights);
  const auto n = static_cast<int64_t>(sums.size());
  const double error =
      std::max(m.standard_error, kLossRounding / std::sqrt(static_cast<double>(n)));
  return {.n = n,
          .mean = m.mean,
          .standard_error = m.standard_error,
          .p_value = StudentTwoSided(m.mean / error, static_cast<double>(n - 1))};
}

}  // namespace internal

PairedTest TestPaired(std::span<const double> differences) {
  const internal::Moments m = internal::MomentsOf(differences);
  PairedTest test{
      .n = m.n, .mean = m.mean, .standard_error = m.standard_error, .p_value = internal::kNaN};
  if (m.n < 2) return test;
  test.p_value = internal::StudentTwoSided(m.T(), static_cast<double>(m.n - 1));
  return test;
}

std::vector<double> HolmAdjusted(std::span<const double> p_values) {
  const auto value = [&](size_t i) { return std::isnan(p_values[i]) ? 1.0 : p_values[i]; };
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, value);
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const double times = static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, times * value(order[rank])));
    adjusted[order[rank]] = std::isnan(p_values[order[rank]]) ? internal::kNaN : largest;
  }
  return adjusted;
}

std::vector<bool> HolmReject(std::span<const double> p_values, double alpha) {
  std::vector<bool> reject;
  for (const double p : HolmAdjusted(p_values)) reject.push_back(p <= alpha);
  return reject;
}

double MinimumDetectable(double standard_error, int64_t n, double alpha, double power) {
  if (!(alpha > 0 && alpha < power && power < 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "a minimum detectable difference needs 0 < alpha < power < 1, not alpha " +
                    std::to_string(alpha) + " and power " + std::to_string(power));
  }
  if (n < 2) return internal::kNaN;
  return standard_error * internal::DetectableShift(static_cast<double>(n - 1), alpha, power);
}

Interval WilsonInterval(double share, double trials, double confidence) {
  if (!(share >= 0 && share <= 1) || !(confidence > 0 && confidence < 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "a share and the confidence of its interval are between 0 and 1, not " +
                    std::to_string(share) + " and " + std::to_string(confidence));
  }
  if (!(trials > 0)) return {.low = 0, .high = 1};
  const double z = internal::NormalQuantile(0.5 + confidence / 2);
  const double per_trial = z * z / trials;
  const double center = (share + per_trial / 2) / (1 + per_trial);
  const double half =
      std::sqrt(share * (1 - share) * per_trial + per_trial * per_trial / 4) / (1 + per_trial);
  return {.low = share == 0 ? 0 : center - half, .high = share == 1 ? 1 : center + half};
}

}  // namespace ropewalk
