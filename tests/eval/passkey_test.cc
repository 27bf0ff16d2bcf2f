#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ropewalk/base/error.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using test::ByteTokenizer;
using test::Tiny;

std::vector<int32_t> Filler() {
  std::vector<int32_t> ids;
  for (int i = 0; i < 300; ++i) ids.push_back('a' + i % 26);
  return ids;
}

TEST(Passkey, TemplateIsThatOfTheModelsFolder) {
  std::ifstream file(ROPEWALK_SOURCE_DIR "/models/passkey.json");
  ASSERT_TRUE(file);
  const nlohmann::json json = nlohmann::json::parse(file);
  const PasskeyTemplate& words = BuiltinPasskey();
  EXPECT_EQ(json.at("format"), words.format);
  EXPECT_EQ(json.at("needle"), words.needle);
  EXPECT_EQ(json.at("question"), words.question);
  EXPECT_EQ(json.at("answer"), words.answer);
  EXPECT_EQ(json.at("default_filler"), words.default_filler);
  EXPECT_EQ(json.at("digits"), words.digits);
  EXPECT_EQ(json.at("first_digit_nonzero"), true);
}

TEST(Passkey, PromptHasExactlyItsLengthAndSaysWhatItShould) {
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> filler = Filler();
  const std::string needle = " The pass key is 40713. Remember it. 40713 is the pass key.";
  const std::string end = " What is the pass key? The pass key is 40713";
  const int64_t least = static_cast<int64_t>(needle.size() + end.size());
  EXPECT_EQ(MinPasskeyTokens(tokenizer, false), least);
  EXPECT_EQ(MinPasskeyTokens(tokenizer, true), least + 1);
  for (int64_t length = least; length < least + 700; length += 23) {
    for (const double depth : {0.0, 0.3, 0.5, 1.0}) {
      const PasskeyPrompt prompt =
          MakePasskeyPrompt(tokenizer, filler, 7, length, depth, "40713", {});
      ASSERT_EQ(static_cast<int64_t>(prompt.ids.size()), length);
      const std::string text = tokenizer.Decode(prompt.ids);
      EXPECT_EQ(static_cast<int64_t>(text.find(needle)), prompt.needle_begin);
      EXPECT_TRUE(text.ends_with(end));
      EXPECT_EQ(text.substr(prompt.answer_begin), " 40713");
      const double room = static_cast<double>(length - least);
      EXPECT_EQ(prompt.needle_begin, static_cast<int64_t>(depth * room + 0.5));
      // Filler runs on behind the needle where it stopped before it.
      std::string left = text.substr(0, text.size() - end.size());
      left.erase(prompt.needle_begin, needle.size());
      for (size_t i = 0; i < left.size(); ++i) EXPECT_EQ(left[i], filler[(7 + i) % 300]);
    }
  }
}

TEST(Passkey, BosStandsFirst) {
  const PasskeyPrompt prompt =
      MakePasskeyPrompt(ByteTokenizer(), Filler(), 0, 200, 0, "11111", 256);
  EXPECT_EQ(prompt.ids.size(), 200u);
  EXPECT_EQ(prompt.ids[0], 256);
  EXPECT_EQ(prompt.needle_begin, 1);
}

// Tokenizers that put a space in front of a text must not make the answer begin with two.
class SpaceTokenizer : public ByteTokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    return ByteTokenizer::Encode(" " + std::string(text), options);
  }
};

TEST(Passkey, NoSecondSpaceFromTokenizersThatAddOne) {
  const SpaceTokenizer tokenizer;
  const PasskeyPrompt prompt = MakePasskeyPrompt(tokenizer, Filler(), 0, 200, 0.5, "40713", {});
  EXPECT_EQ(tokenizer.Decode(prompt.ids).find("  "), std::string::npos);
  EXPECT_TRUE(tokenizer.Decode(prompt.ids).ends_with("The pass key is 40713"));
}

