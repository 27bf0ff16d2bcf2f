// Effective lengths of models whose answer is published, and of counts whose answer is known.
#include "ropewalk/eval/effective_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ropewalk/base/error.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;

// Scores at 4k, 8k, .. of 13 tasks with 500 samples each.
std::vector<LengthScore> Row(const std::vector<double>& percent, int64_t trials = 13 * 500) {
  std::vector<LengthScore> row;
  int64_t length = 4096;
  for (const double p : percent) {
    row.push_back({.length = length, .score = p / 100, .trials = trials});
    length *= 2;
  }
  return row;
}

// Rows of RULER's README: claimed 128K or more, effective length, wAvg (inc) and (dec).
struct Published {
  std::vector<double> percent;
  int64_t effective;
  double increasing, decreasing;
};
const Published kRuler[] = {
    {{95.5, 93.8, 91.6, 87.4, 84.7, 77.0}, 32768, 85.4, 91.3},   // Llama3.1 (8B)
    {{96.6, 96.3, 95.2, 93.2, 87.0, 81.2}, 65536, 89.0, 94.1},   // GPT-4-1106-preview
    {{95.1, 94.4, 90.8, 85.4, 80.9, 72.1}, 16384, 82.6, 90.3},   // GradientAI/Llama3 (70B)
    {{96.7, 95.8, 96.0, 95.9, 95.9, 94.4}, 131072, 95.5, 96.1},  // Gemini-1.5-pro
};

TEST(EffectiveLength, RulersTable) {
  for (const Published& row : kRuler) {
    const std::vector<LengthScore> scores = Row(row.percent);
    EXPECT_EQ(RulerEffectiveLength(scores).length, row.effective);
    const WeightedAverages averages = WeightedAveragesOf(scores);
    EXPECT_NEAR(100 * averages.increasing, row.increasing, 0.05 + 1e-9);
    EXPECT_NEAR(100 * averages.decreasing, row.decreasing, 0.05 + 1e-9);
  }
}

TEST(EffectiveLength, TrialsSayWhatIsCertain) {
  // 25 of 25 is above 0.856 at 5 % (25 / (25 + 1.645^2) = 0.902), 22 of 25 is not; 16 of 25 is
  // below (0.64, whose upper end is 0.78), 20 of 25 is not.
  const std::vector<LengthScore> scores = {{.length = 1024, .score = 1, .trials = 25},
                                           {.length = 2048, .score = 0.88, .trials = 25},
                                           {.length = 4096, .score = 0.8, .trials = 25},
                                           {.length = 8192, .score = 0.64, .trials = 25}};
  const EffectiveLength effective = RulerEffectiveLength(scores);
  EXPECT_EQ(effective.length, 2048);
  EXPECT_EQ(effective.at_least, 1024);
  EXPECT_EQ(effective.at_most, 4096);
  EXPECT_FALSE(effective.gap);
  // Five trials, all right, say nothing against 0.856; trials that are not known neither.
  for (const int64_t trials : {5, 0}) {
    const std::vector<LengthScore> few = {{.length = 1024, .score = 1, .trials = trials}};
    EXPECT_EQ(RulerEffectiveLength(few).length, 1024);
    EXPECT_EQ(RulerEffectiveLength(few).at_least, 0);
  }
}

TEST(EffectiveLength, NotMonotone) {
  const EffectiveLength effective = RulerEffectiveLength(Row({90, 50, 90, 10}));
  EXPECT_EQ(effective.length, 16384);
  EXPECT_TRUE(effective.gap);
  EXPECT_EQ(effective.at_least, 4096);
  EXPECT_EQ(RulerEffectiveLength(Row({50, 40})).length, 0);
  EXPECT_EQ(RulerEffectiveLength(Row({50, 40})).at_most, 0);
  EXPECT_EQ(RulerEffectiveLength(Row({})).length, 0);
  const EffectiveLength end = RulerEffectiveLength(Row({90, 50}));
  EXPECT_FALSE(end.gap);
}

// NoLiMa's rule, on counts: 0.85 x 0.6 is needed.
TEST(EffectiveLength, OwnScore) {
  const std::vector<LengthScore> scores = {{.length = 1000, .score = 0.6, .trials = 400},
                                           {.length = 2000, .score = 0.55, .trials = 400},
                                           {.length = 4000, .score = 0.515, .trials = 400},
                                           {.length = 8000, .score = 0.5, .trials = 400},
                                           {.length = 16000, .score = 0.2, .trials = 400}};
  const EffectiveLength effective = OwnEffectiveLength(scores, 1000);
  EXPECT_NEAR(effective.threshold, 0.51, 1e-12);
  EXPECT_EQ(effective.length, 4000);
  EXPECT_EQ(effective.at_least, 1000);  // 0.55 is above 0.51 by less than both are uncertain
  EXPECT_EQ(effective.at_most, 8000);
  // With ten times the trials 0.55 is.
  std::vector<LengthScore> more = scores;
  for (LengthScore& s : more) s.trials *= 10;
  EXPECT_EQ(OwnEffectiveLength(more, 1000).at_least, 2000);
  // From the trained length on, what is shorter is not judged.
  const EffectiveLength trained = OwnEffectiveLength(scores, 8000);
  EXPECT_EQ(trained.length, 8000);
  EXPECT_EQ(trained.at_least, 8000);
  EXPECT_EQ(trained.at_most, 8000);
}

TEST(EffectiveLength, ABaseOfNothingHasNone) {
  const std::vector<LengthScore> scores = {{.length = 1000, .score = 0, .trials = 25},
                                           {.length = 2000, .score = 0.04, .trials = 25}};
  EXPECT_EQ(OwnEffectiveLength(scores, 1000).length, 0);
  EXPECT_EQ(OwnEffectiveLength(scores, 1000).at_most, 0);
}

TEST(EffectiveLength, RefusesWhatIsNoScore) {
  const LengthScore good{.length = 10, .score = 0.5, .trials = 5};
  const auto message = [](const std::vector<LengthScore>& scores) -> std::string {
    try {
      RulerEffectiveLength(scores);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({good}), "no error");
  EXPECT_THAT(message({good, good}), HasSubstr("two scores of length 10"));
  for (const LengthScore& bad :
       {LengthScore{.length = 0, .score = 0.5}, LengthScore{.length = 10, .score = 85.6},
        LengthScore{.length = 10, .score = std::nan("")},
        LengthScore{.length = 10, .score = 0.5, .trials = -1}}) {
    EXPECT_THAT(message({bad}), HasSubstr("scores from 0 to 1"));
  }
  EXPECT_THROW(OwnEffectiveLength(std::vector<LengthScore>{good}, 11), Error);
  EXPECT_TRUE(std::isnan(WeightedAveragesOf({}).increasing));
}

// 0.85 times 20/29 is 17/29, in floating point a little more than it.
TEST(EffectiveLength, AScoreThatEqualsTheThresholdReachesIt) {
  for (const int64_t n : {29, 40, 57}) {
    const double own = 20.0 / static_cast<double>(n), score = 17.0 / static_cast<double>(n);
    const std::vector<LengthScore> scores = {{.length = 1024, .score = own, .trials = n},
                                             {.length = 2048, .score = score, .trials = n}};
    EXPECT_EQ(OwnEffectiveLength(scores, 1024).length, 2048) << n;
  }
}

}  // namespace
}  // namespace ropewalk
