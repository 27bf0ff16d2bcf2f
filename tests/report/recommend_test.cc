// What Recommend says about sweeps whose answer is known.
#include "src/eval/recommend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;
using testing::MakeCell;
using ::testing::Not;

TEST(Statistics, PairedDifferencesIgnoreWhatWindowsShare) {
  Cell a, b;
  a.window_nll = {1.1, 5.2, 3.1, 9.2};  // b plus 0.1, 0.2, 0.1, 0.2
  b.window_nll = {1.0, 5.0, 3.0, 9.0};
  const PairedDifference d = Compare(a, b);
  EXPECT_NEAR(d.mean, 0.15, 1e-12);
  EXPECT_NEAR(d.standard_error, std::sqrt(0.01 / 3 / 4), 1e-12);  // squares sum to 0.01
  EXPECT_TRUE(d.outside_noise);
  EXPECT_EQ(d.windows, 4);
  b.window_nll = {1.2, 5.0, 3.3, 9.0};  // differences -0.1, 0.2, -0.2, 0.2
  EXPECT_FALSE(Compare(a, b).outside_noise);
}

// A lead of 2.2 standard errors over 3 windows is noise (t = 4.30), over 30 it is none.
TEST(Statistics, FewWindowsNeedALargerLead) {
  const auto cells = [](int n) {
    Cell a, b;
    for (int i = 0; i < n; ++i) {
      b.window_nll.push_back(3);
      a.window_nll.push_back(3 + 0.1 * (i - (n - 1) / 2.0));
    }
    const double se = Compare(a, b).standard_error;
    for (double& x : a.window_nll) x += 2.2 * se;
    return Compare(a, b).outside_noise;
  };
  EXPECT_FALSE(cells(3));
  EXPECT_TRUE(cells(30));
}

std::vector<Cell> WithBaseline(std::vector<Cell> cells) {
  cells.insert(cells.begin(), MakeCell({"none", 1, 256, 20, 20}));
  cells.insert(cells.begin() + 1, MakeCell({"none", 1, 1024, 90, 0}));
  return cells;
}

TEST(Recommend, LowestPerplexityWithAClearLead) {
  const auto r = Recommend(WithBaseline(
      {MakeCell({"yarn", 4, 256, 20.5, 20}), MakeCell({"llama3", 4, 256, 20.2, 20}),
       MakeCell({"yarn", 4, 1024, 22, 19, 0.01}), MakeCell({"llama3", 4, 1024, 21, 19})}));
  ASSERT_EQ(r.size(), 1u);
  EXPECT_EQ(r[0].length, 1024);
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_EQ(r[0].factor, 4);
  EXPECT_EQ(r[0].runner_up, "yarn");
  EXPECT_TRUE(r[0].lead_outside_noise);
  EXPECT_NEAR(r[0].perplexity, 21, 1e-9);
  EXPECT_NEAR(r[0].trained_length_cost, std::log(20.2 / 20), 1e-9);
  EXPECT_EQ(r[0].longest_usable, 1024);
  EXPECT_THAT(r[0].text, HasSubstr("use llama3 with factor 4"));
  EXPECT_THAT(r[0].text, HasSubstr("without scaling it would be 90.0"));
  EXPECT_THAT(r[0].text, HasSubstr("19 of 20 trials"));
  EXPECT_THAT(r[0].text, HasSubstr("outside the noise"));
  EXPECT_THAT(r[0].text, HasSubstr("little enough to leave it on"));
}

TEST(Recommend, LeadWithinTheNoise) {
  const auto r = Recommend(WithBaseline(
      {MakeCell({"yarn", 4, 1024, 21.1, 19, 0.2}), MakeCell({"llama3", 4, 1024, 21, 19})}));
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_FALSE(r[0].lead_outside_noise);
  EXPECT_THAT(r[0].text, HasSubstr("does not differ significantly"));
  EXPECT_THAT(r[0].text, HasSubstr("was not measured"));  // the cost: no cell at 256
  EXPECT_TRUE(std::isnan(r[0].trained_length_cost));
}

TEST(Recommend, EqualFrequenciesAreNoRunnerUp) {
  std::vector<Cell> cells =
      WithBaseline({MakeCell({"llama3", 4, 1024, 21, 19}), MakeCell({"yarn", 4, 1024, 22, 19})});
  Cell twin = cells[2];
  twin.method = "custom";
  cells.push_back(twin);
  const auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_EQ(r[0].runner_up, "yarn");
  EXPECT_THAT(r[0].text, HasSubstr("custom has the same frequencies"));
}

