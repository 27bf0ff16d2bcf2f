// What Recommend says about sweeps whose answer is known.
#include "ropewalk/eval/recommend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ropewalk/eval/task.h"
#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;
using testing::MakeCell;
using ::testing::Not;
using testing::VerdictOf;
using testing::WithBaseline;

std::vector<std::string> Standings(const Recommendation& r) {
  std::vector<std::string> out;
  for (const MethodVerdict& v : r.methods) out.push_back(v.method + ": " + Word(v.standing));
  return out;
}

TEST(Recommend, LowestPerplexityWithAClearLead) {
  const auto r = Recommend(WithBaseline(
      {MakeCell({"yarn", 4, 256, 20.5, 20}), MakeCell({"llama3", 4, 256, 20.2, 20}),
       MakeCell({"yarn", 4, 1024, 22, 19, 0.01}), MakeCell({"llama3", 4, 1024, 21, 19})}));
  ASSERT_EQ(r.size(), 1u);
  EXPECT_EQ(r[0].length, 1024);
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_EQ(r[0].factor, 4);
  EXPECT_THAT(Standings(r[0]),
              ::testing::ElementsAre("llama3: recommended", "yarn: behind", "none: not usable"));
  EXPECT_NEAR(VerdictOf(r[0], "yarn").difference->mean, std::log(22.0 / 21), 1e-9);
  EXPECT_NEAR(r[0].perplexity, 21, 1e-9);
  EXPECT_NEAR(r[0].trained_length_cost, std::log(20.2 / 20), 1e-9);
  EXPECT_EQ(r[0].longest_usable, 1024);
  EXPECT_THAT(r[0].text, HasSubstr("use llama3 with factor 4"));
  EXPECT_THAT(r[0].text, HasSubstr("without scaling it would be 90.0"));
  EXPECT_THAT(r[0].text,
              HasSubstr("Scores: passkey 0.95 (0.76 to 0.99)."));  // Wilson's, 19 of 20
  EXPECT_THAT(r[0].text, HasSubstr("yarn with factor 4 is significantly behind: 0.047 ± 0.0"));
  EXPECT_THAT(r[0].text, HasSubstr("little enough to leave it on"));
}

// A tie is said as one, with what would have been found.
TEST(Recommend, Ties) {
  const auto r = Recommend(WithBaseline(
      {MakeCell({"yarn", 4, 1024, 21.1, 19, 0.2}), MakeCell({"llama3", 4, 1024, 21, 19})}));
  EXPECT_EQ(r[0].method, "llama3");
  const MethodVerdict& yarn = VerdictOf(r[0], "yarn");
  EXPECT_EQ(yarn.standing, Standing::kTie);
  // One other usable method: alpha is not divided. Of 8 windows t needs 2.365, power 0.8 3.26
  // standard errors (Cohen's tables: n = 8, d = 1.15).
  EXPECT_NEAR(yarn.detectable / yarn.difference->standard_error, 1.15 * std::sqrt(8), 0.03);
  EXPECT_THAT(r[0].text, HasSubstr("A tie with yarn with factor 4: it is behind by 0.005 nats per "
                                   "token over 8 windows, which may be chance; either would do."));
  EXPECT_THAT(r[0].text, HasSubstr("would have been found four times in five"));
  EXPECT_THAT(r[0].text, HasSubstr("was not measured"));  // the cost: no cell at 256
  EXPECT_TRUE(std::isnan(r[0].trained_length_cost));
}

// A difference that one comparison finds may be no news among many.
TEST(Recommend, ManyMethodsNeedMore) {
  std::vector<Cell> cells =
      WithBaseline({MakeCell({"yarn", 4, 1024, 21}), MakeCell({"llama3", 4, 1024, 21.5})});
  const double loss = std::log(21.5);
  for (int w = 0; w < 8; ++w) {  // 2.6 standard errors behind: p = 0.035 of one test
    cells[3].window_nll[static_cast<size_t>(w)] =
        cells[2].window_nll[static_cast<size_t>(w)] + loss - std::log(21.0) +
        (w % 2 ? 1 : -1) * (loss - std::log(21.0)) / 2.6 * std::sqrt(7.0);
  }
  auto r = Recommend(cells);
  EXPECT_EQ(VerdictOf(r[0], "llama3").standing, Standing::kBehind);
  EXPECT_NEAR(VerdictOf(r[0], "llama3").p_value, 0.0354, 2e-4);  // t 2.6, 7 degrees of freedom
  cells.push_back(MakeCell({"ntk", 4, 1024, 21.2, -1, 0.3}));
  r = Recommend(cells);
  EXPECT_EQ(VerdictOf(r[0], "llama3").standing, Standing::kTie);
  EXPECT_NEAR(VerdictOf(r[0], "llama3").p_value, 2 * 0.0354, 4e-4);  // the smaller of two
}

