// RULER's prompts: hashes of those of NVIDIA's own generator (tests/parity/ruler_prompts.py), and
// what every prompt has to hold.
#include "ropewalk/eval/ruler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/eval/tasks.h"
#include "tests/eval/tiny_model.h"
#include "tests/support/message_of.h"

namespace ropewalk::ruler_test {
namespace {

using test::MessageOf;
using ::testing::HasSubstr;

const char* const kOffline[] = {
    "niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe"};

const Tokenizer& TokenizerOf(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  std::unique_ptr<Tokenizer>& tokenizer = loaded[name];
  const std::string root = ROPEWALK_SOURCE_DIR "/";
  if (!tokenizer) {
    tokenizer = LoadTokenizerFolder(name == "models" ? root + name
                                                     : root + "tests/golden/tokenizer/" + name);
  }
  return *tokenizer;
}

std::vector<TaskPrompt> Prompts(const std::string& task, int64_t length, int64_t count,
                                const RulerOptions& options = {},
                                const std::string& tokenizer = "models") {
  return MakeRulerTask(task, options, TokenizerOf(tokenizer))->Prompts(length, count);
}

std::vector<int32_t> Joined(const TaskPrompt& prompt, const TaskQuestion& question) {
  std::vector<int32_t> ids = prompt.context;
  ids.insert(ids.end(), question.ids.begin(), question.ids.end());
  return ids;
}

std::vector<std::string> Split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Ruler, PromptsAreThoseOfItsOwnGenerator) {
  std::ifstream file(ROPEWALK_SOURCE_DIR "/tests/golden/ruler_prompts.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.size(), 80u);
  for (const nlohmann::json& row : golden) {
    SCOPED_TRACE(row);
    const std::string name = row["tokenizer"];
    const std::vector<TaskPrompt> prompts =
        Prompts(row["task"], row["length"], static_cast<int64_t>(row["prompts"].size()),
                {.seed = row["seed"]}, name);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const TaskQuestion& question = prompts[i].questions.at(0);
      const std::string text = prompts[i].text + question.text;
      EXPECT_EQ(HashHex(text), row["prompts"][i]) << i;
      EXPECT_EQ(Joined(prompts[i], question), TokenizerOf(name).Encode(text)) << i;
    }
  }
}

TEST(Ruler, PromptsFitTheirLengthAndFillIt) {
  for (const char* name : kOffline) {
    for (const int64_t length : {2048, 4095, 6000}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(length));
      const auto task = MakeRulerTask(name, {}, TokenizerOf("models"));
      for (const TaskPrompt& prompt : task->Prompts(length, 3)) {
        const TaskQuestion& question = prompt.questions.at(0);
        const auto tokens = static_cast<int64_t>(Joined(prompt, question).size());
        EXPECT_LE(tokens + task->MaxNewTokens(), length);
        EXPECT_GT(tokens, length / 2);
        EXPECT_LE(static_cast<int64_t>(question.answer.size()), task->MaxNewTokens());
        EXPECT_GT(prompt.context.size(), 8 * question.ids.size());
      }
    }
  }
}

TEST(Ruler, FewerPromptsAreTheFirstOnes) {
  for (const char* name : kOffline) {
    const auto task = MakeRulerTask(name, {.seed = 9}, TokenizerOf("models"));
    const auto few = task->Prompts(3000, 2), many = task->Prompts(3000, 4);
    ASSERT_EQ(many.size(), 4u);
    for (size_t i = 0; i < few.size(); ++i) {
      EXPECT_EQ(few[i].text + few[i].questions[0].text, many[i].text + many[i].questions[0].text);
      EXPECT_EQ(few[i].questions[0].answer, many[i].questions[0].answer);
    }
    EXPECT_NE(many[0].text, many[1].text);
    EXPECT_TRUE(task->Prompts(3000, 0).empty());
  }
}

