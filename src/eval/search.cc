#include "ropewalk/eval/search.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ropewalk/base/error.h"
#include "src/eval/rng.h"

namespace ropewalk {
namespace {

using internal::SplitMix64;

constexpr std::size_t kParents = 8;       // the best so many have children
constexpr double kMutationShare = 0.3;    // of the pairs, the paper's mutation probability
constexpr double kMutationSpread = 0.25;  // of the logarithm of a divisor
constexpr double kCrossoverShare = 0.4;   // of the children; the others are mutations
constexpr int kMostFailures = 200;        // children in a row that were tried before

// Two uniform numbers to a normal one (Box and Muller).
double Normal(SplitMix64& rng) {
  const double u = std::max(rng.Uniform(), 1e-12), v = rng.Uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

// On the grid of 0.01, within bounds, in order.
std::vector<double> Legal(std::vector<double> factors, double most) {
  for (double& f : factors) {
    f = std::clamp(std::round(f * 100) / 100, 1.0, std::floor(most * 100) / 100);
  }
  std::sort(factors.begin(), factors.end());
  return factors;
}

class Evolution {
 public:
  Evolution(double extension, int64_t budget, uint64_t seed,
            const std::function<double(const std::vector<double>&)>& loss)
      : most_(1.25 * extension), budget_(budget), rng_(seed), loss_(loss) {}

  // False when it was tried before or the budget is used up.
  bool Try(const std::vector<double>& factors) {
    const std::vector<double> legal = Legal(factors, most_);
    if (Full() || !seen_.insert(legal).second) return false;
    trials_.push_back({legal, loss_(legal)});
    return true;
  }
  bool Full() const { return static_cast<int64_t>(trials_.size()) >= budget_; }

  std::vector<double> Child() {
    std::vector<const FactorTrial*> best;
    for (const FactorTrial& t : trials_) best.push_back(&t);
    std::stable_sort(best.begin(), best.end(),
                     [](const FactorTrial* a, const FactorTrial* b) { return a->loss < b->loss; });
    best.resize(std::min(best.size(), kParents));
    const auto pick = [&] {
      return best[static_cast<std::size_t>(rng_.Below(static_cast<int64_t>(best.size())))];
    };
    std::vector<double> child = pick()->factors;
    if (rng_.Uniform() < kCrossoverShare) {
      const std::vector<double>& other = pick()->factors;
      for (std::size_t i = 0; i < child.size(); ++i) {
        if (rng_.Uniform() < 0.5) child[i] = other[i];
      }
      return child;
    }
    for (double& f : child) {
      if (rng_.Uniform() < kMutationShare) f *= std::exp(kMutationSpread * Normal(rng_));
    }
    return child;
  }

  std::vector<FactorTrial> Take() { return std::move(trials_); }

 private:
  double most_;
  int64_t budget_;
  SplitMix64 rng_;
  const std::function<double(const std::vector<double>&)>& loss_;
  std::set<std::vector<double>> seen_;
  std::vector<FactorTrial> trials_;
};

}  // namespace

std::vector<BaseTrial> SearchBase(double low, double high, int64_t budget,
                                  const std::function<double(double base)>& loss) {
  if (!(low > 0 && high > low) || budget < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "a search for a base needs 0 < low < high and a budget of at least 2 cells");
  }
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double a = std::log(low), b = std::log(high);
  std::vector<BaseTrial> trials;
  const auto evaluate = [&](double x) {
    const double base = std::exp(x);
    trials.push_back({base, loss(base)});
    return trials.back().loss;
  };
  double left = b - ratio * (b - a), right = a + ratio * (b - a);
  double at_left = evaluate(left), at_right = evaluate(right);
  while (static_cast<int64_t>(trials.size()) < budget) {
    if (at_left <= at_right) {
      b = right;
      right = left;
      at_right = at_left;
      left = b - ratio * (b - a);
      at_left = evaluate(left);
    } else {
      a = left;
      left = right;
      at_left = at_right;
      right = a + ratio * (b - a);
      at_right = evaluate(right);
    }
  }
  return trials;
}

std::vector<FactorTrial> SearchFactors(
    const std::vector<std::vector<double>>& start, double extension, int64_t budget, uint64_t seed,
    const std::function<double(const std::vector<double>& factors)>& loss) {
  if (start.empty() || budget < 1 || !(extension >= 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "a search for divisors needs a setting to begin with, a factor of at least 1 and a "
                "budget of at least 1 cell");
  }
  Evolution evolution(extension, budget, seed, loss);
  for (const std::vector<double>& factors : start) evolution.Try(factors);
  for (int failures = 0; !evolution.Full() && failures < kMostFailures;) {
    failures = evolution.Try(evolution.Child()) ? 0 : failures + 1;
  }
  return evolution.Take();
}

}  // namespace ropewalk
