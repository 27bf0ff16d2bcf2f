// What key tokens decide in a recommendation, and how a report shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "cli/report.h"
#include "ropewalk/eval/recommend.h"
#include "ropewalk/eval/task.h"
#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;
using testing::MakeCell;
using ::testing::Not;
using testing::VerdictOf;
using testing::WithKeys;

// yarn and llama3 at 1024 tokens, which loss does not tell apart; llama3 has the lower one.
std::vector<Cell> Tied(const std::vector<std::vector<double>>& yarn,
                       const std::vector<std::vector<double>>& llama3) {
  return {WithKeys(MakeCell({"none", 1, 256, 20}), llama3),
          WithKeys(MakeCell({"yarn", 4, 1024, 21.1, -1, 0.2}), yarn),
          WithKeys(MakeCell({"llama3", 4, 1024, 21}), llama3)};
}

// Losses of two key tokens in each of eight windows, around `nats`.
std::vector<std::vector<double>> Around(double nats, double spread) {
  std::vector<std::vector<double>> windows;
  for (int w = 0; w < 8; ++w) {
    const double own = spread * (w % 4 - 1.5);
    windows.push_back({nats + own, nats + own});
  }
  return windows;
}

TEST(RecommendByKeyTokens, TheyBreakATie) {
  std::vector<Cell> cells = Tied(Around(0.8, 0.01), Around(1.0, 0.03));
  const Recommendation r = Recommend(cells).at(0);
  EXPECT_EQ(r.method, "yarn");
  const MethodVerdict &yarn = VerdictOf(r, "yarn"), &llama3 = VerdictOf(r, "llama3");
  EXPECT_EQ(yarn.standing, Standing::kRecommended);
  EXPECT_EQ(llama3.standing, Standing::kBehindKeyTokens);
  EXPECT_STREQ(Word(llama3.standing), "behind at key tokens");
  // Differences of the windows are 0.17, 0.19, 0.21, 0.23, each twice.
  const double error = std::sqrt(2 * (0.03 * 0.03 + 0.01 * 0.01 + 0.01 * 0.01 + 0.03 * 0.03) / 56);
  EXPECT_NEAR(llama3.key_tokens->difference->mean, 0.2, 1e-12);
  EXPECT_NEAR(llama3.key_tokens->difference->standard_error, error, 1e-12);
  EXPECT_EQ(llama3.key_tokens->difference->windows, 8);
  EXPECT_LT(llama3.key_tokens->p_value, 1e-4);
  EXPECT_EQ(llama3.key_tokens->against, "yarn with factor 4");
  EXPECT_EQ(yarn.key_tokens->tokens, 16);
  EXPECT_NEAR(yarn.key_tokens->nats, 0.8, 1e-12);
  // By loss it is still ahead, of the one that is recommended now.
  EXPECT_NEAR(llama3.difference->mean, std::log(21 / 21.1), 1e-9);
  EXPECT_FALSE(yarn.difference.has_value());
  EXPECT_TRUE(std::isnan(llama3.p_value));
  EXPECT_THAT(r.text, HasSubstr("use yarn with factor 4."));
  EXPECT_THAT(r.text, HasSubstr("Of its 16 key tokens the loss is 0.800 ± 0.004 nats per token "
                                "(LongPPL 2.23)."));
  EXPECT_THAT(r.text,
              HasSubstr("llama3 with factor 4 has a lower perplexity by no more than chance "
                        "explains, but is significantly behind at key tokens, which break "
                        "the tie: key tokens 1.000 against 0.800 nats of yarn with factor "
                        "4, 0.200 ± 0.008 behind over 8 windows."));
  EXPECT_THAT(r.text, Not(HasSubstr("A tie with")));
  // Without them loss decides alone.
  for (Cell& c : cells) c.tasks.clear();
  EXPECT_EQ(Recommend(cells).at(0).method, "llama3");
  EXPECT_THAT(Recommend(cells).at(0).text, HasSubstr("A tie with yarn with factor 4"));
}

// The other way round nothing is chosen anew, but the tie is none any more.
TEST(RecommendByKeyTokens, TheyConfirmTheLowerLoss) {
  const Recommendation r = Recommend(Tied(Around(1.0, 0.03), Around(0.8, 0.01))).at(0);
  EXPECT_EQ(r.method, "llama3");
  EXPECT_EQ(VerdictOf(r, "yarn").standing, Standing::kBehindKeyTokens);
  EXPECT_THAT(r.text, HasSubstr("yarn with factor 4 is behind in loss by no more than chance "
                                "explains, but is significantly behind at key tokens"));
}

TEST(RecommendByKeyTokens, ADifferenceWithinTheNoiseDecidesNothing) {
  const Recommendation r = Recommend(Tied(Around(0.8, 0.3), Around(1.0, 0.01))).at(0);
  EXPECT_EQ(r.method, "llama3");
  const MethodVerdict &yarn = VerdictOf(r, "yarn"), &llama3 = VerdictOf(r, "llama3");
  EXPECT_EQ(yarn.standing, Standing::kTie);
  EXPECT_GT(llama3.key_tokens->p_value, 0.05);
  EXPECT_THAT(r.text, HasSubstr("Key tokens do not break the tie either (16 in 8 windows)."));
}

