// Verdicts from numbers, without a server: a tiny model answers as each candidate would.
#include "ropewalk/eval/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::kTinyTrained;
using test::RandomText;
using test::Tiny;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

using Windows = std::vector<std::vector<int32_t>>;
constexpr int64_t kLength = 3 * kTinyTrained;

PositionPlan Yarn(const YarnScaling& scaling) {
  return WithScaling(Tiny().files.config.plan, scaling, kTinyTrained);
}

VerifySetup SetupOf(const PositionPlan& asked) {
  return {.model_plan = Tiny().files.config.plan,
          .asked = asked,
          .asked_description = "yarn(factor 4)",
          .length = kLength,
          .truncation = true};
}

std::vector<std::string> NamesOf(const std::vector<VerifyCandidate>& candidates) {
  std::vector<std::string> names;
  names.reserve(candidates.size());
  for (const VerifyCandidate& candidate : candidates) names.push_back(candidate.name);
  return names;
}

// Own tokens at every third position beyond the trained length.
std::vector<VerifyQuestion> OwnTokens(const std::vector<int32_t>& window) {
  std::vector<VerifyQuestion> questions;
  for (int64_t at = kTinyTrained + 1; at < kLength; at += 3) {
    questions.push_back({.position = at, .ids = {window[static_cast<std::size_t>(at)]}});
  }
  return questions;
}

struct Exam {
  std::vector<VerifyCandidate> candidates;
  Windows windows;
  std::vector<VerifyQuestion> questions;
  std::vector<VerifyAnswers> engine;

  explicit Exam(const PositionPlan& asked)
      : candidates(VerifyCandidates(SetupOf(asked))),
        windows({RandomText(kLength, 5).ids}),
        questions(OwnTokens(windows[0])) {
    for (const VerifyCandidate& candidate : candidates) {
      engine.push_back(
          AskEngine(*Tiny().engine, candidate, windows, questions, AnglePrecision::kExact));
    }
  }
  VerifyVerdict Of(const VerifyAnswers& server, double noise = 1e-6) const {
    return Judge(candidates, server, engine, {.mean = noise});
  }
};

// Every answer moved by `nats`, up and down in turn.
VerifyAnswers Moved(VerifyAnswers answers, float nats) {
  for (std::size_t q = 0; q < answers.size(); ++q) {
    for (float& x : answers[q]) x += q % 2 == 0 ? nats : -nats;
  }
  return answers;
}

TEST(VerifyCandidates, AreThePlansThatServersRunByMistake) {
  EXPECT_THAT(
      NamesOf(VerifyCandidates(SetupOf(Yarn({.factor = 4})))),
      testing::ElementsAre("asked", "unscaled", "no-attention-factor", "unrounded-ramp",
                           "ramp-at-extended-length", "factor-2", "factor-8", "linear", "ntk",
                           "dynamic", "llama3", "window", "truncated", "truncated-asked"));
  EXPECT_THAT(NamesOf(VerifyCandidates(SetupOf(Yarn({.factor = 4, .truncate = false})))),
              AllOf(Contains("rounded-ramp"), Not(Contains("unrounded-ramp"))));
  EXPECT_THAT(NamesOf(VerifyCandidates(SetupOf(Yarn({.factor = 4, .attention_factor = 1.5})))),
              AllOf(Contains("default-attention-factor"), Contains("no-attention-factor")));
  EXPECT_THAT(NamesOf(VerifyCandidates(SetupOf(Yarn({.factor = 4, .beta_fast = 1.5})))),
              Contains("default-betas"));
}

TEST(VerifyCandidates, EachPlanIsThereOnce) {
  // Unscaled is what was asked, and what the files say.
  const auto none = VerifyCandidates(SetupOf(Tiny().files.config.plan));
  EXPECT_THAT(NamesOf(none),
              testing::ElementsAre("asked", "window", "truncated", "truncated-asked"));
  std::set<std::string> hashes;
  const auto candidates = VerifyCandidates(SetupOf(Yarn({.factor = 4})));
  for (const VerifyCandidate& c : candidates) {
    EXPECT_TRUE(c.last_tokens > 0 || hashes.insert(c.plan_hash).second) << c.name;
  }
}

TEST(VerifyCandidates, BaseWindowAndServedLength) {
  PositionPlan plan = Tiny().files.config.plan;
  for (LayerPlan& layer : plan.layers) {
    layer.rotation->base = 500000;
    layer.window_tokens = 32;
    layer.rotation->scaling = DynamicNtkScaling{.factor = 2};
  }
  VerifySetup setup = SetupOf(plan);
  setup.model_plan = plan;
  setup.served_length = 4096;
  EXPECT_THAT(
      NamesOf(VerifyCandidates(setup)),
      AllOf(Contains("default-base"), Contains("default-base-unscaled"), Contains("no-window"),
            Not(Contains("window")), Contains("resolved-at-served-length"), Contains("factor-64")));
}

