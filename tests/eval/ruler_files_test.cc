// RULER's tasks that take a file: essays, SQuAD, HotpotQA, more words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/ruler.h"
#include "src/eval/ruler/haystack.h"
#include "tests/eval/tiny_model.h"
#include "tests/support/message_of.h"

namespace ropewalk::ruler_files_test {
namespace {

using nlohmann::json;
using test::MessageOf;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Tokenizer& Words() {
  static const auto kTokenizer = LoadTokenizerFolder(ROPEWALK_SOURCE_DIR "/models");
  return *kTokenizer;
}

std::string Essay() {
  std::string text;
  for (int i = 0; i < 900; ++i) {
    text += "Mr. Smith of number " + std::to_string(i) + " went home.\n\n And then he slept! ";
  }
  return text;
}

std::string Refused(const std::string& task, const RulerOptions& options) {
  return MessageOf(ErrorCode::kInvalidFile,
                   [&] { MakeRulerTask(task, options, Words())->Prompts(4096, 1); });
}

TEST(Haystack, SentencesEndWhereTheyDo) {
  internal::Haystack text("Dr. A. Moss said \"No.\" It  was\tlate? yes, e.g. this. He\nleft.", {},
                          "x");
  EXPECT_THAT(text.Sentences(12),
              ElementsAre("Dr. A. Moss said \"No.\"", "It was late?", "yes, e.g. this.", "He"));
  EXPECT_THAT(text.Sentences(7), ElementsAre("Dr. A. Moss said \"No.\"", "It was"));
  EXPECT_EQ(text.Sentences(26).size(), 8u);  // the text twice
}

TEST(Haystack, BeginsWithoutBeingRepeated) {
  const internal::Haystack text("One two. Thr\u00e9e", {}, "x");
  EXPECT_EQ(text.Beginning(2, 100), "One two.");
  EXPECT_EQ(text.Beginning(5, 100), "One two. Thr\u00e9e One two.");
  EXPECT_EQ(text.Beginning(5, 12), "One two. Thr");
  EXPECT_EQ(text.Beginning(5, 13), "One two. Thr");  // not half a character
  EXPECT_EQ(text.Beginning(int64_t{1} << 60, 14), "One two. Thr\u00e9");
}

// Five hundred words of it are gigabytes, which are not made to see that they are too many.
TEST(RulerFiles, EssaysWithoutSpacesFitNoPrompt) {
  const RulerOptions options = {.haystack = {"long.txt", std::string(5'000'000, '[')}};
  EXPECT_THAT(
      MessageOf(ErrorCode::kInvalidArgument,
                [&] { MakeRulerTask("niah_single_2", options, Words())->Prompts(1024, 1); }),
      AllOf(HasSubstr("no prompt fits 1024 tokens"), HasSubstr("long.txt")));
}

TEST(Haystack, GivenSentencesAreTaken) {
  internal::Haystack text(" One two.\nThree (four.) Five", {"One", "two. Three (four.)", "Five"},
                          "x");
  EXPECT_THAT(text.Sentences(4), ElementsAre("One", "two. Three"));  // split(" ") gives "" first
  EXPECT_THAT(text.Sentences(6), ElementsAre("One", "two. Three (four.)", "Five"));
}

// Taking the needles out leaves the beginning of the text.
TEST(RulerFiles, NeedlesStandBetweenSentencesOfTheEssay) {
  const RulerOptions options = {.haystack = {"essay.txt", Essay()}};
  std::string plain = internal::Haystack(Essay(), {}, "x").Sentences(1)[0].data();
  for (const auto& [name, needles, references] : {std::tuple{"niah_single_2", 1, 1u},
                                                  {"niah_single_3", 1, 1u},
                                                  {"niah_multikey_1", 4, 1u},
                                                  {"niah_multivalue", 4, 4u},
                                                  {"niah_multiquery", 4, 4u}}) {
    SCOPED_TRACE(name);
    const auto task = MakeRulerTask(name, options, Words());
    EXPECT_THAT(task->Protocol(), HasSubstr("RULER-form"));
    const TaskPrompt prompt = task->Prompts(5000, 1).at(0);
    std::string text = prompt.text.substr(prompt.text.find('\n') + 1);
    int found = 0;
    for (size_t at; (at = text.find("One of the special magic ")) != std::string::npos; ++found) {
      const size_t end = std::min(text.find(". ", at), text.size() - 1) + 1;
      const std::string next = text.substr(std::min(end + 1, text.size()), 3);
      EXPECT_TRUE(next.empty() || next == "Mr." || next == "And" || next == "One") << next;
      text.erase(at, std::min(end + 1, text.size()) - at);
    }
    EXPECT_EQ(found, needles);
    EXPECT_TRUE(plain.starts_with(text.substr(0, text.find_last_not_of(' ') + 1)));
    EXPECT_EQ(prompt.questions.at(0).references.size(), references);
    for (const std::string& value : prompt.questions[0].references) {
      EXPECT_THAT(prompt.text, HasSubstr(" is: " + value + "."));
    }
  }
}

TEST(RulerFiles, EssayKeysAreAskedOneByOne) {
  const RulerOptions options = {.questions = 9, .haystack = {"essay.txt", Essay()}};
  EXPECT_EQ(
      MakeRulerTask("niah_multikey_1", options, Words())->Prompts(5000, 1)[0].questions.size(), 4u);
  EXPECT_EQ(
      MakeRulerTask("niah_multiquery", options, Words())->Prompts(5000, 1)[0].questions.size(), 5u);
  EXPECT_EQ(
      MakeRulerTask("niah_multivalue", options, Words())->Prompts(5000, 1)[0].questions.size(), 1u);
}

TEST(RulerFiles, BrokenHaystacksAreRefused) {
  const auto refused = [](const std::string& content) {
    return Refused("niah_single_2", {.haystack = {"h.json", content}});
  };
  EXPECT_THAT(refused(" \n\t"), HasSubstr("h.json: a haystack without words"));
  EXPECT_THAT(refused("{\"text\": 3}"), HasSubstr("expected {\"text\": \"...\"}"));
  EXPECT_THAT(refused("{\"text\": \"a b\""), HasSubstr("h.json"));
  EXPECT_THAT(refused(R"({"text": "a b.", "sentences": []})"), HasSubstr("array is empty"));
  EXPECT_THAT(refused(R"({"text": "a b.", "sentences": "a b."})"), HasSubstr("expected an array"));
  EXPECT_THAT(refused(R"({"text": "a b.", "sentences": [1]})"), HasSubstr("expected strings"));
  EXPECT_THAT(refused(R"({"text": "a b.", "sentences": ["b."]})"), HasSubstr("number 0 is not"));
  EXPECT_THAT(refused(R"({"text": "a b.", "sentences": ["a"]})"), HasSubstr("end before"));
}

json Squad() {
  json data = json::array();
  for (int a = 0; a < 20; ++a) {
    json paragraphs = json::array();
    for (int p = 0; p < 3; ++p) {
      const std::string name = std::to_string(a) + "-" + std::to_string(p);
      paragraphs.push_back(
          {{"context", "Place " + name + " has a lake and a hill."},
           {"qas",
            {{{"question", "None?"}, {"is_impossible", true}, {"answers", json::array()}},
             {{"question", "What has " + name + "?"},
              {"is_impossible", false},
              {"answers", {{{"text", "a lake"}}, {{"text", "a hill"}}}}}}}});
    }
    data.push_back({{"paragraphs", paragraphs}});
  }
  return {{"data", data}};
}

TEST(RulerFiles, SquadAsksAboutOneDocument) {
  const RulerOptions options = {.squad = {"squad.json", Squad().dump()}};
  const auto task = MakeRulerTask("qa_1", options, Words());
  EXPECT_EQ(task->Match(), TaskMatch::kAny);
  const auto prompts = task->Prompts(700, 3);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const TaskQuestion& question = prompts[i].questions.at(0);
    const std::string name = "0-" + std::to_string(i);
    EXPECT_THAT(question.text, HasSubstr("Question: What has " + name + "? Answer:"));
    EXPECT_THAT(question.references, ElementsAre("a lake", "a hill"));
    EXPECT_EQ(question.answer_text, " a lake");
    const auto at = static_cast<size_t>(
        std::lround(question.depth * static_cast<double>(prompts[i].text.size())));
    EXPECT_THAT(prompts[i].text.substr(at, 40), HasSubstr("Place " + name));
  }
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { task->Prompts(700, 61); }),
              HasSubstr("the file has 60 questions"));
}

