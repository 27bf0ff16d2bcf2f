// Statistics of few windows and few trials: nothing here leans on large numbers unless it says so.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ropewalk {

// Two-sided paired t test (Student 1908) of differences, such as losses of two methods window by
// window. Standard deviations below kLossRounding (race.h) count as that.
struct PairedTest {
  int64_t n = 0;
  double mean = 0;
  double standard_error = 0;  // NaN for fewer than 2 differences, as p_value
  double p_value = 0;         // 1 where every difference is 0
};
PairedTest TestPaired(std::span<const double> differences);

// Holm's step-down correction (Holm 1979): adjusted p-values, in the order given. Rejecting those
// of at most alpha keeps the probability of any false rejection at most alpha, whatever depends on
// what. NaN (nothing was tested) counts as a test that rejects nothing and stays NaN.
std::vector<double> HolmAdjusted(std::span<const double> p_values);
std::vector<bool> HolmReject(std::span<const double> p_values, double alpha = 0.05);

// The true mean difference that a two-sided paired t test of n units finds with probability
// `power`, where differences have this standard error: exact, by the noncentral t distribution. A
// smaller difference may exist and not be seen. Of m tests under Holm give alpha / m. NaN for
// n < 2; throws Error for alpha < power < 1 that does not hold.
double MinimumDetectable(double standard_error, int64_t n, double alpha = 0.05, double power = 0.8);

struct Interval {
  double low = 0, high = 0;
};
// Wilson's score interval (Wilson 1927) of a share of `trials` independent trials, in [0, 1]. Also
// holds for a mean of scores in [0, 1], where it is too wide rather than too narrow, since their
// variance is at most share * (1 - share). [0, 1] for no trials. Throws Error for a share or a
// confidence outside of 0 to 1.
Interval WilsonInterval(double share, double trials, double confidence = 0.95);

}  // namespace ropewalk
