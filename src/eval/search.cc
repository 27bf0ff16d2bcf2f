#include "ropewalk/eval/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

double OnGrid(double factor, double least, double most) {
  return std::clamp(std::round(factor * 100) / 100, std::ceil(least * 100) / 100,
                    std::floor(most * 100) / 100);
}

// A setting of divisors. With a critical pair, the pairs below it have NTK's divisors, geometric
// from 1 to that of the critical pair, and those from it on are searched.
struct Individual {
  int64_t critical = 0;
  std::vector<double> factors;
};

struct Bounds {
  double least = 1, most = 1;  // of the divisors that are searched
  int64_t first_critical = 0, last_critical = 0;
};

// Within bounds, on the grid of 0.01, in order; NTK's below the critical pair.
Individual Legal(Individual individual, const Bounds& bounds) {
  std::vector<double>& factors = individual.factors;
  individual.critical =
      std::clamp(individual.critical, bounds.first_critical, bounds.last_critical);
  const auto critical = static_cast<std::size_t>(individual.critical);
  for (double& f : factors) f = OnGrid(f, bounds.least, bounds.most);
  std::sort(factors.begin() + individual.critical, factors.end());
  for (std::size_t i = 0; i < critical; ++i) {
    factors[i] = std::pow(factors[critical], static_cast<double>(i) / individual.critical);
  }
  return individual;
}

class Evolution {
 public:
  Evolution(const Bounds& bounds, int64_t budget, uint64_t seed,
            const std::function<double(const std::vector<double>&)>& loss)
      : bounds_(bounds), budget_(budget), rng_(seed), loss_(loss) {}

  // The settings of `start`, then their children until the budget is used up.
  std::vector<FactorTrial> Run(const std::vector<Individual>& start) {
    for (const Individual& individual : start) Try(individual);
    for (int failures = 0; !Full() && failures < kMostFailures;) {
      failures = Try(Child()) ? 0 : failures + 1;
    }
    return std::move(trials_);
  }

 private:
  bool Full() const { return static_cast<int64_t>(trials_.size()) >= budget_; }

  // False when it was tried before or the budget is used up.
  bool Try(const Individual& individual) {
    Individual legal = Legal(individual, bounds_);
    if (Full() || !seen_.insert(legal.factors).second) return false;
    trials_.push_back({legal.factors, loss_(legal.factors)});
    criticals_.push_back(legal.critical);
    return true;
  }

  // One of the best, as it is drawn for a child.
  Individual Parent() {
    std::vector<std::size_t> best(trials_.size());
    std::iota(best.begin(), best.end(), std::size_t{0});
    std::stable_sort(best.begin(), best.end(), [this](std::size_t a, std::size_t b) {
      return trials_[a].loss < trials_[b].loss;
    });
    best.resize(std::min(best.size(), kParents));
    const std::size_t i =
        best[static_cast<std::size_t>(rng_.Below(static_cast<int64_t>(best.size())))];
    return {criticals_[i], trials_[i].factors};
  }

  Individual Child() {
    Individual child = Parent();
    if (rng_.Uniform() < kCrossoverShare) {
      const Individual other = Parent();
      if (bounds_.last_critical > bounds_.first_critical && rng_.Uniform() < 0.5) {
        child.critical = other.critical;
      }
      for (std::size_t i = 0; i < child.factors.size(); ++i) {
        if (rng_.Uniform() < 0.5) child.factors[i] = other.factors[i];
      }
      return child;
    }
    if (bounds_.last_critical > bounds_.first_critical && rng_.Uniform() < 0.5) {
      child.critical += rng_.Uniform() < 0.5 ? -1 : 1;
    }
    for (double& f : child.factors) {
      if (rng_.Uniform() < kMutationShare) f *= std::exp(kMutationSpread * Normal(rng_));
    }
    return child;
  }

  Bounds bounds_;
  int64_t budget_;
  SplitMix64 rng_;
  const std::function<double(const std::vector<double>&)>& loss_;
  std::set<std::vector<double>> seen_;
  std::vector<FactorTrial> trials_;
  std::vector<int64_t> criticals_;  // of each trial
};

void CheckSearch(bool start, int64_t budget, double extension) {
  if (start && budget >= 1 && extension >= 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a search for divisors needs a setting to begin with, a factor of at least 1 and a "
              "budget of at least 1 cell");
}

}  // namespace

std::vector<GoldenTrial> SearchGolden(double low, double high, int64_t budget,
                                      const std::function<double(double value)>& loss) {
  if (!(low > 0 && high > low) || budget < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "a golden-section search needs 0 < low < high and a budget of at least 2 cells");
  }
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double a = std::log(low), b = std::log(high);
  std::vector<GoldenTrial> trials;
  const auto evaluate = [&](double x) {
    const double value = std::exp(x);
    trials.push_back({value, loss(value)});
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
  CheckSearch(!start.empty(), budget, extension);
  std::vector<Individual> individuals;
  individuals.reserve(start.size());
  for (const std::vector<double>& factors : start) individuals.push_back({0, factors});
  return Evolution({.least = 1, .most = 1.25 * extension}, budget, seed, loss).Run(individuals);
}

std::vector<FactorTrial> SearchCriticalPair(
    int64_t pairs, int64_t critical, double extension, int64_t budget, uint64_t seed,
    const std::function<double(const std::vector<double>& factors)>& loss) {
  CheckSearch(pairs >= 1, budget, extension);
  const Bounds bounds{.least = extension,
                      .most = 2 * extension,
                      .first_critical = std::max<int64_t>(0, std::min(critical, pairs - 1) / 2),
                      .last_critical = std::clamp<int64_t>(critical, 0, pairs - 1)};
  std::vector<Individual> start;
  for (int64_t c = bounds.last_critical; c >= bounds.first_critical; --c) {
    start.push_back({c, std::vector<double>(static_cast<std::size_t>(pairs), extension)});
  }
  return Evolution(bounds, budget, seed, loss).Run(start);
}

std::vector<GroupTrial> SearchGroups(
    int64_t shares, int64_t largest, int64_t budget,
    const std::function<double(const std::vector<int64_t>& groups)>& loss) {
  if (shares < 1 || largest < 1 || budget < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "a search for groups needs at least one share of the pairs, a group of at least 1 "
                "to begin with and a budget of at least 2 cells");
  }
  const std::vector<int64_t> start(static_cast<std::size_t>(shares), largest);
  std::vector<GroupTrial> trials{{start, loss(start)}};
  std::vector<int64_t> best = start;
  for (std::size_t share = 0; share < best.size(); ++share) {
    double lowest = trials.front().loss;
    for (int64_t group = 1; group < largest; group *= 2) {
      if (static_cast<int64_t>(trials.size()) + 1 >= budget) break;
      std::vector<int64_t> groups = start;
      groups[share] = group;
      trials.push_back({groups, loss(groups)});
      if (trials.back().loss < lowest) {
        lowest = trials.back().loss;
        best[share] = group;
      }
    }
  }
  const bool tried = std::any_of(trials.begin(), trials.end(),
                                 [&](const GroupTrial& t) { return t.groups == best; });
  if (!tried) trials.push_back({best, loss(best)});
  return trials;
}

}  // namespace ropewalk
