// Over which windows a recommendation compares, and what it says of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ropewalk/eval/recommend.h"
#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;
using testing::MakeCell;
using ::testing::Not;
using testing::VerdictOf;
using testing::WithTask;

// With as many windows again whose perplexity is `more`.
Cell WithMore(Cell cell, double more) {
  const std::size_t n = cell.window_nll.size();
  const double first = cell.mean_nll;
  cell.window_nll.resize(2 * n, std::log(more));
  cell.windows = static_cast<int64_t>(2 * n);
  cell.mean_nll = 0.5 * (first + std::log(more));
  cell.perplexity = std::exp(cell.mean_nll);
  return cell;
}

// Windows that the baseline has not say nothing of what a method does to text.
TEST(RecommendWindows, UsableIsJudgedOverTheWindowsThatBothHave) {
  const Cell none = MakeCell({"none", 1, 256, 20});
  // 22 where both were measured, and text that is hard for everybody.
  auto r = Recommend({none, WithMore(MakeCell({"yarn", 4, 1024, 22}), 60)});
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_THAT(r[0].text, HasSubstr("Perplexity is 36.3; at the trained length the model has 20.0 "
                                   "against 22.0 over the 8 windows that both have."));
  // 40 there, and text that is easy.
  const std::vector<Cell> easy = {none, WithMore(MakeCell({"yarn", 4, 1024, 40}), 10)};
  r = Recommend(easy);
  EXPECT_EQ(r[0].method, "");
  EXPECT_EQ(VerdictOf(r[0], "yarn").reason,
            "perplexity 40.0 is 2.00 times the 20.0 of the trained length over the 8 windows that "
            "both have");
  EXPECT_THAT(RulesText(easy), HasSubstr("= 25.0, over the windows that both have)"));
  // Windows that are cut from one text score other tokens at another length: all stand for it.
  std::vector<Cell> cut = easy;
  for (Cell& c : cut) c.protocol = "windows";
  EXPECT_EQ(Recommend(cut)[0].method, "yarn");
}

TEST(RecommendWindows, WithoutScalingItHasFewerWindows) {
  Cell unscaled = MakeCell({"none", 1, 1024, 90});
  unscaled.race_exit = RaceExit{.round = 1, .against = "yarn", .against_factor = 4};
  const auto r = Recommend({WithMore(MakeCell({"none", 1, 256, 20}), 20), unscaled,
                            WithMore(MakeCell({"yarn", 4, 1024, 22}), 19)});
  EXPECT_THAT(r[0].text, HasSubstr("Perplexity is 20.4; without scaling it would be 90.0 against "
                                   "22.0 over the 8 windows that both have; at the trained length "
                                   "the model has 20.0."));
}

TEST(RecommendWindows, RulesSayHowManyOfAllTests) {
  std::vector<Cell> cells = {WithTask(MakeCell({"none", 1, 256, 20}), 38)};
  EXPECT_THAT(RulesText(cells), HasSubstr("over 8 windows and exact sign tests over 40 answers"));
  cells.push_back(WithTask(MakeCell({"yarn", 4, 256, 20}), 38));
  for (const char* method : {"yarn", "ntk"}) {
    cells.push_back(WithMore(WithTask(MakeCell({method, 4, 1024, 21}), 20, "kv", 20), 21));
  }
  EXPECT_THAT(RulesText(cells),
              HasSubstr("over 8 to 16 windows and exact sign tests over 20 to 40 answers of kv"));
}

TEST(RecommendWindows, RulesKnowNoTestOfOneWindow) {
  const Cell one = MakeCell({"none", 1, 256, 20, -1, 0, 1});
  EXPECT_THAT(RulesText({one}), HasSubstr(". One window gives no test of significance."));
  EXPECT_THAT(RulesText({WithTask(one, 1, "kv", 1)}),
              HasSubstr("of a length, by exact sign tests over 1 answer of kv; one window gives no "
                        "test of losses."));
  EXPECT_THAT(RulesText({WithTask(one, 0, "kv", 1)}), HasSubstr("scores only 0.00 (1 answer), so"));
}