TEST(Recommend, EqualFrequenciesAreNoRival) {
  std::vector<Cell> cells = WithBaseline(
      {MakeCell({"llama3", 4, 1024, 21, 19}), MakeCell({"yarn", 4, 1024, 22, 19, .01})});
  const double alone = VerdictOf(Recommend(cells)[0], "yarn").p_value;
  Cell twin = cells[2];
  twin.method = "custom";
  cells.push_back(twin);
  Cell other = cells[3];
  other.method = "custom-1";
  cells.push_back(other);
  const auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_THAT(r[0].text, HasSubstr("custom has the same frequencies"));
  EXPECT_TRUE(VerdictOf(r[0], "custom").same_plan);
  EXPECT_EQ(VerdictOf(r[0], "yarn").p_value, alone);  // a test made twice is one test
}

TEST(Recommend, NoneGoodEnough) {
  const auto r = Recommend(
      WithBaseline({MakeCell({"yarn", 2, 512, 21, 19}), MakeCell({"yarn", 4, 1024, 26, 18}),
                    MakeCell({"linear", 4, 1024, 60, 18})}));
  ASSERT_EQ(r.size(), 2u);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(r[1].method, "");
  EXPECT_THAT(r[1].text, HasSubstr("no method is usable. The nearest is yarn with factor 4: "
                                   "perplexity 26.0 is 1.30 times the 20.0"));
  EXPECT_THAT(r[1].text, HasSubstr("longest usable length is 512 tokens, with yarn"));
}

TEST(Recommend, OfTheMethodsThatReachFarthestTheRecommendedOneIsNamed) {
  const auto r = Recommend(
      WithBaseline({MakeCell({"ntk", 2, 512, 21.2, 19}), MakeCell({"yarn", 2, 512, 21, 19}),
                    MakeCell({"dynamic", 2, 512, 21.1, 19}), MakeCell({"ntk", 4, 1024, 60, 18}),
                    MakeCell({"yarn", 4, 1024, 70, 18})}));
  ASSERT_EQ(r.size(), 2u);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(r[1].method, "");
  EXPECT_THAT(r[1].text, HasSubstr("longest usable length is 512 tokens, with yarn with factor 2"));
}

// Without no scaling at the trained length there is nothing to judge by, and no cost.
TEST(Recommend, NothingIsJudgedWithoutTheBaseline) {
  const std::vector<Cell> cells = {MakeCell({"linear", 4, 256, 332.6}),
                                   MakeCell({"linear", 4, 1024, 345})};
  auto r = Recommend(cells);
  ASSERT_EQ(r.size(), 1u);
  EXPECT_FALSE(r[0].judged);
  EXPECT_EQ(r[0].method, "");
  EXPECT_THAT(Standings(r[0]), ::testing::ElementsAre("linear: not judged"));
  EXPECT_TRUE(std::isnan(r[0].trained_length_cost));
  EXPECT_EQ(r[0].longest_usable, 0);
  EXPECT_THAT(r[0].text, HasSubstr("nothing can be recommended: the model without scaling was "
                                   "not measured at 256 tokens"));
  EXPECT_THAT(r[0].text, HasSubstr("linear with factor 4 has perplexity 345.0."));
  for (const char* word : {"best", "costs", "use "}) {
    EXPECT_THAT(r[0].text, Not(HasSubstr(word)));
  }
  EXPECT_TRUE(Reaches(cells).empty());
  EXPECT_THAT(RulesText(cells), HasSubstr("Nothing can be judged"));
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
  EXPECT_THAT(r[0].text, HasSubstr("no method is usable. The only one measured is linear with "
                                   "factor 4: perplexity 345.0 is 2.22 times the 155.3"));
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
  EXPECT_THAT(r[0].text, Not(HasSubstr("without scaling it")));
}

TEST(Recommend, NoTasksAtAll) {
  const std::vector<Cell> cells = {MakeCell({"none", 1, 256, 20}), MakeCell({"none", 1, 1024, 90}),
                                   MakeCell({"yarn", 4, 1024, 21})};
  const auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_THAT(r[0].text, HasSubstr("this rests on perplexity alone"));
  EXPECT_THAT(RulesText(cells), HasSubstr("No task was measured"));
}

TEST(Recommend, OneWindowHasNoError) {
  const auto r = Recommend(
      {MakeCell({"none", 1, 256, 20, 20, 0, 1}), MakeCell({"yarn", 4, 256, 20.5, 20, 0, 1}),
       MakeCell({"yarn", 4, 1024, 21, 20, 0, 1}), MakeCell({"llama3", 4, 1024, 22, 20, 0, 1})});
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(VerdictOf(r[0], "llama3").standing, Standing::kUntested);
  EXPECT_THAT(r[0].text, HasSubstr("one window is not enough to tell"));
  EXPECT_THAT(r[0].text, Not(HasSubstr("nan")));
}