TEST(Verify, EachCandidateIsNamed) {
  const Exam exam(Yarn({.factor = 4}));
  for (std::size_t i = 0; i < exam.candidates.size(); ++i) {
    const VerifyVerdict v = exam.Of(Moved(exam.engine[i], 0.0005f));
    EXPECT_EQ(v.nearest, static_cast<int64_t>(i)) << exam.candidates[i].name;
    EXPECT_EQ(v.verdict, i == 0 ? Verified::kAsked : Verified::kOther) << exam.candidates[i].name;
    EXPECT_THAT(v.text, HasSubstr(exam.candidates[i].sentence));
    EXPECT_NEAR(v.distances[i].mean, 0.0005, 1e-6);
    EXPECT_TRUE(std::isnan(v.distances[i].kl));
  }
}

TEST(Verify, WhatIsNotInTheListIsNoneOfThese) {
  const Exam exam(Yarn({.factor = 4}));
  const VerifyCandidate other = {.plan = Yarn({.factor = 3})};
  const VerifyAnswers server =
      AskEngine(*Tiny().engine, other, exam.windows, exam.questions, AnglePrecision::kExact);
  const VerifyVerdict v = exam.Of(server);
  EXPECT_EQ(v.verdict, Verified::kNone);
  EXPECT_THAT(v.text, HasSubstr("None of these"));
}

TEST(Verify, ToleranceFollowsTheNoise) {
  const Exam exam(Yarn({.factor = 4}));
  const VerifyAnswers coarse = Moved(exam.engine[0], 0.03f);
  EXPECT_EQ(exam.Of(coarse, 0.001).verdict, Verified::kNone);
  EXPECT_NE(exam.Of(coarse, 0.01).verdict, Verified::kNone);
  EXPECT_DOUBLE_EQ(exam.Of(coarse, 0.001).tolerance, kVerifyFloor);
  EXPECT_DOUBLE_EQ(exam.Of(coarse, 0.01).tolerance, 0.04);
}

TEST(Verify, NoiseWhereNoPlanMattersIsAnotherModel) {
  const Exam exam(Yarn({.factor = 4}));
  const VerifyVerdict v = exam.Of(exam.engine[0], 0.6);
  EXPECT_EQ(v.verdict, Verified::kOtherModel);
  EXPECT_THAT(v.text, HasSubstr("another model"));
}

VerifyAnswers Numbers(const std::vector<float>& numbers) {
  VerifyAnswers answers;
  for (const float x : numbers) answers.push_back({x});
  return answers;
}

// Candidates that differ by less than the noise are both allowed; so coarse an answer decides
// nothing where they differ by much.
TEST(Verify, WhatCannotBeToldApartIsSaid) {
  const std::vector<VerifyCandidate> candidates = {{.name = "asked", .sentence = "asked"},
                                                   {.name = "near", .sentence = "near"}};
  const VerifyAnswers server = Numbers({-1, -2, -3, -4, -5, -6, -7, -8});
  const VerifyAnswers asked = Moved(server, 0.004f);
  const std::vector<VerifyAnswers> close = {asked, Moved(asked, 0.001f)};
  const VerifyVerdict same = Judge(candidates, server, close, {.mean = 0.001});
  EXPECT_EQ(same.verdict, Verified::kAsked);
  EXPECT_THAT(same.alike, testing::ElementsAre(1));
  EXPECT_THAT(same.text, HasSubstr("near"));

  // One token alone speaks for what was asked.
  VerifyAnswers far = Moved(server, 0.1f);
  far[0][0] += 0.5f;
  const VerifyAnswers near = Moved(server, 0.1f);
  const std::vector<VerifyAnswers> apart = {near, far};
  const VerifyVerdict undecided = Judge(candidates, server, apart, {.mean = 0.1});
  EXPECT_EQ(undecided.verdict, Verified::kAsked) << "they differ by less than the server's noise";
  far[1][0] += 0.7f;
  const VerifyAnswers middle = Moved(server, 0.13f);
  const std::vector<VerifyAnswers> wide = {far, middle};
  VerifyVerdict v = Judge(candidates, server, wide, {.mean = 0.1});
  EXPECT_EQ(v.nearest, 1);
  EXPECT_EQ(v.verdict, Verified::kUndecided) << v.text;
  EXPECT_THAT(v.text, HasSubstr("do not tell"));
}

