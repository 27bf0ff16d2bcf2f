// Paired comparisons against numbers computed elsewhere, and how often they err.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "ropewalk/eval/task.h"
#include "src/eval/recommend.h"
#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

TEST(Compare, PairedDifferencesIgnoreWhatWindowsShare) {
  Cell a, b;
  a.window_nll = {1.1, 5.2, 3.1, 9.2};  // b plus 0.1, 0.2, 0.1, 0.2
  b.window_nll = {1.0, 5.0, 3.0, 9.0};
  const PairedDifference d = Compare(a, b);
  EXPECT_NEAR(d.mean, 0.15, 1e-12);
  EXPECT_NEAR(d.standard_error, std::sqrt(0.01 / 3 / 4), 1e-12);  // squares sum to 0.01
  // Of t with 3 degrees of freedom, in closed form (Abramowitz and Stegun 26.7.3).
  const double angle = std::atan(d.mean / d.standard_error / std::sqrt(3.0));
  const double inside = 2 / std::numbers::pi * (angle + std::sin(angle) * std::cos(angle));
  EXPECT_NEAR(d.p_value, 1 - inside, 1e-12);
  EXPECT_TRUE(d.outside_noise);
  EXPECT_EQ(d.windows, 4);
  b.window_nll = {1.2, 5.0, 3.3, 9.0};  // differences -0.1, 0.2, -0.2, 0.2
  EXPECT_FALSE(Compare(a, b).outside_noise);
  b.window_nll.resize(2);  // the windows that both have
  EXPECT_EQ(Compare(a, b).windows, 2);
  b.window_nll.clear();
  EXPECT_TRUE(std::isnan(Compare(a, b).p_value));
}

// Windows of `sliding` score unequally many tokens: 1023, 128, .. and what is left.
TEST(Compare, WindowsWeighByTheirTokens) {
  Cell a, b;
  a.length = b.length = 1024;
  a.protocol = b.protocol = "sliding:128";
  a.scored_tokens = b.scored_tokens = 1023 + 128 + 50;
  a.window_nll = {3.0, 2.0, 2.5};
  b.window_nll = {3.1, 1.7, 2.5};
  for (Cell* c : {&a, &b}) {
    const auto& nll = c->window_nll;
    c->mean_nll = (1023 * nll[0] + 128 * nll[1] + 50 * nll[2]) / 1201;
  }
  EXPECT_EQ(internal::TokensOfWindows(a), (std::vector<double>{1023, 128, 50}));
  const PairedDifference d = Compare(a, b);
  const double mean = (-102.3 + 38.4) / 1201;
  EXPECT_NEAR(d.mean, mean, 1e-12);
  EXPECT_NEAR(d.mean, a.mean_nll - b.mean_nll, 1e-12);
  const double residuals = std::hypot(-102.3 - 1023 * mean, 38.4 - 128 * mean, -50 * mean);
  EXPECT_NEAR(d.standard_error, std::sqrt(1.5) * residuals / 1201, 1e-12);
  EXPECT_EQ(d.windows, 3);
  // The first windows of what has more, and a prefix that the first window does not score.
  EXPECT_NEAR(internal::LossOver(a, 2), (1023 * 3.0 + 128 * 2.0) / 1151, 1e-12);
  a.protocol = "sliding:128, prefix 24";
  a.scored_tokens = 1000 + 128 + 50;
  EXPECT_EQ(internal::TokensOfWindows(a), (std::vector<double>{1000, 128, 50}));
  // Of a row that does not add up the order has the weights of the differences.
  a.scored_tokens = 300;
  EXPECT_EQ(internal::TokensOfWindows(a), (std::vector<double>{1, 1, 1}));
  EXPECT_NEAR(internal::LossOver(a, internal::kAllWindows), 2.5, 1e-12);
}