// Where cells have different numbers of windows, those that all have are compared.
TEST(Recommend, ComparesTheWindowsThatAllHave) {
  std::vector<Cell> cells = {MakeCell({"none", 1, 256, 20}), MakeCell({"yarn", 4, 1024, 21}),
                             MakeCell({"llama3", 4, 1024, 21.2})};
  for (int i = 0; i < 8; ++i) {  // llama3 went on to windows that are easy for everybody
    cells[2].window_nll.push_back(1);
  }
  cells[2].mean_nll = 0.5 * (cells[2].mean_nll + 1);
  cells[2].perplexity = std::exp(cells[2].mean_nll);
  const auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(VerdictOf(r[0], "llama3").difference->windows, 8);
  EXPECT_NEAR(VerdictOf(r[0], "llama3").difference->mean, std::log(21.2 / 21), 1e-9);
}

TEST(Recommend, NotANumberNeverWins) {
  Cell broken = MakeCell({"yarn", 4, 1024, 21, 19});
  broken.perplexity = broken.mean_nll = std::numeric_limits<double>::quiet_NaN();
  broken.window_nll.assign(8, std::numeric_limits<double>::quiet_NaN());
  const auto r = Recommend(WithBaseline({broken, MakeCell({"llama3", 4, 1024, 22, 19})}));
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_EQ(VerdictOf(r[0], "yarn").standing, Standing::kNotUsable);
  const auto alone = Recommend({MakeCell({"none", 1, 256, 20, 19}), broken});
  EXPECT_EQ(alone[0].method, "");
  EXPECT_THAT(alone[0].text, HasSubstr("its perplexity is not finite"));
}

// A cell that left a race has no tasks and fewer windows: it is never recommended, and compared over
// the windows that it has.
TEST(Recommend, WhatLeftTheRaceIsNotRecommended) {
  std::vector<Cell> cells =
      WithBaseline({MakeCell({"yarn", 4, 1024, 22, 20}), MakeCell({"llama3", 4, 1024, 20.5, 0})});
  Cell left = MakeCell({"ntk", 4, 1024, 21.9});
  left.window_nll.resize(3);
  left.race_exit = RaceExit{.round = 1,
                            .against = "llama3",
                            .against_factor = 4,
                            .difference = 0.066,
                            .standard_error = 0.01};
  cells.push_back(left);
  auto r = Recommend(cells);
  ASSERT_EQ(r.size(), 1u);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(VerdictOf(r[0], "ntk").standing, Standing::kLeftRace);
  EXPECT_EQ(VerdictOf(r[0], "ntk").reason,
            "0.066 ± 0.010 nats per token behind llama3 with factor 4 in round 1");
  EXPECT_EQ(VerdictOf(r[0], "ntk").difference->windows, 3);
  EXPECT_EQ(Compare(cells[2], cells[3]).windows, 8);  // its few windows are nobody else's
  EXPECT_THAT(RulesText(cells), HasSubstr("left the race"));
  for (const MethodReach& reach : Reaches(cells)) {
    EXPECT_EQ(reach.longest_usable, reach.method == "yarn" ? 1024 : 256) << reach.method;
  }
  // Everything left: nothing is usable.
  for (Cell& c : cells) {
    if (c.length == 1024) c.race_exit = left.race_exit;
  }
  r = Recommend(cells);
  EXPECT_EQ(r[0].method, "");
  EXPECT_THAT(r[0].text, HasSubstr("no method is usable"));
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

// Its cell at the trained length has one of the factors, which changes nothing.
TEST(Recommend, CostOfAMethodWithoutAFactor) {
  const auto r = Recommend(WithBaseline({MakeCell({"dual-chunk", 4, 256, 20.4, 20}),
                                         MakeCell({"dual-chunk", 2, 512, 21, 19}),
                                         MakeCell({"dual-chunk", 4, 1024, 22, 19})}));
  ASSERT_EQ(r.size(), 2u);
  for (const Recommendation& x : r) {
    EXPECT_EQ(x.method, "dual-chunk");
    EXPECT_NEAR(x.trained_length_cost, std::log(20.4 / 20), 1e-9) << x.length;
    EXPECT_THAT(x.text, Not(HasSubstr("was not measured")));
  }
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
  EXPECT_EQ(VerdictOf(r[2], "yarn").standing, Standing::kNotUsable);
  EXPECT_EQ(VerdictOf(r[2], "yarn").reason, "passkey 0.50 after 1.00 at the trained length");
  EXPECT_THAT(r[2].text, HasSubstr("switch it on only for text that needs the length"));
}

}  // namespace
}  // namespace ropewalk
