// The searches find minima that are known, within their budget, the same way every time.
#include "ropewalk/eval/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

TEST(SearchGolden, NarrowsToTheMinimumByTheGoldenRatio) {
  for (const double target : {1.5e4, 1e5, 8e5}) {
    const auto loss = [&](double base) { return std::pow(std::log(base / target), 2); };
    for (const int64_t budget : {2, 5, 12, 30}) {
      const auto trials = SearchGolden(1e4, 1e6, budget, loss);
      ASSERT_EQ(static_cast<int64_t>(trials.size()), budget);
      double best = INFINITY;
      for (const auto& t : trials) {
        EXPECT_GT(t.value, 1e4);
        EXPECT_LT(t.value, 1e6);
        EXPECT_EQ(t.loss, loss(t.value));
        best = std::min(best, std::abs(std::log(t.value / target)));
      }
      // The interval that is left holds the minimum, and the best trial lies in it.
      const double left = std::log(100.0) * std::pow(0.6180339887, budget - 1);
      EXPECT_LE(best, left * (1 + 1e-9)) << target << " " << budget;
    }
  }
}

TEST(SearchGolden, RefusesNonsense) {
  const auto loss = [](double) { return 0.0; };
  EXPECT_THROW(SearchGolden(1e4, 1e4, 5, loss), Error);
  EXPECT_THROW(SearchGolden(0, 1e4, 5, loss), Error);
  EXPECT_THROW(SearchGolden(1e4, 1e5, 1, loss), Error);
}

// Distance to factors that no starting point has.
double Distance(const std::vector<double>& factors) {
  double sum = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double target = i < 5 ? 1 : i < 10 ? 1 + 0.5 * static_cast<double>(i - 4) : 4.2;
    sum += std::pow(std::log(factors[i] / target), 2);
  }
  return sum;
}

std::vector<std::vector<double>> Start() {
  std::vector<double> ntk(16);
  for (int i = 0; i < 16; ++i) ntk[static_cast<std::size_t>(i)] = std::pow(4.0, i / 15.0);
  return {std::vector<double>(16, 4.0), ntk};
}

TEST(SearchFactors, ImprovesOnItsStartAndKeepsTheOrder) {
  const auto trials = SearchFactors(Start(), 4, 400, 7, Distance);
  ASSERT_EQ(trials.size(), 400u);
  EXPECT_EQ(trials[0].factors, Start()[0]);
  double best = INFINITY;
  for (const auto& t : trials) {
    ASSERT_TRUE(std::is_sorted(t.factors.begin(), t.factors.end()));
    ASSERT_GE(t.factors.front(), 1);
    ASSERT_LE(t.factors.back(), 5);
    for (const double f : t.factors) ASSERT_NEAR(f * 100, std::round(f * 100), 1e-9);
    best = std::min(best, t.loss);
  }
  EXPECT_LT(best, 0.25 * std::min(trials[0].loss, trials[1].loss));
}

TEST(SearchFactors, SameSeedSameTrialsAndNoneTwice) {
  const auto a = SearchFactors(Start(), 4, 60, 1, Distance);
  const auto b = SearchFactors(Start(), 4, 60, 1, Distance);
  const auto c = SearchFactors(Start(), 4, 60, 2, Distance);
  std::set<std::vector<double>> distinct;
  bool differs = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].factors, b[i].factors);
    differs |= a[i].factors != c[i].factors;
    distinct.insert(a[i].factors);
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(distinct.size(), a.size());
  // Fewer evaluations are the beginning of more: a longer search goes on where a shorter one ended.
  const auto shorter = SearchFactors(Start(), 4, 20, 1, Distance);
  for (std::size_t i = 0; i < shorter.size(); ++i) EXPECT_EQ(shorter[i].factors, a[i].factors);
}

TEST(SearchFactors, EndsWhenNothingNewIsLeft) {
  const auto trials =  // two pairs, factors 1 to 1.25: 351 settings at most
      SearchFactors({{1.0, 1.0}}, 1, 100000, 1, Distance);
  EXPECT_LE(trials.size(), 351u);
  EXPECT_GT(trials.size(), 50u);
}

// The setting below: NTK up to pair 6, then 4.1 to 6.
double CriticalDistance(const std::vector<double>& factors) {
  double sum = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto pair = static_cast<double>(i);
    const double target = i < 6 ? std::pow(4.1, pair / 6) : 4.1 + 0.19 * (pair - 6);
    sum += std::pow(std::log(factors[i] / target), 2);
  }
  return sum;
}