TEST(RulerFiles, BrokenSquadSaysWhere) {
  const auto refused = [](const std::string& pointer, const json& value) {
    json squad = Squad();
    squad[json::json_pointer(pointer)] = value;
    return Refused("qa_1", {.squad = {"s.json", squad.dump()}});
  };
  EXPECT_THAT(refused("/data", 1), HasSubstr("s.json: .data: expected an array"));
  EXPECT_THAT(refused("/data/1/paragraphs", nullptr),
              HasSubstr(".data[1].paragraphs: expected an array"));
  EXPECT_THAT(refused("/data/0/paragraphs/2", json::object()),
              HasSubstr("expected a key \"context\""));
  EXPECT_THAT(refused("/data/0/paragraphs/2/context", 5), HasSubstr("expected a string"));
  EXPECT_THAT(refused("/data/0/paragraphs/0/qas/1/is_impossible", "no"),
              HasSubstr("true or false"));
  EXPECT_THAT(refused("/data/0/paragraphs/0/qas/1/answers", json::array()), HasSubstr("an answer"));
  EXPECT_THAT(refused("/data", json::array()), HasSubstr("no question with an answer"));
  EXPECT_THAT(Refused("qa_1", {.squad = {"s.json", "{\"data\": ["}}), HasSubstr("s.json"));
  EXPECT_THAT(Refused("qa_1", {.squad = {"s.json", std::string(4000, '[')}}), HasSubstr("s.json"));
}

