// JSON key-value pairs, and the measurement that all tasks share.
#include "ropewalk/eval/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/tasks.h"
#include "src/eval/task_text.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::ByteTokenizer;
using test::Tiny;
using testing::HasSubstr;

std::string Text(const std::vector<int32_t>& ids) { return ByteTokenizer().Decode(ids); }

// The prompt as Liu et al. print it, read back: every pair is there, and every answer is the value
// of the key asked for.
TEST(Kv, PromptIsTheOneOfLostInTheMiddle) {
  const ByteTokenizer tokenizer;
  const auto task = MakeKvTask({.seed = 5}, tokenizer);
  for (const int64_t length : {500, 1000, 5000, 20000}) {
    SCOPED_TRACE(length);
    const std::vector<TaskPrompt> prompts = task->Prompts(length, 2);
    ASSERT_EQ(prompts.size(), 2u);
    EXPECT_NE(prompts[0].context, prompts[1].context);
    for (const TaskPrompt& prompt : prompts) {
      const std::string front =
          "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON "
          "data:\n";
      ASSERT_TRUE(prompt.text.starts_with(front));
      EXPECT_EQ(Text(prompt.context), prompt.text);
      const auto pairs = nlohmann::ordered_json::parse(prompt.text.substr(front.size()));
      ASSERT_GE(pairs.size(), 2u);
      const std::regex uuid("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
      std::map<std::string, size_t> place;
      for (const auto& [key, value] : pairs.items()) {
        EXPECT_TRUE(std::regex_match(key, uuid)) << key;
        EXPECT_TRUE(std::regex_match(value.get<std::string>(), uuid));
        place.emplace(key, place.size());
      }
      const int64_t tokens = internal::TokensOf(prompt, task->MaxNewTokens());
      EXPECT_LE(tokens, length);
      EXPECT_GT(tokens, length - 90) << "another pair of 85 bytes would have fitted";
      for (const TaskQuestion& q : prompt.questions) {
        const std::string asked = Text(q.ids);
        const size_t quote = std::string("\n\nKey: \"").size();
        const std::string key = asked.substr(quote, 36);
        EXPECT_EQ(asked, "\n\nKey: \"" + key + "\"\nCorresponding value:");
        EXPECT_EQ(q.references, std::vector<std::string>{pairs.at(key)});
        EXPECT_EQ(Text(q.answer), " \"" + q.references[0]);
        EXPECT_EQ(q.scored.size(), 36u);  // without the space and the quotation mark
        EXPECT_EQ(q.scored.front(), 2);
        EXPECT_DOUBLE_EQ(q.depth, (static_cast<double>(place.at(key)) + 0.5) /
                                      static_cast<double>(place.size()));
      }
    }
    EXPECT_EQ(task->Prompts(length, 1)[0].context, prompts[0].context);
  }
}

TEST(Kv, QuestionsCoverEveryDepth) {
  const ByteTokenizer tokenizer;
  const TaskPrompt prompt = MakeKvTask({.questions = 25}, tokenizer)->Prompts(20000, 1).front();
  ASSERT_EQ(prompt.questions.size(), 25u);
  for (size_t i = 0; i < 25; ++i) {
    EXPECT_NEAR(prompt.questions[i].depth, (static_cast<double>(i) + 0.5) / 25, 0.02);
  }
  // More than there are pairs: each is asked once.
  EXPECT_EQ(MakeKvTask({.questions = 1000}, tokenizer)->Prompts(1000, 1)[0].questions.size(), 9u);
}

// 50 questions behind a long prompt cost a fifth of it, and no more.
TEST(Kv, QuestionsCostAFifthOfThePrefill) {
  const ByteTokenizer tokenizer;
  for (const int64_t length : {4000, 16384, 65536}) {
    const std::vector<TaskPrompt> prompts = MakeKvTask({}, tokenizer)->Prompts(length, 1);
    EXPECT_LE(TaskTokens(prompts, 0), length * 12 / 10);
    if (length > 60000) {
      EXPECT_EQ(prompts[0].questions.size(), 50u);
    }
  }
}

TEST(Kv, LengthThatHoldsNoTwoPairsIsRefusedWithTheNeed) {
  const ByteTokenizer tokenizer;
  const auto task = MakeKvTask({}, tokenizer);
  try {
    task->Prompts(200, 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    const std::string what = e.what();
    std::smatch match;
    ASSERT_TRUE(std::regex_search(what, match, std::regex("take ([0-9]+) tokens"))) << what;
    const int64_t needed = std::stoll(match[1]);
    EXPECT_EQ(task->Prompts(needed, 1)[0].questions.size(), 2u);
    EXPECT_THROW(task->Prompts(needed - 1, 1), Error);
  }
}

TEST(Kv, BeginsWithBos) {
  const ByteTokenizer tokenizer;
  const TaskPrompt prompt = MakeKvTask({.bos_id = 256}, tokenizer)->Prompts(600, 1).front();
  EXPECT_EQ(prompt.context[0], 256);
  EXPECT_EQ(prompt.context[1], 'E');
}

// Two bytes per token wherever they meet: tokens reach across every boundary of the text.
class PairTokenizer : public ByteTokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); i += 2) {
      const auto second = i + 1 < text.size() ? static_cast<uint8_t>(text[i + 1]) : 0;
      ids.push_back(static_cast<uint8_t>(text[i]) * 256 + second);
    }
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      text += static_cast<char>(id / 256);
      if (id % 256 != 0) text += static_cast<char>(id % 256);
    }
    return text;
  }
};