// However far apart: with one window nobody knows how much is chance.
TEST(RecommendByKeyTokens, TooFewDecideNothing) {
  const Recommendation r = Recommend(Tied({{0.1, 0.1, 0.1}}, {{2, 2, 2}})).at(0);
  EXPECT_EQ(r.method, "llama3");
  EXPECT_EQ(VerdictOf(r, "yarn").standing, Standing::kTie);
  EXPECT_TRUE(std::isnan(VerdictOf(r, "llama3").key_tokens->p_value));
  EXPECT_THAT(r.text, HasSubstr("Of its 3 key tokens the loss is 2.000 nats per token"));
  EXPECT_THAT(r.text, HasSubstr("Key tokens cannot break the tie: all 3 are in one window."));
}

// Loss comes first, and retrieval before both: neither is overruled by key tokens.
TEST(RecommendByKeyTokens, TheyComeLast) {
  std::vector<Cell> cells = Tied(Around(0.5, 0.01), Around(1.0, 0.01));
  cells[1] = WithKeys(MakeCell({"yarn", 4, 1024, 22, -1, 0.001}), Around(0.5, 0.01));
  Recommendation r = Recommend(cells).at(0);
  EXPECT_EQ(r.method, "llama3");
  EXPECT_EQ(VerdictOf(r, "yarn").standing, Standing::kBehind);
  EXPECT_FALSE(VerdictOf(r, "yarn").key_tokens->difference.has_value());

  cells = Tied(Around(0.5, 0.01), Around(1.0, 0.01));
  const int64_t right[] = {39, 33, 39};
  for (size_t i = 0; i < cells.size(); ++i) cells[i] = testing::WithTask(cells[i], right[i]);
  r = Recommend(cells).at(0);
  EXPECT_EQ(r.method, "llama3");
  EXPECT_EQ(VerdictOf(r, "yarn").standing, Standing::kWorseAtTask);
}

// Where it is not the lowest loss that is chosen, the others stay what loss made of them.
TEST(RecommendByKeyTokens, OthersKeepTheirStanding) {
  std::vector<Cell> cells = Tied(Around(0.8, 0.01), Around(1.0, 0.01));
  cells.push_back(WithKeys(MakeCell({"ntk", 4, 1024, 21.05, -1, 0.0001}), Around(0.8, 0.01)));
  cells.push_back(WithKeys(MakeCell({"linear", 4, 1024, 21.2, -1, 0.3}), Around(0.8, 0.011)));
  const Recommendation r = Recommend(cells).at(0);
  // ntk has a lower loss than yarn, but was told apart from the lowest, and yarn was not.
  EXPECT_EQ(r.method, "yarn");
  EXPECT_EQ(VerdictOf(r, "linear").standing, Standing::kTie);
  EXPECT_NEAR(VerdictOf(r, "linear").difference->mean, std::log(21.2 / 21.1), 1e-9);
  EXPECT_EQ(VerdictOf(r, "ntk").standing, Standing::kBehind);
  EXPECT_THAT(VerdictOf(r, "ntk").reason, HasSubstr("nats per token behind llama3 with factor 4"));
}

// Of one comparison 3 standard errors are significant (p = 0.020), of three they are not.
TEST(RecommendByKeyTokens, TiesAreCorrectedTogether) {
  // Deviations of mean 0 and standard deviation 1, in another order for each method.
  const double z[] = {1, -1, 1, -1, 1, -1, 1, -1};
  const auto keys = [&](double nats, int turn) {
    std::vector<std::vector<double>> windows;
    for (int w = 0; w < 8; ++w) {
      windows.push_back({nats + 0.1 * std::sqrt(7.0 / 8) * z[(w >> turn) % 8]});
    }
    return windows;
  };
  const double behind = 3 * 0.1 / std::sqrt(8.0);
  std::vector<Cell> cells = Tied(std::vector<std::vector<double>>(8, {0.8}), keys(0.8 + behind, 0));
  Recommendation r = Recommend(cells).at(0);
  EXPECT_EQ(r.method, "yarn");
  EXPECT_NEAR(VerdictOf(r, "llama3").key_tokens->p_value, 0.0199421, 1e-6);  // R: 2 * pt(-3, 7)
  cells.push_back(WithKeys(MakeCell({"ntk", 4, 1024, 21.1, -1, 0.3}), keys(0.801, 1)));
  cells.push_back(WithKeys(MakeCell({"linear", 4, 1024, 21.1, -1, 0.3}), keys(0.801, 2)));
  r = Recommend(cells).at(0);
  EXPECT_EQ(r.method, "llama3");
  EXPECT_NEAR(VerdictOf(r, "llama3").key_tokens->p_value, 3 * 0.0199421, 1e-5);
}