TEST(RulerFiles, HotpotJoinsSentencesUnderATitle) {
  json hotpot = json::array();
  for (int i = 0; i < 30; ++i) {
    const std::string n = std::to_string(i);
    hotpot.push_back(
        {{"question", "Who is " + n + "?"},
         {"answer", "person " + n},
         {"context", json::array({json::array(
                         {"Title " + n, json::array({"First " + n + ".", " Second."})})})}});
  }
  const RulerOptions options = {.hotpot = {"hotpot.json", hotpot.dump()}};
  const TaskPrompt prompt = MakeRulerTask("qa_2", options, Words())->Prompts(700, 2).at(1);
  EXPECT_THAT(prompt.text, HasSubstr(":\nTitle 1\nFirst 1. Second."));
  EXPECT_THAT(prompt.questions.at(0).references, ElementsAre("person 1"));

  json bare = hotpot;
  for (json& entry : bare) entry["context"] = json::array();
  EXPECT_THAT(Refused("qa_2", {.hotpot = {"h.json", bare.dump()}}),
              HasSubstr("h.json: has no doc"));
  bare[0] = hotpot[1];  // a question without documents is asked, as RULER asks it
  const auto asked = MakeRulerTask("qa_2", {.hotpot = {"h.json", bare.dump()}}, Words());
  EXPECT_THAT(asked->Prompts(700, 2).at(1).text, HasSubstr(":\nTitle 1\nFirst 1. Second."));

  hotpot[3]["context"][0] = json::array({"only a title"});
  EXPECT_THAT(Refused("qa_2", {.hotpot = {"h.json", hotpot.dump()}}),
              HasSubstr("h.json: [3].context[0]: expected more than 1 items"));
  hotpot[3].erase("context");
  EXPECT_THAT(Refused("qa_2", {.hotpot = {"h.json", hotpot.dump()}}), HasSubstr("\"context\""));
}

TEST(RulerFiles, MoreDocumentsThanAreNeededForAQuestionAreAnError) {
  json context = json::array();
  for (int i = 0; i < 30; ++i) {
    context.push_back(json::array({"Title " + std::to_string(i), json::array({"Text."})}));
  }
  const json other = json::array({json::array({"Other", json::array({"Text."})})});
  const json hotpot = json::array({{{"question", "Who?"}, {"answer", "x"}, {"context", context}},
                                   {{"question", "Why?"}, {"answer", "y"}, {"context", other}}});
  const RulerOptions options = {.hotpot = {"hotpot.json", hotpot.dump()}};
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument,
                        [&] { MakeRulerTask("qa_2", options, Words())->Prompts(4096, 1); }),
              HasSubstr("RULER's generator fails"));
}

TEST(RulerFiles, CommonWordsBeyondTheListNeedMoreWords) {
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument,
                        [] { MakeRulerTask("cwe", {}, Words())->Prompts(1 << 18, 1); }),
              HasSubstr("--english-words"));
  EXPECT_THAT(Refused("cwe", {.english_words = {"e.json", "{\"0\": 1}"}}),
              HasSubstr("e.json: \"0\": expected a string"));
}

}  // namespace
}  // namespace ropewalk::ruler_files_test
