// Searches for a position setting within a budget of evaluations. Both are deterministic: a
// repeated search evaluates the same settings in the same order, so it can take finished ones from
// a file.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ropewalk {

struct GoldenTrial {
  double value, loss;
};
// Golden-section search over the logarithm of a positive number, of a base or of a length: every trial
// after the first two narrows the interval by the factor 0.618. Assumes one minimum between `low` and
// `high`. `budget` >= 2 evaluations of `loss`. Returns the trials in their order.
std::vector<GoldenTrial> SearchGolden(double low, double high, int64_t budget,
                                      const std::function<double(double value)>& loss);

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

// LongRoPE2's search (Shang et al. 2025, arXiv 2502.20082): the pair from which rotations are longer
// than training saw is searched together with its divisor and those behind it. Pairs below it have
// NTK's divisors, from 1 to that of the critical pair in geometric steps; those from it on are
// nondecreasing, from the extension factor to twice that, in steps of 0.01. `critical` is the
// critical pair in theory, the first whose period is longer than the trained length; the search
// looks from half of it up to it, since slow pairs are trained less than theory says. The paper's
// bounds are not published as code; these are ours.
std::vector<FactorTrial> SearchCriticalPair(
    int64_t pairs, int64_t critical, double extension, int64_t budget, uint64_t seed,
    const std::function<double(const std::vector<double>& factors)>& loss);

struct GroupTrial {
  std::vector<int64_t> groups;  // of each share of the pairs
  double loss;
};
// DPE's fitting (Lu et al. 2025, arXiv 2504.18857, section 3): one share of the pairs after another
// is tried with groups of 1, 2, 4, .. below `largest`, while the others have `largest`. Behind these
// comes one trial of every share's best together, unless it was among them. A `budget` that is too
// small for all leaves the last shares at `largest`.
std::vector<GroupTrial> SearchGroups(
    int64_t shares, int64_t largest, int64_t budget,
    const std::function<double(const std::vector<int64_t>& groups)>& loss);

}  // namespace ropewalk