// 8 of 20 against 18 of 20 is significant (p = 0.001), 14 against 18 is not (p = 0.13).
TEST(Recommend, PasskeyVeto) {
  auto r = Recommend(
      WithBaseline({MakeCell({"yarn", 4, 1024, 22, 18}), MakeCell({"llama3", 4, 1024, 21, 8})}));
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_THAT(r[0].text, HasSubstr("llama3 with factor 4 has a lower perplexity, but finds"));
  EXPECT_THAT(r[0].text, HasSubstr("All others find the passkey significantly less often."));
  r = Recommend(
      WithBaseline({MakeCell({"yarn", 4, 1024, 22, 18}), MakeCell({"llama3", 4, 1024, 21, 14})}));
  EXPECT_EQ(r[0].method, "llama3");
}

TEST(Recommend, NoneGoodEnough) {
  const auto r = Recommend(
      WithBaseline({MakeCell({"yarn", 2, 512, 21, 19}), MakeCell({"yarn", 4, 1024, 26, 18}),
                    MakeCell({"linear", 4, 1024, 60, 18})}));
  ASSERT_EQ(r.size(), 2u);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(r[1].method, "");
  EXPECT_THAT(r[1].text, HasSubstr("no method is usable"));
  EXPECT_THAT(r[1].text, HasSubstr("yarn with factor 4, has perplexity 26.0, 1.30 times the 20.0"));
  EXPECT_THAT(r[1].text, HasSubstr("longest usable length is 512 tokens, with yarn"));
  // Good perplexity and no retrieval is not good enough either: 5 of 20 is below a half (p = 0.02).
  const auto blind = Recommend(WithBaseline({MakeCell({"yarn", 4, 1024, 21, 5})}));
  EXPECT_EQ(blind[0].method, "");
  const auto half = Recommend(WithBaseline({MakeCell({"yarn", 4, 1024, 21, 6})}));
  EXPECT_EQ(half[0].method, "yarn");
}

// A model that cannot do the task at its trained length, or on short text even, says nothing about
// methods by failing later.
TEST(Recommend, PasskeyDoesNotCountWhereTheModelCannotDoIt) {
  const auto sweep = [](int64_t at_64, int64_t at_128, int64_t at_256) {
    // By passkey, which llama3 passes, yarn would be left out twice: by the veto and by the rule.
    return std::vector<Cell>{
        MakeCell({"none", 1, 64, 24, at_64}),   MakeCell({"none", 1, 128, 22, at_128}),
        MakeCell({"none", 1, 256, 20, at_256}), MakeCell({"none", 1, 1024, 90, 0}),
        MakeCell({"yarn", 4, 1024, 21, 0}),     MakeCell({"llama3", 4, 1024, 23, 19})};
  };
  for (const auto& [cells, where] :
       {std::pair(sweep(20, 20, 1),
                  "already at 256 tokens the model without scaling finds only 1 of 20"),
        std::pair(sweep(5, 20, 20),
                  "already at 64 tokens the model without scaling finds only 5 of 20"),
        std::pair(sweep(5, 20, 1),
                  "already at 64 tokens the model without scaling finds only 5 of 20")}) {
    const auto r = Recommend(cells);
    EXPECT_EQ(r[0].method, "yarn");
    EXPECT_THAT(r[0].text, HasSubstr("0 of 20 trials, which is not considered"));
    EXPECT_THAT(r[0].text, HasSubstr(where));
    EXPECT_THAT(r[0].text, Not(HasSubstr("significantly less often")));
    EXPECT_THAT(UsabilityRule(cells), HasSubstr(where));
    EXPECT_THAT(PasskeyNote(cells), HasSubstr("the task does not measure the effect of length"));
  }
  // 6 of 20 is not significantly below a half, and lengths between are not considered.
  for (const auto& cells : {sweep(6, 20, 20), sweep(20, 0, 20)}) {
    EXPECT_EQ(Recommend(cells)[0].method, "llama3");
    EXPECT_EQ(PasskeyNote(cells), "");
  }
}

