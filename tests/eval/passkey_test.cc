// Passkeys that have names: the words, the prompts, what they cost.
#include "src/eval/passkey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/tasks.h"
#include "src/eval/task_text.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using internal::kPasskeyWords;
using test::ByteTokenizer;
using test::Tiny;
using testing::HasSubstr;

std::string Text(const std::vector<int32_t>& ids) { return ByteTokenizer().Decode(ids); }

int64_t Questions(const std::vector<TaskPrompt>& prompts) {
  int64_t questions = 0;
  for (const TaskPrompt& prompt : prompts) {
    questions += static_cast<int64_t>(prompt.questions.size());
  }
  return questions;
}

TEST(Passkey, WordsAreThoseOfTheModelsFolder) {
  std::ifstream file(ROPEWALK_SOURCE_DIR "/models/passkey.json");
  ASSERT_TRUE(file);
  const nlohmann::json json = nlohmann::json::parse(file);
  EXPECT_EQ(json.at("format"), kPasskeyWords.format);
  EXPECT_EQ(json.at("needle"), kPasskeyWords.needle);
  EXPECT_EQ(json.at("question"), kPasskeyWords.question);
  EXPECT_EQ(json.at("answer"), kPasskeyWords.answer);
  EXPECT_EQ(json.at("default_filler"), kPasskeyWords.default_filler);
  EXPECT_EQ(json.at("digits"), kPasskeyWords.digits);
  EXPECT_EQ(json.at("first_digit_nonzero"), true);
  const auto names = json.at("names").get<std::vector<std::string>>();
  EXPECT_TRUE(std::equal(names.begin(), names.end(), kPasskeyWords.names.begin(),
                         kPasskeyWords.names.end()));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

// Read back with an expression of its own: every needle once, the question about it, and filler that
// is whole where needles are taken out.
TEST(Passkey, PromptsHaveExactlyTheirLengthAndSayWhatTheyShould) {
  const ByteTokenizer tokenizer;
  const std::regex needle(
      " The pass key of ([A-Z][a-z]+) is ([1-9][0-9]{4})\\. Remember it\\. \\2 is the pass key of "
      "\\1\\.");
  std::vector<int32_t> filler;
  for (int i = 0; i < 300; ++i) filler.push_back('a' + i % 26);
  const auto task = MakePasskeyTask({.seed = 7, .bos_id = 256, .filler = filler}, tokenizer);
  for (int64_t length : {180, 400, 700, 2400, 3000, 9000}) {
    SCOPED_TRACE(length);
    for (const TaskPrompt& prompt : task->Prompts(length, 25)) {
      EXPECT_EQ(internal::TokensOf(prompt, task->MaxNewTokens()), length);
      ASSERT_EQ(prompt.context[0], 256);
      const std::string text = Text({prompt.context.begin() + 1, prompt.context.end()});
      EXPECT_EQ(prompt.text, text);
      std::vector<std::smatch> found;
      int64_t needle_bytes = 0;
      for (std::sregex_iterator it(text.begin(), text.end(), needle), end; it != end; ++it) {
        found.push_back(*it);
        needle_bytes += it->length();
      }
      ASSERT_EQ(found.size(), prompt.questions.size());
      EXPECT_TRUE(found.size() == 1 || needle_bytes <= length / 3);
      const auto text_bytes = static_cast<double>(static_cast<int64_t>(text.size()) - needle_bytes);
      std::set<std::string> names, keys;
      int64_t before = 0;  // bytes of needles
      for (size_t i = 0; i < found.size(); ++i) {
        const std::string name = found[i][1], key = found[i][2];
        names.insert(name);
        keys.insert(key);
        const TaskQuestion& q = prompt.questions[i];
        EXPECT_EQ(Text(q.ids),
                  " What is the pass key of " + name + "? The pass key of " + name + " is");
        EXPECT_EQ(Text(q.answer), " " + key);
        EXPECT_EQ(q.scored, (std::vector<int32_t>{1, 2, 3, 4, 5}));  // not the space
        EXPECT_EQ(q.references, std::vector<std::string>{key});
        EXPECT_NEAR(static_cast<double>(found[i].position() - before) / text_bytes, q.depth,
                    1 / text_bytes);
        before += found[i].length();
      }
      EXPECT_EQ(names.size(), found.size());
      EXPECT_EQ(keys.size(), found.size());
      const std::string left = std::regex_replace(text, needle, "");
      for (size_t i = 1; i < left.size(); ++i) {
        ASSERT_TRUE(left[i] == left[i - 1] + 1 || left[i] == 'a') << i;
      }
    }
  }
}

TEST(Passkey, DepthsAreSpreadEvenly) {
  const ByteTokenizer tokenizer;
  const auto task = MakePasskeyTask({}, tokenizer);
  for (const int64_t length : {200, 1000, 4000, 20000}) {
    SCOPED_TRACE(length);
    int fifths[5] = {};
    const std::vector<TaskPrompt> prompts = task->Prompts(length, 25);
    for (const TaskPrompt& prompt : prompts) {
      double last = -1;
      for (const TaskQuestion& q : prompt.questions) {
        ASSERT_GE(q.depth, 0);
        ASSERT_LT(q.depth, 1);
        EXPECT_GT(q.depth, last);
        last = q.depth;
        ++fifths[static_cast<int>(q.depth * 5)];
      }
    }
    EXPECT_GE(Questions(prompts), 25);
    for (const int n : fifths) EXPECT_GE(n, 4);
  }
}

TEST(Passkey, PromptsDependOnSeedAndLengthAlone) {
  const ByteTokenizer tokenizer;
  const auto task = MakePasskeyTask({.seed = 1}, tokenizer);
  const std::vector<TaskPrompt> few = task->Prompts(3000, 5), many = task->Prompts(3000, 40);
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0].context, many[0].context);
  EXPECT_NE(many[0].context, many[1].context);
  EXPECT_NE(MakePasskeyTask({.seed = 2}, tokenizer)->Prompts(3000, 5)[0].text, few[0].text);
  // The filler is the built-in sentence; that of a text is another task.
  EXPECT_THAT(few[0].text, HasSubstr(kPasskeyWords.default_filler));
  EXPECT_THAT(task->Protocol(), HasSubstr("built-in filler"));
  const auto of_text = MakePasskeyTask({.filler = {'x'}}, tokenizer);
  EXPECT_THAT(of_text->Protocol(), HasSubstr("filler from the text"));
  EXPECT_NE(of_text->DataHash(), task->DataHash());
}

