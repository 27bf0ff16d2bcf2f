// Unigram models and the rules before them, where files do not hold and words are long.
#include <gmock/gmock.h>

#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace unigram_test {

using nlohmann::json;
using testing::HasSubstr;

const std::string kGoldens = ROPEWALK_TOKENIZER_GOLDENS;

// Pieces with scores, SentencePiece's rules, and what is put round a text.
TEST(Unigram, BrokenFiles) {
  const json good = json::parse(ReadFile(kGoldens + "/t5/tokenizer.json"));
  const auto map = [](const char* base64) {
    return [base64](json* j) { (*j)["normalizer"]["precompiled_charsmap"] = base64; };
  };
  const std::vector<Case> cases = {
      {"vocab of pieces alone", [](json* j) { (*j)["model"]["vocab"][3] = "a"; }, "vocab[3]"},
      {"no score",
       [](json* j) {
         (*j)["model"]["vocab"][3] = {"a", "b"};
       },
       "a piece and its score"},
      {"no pieces", [](json* j) { (*j)["model"]["vocab"] = json::array(); }, "is empty"},
      {"unknown token past the end", [](json* j) { (*j)["model"]["unk_id"] = 316; }, "0 to 315"},
      {"merges", [](json* j) { (*j)["model"]["merges"] = json::array(); }, "'merges'"},
      {"rules that are no base64", map("AA?A"), "no base64"},
      {"no rules", map(""), "precompiled_charsmap"},
      {"a trie longer than the rules", map("CAAAAAAAAAA="), "8 bytes"},
      {"rules that are no text", map("BAAAAAAAAAD//w=="), "no UTF-8"},
      {"a trie of five bytes", map("BQAAAAAAAAAA"), "5 bytes"},
      {"an id behind the vocabulary",
       [](json* j) { (*j)["post_processor"]["special_tokens"]["</s>"]["ids"][0] = 316; }, "316"},
      {"no such special token",
       [](json* j) { (*j)["post_processor"]["special_tokens"] = json::object(); }, "'</s>'"},
      {"Roberta's without a sep",
       [](json* j) {
         (*j)["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"</s>", 1}}};
       },
       "'sep'"},
  };
  for (const Case& c : cases) {
    json bad = good;
    c.change(&bad);
    EXPECT_THAT(LoadJson(bad.dump()), HasSubstr(c.expected)) << c.name;
  }
  // Rules that point outside: they hold nothing, and no text is lost.
  json wild = good;
  map("CAAAAP//////////")(&wild);
  const TempFolder folder;
  folder.Write("tokenizer.json", wild.dump());
  EXPECT_EQ(LoadTokenizerFolder(folder.path())->Encode("It is").size(),
            LoadTokenizerFolder(kGoldens + "/t5")->Encode("It is").size());
}

// What PyPI's tokenizers 0.22 says; of an unknown character: "`unk_id` is missing".
TEST(Unigram, WithoutAnUnknownToken) {
  const TempFolder folder;
  for (const char* unknown : {R"("unk_id":null,)", ""}) {
    folder.Write("tokenizer.json", std::string(R"({"model":{"type":"Unigram",)") + unknown +
                                       R"("vocab":[["a",-1.0],["b",-2.0],["bxa",-1.5]]}})");
    const auto tokenizer = LoadTokenizerFolder(folder.path());
    EXPECT_EQ(tokenizer->Encode("aab"), (std::vector<int32_t>{0, 0, 1}));
    for (const char* text : {"abz", "bxa"}) {
      EXPECT_THAT(MessageOf([&] { tokenizer->Encode(text); }), HasSubstr("unk_id")) << text;
    }
  }
}

// White space has no pieces there: words do.
TEST(Unigram, LongWordsAreFine) {
  for (const char* name : {"t5", "unigram_bytes"}) {
    const auto tokenizer = LoadTokenizerFolder(kGoldens + "/" + name);
    for (const char c : {'a', '1', '!'}) {
      const std::string text = std::string(200000, c) + "x";
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << name << " '" << c << "'";
    }
  }
}

}  // namespace unigram_test
}  // namespace ropewalk