TEST(RecommendByKeyTokens, WindowsWeighByTheirKeyTokens) {
  const Cell a = WithKeys(MakeCell({"yarn", 4, 1024}), {{1.3}, {1.2, 1.4}, {}, {1.1, 1.1, 1.7}});
  const Cell b = WithKeys(MakeCell({"ntk", 4, 1024}), {{1}, {1, 1}, {}, {1, 1, 1}});
  const PairedDifference d = CompareKeyTokens(a.tasks[0], b.tasks[0]);
  EXPECT_NEAR(d.mean, 0.3, 1e-12);  // of six tokens
  // Sums of windows 0.3, 0.6, 0.9 halved: standard error 0.15 / sqrt(3), t = 3.4641.
  EXPECT_NEAR(d.standard_error, 0.0866025404, 1e-9);
  EXPECT_NEAR(d.p_value, 0.0741799, 1e-7);  // R: 2 * pt(-sqrt(12), 2)
  EXPECT_EQ(d.windows, 3);
}

// They are tokens of a text, no questions: no score of theirs counts for anything.
TEST(RecommendByKeyTokens, TheyAreNoTask) {
  const std::vector<Cell> cells = Tied(Around(0.8, 0.01), Around(1.0, 0.01));
  EXPECT_TRUE(TaskUses(cells).empty());
  EXPECT_TRUE(ScoresByLength(cells).empty());
  EXPECT_THAT(RulesText(cells), HasSubstr("compared by the loss of their key tokens"));
  EXPECT_THAT(RulesText(cells), HasSubstr("No task was measured"));
}

TEST(ReportOfKeyTokens, IsBesideTheLossOfAllTokens) {
  SweepResults results = testing::MakeSweep("m");
  results.cells = Tied(Around(0.8, 0.01), Around(1.0, 0.03));
  const cli::SweepReport sweep = cli::MakeSweepReport("s", results);
  EXPECT_THAT(cli::SummaryText(sweep), HasSubstr("2.23 ± 0.01"));  // e^0.8, and 0.004 times that
  EXPECT_THAT(cli::SummaryText(sweep), HasSubstr("key-tokens: LongPPL, the perplexity of the 16 "));
  const std::string markdown = cli::Markdown({sweep});
  EXPECT_THAT(markdown, HasSubstr("2.23, 0.800 ± 0.004 / 3.049"));
  EXPECT_THAT(markdown, HasSubstr("| at 1024 tokens | perplexity | LongPPL | scores | standing "));
  EXPECT_THAT(markdown, HasSubstr("| yarn with factor 4 | 21.1 | 2.23 |"));
  EXPECT_THAT(cli::Csv({sweep}), HasSubstr("tasks,key_tokens,key_nll,key_standard_error\n"));
  EXPECT_THAT(cli::Csv({sweep}), HasSubstr(",16,0.8,0.00"));
  const nlohmann::ordered_json json = cli::ReportJson({sweep});
  const auto& methods = json["sweeps"][0]["recommendations"][0]["methods"];
  ASSERT_EQ(methods[0]["method"], "llama3");
  EXPECT_EQ(methods[0]["standing"], "behind at key tokens");
  const auto& keys = methods[0]["key_tokens"];
  EXPECT_EQ(keys["tokens"], 16);
  EXPECT_NEAR(keys["longppl"].get<double>(), std::exp(1.0), 1e-9);
  EXPECT_NEAR(keys["difference"]["nats"].get<double>(), 0.2, 1e-9);
  EXPECT_EQ(keys["against"], "yarn with factor 4");
  EXPECT_TRUE(methods[1]["key_tokens"]["difference"].is_null());
  EXPECT_EQ(json["schema"], 2);
}

// The widest line on a terminal, and how many lines have a standard error.
struct Shape {
  explicit Shape(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto width =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      widest = std::max<int64_t>(widest, width);
      with_error += line.find("± 1.7") != std::string::npos;
    }
  }
  int64_t widest = 0, with_error = 0;
};

TEST(ReportOfKeyTokens, FiveLengthsFitATerminalAndMoreContinueBelow) {
  // Rows of the table of two methods: one each with five lengths, two with ten.
  for (const auto& [lengths, rows] : {std::pair{5, 2}, std::pair{10, 4}}) {
    SweepResults results = testing::MakeSweep("m");
    results.cells.clear();
    for (int i = 0; i < lengths; ++i) {
      for (const char* method : {"none", "by-parts-repo"}) {
        const bool none = method == std::string("none");
        results.cells.push_back(
            WithKeys(MakeCell({method, none ? 1.0 : 1 << i, int64_t{256} << i, 123.4}),
                     {{4.8}, {4.7, 4.9}, {4.75}}));
      }
    }
    const std::string text = cli::SummaryText(cli::MakeSweepReport("s", results));
    const std::string tables = text.substr(0, text.find("key-tokens:"));
    EXPECT_LE(Shape(text).widest, 96) << text;
    EXPECT_EQ(Shape(tables).with_error, rows) << text;
    // e^4.7875; residuals of windows 0.0125, 0.025, -0.0375: sqrt(3 / 2 x their squares) / 4 tokens.
    EXPECT_THAT(tables, HasSubstr("120.0 ± 1.7"));
  }
}

}  // namespace
}  // namespace ropewalk