TEST(Verify, DistancesByHand) {
  const VerifyAnswers a = {{std::log(0.5f), std::log(0.25f)}, {std::log(0.5f), std::log(0.25f)}};
  const VerifyAnswers b = {{std::log(0.25f), std::log(0.25f)}, {std::log(0.5f), std::log(0.25f)}};
  const VerifyDistance d = Distance(a, b);
  EXPECT_NEAR(d.mean, std::log(2.0) / 4, 1e-6);
  EXPECT_NEAR(d.largest, std::log(2.0), 1e-6);
  // Of three outcomes: 0.5, 0.25 and the rest 0.25, against 0.25, 0.25 and 0.5.
  EXPECT_NEAR(d.kl, (0.5 * std::log(2.0) + 0.25 * std::log(0.5)) / 2, 1e-6);
}

TEST(Verify, AnswersAreChecked) {
  const auto says = [](const VerifyAnswers& a, const VerifyAnswers& b) {
    try {
      Distance(a, b);
      return std::string("nothing");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kMismatch);
      return std::string(e.what());
    }
  };
  EXPECT_THAT(says(Numbers({-1}), Numbers({-1, -2})), HasSubstr("1 answers"));
  EXPECT_THAT(says({{-1, -2}}, {{-1}}), HasSubstr("2 log-probabilities"));
  EXPECT_THAT(says(Numbers({-1}), Numbers({NAN})), HasSubstr("not a finite number"));
  EXPECT_THAT(says(Numbers({-INFINITY}), Numbers({-1})), HasSubstr("not a finite number"));
  EXPECT_THAT(says({}, {}), HasSubstr("0 answers"));
  EXPECT_THROW(Judge({}, Numbers({-1}), {}, {}), Error);
}

// Log-probabilities one token at a time, by another road (tiny_model.h).
TEST(Verify, TheEngineAnswersAsItDecodes) {
  const std::vector<int32_t> window = RandomText(kLength, 5).ids;
  const VerifyCandidate candidate = {.plan = Yarn({.factor = 4})};
  const std::vector<double> nll = test::ReferenceNll(*Tiny().decoder, candidate.plan, window);
  std::vector<VerifyQuestion> questions = OwnTokens(window);
  const std::size_t own = questions.size();
  for (const int64_t at : {int64_t{1}, kTinyTrained + 7, kLength - 1}) {
    const int32_t next = window[static_cast<std::size_t>(at)];
    questions.push_back({.position = at, .ids = {(next + 1) % 256, next, (next + 2) % 256}});
  }
  const auto answers =
      AskEngine(*Tiny().engine, candidate, Windows{window}, questions, AnglePrecision::kExact);
  ASSERT_EQ(answers.size(), questions.size());
  for (std::size_t q = 0; q < questions.size(); ++q) {
    const float answer = answers[q][q < own ? 0 : 1];
    EXPECT_NEAR(answer, -nll[static_cast<std::size_t>(questions[q].position)], 2e-5) << q;
  }
  // All of the vocabulary behind the whole window: probabilities sum to one.
  VerifyQuestion all = {.position = kLength};
  for (int32_t id = 0; id < test::kTinyVocab; ++id) all.ids.push_back(id);
  const auto one = AskEngine(*Tiny().engine, candidate, Windows{window}, std::vector{all},
                             AnglePrecision::kExact);
  double sum = 0;
  for (const float x : one[0]) sum += std::exp(x);
  EXPECT_NEAR(sum, 1, 1e-5);
}

// Behind a single token no plan matters: this is what the noise is measured by.
TEST(Verify, EveryPlanAgreesBehindASingleToken) {
  const auto candidates = VerifyCandidates(SetupOf(Yarn({.factor = 4})));
  const Windows windows = {{7, 9}, {200, 3}};
  const std::vector<VerifyQuestion> questions = {{.window = 0, .position = 1, .ids = {9}},
                                                 {.window = 1, .position = 1, .ids = {3, 5}}};
  const auto first =
      AskEngine(*Tiny().engine, candidates[0], windows, questions, AnglePrecision::kExact);
  for (const VerifyCandidate& candidate : candidates) {
    const auto answers =
        AskEngine(*Tiny().engine, candidate, windows, questions, AnglePrecision::kExact);
    EXPECT_LT(Distance(first, answers).largest, 1e-5) << candidate.name;
  }
}

TEST(Verify, ATruncatedContextIsTheTextWithoutItsBeginning) {
  const std::vector<int32_t> window = RandomText(kLength, 5).ids;
  const VerifyCandidate cut = {.plan = Tiny().files.config.plan, .last_tokens = 40};
  const auto answers = AskEngine(
      *Tiny().engine, cut, Windows{window},
      std::vector<VerifyQuestion>{{.position = 100, .ids = {window[100]}}}, AnglePrecision::kExact);
  const std::vector<int32_t> tail(window.begin() + 60, window.begin() + 101);
  const auto nll = test::ReferenceNll(*Tiny().decoder, cut.plan, tail);
  EXPECT_NEAR(answers[0][0], -nll[40], 2e-5);
}

}  // namespace
}  // namespace ropewalk