TEST(TaskText, TokensAreThoseOfTheWholeText) {
  const PairTokenizer tokenizer;
  for (const std::string context : {"some context", "some contexts"}) {
    for (const std::string question : {" and?", " and so?"}) {
      const std::vector<internal::TextQuestion> asked = {
          {.question = question, .answer = " value", .scored_from = 1},
          {.question = "; other?", .answer = " 12", .scored_from = 1}};
      const TaskPrompt prompt = internal::PromptOfText(tokenizer, {}, context, asked);
      for (size_t i = 0; i < asked.size(); ++i) {
        const TaskQuestion& q = prompt.questions[i];
        std::vector<int32_t> whole = prompt.context;
        whole.insert(whole.end(), q.ids.begin(), q.ids.end());
        whole.insert(whole.end(), q.answer.begin(), q.answer.end());
        EXPECT_EQ(whole, tokenizer.Encode(context + asked[i].question + asked[i].answer, {}));
        EXPECT_FALSE(q.answer.empty());
        EXPECT_FALSE(q.scored.empty() && q.answer.size() > 4);
      }
    }
  }
}

// ---- MeasureTask -------------------------------------------------------------------------------

// Two questions behind one context of a tiny model.
class TwoQuestions : public Task {
 public:
  std::string Name() const override { return "two"; }
  std::string Protocol() const override { return "two questions"; }
  std::string DataHash() const override { return "none"; }
  int64_t MaxNewTokens() const override { return 6; }
  std::vector<TaskPrompt> Prompts(int64_t length, int64_t count) const override {
    if (length < 40) throw Error(ErrorCode::kInvalidArgument, "needs 40 tokens");
    std::vector<TaskPrompt> prompts;
    for (int64_t i = 0; i < count; ++i) {
      TaskPrompt& prompt = prompts.emplace_back();
      prompt.context = test::RandomText(length - 20, static_cast<uint64_t>(i) + 1).ids;
      prompt.questions = {{.ids = {1, 2, 3}, .answer = {7, 8, 9, 10}, .scored = {1, 3}},
                          {.ids = {}, .answer = {11, 12}}};
    }
    return prompts;
  }
};