// Without no scaling at the trained length there is nothing to judge by, and no cost.
TEST(Recommend, NothingIsJudgedWithoutTheBaseline) {
  const std::vector<Cell> cells = {MakeCell({"linear", 4, 256, 332.6}),
                                   MakeCell({"linear", 4, 1024, 345})};
  auto r = Recommend(cells);
  ASSERT_EQ(r.size(), 1u);
  EXPECT_FALSE(r[0].judged);
  EXPECT_EQ(r[0].method, "");
  EXPECT_TRUE(std::isnan(r[0].trained_length_cost));
  EXPECT_EQ(r[0].longest_usable, 0);
  EXPECT_THAT(r[0].text, HasSubstr("nothing can be recommended: the model without scaling was "
                                   "not measured at 256 tokens"));
  EXPECT_THAT(r[0].text, HasSubstr("linear with factor 4 has perplexity 345.0."));
  for (const char* word : {"best", "costs", "use "}) {
    EXPECT_THAT(r[0].text, Not(HasSubstr(word)));
  }
  EXPECT_TRUE(Reaches(cells).empty());
  EXPECT_THAT(UsabilityRule(cells), HasSubstr("Nothing can be judged"));
  std::vector<Cell> two = cells;
  two.push_back(MakeCell({"yarn", 4, 1024, 30}));
  EXPECT_THAT(Recommend(two)[0].text,
              HasSubstr("yarn with factor 4 has the lowest measured perplexity, "));
  // With it linear is what it is.
  std::vector<Cell> with = cells;
  with.push_back(MakeCell({"none", 1, 256, 155.3}));
  r = Recommend(with);
  EXPECT_TRUE(r[0].judged);
  EXPECT_EQ(r[0].method, "");
  EXPECT_THAT(r[0].text, HasSubstr("no method is usable. The only one measured, linear with "
                                   "factor 4, has perplexity 345.0, 2.22 times the 155.3"));
}

TEST(Recommend, NoScalingCostsNothingAgainstItselfAndIsNotBestAlone) {
  const std::vector<Cell> cells = {MakeCell({"none", 1, 256, 20}), MakeCell({"none", 1, 1024, 21})};
  const auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "none");
  EXPECT_TRUE(std::isnan(r[0].trained_length_cost));
  EXPECT_THAT(r[0].text, HasSubstr("use no scaling: the model is good enough."));
  EXPECT_THAT(r[0].text, HasSubstr("no other method to compare it with"));
  EXPECT_THAT(r[0].text, Not(HasSubstr("best")));
  EXPECT_FALSE(Reaches(cells)[0].cost.has_value());
}

TEST(Recommend, AnUnknownTrainedLengthRecommendsNothing) {
  std::vector<Cell> cells = {MakeCell({"none", 1, 256, 20, 20}), MakeCell({"none", 1, 1024, 90, 0}),
                             MakeCell({"linear", 4, 1024, 21, 20})};
  for (Cell& c : cells) c.trained_length = 0;
  EXPECT_TRUE(Recommend(cells).empty());
  EXPECT_TRUE(Reaches(cells).empty());
}

TEST(Recommend, NothingToChange) {
  const auto r = Recommend({MakeCell({"none", 1, 256, 20, 20}), MakeCell({"none", 1, 1024, 19, 20}),
                            MakeCell({"yarn", 4, 1024, 20, 20})});
  EXPECT_EQ(r[0].method, "none");
  EXPECT_THAT(r[0].text, HasSubstr("use no scaling: it is best"));
}

TEST(Recommend, InterruptedSweeps) {
  EXPECT_TRUE(Recommend({}).empty());
  EXPECT_TRUE(Reaches({}).empty());
  EXPECT_TRUE(Recommend({MakeCell({"none", 1, 256, 20, 20})}).empty());
  // No second method.
  const auto r =
      Recommend({MakeCell({"none", 1, 256, 20, 20}), MakeCell({"yarn", 4, 1024, 21, 19})});
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_THAT(r[0].text, HasSubstr("no other method to compare"));
  EXPECT_THAT(r[0].text, Not(HasSubstr("without scaling")));
}

TEST(Recommend, IdsGivenSoNoPasskey) {
  const std::vector<Cell> cells = {MakeCell({"none", 1, 256, 20}), MakeCell({"none", 1, 1024, 90}),
                                   MakeCell({"yarn", 4, 1024, 21})};
  const auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_THAT(r[0].text, HasSubstr("passkey was not measured"));
  EXPECT_THAT(UsabilityRule(cells), HasSubstr("passkey was not measured"));
}