TEST(Passkey, TooShortSaysHowMuchIsNeeded) {
  const int64_t least = MinPasskeyTokens(ByteTokenizer(), false);
  try {
    MakePasskeyPrompt(ByteTokenizer(), Filler(), 0, least - 1, 0.5, "40713", {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("at least " + std::to_string(least)), std::string::npos);
  }
}

TEST(Passkey, TrialsAreReproducibleAndTheSameForEveryMethod) {
  const std::vector<int32_t> filler = Filler();
  PasskeyOptions options;
  options.trials = 3;
  options.depths = {0, 0.5, 1};
  const PositionPlan yarn =
      WithScaling(Tiny().files.config.plan, FindMethod("yarn").make(4), test::kTinyTrained);
  const auto run = [&](const PositionPlan& plan, uint64_t seed) {
    options.seed = seed;
    return MeasurePasskey(*Tiny().engine, plan, ByteTokenizer(), filler, 200, options, {});
  };
  const PasskeyResult a = run(Tiny().files.config.plan, 1), b = run(Tiny().files.config.plan, 1),
                      c = run(yarn, 1), d = run(yarn, 2);
  ASSERT_EQ(a.trials.size(), 9u);
  std::set<std::string> keys;
  bool other_key = false;
  for (size_t i = 0; i < a.trials.size(); ++i) {
    EXPECT_EQ(a.trials[i].key, b.trials[i].key);
    EXPECT_EQ(a.trials[i].key_nll, b.trials[i].key_nll);
    EXPECT_EQ(a.trials[i].key, c.trials[i].key);
    EXPECT_EQ(a.trials[i].needle_token, c.trials[i].needle_token);
    EXPECT_NE(a.trials[i].key_nll, c.trials[i].key_nll);
    other_key = other_key || a.trials[i].key != d.trials[i].key;
    EXPECT_EQ(a.trials[i].depth, options.depths[i / 3]);
    EXPECT_EQ(a.trials[i].prompt_tokens, 200);
    EXPECT_EQ(a.trials[i].key.size(), 5u);
    EXPECT_NE(a.trials[i].key[0], '0');
    for (const char digit : a.trials[i].key) EXPECT_TRUE(std::isdigit(digit));
    keys.insert(a.trials[i].key);
  }
  EXPECT_GT(keys.size(), 1u);
  EXPECT_TRUE(other_key);
}

// The key's loss against decoding token by token, and `exact` against the argmax there. A random
// model finds no key of six bytes, so the answer is replaced by what the model itself would say.
class Parrot : public ByteTokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids = ByteTokenizer::Encode(text, options);
    if (text.size() == 6 && text[0] == ' ') ids = answer;
    return ids;
  }
  std::vector<int32_t> answer = {1, 2};
};

TEST(Passkey, ExactMeansEveryTokenHasTheHighestLogit) {
  const PositionPlan& plan = Tiny().files.config.plan;
  const std::vector<int32_t> filler = {'q'};  // the same filler wherever it begins
  PasskeyOptions options;
  options.trials = 1;
  options.depths = {0.5};
  Parrot tokenizer;
  const PasskeyResult wrong =
      MeasurePasskey(*Tiny().engine, plan, tokenizer, filler, 160, options, {});
  ASSERT_EQ(wrong.trials.size(), 1u);
  const auto prompt = [&] {
    return MakePasskeyPrompt(tokenizer, filler, 0, 160, 0.5, wrong.trials[0].key, {}).ids;
  };
  const std::vector<double> nll = test::ReferenceNll(*Tiny().decoder, plan, prompt());
  EXPECT_NEAR(wrong.trials[0].key_nll, nll[158] + nll[159], 1e-3);
  // Two rounds: the first token of the answer decides the second.
  tokenizer.answer[0] = test::ReferenceArgmax(*Tiny().decoder, plan, prompt())[158];
  tokenizer.answer[1] = test::ReferenceArgmax(*Tiny().decoder, plan, prompt())[159];
  EXPECT_EQ(MeasurePasskey(*Tiny().engine, plan, tokenizer, filler, 160, options, {}).accuracy, 1);
  tokenizer.answer[1] = tokenizer.answer[1] == 0 ? 1 : 0;  // half right is wrong
  EXPECT_EQ(MeasurePasskey(*Tiny().engine, plan, tokenizer, filler, 160, options, {}).accuracy, 0);
}

