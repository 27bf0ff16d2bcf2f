// Searches for a position setting within a budget of evaluations. Both are deterministic given what
// they are told, so a search that is run again asks for the same settings in the same order and can
// take finished ones from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ropewalk {

struct BaseTrial {
  double base, loss;
};
// Golden-section search over the logarithm of the base: every trial but the first two narrows the
// interval to 0.618 of itself. Assumes one minimum between `low` and `high`; the trials tell
// whether it was so. `budget` >= 2 evaluations of `loss`. Trials in their order.
std::vector<BaseTrial> SearchBase(double low, double high, int64_t budget,
                                  const std::function<double(double base)>& loss);

struct FactorTrial {
  std::vector<double> factors;  // divisor of each pair's frequency
  double loss;
};
// LongRoPE's search (Ding et al. 2024, arXiv 2402.13753, section 3.2): an evolution over one
// divisor a pair, never smaller for a slower pair, from 1 to 1.25 times the extension factor in
// steps of 0.01. `start` are the settings known by formula (position interpolation, NTK, YaRN),
// tried first; then mutations and crossovers of the best. Unlike the paper, children that break the
// order are sorted and not thrown away, and no first tokens are exempt. No setting is evaluated
// twice.
std::vector<FactorTrial> SearchFactors(
    const std::vector<std::vector<double>>& start, double extension, int64_t budget, uint64_t seed,
    const std::function<double(const std::vector<double>& factors)>& loss);

}  // namespace ropewalk