// The answer as text, and the tokens of it that are scored, which spell the references.
TEST(Ruler, AnswersSpellTheirReferences) {
  for (const char* tokenizer_name : {"models", "llama2", "llama3", "gemma"}) {
    const Tokenizer& tokenizer = TokenizerOf(tokenizer_name);
    for (const char* name : kOffline) {
      SCOPED_TRACE(std::string(tokenizer_name) + " " + name);
      // RULER's example has at most 500 tokens, too few with the short vocabularies of the others.
      if (std::string(name) == "vt" && std::string(tokenizer_name) != "models") continue;
      const TaskQuestion question =
          Prompts(name, 8192, 1, {}, tokenizer_name).at(0).questions.at(0);
      const std::string answer = tokenizer.Decode(question.answer);
      std::string scored;
      for (const int32_t i : question.scored) {
        scored += tokenizer.Decode(std::span(&question.answer[static_cast<size_t>(i)], 1));
      }
      ASSERT_FALSE(question.references.empty());
      EXPECT_THAT(question.answer_text, ::testing::EndsWith(question.references.back()));
      EXPECT_THAT(question.answer_text, ::testing::EndsWith(answer));
      for (const std::string& reference : question.references) {
        EXPECT_THAT(answer, HasSubstr(reference));
        EXPECT_THAT(scored, HasSubstr(reference));
      }
      EXPECT_LE(question.scored.size(), question.answer.size());
    }
  }
}

TEST(Ruler, NeedlesStandWhereTheDepthSays) {
  for (const char* name : {"niah_single_1", "niah_multikey_2", "niah_multikey_3"}) {
    std::vector<double> depths;
    for (const TaskPrompt& prompt : Prompts(name, 4096, 8)) {
      const TaskQuestion& question = prompt.questions.at(0);
      const auto at = static_cast<size_t>(
          std::lround(question.depth * static_cast<double>(prompt.text.size())));
      const std::string needle = prompt.text.substr(at, prompt.text.find('\n', at) - at);
      EXPECT_THAT(needle, ::testing::StartsWith("One of the special magic "));
      EXPECT_THAT(needle, ::testing::EndsWith(" is: " + question.references.at(0) + "."));
      const size_t key = needle.find(" for ") + 5;
      EXPECT_THAT(question.text, HasSubstr(needle.substr(key, needle.find(" is: ") - key)));
      depths.push_back(question.depth);
    }
    EXPECT_GT(*std::ranges::max_element(depths) - *std::ranges::min_element(depths), 0.3);
  }
}

// Lines "VAR A = VAR B", followed from the value that is asked for.
TEST(Ruler, ChainsHaveTheValueThatIsAsked) {
  for (const TaskPrompt& prompt : Prompts("vt", 4096, 4)) {
    const TaskQuestion& question = prompt.questions.at(0);
    const std::string own = prompt.text.substr(prompt.text.rfind("Memorize and track"));
    std::map<std::string, std::string> value;
    std::istringstream lines(own);
    for (std::string line; std::getline(lines, line);) {
      const std::vector<std::string> words = Split(line);
      if (words.size() < 4 || words[0] != "VAR") continue;
      value[words[1]] = words[3] == "VAR" ? value.at(words.at(4)) : words[3];
    }
    EXPECT_EQ(value.size(), 5u);
    for (const std::string& name : question.references) {
      EXPECT_THAT(question.text, HasSubstr("the value " + value.at(name) + " in the text"));
    }
  }
}

std::vector<std::pair<int64_t, std::string>> Counted(const std::string& text) {
  std::map<std::string, int64_t> counts;
  for (const std::string& word : Split(text)) ++counts[word];
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [word, count] : counts) sorted.emplace_back(count, word);
  std::ranges::sort(sorted, std::greater<>());
  return sorted;
}