// Through the engine: contexts once, and questions of a few tokens behind them.
TEST(Passkey, TwentyFiveQuestionsCostThreePrefills) {
  const ByteTokenizer tokenizer;
  const auto task = MakePasskeyTask({}, tokenizer);
  const internal::NeedleMaker maker(tokenizer);
  const int64_t holds_nine = 3 * 9 * maker.needle_tokens();
  for (const int64_t length : {holds_nine, 2 * holds_nine}) {
    const std::vector<TaskPrompt> prompts = task->Prompts(length, 25);
    EXPECT_EQ(prompts.size(), 3u);
    const TaskResult result = MeasureTask(*Tiny().engine, Tiny().files.config.plan, *task, prompts,
                                          length, {.tokenizer = &tokenizer}, {});
    EXPECT_EQ(result.answers.size(), 27u);
    EXPECT_GT(result.fed_tokens, 2 * length);
    EXPECT_LE(result.fed_tokens, 3 * length + 27 * maker.asked_tokens());
  }
  EXPECT_EQ(Questions(task->Prompts(holds_nine - 3, 1)), 8);  // one less does not fit a third
}

// Tokenizers that put a space in front of a text must not make the answer begin with two.
class SpaceTokenizer : public ByteTokenizer {
 public:
  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    return ByteTokenizer::Encode(" " + std::string(text), options);
  }
};

TEST(Passkey, NoSecondSpaceFromTokenizersThatAddOne) {
  const SpaceTokenizer tokenizer;
  const TaskPrompt prompt = MakePasskeyTask({.filler = {'x'}}, tokenizer)->Prompts(600, 1)[0];
  const TaskQuestion& q = prompt.questions[0];
  std::vector<int32_t> ids = prompt.context;
  ids.insert(ids.end(), q.ids.begin(), q.ids.end());
  ids.insert(ids.end(), q.answer.begin(), q.answer.end());
  EXPECT_EQ(Text(ids).find("  "), std::string::npos);
  EXPECT_EQ(q.answer.size(), 6u);
  EXPECT_EQ(q.scored.size(), 5u);
}

TEST(Passkey, TooShortSaysHowMuchIsNeeded) {
  const ByteTokenizer tokenizer;
  const internal::NeedleMaker maker(tokenizer);
  const int64_t least = maker.needle_tokens() + maker.asked_tokens();
  const auto task = MakePasskeyTask({}, tokenizer);
  EXPECT_EQ(Questions(task->Prompts(least, 2)), 2);  // no filler is left
  try {
    task->Prompts(least - 1, 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("at least " + std::to_string(least)));
  }
}

}  // namespace
}  // namespace ropewalk
