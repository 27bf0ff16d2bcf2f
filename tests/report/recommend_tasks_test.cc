// What tasks decide in a recommendation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ropewalk/eval/recommend.h"
#include "ropewalk/eval/task.h"
#include "tests/report/synthetic.h"

namespace ropewalk {
namespace {

using testing::AddTask;
using ::testing::HasSubstr;
using testing::MakeCell;
using ::testing::Not;
using testing::VerdictOf;
using testing::WithTask;

// Retrieval comes before perplexity. Of 40 answers 30 against 39: 9 decided one way, none the other.
TEST(RecommendByTasks, WorseAtATask) {
  const auto sweep = [](int64_t llama3) {
    return std::vector<Cell>{WithTask(MakeCell({"none", 1, 256, 20}), 39),
                             WithTask(MakeCell({"yarn", 4, 1024, 22}), 39),
                             WithTask(MakeCell({"llama3", 4, 1024, 21}), llama3)};
  };
  auto r = Recommend(sweep(33));  // p = 0.031; not below 0.85 x 0.98 = 0.83 of its own
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(VerdictOf(r[0], "llama3").standing, Standing::kWorseAtTask);
  EXPECT_NEAR(VerdictOf(r[0], "llama3").tasks[0].p_value, std::pow(0.5, 5), 1e-12);  // 2 * 0.5^6
  EXPECT_THAT(r[0].text, HasSubstr("llama3 with factor 4 has a lower perplexity, but is "
                                   "significantly worse at a task: kv 0.82 against 0.97 of yarn "
                                   "with factor 4."));
  EXPECT_THAT(r[0].text, HasSubstr("No other method is usable and as good at every task."));
  r = Recommend(sweep(34));  // 5 to 0: p = 0.0625
  EXPECT_EQ(r[0].method, "llama3");
}

// Holm over every method and task of a length: 6 to 0 is significant alone, not among 4 tests.
TEST(RecommendByTasks, TasksAreCorrectedTogether) {
  const auto both = [](Cell cell, int64_t kv, int64_t vt) {
    return WithTask(WithTask(std::move(cell), kv), vt, "ruler:vt");
  };
  std::vector<Cell> cells = {both(MakeCell({"none", 1, 256, 20}), 40, 40),
                             both(MakeCell({"yarn", 4, 1024, 22}), 40, 40),
                             both(MakeCell({"llama3", 4, 1024, 21}), 34, 39)};
  auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "llama3");  // 2 tests: 0.031 x 2
  EXPECT_NEAR(VerdictOf(r[0], "llama3").tasks[0].p_value, 2 * std::pow(0.5, 5), 1e-12);
  cells.push_back(both(MakeCell({"ntk", 4, 1024, 20.9}), 32, 40));  // 8 to 0: 0.0078 x 4
  r = Recommend(cells);
  EXPECT_EQ(VerdictOf(r[0], "ntk").standing, Standing::kWorseAtTask);
  EXPECT_NEAR(VerdictOf(r[0], "ntk").tasks[0].p_value, 4 * std::pow(0.5, 7), 1e-12);
  EXPECT_EQ(r[0].method, "llama3");
}

// Scores between 0 and 1 are compared by who has the higher one.
TEST(RecommendByTasks, RecallIsComparedQuestionByQuestion) {
  const auto recall = [](Cell cell, double score) {
    AddTask(cell, "ruler:cwe", 20, 20);
    for (TaskAnswer& a : cell.tasks.back().answers) a.recall = score;
    Summarise(cell.tasks.back());
    return cell;
  };
  const auto r = Recommend({recall(MakeCell({"none", 1, 256, 20}), 0.9),
                            recall(MakeCell({"yarn", 4, 1024, 22}), 0.9),
                            recall(MakeCell({"llama3", 4, 1024, 21}), 0.8)});
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_NEAR(VerdictOf(r[0], "llama3").tasks[0].p_value, 2 * std::pow(0.5, 20), 1e-12);
  EXPECT_NEAR(VerdictOf(r[0], "llama3").tasks[0].score, 0.8, 1e-12);
}

// Each best at one task and bad at the other: nobody is left, so loss decides and the text says so.
TEST(RecommendByTasks, TasksThatDisagreeDecideNothing) {
  const auto both = [](Cell cell, int64_t kv, int64_t vt) {
    return WithTask(WithTask(std::move(cell), kv), vt, "ruler:vt");
  };
  const auto r = Recommend({both(MakeCell({"none", 1, 256, 20}), 36, 36),
                            both(MakeCell({"yarn", 4, 1024, 22}), 40, 29),
                            both(MakeCell({"llama3", 4, 1024, 21}), 29, 40)});
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_THAT(r[0].text, HasSubstr("Tasks disagree"));
}

// 0.85 times the model's own score: of 20 answers 13 may be 0.85 (p = 0.022), with its own 0.9
// also 13 may be 0.765 (p = 0.17), 11 may not (p = 0.03).
TEST(RecommendByTasks, UsableNeedsTheModelsOwnScore) {
  const auto sweep = [](int64_t own, int64_t yarn) {
    return Recommend({MakeCell({"none", 1, 256, 20, own}), MakeCell({"yarn", 4, 1024, 21, yarn})});
  };
  auto r = sweep(20, 13);
  EXPECT_EQ(r[0].method, "");
  EXPECT_THAT(r[0].text, HasSubstr("passkey 0.65 after 1.00 at the trained length"));
  EXPECT_TRUE(VerdictOf(r[0], "yarn").tasks[0].below_own);
  EXPECT_EQ(sweep(20, 14)[0].method, "yarn");  // p = 0.067
  EXPECT_EQ(sweep(18, 13)[0].method, "yarn");
  EXPECT_EQ(sweep(18, 11)[0].method, "");
}

// A model that cannot do the task at its trained length, or on short text even, says nothing about
// methods by failing later.
TEST(RecommendByTasks, ATaskDoesNotCountWhereTheModelCannotDoIt) {
  const auto sweep = [](int64_t at_64, int64_t at_128, int64_t at_256) {
    // By passkey, which llama3 passes, yarn would not be usable.
    return std::vector<Cell>{
        MakeCell({"none", 1, 64, 24, at_64}),   MakeCell({"none", 1, 128, 22, at_128}),
        MakeCell({"none", 1, 256, 20, at_256}), MakeCell({"none", 1, 1024, 90, 0}),
        MakeCell({"yarn", 4, 1024, 21, 0}),     MakeCell({"llama3", 4, 1024, 23, 19})};
  };
  for (const auto& [cells, where] :
       {std::pair(sweep(20, 20, 1),
                  "already at 256 tokens the model without scaling scores only "
                  "0.05 (20 answers)"),
        std::pair(sweep(5, 20, 20),
                  "already at 64 tokens the model without scaling scores only "
                  "0.25 (20 answers)"),
        std::pair(sweep(5, 20, 1), "already at 64 tokens")}) {
    const auto r = Recommend(cells);
    EXPECT_EQ(r[0].method, "yarn");
    EXPECT_THAT(r[0].text, HasSubstr("passkey (0.00) is not considered, see below."));
    EXPECT_THAT(r[0].text, HasSubstr("No task counts here, so this rests on perplexity alone."));
    EXPECT_THAT(r[0].text, Not(HasSubstr("worse at a task")));
    EXPECT_THAT(RulesText(cells), HasSubstr(where));
    EXPECT_THAT(TasksNote(cells), HasSubstr("Task passkey is not considered"));
    EXPECT_FALSE(TaskUses(cells)[0].counts);
  }
  // 6 of 20 is not significantly below a half, and lengths between are not considered.
  for (const auto& cells : {sweep(6, 20, 20), sweep(20, 0, 20)}) {
    EXPECT_EQ(Recommend(cells)[0].method, "llama3");
    EXPECT_EQ(TasksNote(cells), "");
  }
}

// Of three answers none is not significantly below a half, but leaves nothing to lose.
TEST(RecommendByTasks, ATaskThatTheModelNeverAnswersDoesNotCount) {
  for (const int64_t own : {0, 1}) {
    const std::vector<Cell> cells = {WithTask(MakeCell({"none", 1, 256, 20}), own, "ruler:vt", 3),
                                     WithTask(MakeCell({"yarn", 4, 1024, 21}), 1, "ruler:vt", 3)};
    EXPECT_EQ(TaskUses(cells)[0].counts, own == 1);
  }
}

// 1 of 3 is not significantly below 0.85: what has the lowest loss is usable, and one that it does
// not differ from answers.
TEST(RecommendByTasks, OfTiedMethodsOneThatReachesTheScoresComesFirst) {
  const auto sweep = [](int64_t yarn, int64_t llama3, double llama3_perplexity) {
    return std::vector<Cell>{
        WithTask(MakeCell({"none", 1, 256, 20}), 3, "ruler:vt", 3),
        WithTask(MakeCell({"yarn", 4, 1024, 21, -1, 0.01}), yarn, "ruler:vt", 3),
        WithTask(MakeCell({"llama3", 4, 1024, llama3_perplexity, -1, 0.01}), llama3, "ruler:vt",
                 3)};
  };
  auto r = Recommend(sweep(1, 3, 21.01));
  EXPECT_EQ(r[0].method, "llama3");
  EXPECT_EQ(VerdictOf(r[0], "llama3").standing, Standing::kRecommended);
  EXPECT_EQ(VerdictOf(r[0], "yarn").standing, Standing::kTie);
  EXPECT_LT(VerdictOf(r[0], "yarn").difference->mean, 0);
  EXPECT_FALSE(VerdictOf(r[0], "llama3").difference.has_value());
  EXPECT_THAT(r[0].text,
              HasSubstr("yarn with factor 4 has a lower perplexity by no more than chance "
                        "explains, but its score of ruler:vt (0.33) is below 0.85 times "
                        "the model's own (1.00)."));
  EXPECT_THAT(r[0].text,
              HasSubstr("A tie with yarn with factor 4: their losses differ by at most"));
  // Not where nobody reaches them, all do, or the other is behind.
  EXPECT_EQ(Recommend(sweep(1, 1, 21.01))[0].method, "yarn");
  EXPECT_EQ(Recommend(sweep(3, 3, 21.01))[0].method, "yarn");
  EXPECT_EQ(Recommend(sweep(1, 3, 23))[0].method, "yarn");
}

// A task that the trained length is too short for cannot be judged by it.
TEST(RecommendByTasks, ATaskThatWasNotMeasuredAtTheTrainedLengthDoesNotCount) {
  const std::vector<Cell> cells = {MakeCell({"none", 1, 256, 20}),
                                   WithTask(MakeCell({"yarn", 4, 1024, 21}), 0),
                                   WithTask(MakeCell({"llama3", 4, 1024, 22}), 40)};
  EXPECT_EQ(Recommend(cells)[0].method, "yarn");
  EXPECT_EQ(
      TasksNote(cells),
      "Task kv is not considered: it was not measured without scaling at the trained length.");
  EXPECT_TRUE(std::isnan(TaskUses(cells)[0].own_score));
}

// What leaving it on costs is said of tasks too.
TEST(RecommendByTasks, CostsInTasks) {
  const auto r = Recommend({WithTask(MakeCell({"none", 1, 256, 20, 20}), 40),
                            WithTask(MakeCell({"yarn", 4, 256, 20.1, 20}), 30),
                            WithTask(MakeCell({"yarn", 4, 1024, 21, 20}), 40)});
  ASSERT_EQ(r[0].task_costs.size(), 2u);
  EXPECT_EQ(r[0].task_costs[0].answers.difference, 0);
  EXPECT_EQ(r[0].task_costs[1].answers.difference, -0.25);
  EXPECT_THAT(r[0].text, HasSubstr("so switch it on only for text that needs the length. It also "
                                   "loses 0.25 of kv there, significantly."));
}

// What was not asked is not known to reach anything: it does not come before what answers.
TEST(RecommendByTasks, WithoutAnswersOfATaskThatCounts) {
  const std::vector<Cell> cells = {WithTask(MakeCell({"none", 1, 256, 20}), 38),
                                   WithTask(MakeCell({"yarn", 4, 1024, 22}), 38),
                                   MakeCell({"ntk", 4, 1024, 21})};
  auto r = Recommend(cells);
  EXPECT_EQ(r[0].method, "yarn");
  EXPECT_EQ(VerdictOf(r[0], "ntk").standing, Standing::kUnanswered);
  EXPECT_STREQ(Word(Standing::kUnanswered), "no answers of a task");
  EXPECT_THAT(r[0].text, HasSubstr("ntk with factor 4 has a lower perplexity, but has no answers "
                                   "of kv, so it is not compared."));
  EXPECT_THAT(r[0].text, Not(HasSubstr("No task counts")));
  // Nor where its loss is a tie, and the other is below 0.85 by no more than chance.
  r = Recommend({WithTask(MakeCell({"none", 1, 256, 20}), 40),
                 WithTask(MakeCell({"yarn", 4, 1024, 21, -1, 0.1}), 33),
                 MakeCell({"ntk", 4, 1024, 21.1, -1, 0.1})});
  EXPECT_EQ(r[0].method, "yarn");
  // Alone it is usable, and that is said.
  r = Recommend({cells[0], cells[2]});
  EXPECT_EQ(r[0].method, "ntk");
  EXPECT_THAT(r[0].text, HasSubstr("It has no answers of kv, so this rests on perplexity alone."));
}

// Where tasks disagree scores do not choose afterwards, and neither setting simply "would do".
TEST(RecommendByTasks, ScoresDoNotDecideWhereTasksDisagree) {
  const auto both = [](Cell cell, int64_t kv, int64_t vt) {
    return WithTask(WithTask(std::move(cell), kv), vt, "ruler:vt");
  };
  const auto r = Recommend({both(MakeCell({"none", 1, 256, 20}), 40, 32),
                            both(MakeCell({"yarn", 4, 1024, 21, -1, 0.1}), 29, 40),
                            both(MakeCell({"llama3", 4, 1024, 21.1, -1, 0.1}), 40, 29)});
  EXPECT_EQ(r[0].method, "yarn");  // llama3 reaches 0.85 times its own at both
  EXPECT_EQ(VerdictOf(r[0], "llama3").standing, Standing::kTie);
  EXPECT_THAT(r[0].text, HasSubstr("them, so they decide nothing here."));
  EXPECT_THAT(r[0].text, Not(HasSubstr("would do")));
}

TEST(RecommendByTasks, WhatDoesNotReachTheScoresWouldNotDo) {
  const auto sweep = [](double none, double yarn) {
    return Recommend({WithTask(MakeCell({"none", 1, 256, 20}), 25, "kv", 25),
                      WithTask(MakeCell({"none", 1, 512, none, -1, 0.1}), 25, "kv", 25),
                      WithTask(MakeCell({"yarn", 2, 512, yarn, -1, 0.1}), 20, "kv", 25)});
  };
  for (const auto& r : {sweep(21.1, 21), sweep(21, 21.1)}) {
    EXPECT_EQ(r[0].method, "none");
    EXPECT_EQ(VerdictOf(r[0], "yarn").standing, Standing::kTie);
    EXPECT_THAT(r[0].text, HasSubstr("use no scaling: no other method is measurably better."));
    EXPECT_THAT(r[0].text, HasSubstr("but its score of kv (0.80) is below 0.85 times the model's "
                                     "own (1.00)."));
    EXPECT_THAT(r[0].text, Not(HasSubstr("would do")));
  }
}

// 0.85 times 20/29, in floating point a little more than 17/29.
TEST(RecommendByTasks, AScoreThatEqualsTheShareReachesIt) {
  const auto r = Recommend({WithTask(MakeCell({"none", 1, 256, 20}), 20, "kv", 29),
                            WithTask(MakeCell({"yarn", 4, 1024, 21, -1, 0.1}), 17, "kv", 29),
                            WithTask(MakeCell({"ntk", 4, 1024, 21.1, -1, 0.1}), 18, "kv", 29)});
  EXPECT_EQ(r[0].method, "yarn");
}

}  // namespace
}  // namespace ropewalk