TEST(Recommend, OneWindowHasNoError) {
  const auto r = Recommend(
      {MakeCell({"none", 1, 256, 20, 20, 0, 1}), MakeCell({"yarn", 4, 256, 20.5, 20, 0, 1}),
       MakeCell({"yarn", 4, 1024, 21, 20, 0, 1}), MakeCell({"llama3", 4, 1024, 22, 20, 0, 1})});
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_FALSE(r[0].lead_outside_noise);
  EXPECT_THAT(r[0].text, HasSubstr("one window is not enough to tell"));
  EXPECT_THAT(r[0].text, Not(HasSubstr("nan")));
}

TEST(Recommend, NotANumberNeverWins) {
  Cell broken = MakeCell({"yarn", 4, 1024, 21, 19});
  broken.perplexity = broken.mean_nll = std::numeric_limits<double>::quiet_NaN();
  const auto r = Recommend(WithBaseline({broken, MakeCell({"llama3", 4, 1024, 22, 19})}));
  EXPECT_EQ(r[0].method, "llama3");
}

// A cell that left a race has no passkey and fewer windows: it is never recommended, also where those
// in front of it fail the passkey, and it is compared over the windows that it has.
TEST(Recommend, WhatLeftTheRaceIsARunnerUpAtBest) {
  std::vector<Cell> cells =
      WithBaseline({MakeCell({"yarn", 4, 1024, 22, 20}), MakeCell({"llama3", 4, 1024, 20.5, 0})});
  Cell left = MakeCell({"ntk", 4, 1024, 21.9, 0});
  left.tasks.clear();
  left.window_nll.resize(3);
  left.race_exit = RaceExit{.round = 1, .against = "llama3", .against_factor = 4};
  cells.push_back(left);
  const auto r = Recommend(cells);
  ASSERT_EQ(r.size(), 1u);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(r[0].runner_up, "ntk");
  EXPECT_EQ(Compare(left, cells[2]).windows, 3);
  EXPECT_THAT(UsabilityRule(cells), HasSubstr("left the race"));
  for (const MethodReach& reach : Reaches(cells)) {
    EXPECT_EQ(reach.longest_usable, reach.method == "yarn" ? 1024 : 256) << reach.method;
  }
}

TEST(Reaches, StopsAtTheFirstFailure) {
  const auto reaches = Reaches(
      WithBaseline({MakeCell({"yarn", 4, 256, 20.4, 20}), MakeCell({"yarn", 2, 512, 21, 19}),
                    MakeCell({"yarn", 4, 1024, 29, 19}), MakeCell({"yarn", 8, 2048, 22, 19}),
                    MakeCell({"dynamic", 2, 512, 30, 19}), MakeCell({"ntk", 4, 1024, 24, 19}),
                    MakeCell({"ntk", 4, 256, 20.8, 20})}));
  ASSERT_EQ(reaches.size(), 4u);
  EXPECT_EQ(reaches[0].method, "none");
  EXPECT_EQ(reaches[0].longest_usable, 256);
  EXPECT_EQ(reaches[1].method, "yarn");
  EXPECT_EQ(reaches[1].longest_usable, 512);
  EXPECT_EQ(reaches[1].factor, 2);
  EXPECT_FALSE(reaches[1].cost.has_value());  // factor 2 was not measured at 256
  EXPECT_EQ(reaches[2].longest_usable, 256);
  EXPECT_EQ(reaches[3].longest_usable, 1024);
  EXPECT_NEAR(reaches[3].cost->mean, std::log(20.8 / 20), 1e-9);
}

// The numbers of a small model: what the whole sweep says, target by target.
TEST(Recommend, AWholeSweep) {
  const std::vector<Cell> cells = testing::MakeSweep("m").cells;
  const auto r = Recommend(cells);
  ASSERT_EQ(r.size(), 3u);
  for (const Recommendation& x : r) {
    EXPECT_EQ(x.method, "llama3") << x.text;
    EXPECT_EQ(x.longest_usable, 2048);
    EXPECT_EQ(x.factor, x.length / 256.0);
  }
  EXPECT_THAT(r[2].text, HasSubstr("switch it on only for text that needs the length"));
}

}  // namespace
}  // namespace ropewalk