// A lead of 2.2 standard errors over 3 windows is noise (t = 4.30), over 30 it is none.
TEST(Compare, FewWindowsNeedALargerLead) {
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

// McNemar's exact test, typed again: twice the tail of Pascal's triangle.
double Pascal(int wins, int losses) {
  std::vector<double> row = {1};
  for (int n = 0; n < wins + losses; ++n) {
    std::vector<double> next(row.size() + 1, 0.0);
    for (size_t i = 0; i < row.size(); ++i) {
      next[i] += row[i] / 2;
      next[i + 1] += row[i] / 2;
    }
    row = next;
  }
  double tail = 0;
  for (int i = 0; i <= std::min(wins, losses); ++i) tail += row[static_cast<size_t>(i)];
  return std::min(1.0, 2 * tail);
}

TEST(Compare, SignTestIsMcNemars) {
  for (int wins = 0; wins <= 30; ++wins) {
    for (int losses = 0; losses <= 30; ++losses) {
      EXPECT_NEAR(internal::SignTest(wins, losses), Pascal(wins, losses), 1e-12);
    }
  }
  EXPECT_NEAR(internal::SignTest(5, 15), 0.04138947, 1e-8);  // R: binom.test(5, 20)
  EXPECT_EQ(internal::SignTest(0, 0), 1);
}

TaskResult Answers(const std::vector<int>& right) {
  TaskResult r;
  r.task = "kv";
  r.prompts = 2;
  for (size_t i = 0; i < right.size(); ++i) {
    r.answers.push_back({.prompt = static_cast<int32_t>(i % 2),
                         .question = static_cast<int32_t>(i / 2),
                         .tokens = 1,
                         .exact = right[i] == 1});
  }
  Summarise(r);
  return r;
}

TEST(Compare, AnswersArePairedByPromptAndQuestion) {
  const TaskResult a = Answers({1, 0, 1, 1, 0, 1}), b = Answers({1, 1, 0, 0, 0, 0});
  const PairedAnswers d = Compare(a, b);
  EXPECT_EQ(d.questions, 6);
  EXPECT_EQ(d.wins, 3);
  EXPECT_EQ(d.losses, 1);
  EXPECT_NEAR(d.difference, 2 / 6.0, 1e-12);
  EXPECT_NEAR(d.p_value, 0.625, 1e-12);
  // Another order, and questions of one alone, change nothing.
  TaskResult turned = a;
  std::reverse(turned.answers.begin(), turned.answers.end());
  turned.answers.push_back({.prompt = 7, .question = 0, .tokens = 1, .exact = true});
  EXPECT_EQ(Compare(turned, b).wins, 3);
  EXPECT_EQ(Compare(turned, b).questions, 6);
  EXPECT_EQ(Compare(TaskResult(), b).p_value, 1);
}

// One family: each p-value times the tests that are left, never falling; a key counts once.
TEST(Compare, Family) {
  internal::Family family;
  for (const auto& [key, p] : {std::pair("a", 0.01), {"b", 0.04}, {"c", 0.03}, {"a", 0.01}}) {
    family.Add(key, p);
  }
  EXPECT_EQ(family.size(), 3u);
  EXPECT_NEAR(family.Adjusted("a"), 0.03, 1e-12);  // R: p.adjust(c(.01, .04, .03), "holm")
  EXPECT_NEAR(family.Adjusted("b"), 0.06, 1e-12);
  EXPECT_NEAR(family.Adjusted("c"), 0.06, 1e-12);
  EXPECT_TRUE(std::isnan(family.Adjusted("d")));
}

// docs/recommendation.md states these rates.
struct Rates {
  int best_lost = 0;  // the first of equal methods is not among what is recommended or tied
  int any_lost = 0;
};

template <class MakeCells>
Rates Simulate(int sweeps, MakeCells&& make) {
  std::mt19937 rng(7);
  Rates rates;
  for (int s = 0; s < sweeps; ++s) {
    const Recommendation r = Recommend(make(rng)).at(0);
    bool any = false;
    for (const MethodVerdict& v : r.methods) {
      const bool lost = v.standing == Standing::kBehind || v.standing == Standing::kWorseAtTask ||
                        v.standing == Standing::kBehindKeyTokens;
      any = any || lost;
      rates.best_lost += lost && v.method == "yarn" ? 1 : 0;
    }
    rates.any_lost += any ? 1 : 0;
  }
  return rates;
}

constexpr const char* kEqual[] = {"yarn",     "llama3",  "ntk",           "linear",
                                  "by-parts", "dynamic", "by-parts-repo", "rerope"};

// Eight methods that are equally good at a task of 50 answers, each at random: none should be left out.
TEST(Simulated, EqualMethodsAtATask) {
  const Rates rates = Simulate(400, [](std::mt19937& rng) {
    std::bernoulli_distribution right(0.9);
    std::vector<Cell> cells = {testing::MakeCell({"none", 1, 256, 20})};
    testing::AddTask(cells[0], "kv", 40, 50);
    for (const char* method : kEqual) {
      cells.push_back(testing::MakeCell({method, 4, 1024, 21}));
      testing::AddTask(cells.back(), "kv", 0, 50);
      for (TaskAnswer& a : cells.back().tasks[0].answers) a.exact = right(rng);
      Summarise(cells.back().tasks[0]);
    }
    return cells;
  });
  RecordProperty("best_lost", rates.best_lost);
  RecordProperty("any_lost", rates.any_lost);
  EXPECT_LE(rates.best_lost, 10);  // of 400
  EXPECT_LE(rates.any_lost, 30);
}

// Eight methods of equal loss over 8 windows with Gaussian differences.
TEST(Simulated, EqualLosses) {
  const Rates rates = Simulate(400, [](std::mt19937& rng) {
    std::normal_distribution<double> noise(0, 0.05);
    std::vector<Cell> cells = {testing::MakeCell({"none", 1, 256, 20})};
    for (const char* method : kEqual) {
      Cell c = testing::MakeCell({method, 4, 1024, 21});
      c.mean_nll = 0;
      for (double& x : c.window_nll) c.mean_nll += (x += noise(rng)) / 8;
      c.perplexity = std::exp(c.mean_nll);
      cells.push_back(c);
    }
    return cells;
  });
  RecordProperty("best_lost", rates.best_lost);
  RecordProperty("any_lost", rates.any_lost);
  EXPECT_LE(rates.best_lost, 10);
  EXPECT_LE(rates.any_lost, 50);
}

// The same with 0 to 9 key tokens in a window, whose losses differ at random as well: what is behind
// by loss or by them.
TEST(Simulated, EqualLossesOfKeyTokens) {
  const Rates rates = Simulate(400, [](std::mt19937& rng) {
    std::normal_distribution<double> noise(0, 0.05);
    std::vector<size_t> counts(8);
    for (size_t& count : counts) count = std::uniform_int_distribution<size_t>(0, 9)(rng);
    std::vector<Cell> cells = {testing::MakeCell({"none", 1, 256, 20})};
    for (const char* method : kEqual) {
      Cell c = testing::MakeCell({method, 4, 1024, 21});
      c.mean_nll = 0;
      for (double& x : c.window_nll) c.mean_nll += (x += noise(rng)) / 8;
      c.perplexity = std::exp(c.mean_nll);
      std::vector<std::vector<double>> keys;
      for (const size_t count : counts) {
        const double shared = 4 * noise(rng);  // by the window, beside that of each token
        keys.emplace_back();
        for (size_t i = 0; i < count; ++i) keys.back().push_back(1 + shared + 8 * noise(rng));
      }
      cells.push_back(testing::WithKeys(c, keys));
    }
    return cells;
  });
  RecordProperty("best_lost", rates.best_lost);
  RecordProperty("any_lost", rates.any_lost);
  EXPECT_LE(rates.best_lost, 20);
  EXPECT_LE(rates.any_lost, 75);
}

}  // namespace
}  // namespace ropewalk