TEST(RecommendWindows, ABaselineThatIsNotFiniteJudgesNothing) {
  Cell none = WithTask(MakeCell({"none", 1, 256, 20}), 40);
  none.perplexity = none.mean_nll = none.window_nll[0] = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Cell> cells = {none, WithTask(MakeCell({"yarn", 4, 1024, 21}), 40)};
  const auto r = Recommend(cells);
  EXPECT_FALSE(r[0].judged);
  EXPECT_THAT(r[0].text, HasSubstr("nothing can be judged: the loss of the model without scaling "
                                   "is not finite at 256 tokens"));
  EXPECT_THAT(RulesText(cells), HasSubstr("is not finite at the trained length"));
  EXPECT_THAT(TasksNote(cells), HasSubstr("the loss is not finite without scaling"));
  EXPECT_TRUE(Reaches(cells).empty());
}

// It reaches farther than the length that has no usable method, where it was not measured.
TEST(RecommendWindows, AMethodThatWasNotMeasuredHere) {
  const auto r = Recommend({MakeCell({"none", 1, 256, 20}), MakeCell({"yarn", 2, 512, 40}),
                            MakeCell({"ntk", 4, 1024, 21})});
  EXPECT_THAT(r[0].text, ::testing::EndsWith(" ntk with factor 4 is usable at 1024 tokens, but was "
                                             "not measured at 512: measure it."));
}

// What leaving it on costs: in loss, and in tasks.
TEST(RecommendCosts, InWords) {
  const auto text = [](double trained, int64_t right, double noise = 0) {
    return Recommend({WithTask(MakeCell({"none", 1, 256, 20}), 40),
                      WithTask(MakeCell({"yarn", 4, 256, trained, -1, noise}), right),
                      WithTask(MakeCell({"yarn", 4, 1024, 21}), 40)})[0]
        .text;
  };
  EXPECT_THAT(text(19, 40), HasSubstr("it even gains 5.0 % of perplexity, 0.051 ± 0.000 nats"));
  EXPECT_THAT(text(19, 20), HasSubstr(" nats per token, but it loses 0.50 of kv there, "
                                      "significantly, so switch it on only for text that needs"));
  EXPECT_THAT(text(20.01, 40, 0.1), HasSubstr("it has no measurable cost (0.000 ± 0.0"));
  EXPECT_THAT(text(20.01, 20, 0.1), HasSubstr("its loss has no measurable cost (0.000 ± 0.0"));
  EXPECT_THAT(text(20.01, 20, 0.1), HasSubstr("within the noise), but it loses 0.50 of kv there"));
  const std::string broken = text(std::numeric_limits<double>::quiet_NaN(), 40);
  EXPECT_THAT(broken, HasSubstr("It breaks text of the trained 256 tokens, where its loss is not "
                                "finite, so switch it on only for text that needs the length."));
  EXPECT_THAT(broken, Not(HasSubstr("nan")));
}

// A score of the windows up to where it left is no score of the length.
TEST(Scores, NoneOfALengthWhoseRaceItLeft) {
  std::vector<Cell> cells = {
      WithTask(MakeCell({"none", 1, 256, 20}), 40), WithTask(MakeCell({"yarn", 2, 512, 21}), 40),
      WithTask(MakeCell({"yarn", 4, 1024, 21}), 40), WithTask(MakeCell({"ntk", 2, 512, 30}), 20),
      WithTask(MakeCell({"ntk", 4, 1024, 21}), 40)};
  cells[3].race_exit = RaceExit{.round = 1, .against = "yarn", .against_factor = 2};
  for (const MethodScores& m : ScoresByLength(cells)) {
    if (m.method == "none") continue;
    const bool yarn = m.method == "yarn";
    EXPECT_EQ(m.scores.size(), yarn ? 3u : 2u);
    EXPECT_EQ(m.ruler.length, yarn ? 1024 : 256);
    EXPECT_EQ(m.own.length, yarn ? 1024 : 256);
    EXPECT_EQ(std::isnan(m.averages.increasing), !yarn);
  }
}

}  // namespace
}  // namespace ropewalk