TEST(Ruler, CommonWordsAreTheMostCommon) {
  for (const auto& [length, times] : {std::pair{2048, 6}, {8192, 30}}) {
    const TaskPrompt prompt = Prompts("cwe", length, 1).at(0);
    std::string list = prompt.text.substr(prompt.text.rfind("\n1. ") + 1);
    std::string words;  // without the numbers; some words have a space in them
    for (int i = 1; !list.empty(); ++i) {
      const size_t next = list.find(" " + std::to_string(i + 1) + ". ");
      std::string word = list.substr(list.find(". ") + 2);
      if (next != std::string::npos)
        word = list.substr(list.find(". ") + 2, next - list.find(". ") - 2);
      std::ranges::replace(word, ' ', '_');
      words += word + " ";
      list = next == std::string::npos ? "" : list.substr(next + 1);
    }
    const auto counted = Counted(words);
    std::vector<std::string> expected = prompt.questions.at(0).references;
    for (std::string& word : expected) std::ranges::replace(word, ' ', '_');
    ASSERT_EQ(expected.size(), 10u);
    ASSERT_GT(counted.size(), 10u);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(counted[i].first, times);
      EXPECT_EQ(std::ranges::count(expected, counted[i].second), 1) << counted[i].second;
    }
    EXPECT_LT(counted[10].first, times);
  }
}

TEST(Ruler, FrequentWordsAreRanksTwoToFour) {
  for (const TaskPrompt& prompt : Prompts("fwe", 8192, 3)) {
    const auto counted = Counted(prompt.text.substr(prompt.text.find("coded words. ") + 13));
    EXPECT_EQ(counted[0].second, "...");
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(counted[i + 1].second, prompt.questions.at(0).references.at(i));
      EXPECT_GT(counted[i + 1].first, counted[i + 2].first);
    }
  }
}

TEST(Ruler, FurtherQuestionsAskForOtherKeysOfTheSameHaystack) {
  const Tokenizer& tokenizer = TokenizerOf("models");
  for (const char* name : {"niah_multikey_2", "niah_multikey_3"}) {
    const TaskPrompt one = Prompts(name, 4096, 2).at(1);
    const TaskPrompt many = Prompts(name, 4096, 2, {.questions = 12}).at(1);
    EXPECT_EQ(many.text, one.text);
    EXPECT_EQ(many.questions.at(0).text, one.questions.at(0).text);
    EXPECT_GT(many.questions.size(), 8u);
    std::map<std::string, int> answers;
    double before = 0;
    for (size_t i = 0; i < many.questions.size(); ++i) {
      const TaskQuestion& question = many.questions[i];
      EXPECT_EQ(Joined(many, question), tokenizer.Encode(many.text + question.text));
      EXPECT_LE(static_cast<int64_t>(Joined(many, question).size()) + 128, 4096);
      EXPECT_EQ(++answers[question.references.at(0)], 1);
      const size_t key = question.text.find(" for ") + 5;
      const std::string asked = question.text.substr(key, question.text.find(" mentioned") - key);
      EXPECT_THAT(many.text, HasSubstr(asked + " is: " + question.references[0] + "."));
      EXPECT_TRUE(i < 2 || question.depth > before);
      if (i > 0) before = question.depth;
    }
    EXPECT_GT(before, 0.8);
  }
  EXPECT_EQ(Prompts("vt", 4096, 1, {.questions = 5}).at(0).questions.size(), 1u);
}

TEST(Ruler, BosStandsInFrontAndIsNotCounted) {
  const TaskPrompt with = Prompts("vt", 4096, 1, {.bos_id = 0}).at(0);
  TaskPrompt without = Prompts("vt", 4096, 1).at(0);
  without.context.insert(without.context.begin(), 0);
  EXPECT_EQ(with.context, without.context);
  EXPECT_EQ(with.questions[0].ids, without.questions[0].ids);
}