TEST(MeasureTask, EqualsTheDecodersLossTokenByToken) {
  const TwoQuestions task;
  const std::vector<TaskPrompt> prompts = task.Prompts(700, 2);  // beyond one chunk
  const PositionPlan& plan = Tiny().files.config.plan;
  const TaskResult result = MeasureTask(*Tiny().engine, plan, task, prompts, 700, {}, {});
  ASSERT_EQ(result.answers.size(), 4u);
  double nats = 0, tokens = 0;
  for (const TaskAnswer& answer : result.answers) {
    const TaskPrompt& prompt = prompts[answer.prompt];
    const TaskQuestion& q = prompt.questions[answer.question];
    std::vector<int32_t> ids = prompt.context;
    ids.insert(ids.end(), q.ids.begin(), q.ids.end());
    ids.insert(ids.end(), q.answer.begin(), q.answer.end());
    const std::vector<double> nll = test::ReferenceNll(*Tiny().decoder, plan, ids);
    const std::vector<int32_t> top = test::ReferenceArgmax(*Tiny().decoder, plan, ids);
    const size_t first = prompt.context.size() + q.ids.size();
    std::vector<int32_t> scored = q.scored;
    if (scored.empty()) scored = {0, 1};
    double expected = 0;
    bool exact = true;
    for (const int32_t i : scored) {
      expected += nll[first + i];
      exact = exact && top[first + i] == ids[first + i];
    }
    EXPECT_NEAR(answer.nll, expected, 1e-4);
    EXPECT_EQ(answer.exact, exact);
    EXPECT_EQ(answer.tokens, static_cast<int32_t>(scored.size()));
    EXPECT_TRUE(std::isnan(answer.recall));
    nats += expected;
    tokens += static_cast<double>(scored.size());
  }
  EXPECT_NEAR(result.mean_nll, nats / tokens, 1e-4);
  // Of two clusters of 4 tokens: |difference of the means| / 2.
  const double a = result.answers[0].nll + result.answers[1].nll;
  const double b = result.answers[2].nll + result.answers[3].nll;
  EXPECT_NEAR(result.standard_error, std::abs(a - b) / 4 / 2, 1e-9);
}

TEST(MeasureTask, FindsReferencesInTheGreedyContinuation) {
  const TwoQuestions task;
  const ByteTokenizer tokenizer;
  std::vector<TaskPrompt> prompts = task.Prompts(60, 1);
  const PositionPlan& plan = Tiny().files.config.plan;
  const TaskOptions options{.generate = true, .tokenizer = &tokenizer};
  const auto measure = [&] {
    return MeasureTask(*Tiny().engine, plan, task, prompts, 60, options, {});
  };
  const std::string said = measure().answers[0].output;
  ASSERT_GE(said.size(), 2u);
  std::string upper = said.substr(0, 2);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  prompts[0].questions[0].references = {upper, "never said in six tokens"};
  prompts[0].questions[1].references = {"never said in six tokens"};
  const TaskResult result = measure();
  EXPECT_DOUBLE_EQ(result.answers[0].recall, 0.5);
  EXPECT_DOUBLE_EQ(result.answers[1].recall, 0);
  EXPECT_DOUBLE_EQ(result.recall, 0.25);
}

// The context goes through the model once, however many questions there are.
class CountingEngine : public ScoringEngine {
 public:
  mutable std::vector<PrefixReuse> reuse;
  EngineFacts Facts() const override { return {.name = "counting", .vocab = 70000}; }
  int64_t MemoryBytes(const PositionPlan&, int64_t) const override { return 0; }

 private:
  Scores DoScore(const EngineCall& call, std::span<const ScoreRequest> requests) const override {
    reuse.push_back(call.reuse);
    Scores scores;
    for (const ScoreRequest& r : requests) {
      scores.tokens.emplace_back(r.positions.size(), TokenScore{-1.0f, 0});
    }
    return scores;
  }
};

TEST(MeasureTask, SharesTheContext) {
  const CountingEngine engine;
  const TwoQuestions task;
  const std::vector<TaskPrompt> prompts = task.Prompts(100, 3);
  MeasureTask(engine, PositionPlan(), task, prompts, 100, {}, {});
  EXPECT_EQ(engine.reuse, std::vector<PrefixReuse>{PrefixReuse::kWhole});
  EXPECT_EQ(TaskTokens(prompts, 0), 3 * (80 + 7 + 2));
}

TEST(SampledTask, MakesPromptsOnceAndNoneWhereTheLengthIsTooShort) {
  const SampledTask sampled(std::make_shared<TwoQuestions>(), 3, false);
  EXPECT_EQ(sampled.Prompts(50).size(), 3u);
  EXPECT_EQ(sampled.Prompts(50).data(), sampled.Prompts(50).data());
  EXPECT_TRUE(sampled.Prompts(30).empty());
  EXPECT_EQ(sampled.too_short(), "needs 40 tokens");
}

}  // namespace
}  // namespace ropewalk
