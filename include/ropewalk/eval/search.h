// Searches for a position setting within a budget of evaluations. Both are deterministic: a
// repeated search evaluates the same settings in the same order, so it can take finished ones from
// a file.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ropewalk {

struct BaseTrial {
  double base, loss;
};
// Golden-section search over the logarithm of the base: every trial after the first two narrows the
// interval by the factor 0.618. Assumes one minimum between `low` and `high`. `budget` >= 2
// evaluations of `loss`. Returns the trials in their order.
std::vector<BaseTrial> SearchBase(double low, double high, int64_t budget,
                                  const std::function<double(double base)>& loss);

struct FactorTrial {
  std::vector<double> factors;  // divisor of each pair's frequency
  double loss;
};
// LongRoPE's search (Ding et al. 2024, arXiv 2402.13753, section 3.2): an evolutionary search over
// one divisor per pair, nondecreasing with the pair's index, from 1 to 1.25 times the extension
// factor in steps of 0.01. The settings in `start` (position interpolation, NTK, YaRN) are
// evaluated first, then mutations and crossovers of the best. Unlike in the paper, children whose
// divisors decrease are sorted and not rejected, and no initial tokens are exempt from scaling. No
// setting is evaluated twice.
std::vector<FactorTrial> SearchFactors(
    const std::vector<std::vector<double>>& start, double extension, int64_t budget, uint64_t seed,
    const std::function<double(const std::vector<double>& factors)>& loss);

}  // namespace ropewalk