TEST(Ruler, LengthsThatAreTooShortSayWhatIsNeeded) {
  for (const char* name : kOffline) {
    SCOPED_TRACE(name);
    for (const int64_t length : {1, 64, 256}) {
      EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { Prompts(name, length, 1); }),
                  ::testing::AllOf(HasSubstr(std::string("ruler:") + name), HasSubstr("takes ")));
    }
    for (const int64_t length : {int64_t{-5}, int64_t{0}, int64_t{1} << 40}) {
      EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { Prompts(name, length, 1); }),
                  HasSubstr("a length from 1 to"));
    }
    EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { Prompts(name, 4096, -1); }),
                HasSubstr("0 prompts or more"));
  }
}

TEST(Ruler, BadNamesSeedsAndNumbersAreRefused) {
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [] { Prompts("niah_multikey2", 4096, 1); }),
              HasSubstr("did you mean \"niah_multikey_2\""));
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument,
                        [] { Prompts("vt", 4096, 1, {.seed = uint64_t{1} << 32}); }),
              HasSubstr("a seed from 0 to 4294967295"));
  EXPECT_THAT(
      MessageOf(ErrorCode::kInvalidArgument, [] { Prompts("vt", 4096, 1, {.questions = 0}); }),
      HasSubstr("at least one question"));
  for (const RulerTaskInfo& task : RulerTasks()) {
    if (*task.needs == '\0') continue;
    EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { Prompts(task.name, 4096, 1); }),
                HasSubstr(std::string("--") + task.needs));
  }
}

TEST(Tasks, NamesOfRulerFollowIt) {
  const auto names = [](const std::vector<std::string>& asked, const TaskSettings& settings = {}) {
    std::vector<std::string> made;
    for (const auto& task : MakeTasks(asked, settings, TokenizerOf("models"))) {
      made.push_back(task->Name());
    }
    return made;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"ruler:vt", "cwe", "ruler:vt"}), (Names{"ruler:vt", "ruler:cwe"}));
  EXPECT_EQ(names({"ruler"}).size(), 6u);
  EXPECT_EQ(names({"ruler"}, {.ruler = {.haystack = {"x", "Some words."}}}).size(), 11u);
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { names({"cwe"}); }),
              HasSubstr("unknown task \"cwe\""));
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { names({"ruler:xy"}); }),
              HasSubstr("there are niah_single_1"));
}

TEST(Tasks, PromptsAreLinesOfJson) {
  const auto task = MakeRulerTask("niah_multikey_2", {.questions = 3}, TokenizerOf("models"));
  const auto prompts = task->Prompts(2048, 2);
  std::ostringstream out;
  WritePrompts(out, *task, prompts, 2048);
  std::istringstream lines(out.str());
  int count = 0;
  for (std::string text; std::getline(lines, text); ++count) {
    const nlohmann::json line = nlohmann::json::parse(text);
    const TaskPrompt& prompt = prompts[line["prompt"].get<size_t>()];
    const TaskQuestion& question = prompt.questions[line["question"].get<size_t>()];
    EXPECT_EQ(line["task"], "ruler:niah_multikey_2");
    EXPECT_EQ(line["protocol"], "RULER-c3f5e3b niah_multikey_2 seed=42 questions=3");
    EXPECT_EQ(line["data_hash"], task->DataHash());
    EXPECT_EQ(line["context"], prompt.text);
    EXPECT_EQ(line["question_text"], question.text);
    EXPECT_EQ(line["answer"], question.answer_text);
    EXPECT_EQ(line["references"], nlohmann::json(question.references));
    EXPECT_EQ(line["context_ids"], nlohmann::json(prompt.context));
    EXPECT_EQ(line["question_ids"], nlohmann::json(question.ids));
    EXPECT_EQ(line["answer_ids"], nlohmann::json(question.answer));
    EXPECT_EQ(line["scored"], nlohmann::json(question.scored));
    EXPECT_EQ(line["depth"], question.depth);
    EXPECT_EQ(line["length"], 2048);
    EXPECT_EQ(line["max_new_tokens"], 128);
  }
  EXPECT_EQ(count, 6);
}

}  // namespace
}  // namespace ropewalk::ruler_test