// Prompts share the filler in front of the needle, and each has the bits that it has alone.
TEST(Passkey, ASharedPrefixChangesNoBit) {
  const PositionPlan plan =
      WithScaling(Tiny().files.config.plan, FindMethod("dynamic").make(20), test::kTinyTrained);
  PasskeyOptions options;
  options.trials = 2;
  options.depths = {0.9, 0.5, 0};
  const int64_t length = 1400;
  int64_t longest_tick = 0, done = 0;
  RunOptions run;
  run.progress = [&](int64_t tokens, int64_t all) {
    EXPECT_EQ(all, 6 * (length - 1));
    longest_tick = std::max(longest_tick, tokens - done);
    done = tokens;
    return true;
  };
  const PasskeyResult result =
      MeasurePasskey(*Tiny().engine, plan, ByteTokenizer(), {}, length, options, run);
  EXPECT_EQ(done, 6 * (length - 1));
  EXPECT_GE(longest_tick, 1024);  // two chunks that were there already
  const std::vector<int32_t> filler = ByteTokenizer().Encode(BuiltinPasskey().default_filler);
  for (const PasskeyTrial& trial : result.trials) {
    const PasskeyPrompt prompt =
        MakePasskeyPrompt(ByteTokenizer(), filler, 0, length, trial.depth, trial.key, {});
    ScoreRequest request{.ids = prompt.ids};
    for (int64_t p = prompt.answer_begin; p < length; ++p) request.positions.push_back(p);
    const Scores alone =
        Tiny().engine->Score({.plan = &plan, .final_length = length}, std::span(&request, 1));
    float nll = 0;
    for (const TokenScore& score : alone.tokens[0]) nll -= score.log_prob;
    EXPECT_EQ(trial.key_nll, nll) << trial.depth;
  }
}

// A cell hides the passkey in the same words whatever its text is, unless it is told to use it.
TEST(Passkey, ACellHasTheBuiltInFillerUnlessItIsTheText) {
  SweepSpec spec;
  spec.trained_length = test::kTinyTrained;
  spec.perplexity = false;
  spec.passkey_options.trials = 1;
  spec.passkey_options.depths = {0.5};
  Parrot tokenizer;
  const TokenText text = test::RandomText(700, 3);
  SweepInputs inputs;
  inputs.engine = Tiny().engine.get();
  inputs.tokenizer = &tokenizer;
  inputs.text = &text;
  const PositionPlan& plan = Tiny().files.config.plan;
  const SweepTask task = MakeTask(PositionMethod(), 1, 160, spec.trained_length, plan);
  const auto run = [&] {
    return RunCell(task, spec, inputs, CommonFields(spec, inputs, 160), nullptr);
  };
  // The answer is what the model says in the built-in filler; it says other things in the text.
  const auto trial =
      MeasurePasskey(*Tiny().engine, plan, tokenizer, {}, 160, spec.passkey_options, {}).trials[0];
  const std::vector<int32_t> filler = tokenizer.Encode(BuiltinPasskey().default_filler, {});
  for (int round = 0; round < 2; ++round) {
    const auto ids = MakePasskeyPrompt(tokenizer, filler, 0, 160, 0.5, trial.key, {}).ids;
    tokenizer.answer[round] = test::ReferenceArgmax(*Tiny().decoder, plan, ids)[158 + round];
  }
  const Cell builtin = run();
  EXPECT_EQ(builtin.passkey_accuracy, 1);
  EXPECT_TRUE(builtin.passkey_protocol.ends_with(", built-in filler")) << builtin.passkey_protocol;
  spec.passkey_text_filler = true;
  const Cell of_text = run();
  EXPECT_EQ(of_text.passkey_accuracy, 0);
  EXPECT_TRUE(of_text.passkey_protocol.ends_with(", filler from the text"));
  EXPECT_NE(of_text.Identity(), builtin.Identity());
  inputs.text = nullptr;
  EXPECT_THROW(run(), Error);
}

TEST(Passkey, WithoutTextTheDefaultFillerIsUsed) {
  PasskeyOptions options;
  options.trials = 1;
  options.depths = {0.5};
  const PasskeyResult r = MeasurePasskey(*Tiny().engine, Tiny().files.config.plan, ByteTokenizer(),
                                         {}, 200, options, {});
  EXPECT_TRUE(std::isfinite(r.trials.at(0).key_nll));
}

}  // namespace
}  // namespace ropewalk