TEST(SearchCriticalPair, FindsThePairAndKeepsNtkBelowIt) {
  const auto trials = SearchCriticalPair(16, 10, 4, 600, 3, CriticalDistance);
  ASSERT_EQ(trials.size(), 600u);
  double best = INFINITY, first = trials[0].loss;
  for (const auto& t : trials) {
    ASSERT_TRUE(std::is_sorted(t.factors.begin(), t.factors.end()));
    // Some pair from 5 to 10 is the critical one: geometric below it, 4 to 8 from it on.
    bool legal = false;
    for (int c = 5; c <= 10; ++c) {
      const double at = t.factors[static_cast<std::size_t>(c)];
      bool fits = at >= 4 && t.factors.back() <= 8;
      for (int i = 0; i < c; ++i) {
        fits &=
            std::abs(t.factors[static_cast<std::size_t>(i)] - std::pow(at, i / double(c))) < 1e-9;
      }
      legal |= fits;
    }
    ASSERT_TRUE(legal);
    best = std::min(best, t.loss);
  }
  EXPECT_LT(best, 0.05 * first);
  // The first is the critical pair of theory with the extension factor, then every other pair.
  for (int i = 0; i < 6; ++i) {
    const auto& factors = trials[static_cast<std::size_t>(i)].factors;
    EXPECT_DOUBLE_EQ(factors[static_cast<std::size_t>(10 - i)], 4);
    EXPECT_LT(factors[static_cast<std::size_t>(9 - i)], 4);
  }
}

TEST(SearchCriticalPair, TakesEveryModelsPairs) {
  const auto flat = [](const std::vector<double>&) { return 1.0; };
  // All pairs within their period (critical = pairs), none (0), a single pair, no extension.
  for (const auto& [pairs, critical] : {std::pair{8, 8}, {8, 0}, {1, 1}, {1, 0}, {8, 100}}) {
    for (const double extension : {1.0, 8.0 / 3.0}) {
      const auto trials = SearchCriticalPair(pairs, critical, extension, 5, 1, flat);
      ASSERT_FALSE(trials.empty());
      for (const auto& t : trials) {
        ASSERT_EQ(t.factors.size(), static_cast<std::size_t>(pairs));
        ASSERT_GE(t.factors.front(), 1);
        ASSERT_LE(t.factors.back(), 2 * extension);
      }
    }
  }
  EXPECT_THROW(SearchCriticalPair(0, 0, 2, 5, 1, flat), Error);
  EXPECT_THROW(SearchCriticalPair(8, 4, 0.5, 5, 1, flat), Error);
  EXPECT_THROW(SearchCriticalPair(8, 4, 2, 0, 1, flat), Error);
}

TEST(SearchGroups, TriesOneShareAfterAnotherAndThenTheBestTogether) {
  const std::vector<int64_t> want = {1, 2, 4, 8};
  const auto loss = [&](const std::vector<int64_t>& groups) {
    double sum = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      sum += std::abs(std::log2(static_cast<double>(groups[i]) / static_cast<double>(want[i])));
    }
    return sum;
  };
  const auto trials = SearchGroups(4, 16, 100, loss);
  ASSERT_EQ(trials.size(), 1u + 4 * 4 + 1);  // all 16; each share 1, 2, 4, 8; the best together
  EXPECT_EQ(trials.front().groups, (std::vector<int64_t>{16, 16, 16, 16}));
  EXPECT_EQ(trials[1].groups, (std::vector<int64_t>{1, 16, 16, 16}));
  EXPECT_EQ(trials.back().groups, want);
  EXPECT_EQ(trials.back().loss, 0);
  // With a small budget the last share keeps its group, and the best together is still tried.
  const auto fewer = SearchGroups(4, 16, 14, loss);
  ASSERT_EQ(fewer.size(), 14u);
  EXPECT_EQ(fewer.back().groups, (std::vector<int64_t>{1, 2, 4, 16}));
}

TEST(SearchGroups, RepeatsNothing) {
  // Only one share gains, so the best together was tried; equal losses keep the larger group.
  const auto trials =
      SearchGroups(3, 4, 100, [](const std::vector<int64_t>& g) { return g[1] == 2 ? 0. : 1.; });
  EXPECT_EQ(trials.size(), 1u + 3 * 2);
  const auto none = SearchGroups(2, 1, 100, [](const std::vector<int64_t>&) { return 1.; });
  EXPECT_EQ(none.size(), 1u);
  EXPECT_THROW(SearchGroups(0, 4, 9, [](const std::vector<int64_t>&) { return 1.; }), Error);
  EXPECT_THROW(SearchGroups(8, 4, 1, [](const std::vector<int64_t>&) { return 1.; }), Error);
  EXPECT_THROW(SearchGroups(8, 0, 9, [](const std::vector<int64_t>&) { return 1.; }), Error);
}

}  // namespace
}  // namespace ropewalk
