// Small-sample statistics of the recommendation. A sweep has few windows and few trials, so nothing
// here leans on the normal distribution.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/eval/recommend.h"

namespace ropewalk {
namespace internal {
namespace {

double LogChoose(int64_t n, int64_t k) {
  const auto lg = [](int64_t x) { return std::lgamma(static_cast<double>(x) + 1); };
  return lg(n) - lg(k) - lg(n - k);
}

}  // namespace

double BinomialAtMost(int64_t k, int64_t n, double p) {
  double sum = 0;
  for (int64_t i = 0; i <= std::min(k, n); ++i) {
    sum += std::exp(LogChoose(n, i) + i * std::log(p) + (n - i) * std::log1p(-p));
  }
  return std::min(sum, 1.0);
}

double FisherBelow(int64_t k1, int64_t n1, int64_t k2, int64_t n2) {
  const int64_t hits = k1 + k2;
  double sum = 0;
  for (int64_t i = std::max<int64_t>(0, hits - n2); i <= k1; ++i) {
    sum += std::exp(LogChoose(n1, i) + LogChoose(n2, hits - i) - LogChoose(n1 + n2, hits));
  }
  return std::min(sum, 1.0);
}

double StudentT975(int64_t dof) {
  static constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                      2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                      2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                      2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  if (dof < 1) return std::numeric_limits<double>::infinity();
  if (dof <= 30) return kTable[dof - 1];
  return 1.96 + 2.4 / static_cast<double>(dof);
}

}  // namespace internal

PairedDifference Compare(const Cell& a, const Cell& b) {
  PairedDifference d;
  d.standard_error = std::numeric_limits<double>::quiet_NaN();
  const size_t n = a.window_nll.size();
  if (n == 0 || n != b.window_nll.size()) {
    d.mean = a.mean_nll - b.mean_nll;
    return d;
  }
  d.windows = static_cast<int64_t>(n);
  for (size_t i = 0; i < n; ++i) d.mean += (a.window_nll[i] - b.window_nll[i]) / n;
  if (n < 2) return d;
  double squares = 0;
  for (size_t i = 0; i < n; ++i) {
    const double e = a.window_nll[i] - b.window_nll[i] - d.mean;
    squares += e * e;
  }
  d.standard_error = std::sqrt(squares / (n - 1) / n);
  d.outside_noise = std::abs(d.mean) > internal::StudentT975(d.windows - 1) * d.standard_error;
  return d;
}

}  // namespace ropewalk
