// Files that do not hold: one Error each, which names file and key and says what to do.
#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace hostile_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const std::string kGoldens = ROPEWALK_TOKENIZER_GOLDENS;

TEST(Hostile, TokenizerJson) {
  const json good = json::parse(ReadFile(kGoldens + "/added/tokenizer.json"));
  const std::vector<Case> cases = {
      {"no model", [](json* j) { j->erase("model"); }, "'model' is missing"},
      {"WordLevel", [](json* j) { (*j)["model"]["type"] = "WordLevel"; }, "'WordLevel'"},
      {"keys of BPE in WordPiece", [](json* j) { (*j)["model"]["type"] = "WordPiece"; },
       "'byte_fallback'"},
      {"WordPiece without an unknown token",
       [](json* j) {
         (*j)["model"] = {{"type", "WordPiece"}, {"vocab", {{"a", 0}}}, {"unk_token", "[UNK]"}};
       },
       "[UNK]"},
      {"type is a number", [](json* j) { (*j)["model"]["type"] = 7; }, "model.type"},
      {"unknown model key", [](json* j) { (*j)["model"]["surprise"] = 1; }, "'surprise'"},
      {"unknown top key", [](json* j) { (*j)["surprise"] = 1; }, "'surprise'"},
      {"empty vocab", [](json* j) { (*j)["model"]["vocab"] = json::object(); }, "model.vocab"},
      {"vocab is a list",
       [](json* j) {
         (*j)["model"]["vocab"] = {1, 2};
       },
       "model.vocab"},
      {"negative id", [](json* j) { (*j)["model"]["vocab"]["zz"] = -1; }, "-1"},
      {"huge id",
       [](json* j) {
         (*j)["model"]["vocab"]["zz"] = 2147483647;
         j->erase("added_tokens");
       },
       "2147483647"},
      {"id past 32 bits", [](json* j) { (*j)["model"]["vocab"]["zz"] = 1ull << 40; },
       "1099511627776"},
      {"fractional id", [](json* j) { (*j)["model"]["vocab"]["zz"] = 1.5; }, "1.5"},
      {"the same id twice",
       [](json* j) {
         (*j)["model"]["vocab"]["zz"] = 5;
         j->erase("added_tokens");
       },
       "same id 5"},
      {"merge of unknown",
       [](json* j) {
         (*j)["model"]["merges"].push_back({"q q", "zz"});
       },
       "is not in the vocabulary"},
      {"merge of three",
       [](json* j) {
         (*j)["model"]["merges"].push_back({"a", "b", "c"});
       },
       "pair of strings"},
      {"merge without space", [](json* j) { (*j)["model"]["merges"].push_back("ab"); },
       "one space"},
      {"merge makes unknown",
       [](json* j) {
         (*j)["model"]["merges"].push_back({"~", "~"});
       },
       "'~~'"},
      {"unknown unk", [](json* j) { (*j)["model"]["unk_token"] = "nope"; }, "'nope'"},
      {"dropout", [](json* j) { (*j)["model"]["dropout"] = 0.1; }, "dropout"},
      {"suffix", [](json* j) { (*j)["model"]["end_of_word_suffix"] = "</w>"; },
       "end_of_word_suffix"},
      {"normalizer",
       [](json* j) {
         (*j)["normalizer"] = {{"type", "Nmt"}};
       },
       "'Nmt'"},
      {"pre-tokenizer",
       [](json* j) {
         (*j)["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
       },
       "'UnicodeScripts'"},
      {"decoder",
       [](json* j) {
         (*j)["decoder"] = {{"type", "CTC"}};
       },
       "decoder.type"},
      {"post-processor",
       [](json* j) {
         (*j)["post_processor"] = {{"type", "Surprise"}};
       },
       "'Surprise'"},
      {"added id out of range", [](json* j) { (*j)["added_tokens"][0]["id"] = 2000000000; },
       "2000000000"},
      {"added id contradicts", [](json* j) { (*j)["added_tokens"][0]["id"] = 3; }, "vocabulary"},
      {"added content missing", [](json* j) { (*j)["added_tokens"][0].erase("content"); },
       "added_tokens[0]"},
      {"added twice", [](json* j) { (*j)["added_tokens"].push_back((*j)["added_tokens"][0]); },
       "twice"},
      {"added too long",
       [](json* j) { (*j)["added_tokens"][5]["content"] = std::string(5000, 'a'); }, "5000 bytes"},
  };
  for (const Case& one : cases) {
    json broken = good;
    one.change(&broken);
    EXPECT_THAT(LoadJson(broken.dump()), HasSubstr(one.expected)) << one.name;
  }
}

json WithPattern(const std::string& pattern) {
  json tokenizer = json::parse(ReadFile(kGoldens + "/llama3/tokenizer.json"));
  tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
  return tokenizer;
}

TEST(Hostile, Patterns) {
  const std::map<std::string, std::string> cases = {
      {"(", "does not compile"},
      {"[a", "does not compile"},
      {"*a", "does not compile"},
      {R"(\p{Nonsense})", "does not compile"},
      {"[a[^b]]", "inside another"},
      {"[a-[b]]", "a '-' before a class"},
      {R"([\p{L}&&[a-z]])", "&&"},
      {"(?R)", "'(?R)'"},
      {"(*NO_JIT)a", "'(*'"},
      {R"(\Qa)", "escape '\\Q'"},
      {"(?s:.)", "'(?s:'"},
      {"a{2}+", "'+' after '}'"},
      {"\\", "escape"},
      {R"([\W])", "negated escape"},
      {std::string(100000, 'a'), "100000 bytes"},
      {R"((?<=a+)b)", "does not compile"},
      {std::string(5000, '(') + "a" + std::string(5000, ')'), "does not compile"},
      {"((((a{1,9999}){1,9999}){1,9999}){1,9999})", "does not compile"},
  };
  for (const auto& [pattern, expected] : cases) {
    EXPECT_THAT(
        LoadJson(WithPattern(pattern).dump()),
        AllOf(HasSubstr("pre_tokenizer.pretokenizers[0].pattern.Regex"), HasSubstr(expected)))
        << pattern.substr(0, 40);
  }
}

TEST(Hostile, EndlessBacktrackingIsAnError) {
  const TempFolder folder;
  folder.Write("tokenizer.json", WithPattern("(?:a+)+b").dump());
  const auto tokenizer = LoadTokenizerFolder(folder.path());
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("xaaab")), "xaaab");
  EXPECT_THAT(MessageOf([&] { tokenizer->Encode(std::string(64, 'a') + "cb"); }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("backtracks")));
}

TEST(Hostile, LongRunsAreFine) {
  for (const char* name : {"gpt2", "llama3", "gpt4o", "llama2", "spm_bpe"}) {
    const auto tokenizer = LoadTokenizerFolder(kGoldens + "/" + name);
    for (const char c : {' ', 'a', '\n', '1', '!'}) {
      const std::string text = std::string(200000, c) + "x";
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << name << " '" << c << "'";
    }
  }
}

TEST(Hostile, EveryTruncationOfTokenizerJson) {
  const std::string good = ReadFile(kGoldens + "/llama2/tokenizer.json");
  for (std::size_t size = 0; size + 1 < good.size(); size += 1 + size / 8) {
    EXPECT_NE(LoadJson(good.substr(0, size)), "");
  }
  EXPECT_NE(LoadJson(std::string(1000000, '[')), "");
  EXPECT_NE(LoadJson("\xFF\xFE"), "");
}

TEST(Hostile, NestedSequences) {
  json tokenizer = json::parse(ReadFile(kGoldens + "/gpt2/tokenizer.json"));
  for (int i = 0; i < 25; ++i) {
    tokenizer["pre_tokenizer"] = {{"type", "Sequence"},
                                  {"pretokenizers", {tokenizer["pre_tokenizer"]}}};
  }
  const TempFolder folder;
  folder.Write("tokenizer.json", tokenizer.dump());
  EXPECT_EQ(LoadTokenizerFolder(folder.path())->Encode("Hello world"),
            LoadTokenizerFolder(kGoldens + "/gpt2")->Encode("Hello world"));
}

TEST(Hostile, Folder) {
  const TempFolder folder;
  EXPECT_THAT(MessageOf([&] { LoadTokenizerFolder(folder.path()); }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("--ids")));
  folder.Write("tokenizer.json", ReadFile(kGoldens + "/gpt2/tokenizer.json"));
  folder.Write("tokenizer_config.json", R"({"bos_token": "<nope>"})");
  EXPECT_THAT(MessageOf([&] { LoadTokenizerFolder(folder.path()); }), HasSubstr("'<nope>'"));
  folder.Write("tokenizer_config.json", R"({"bos_token": 7})");
  EXPECT_THAT(MessageOf([&] { LoadTokenizerFolder(folder.path()); }),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("bos_token")));
  folder.Write("tokenizer_config.json", R"({"add_bos_token": "yes"})");
  EXPECT_THAT(MessageOf([&] { LoadTokenizerFolder(folder.path()); }), HasSubstr("add_bos_token"));
}

std::string LoadModel(const std::string& bytes) {
  const TempFolder folder;
  folder.Write("tokenizer.model", bytes);
  const std::string message = MessageOf([&] { LoadTokenizerFolder(folder.path()); });
  EXPECT_THAT(message, HasSubstr("tokenizer.model"));
  return message;
}

TEST(Hostile, TokenizerModel) {
  EXPECT_NE(LoadModel(""), "");
  EXPECT_NE(LoadModel("no model at all, just text that goes on for a while"), "");
  EXPECT_NE(LoadModel(std::string(100, '\xFF')), "");
  EXPECT_NE(LoadModel("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"), "");  // a length near 2^63
  // <unk> alone, then with a second unknown piece, an empty one, one that is there twice.
  const std::string unknown("\x0A\x09\x0A\x05<unk>\x18\x02", 11);
  EXPECT_THAT(LoadModel(unknown + unknown), HasSubstr("appears twice"));
  EXPECT_THAT(LoadModel(unknown + std::string("\x0A\x05\x0A\x01x\x18\x02", 7)),
              HasSubstr("2 pieces of type unknown"));
  EXPECT_THAT(LoadModel(unknown + std::string("\x0A\x02\x0A\x00", 4)), HasSubstr("empty"));
  EXPECT_THAT(LoadModel(unknown + std::string("\x0A\x05\x0A\x01x\x18\x06", 7)),
              HasSubstr("byte piece"));
  EXPECT_THAT(LoadModel(unknown + std::string("\x0A\x08\x0A\x01x\x15\x00\x00\xC0\x7F", 10)),
              HasSubstr("not finite"));
  EXPECT_THAT(LoadModel(unknown + std::string("\x12\x02\x18\x04", 4)), HasSubstr("model type 4"));
}

// A damaged model is refused or loads and encodes: the library's own code never runs on links that
// lead outside (this one has compiled normalisation rules).
TEST(Hostile, DamagedTokenizerModel) {
  const std::string good = ReadFile(kGoldens + "/spm_unigram/tokenizer.model");
  int refused = 0, loaded = 0;
  for (std::size_t i = 0; i < good.size(); i += 29) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    if (i % 3 == 0) bad.resize(i);
    const TempFolder folder;
    folder.Write("tokenizer.model", bad);
    try {
      const auto tokenizer = LoadTokenizerFolder(folder.path());
      const auto ids = tokenizer->Encode("e\u0301 \uFB01 \u00BD\u2026 Hello, world! \u4E2D");
      tokenizer->Decode(ids);
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(loaded, 20);
}

std::string Llama2cBytes(int count, const std::function<void(int, float*, std::string*)>& change) {
  std::string out("\x08\x00\x00\x00", 4);
  for (int i = 0; i < count; ++i) {
    float score = 0;
    std::string piece = i == 259 ? " " : "p" + std::to_string(i);
    change(i, &score, &piece);
    const auto length = static_cast<int32_t>(piece.size());
    out.append(reinterpret_cast<const char*>(&score), 4);
    out.append(reinterpret_cast<const char*>(&length), 4);
    out += piece;
  }
  return out;
}

TEST(Hostile, TokenizerBin) {
  const auto same = [](int, float*, std::string*) {};
  const std::string good = Llama2cBytes(300, same);
  const TempFolder folder;
  const auto load = [&](const std::string& bytes, int64_t count) {
    const std::string path = folder.Write("tokenizer.bin", bytes);
    return MessageOf([&] { LoadTokenizerLlama2c(path, count); });
  };
  const std::string path = folder.Write("tokenizer.bin", good);
  EXPECT_EQ(LoadTokenizerLlama2c(path, 300)->vocab_size(), 300);
  EXPECT_THAT(load(good, 301), HasSubstr("token 300 of 301"));
  EXPECT_THAT(load(good, 299), HasSubstr("do not belong together"));
  EXPECT_THAT(load(good, -1), HasSubstr("-1 tokens"));
  EXPECT_THAT(load(good, int64_t{1} << 60), HasSubstr("belongs to another checkpoint"));
  EXPECT_THAT(load(good, 10), HasSubstr("10 tokens"));
  for (std::size_t size = 0; size < good.size(); size += 101) {
    EXPECT_NE(load(good.substr(0, size), 300), "");
  }
  std::string negative = good;
  const int32_t length = -5;
  std::memcpy(negative.data() + 8, &length, 4);
  EXPECT_THAT(load(negative, 300), HasSubstr("-5 bytes"));
  std::string huge = good;
  const int32_t most = 0x7FFFFFFF;
  std::memcpy(huge.data() + 8, &most, 4);
  EXPECT_THAT(load(huge, 300), HasSubstr("2147483647 bytes"));
  EXPECT_THAT(load(Llama2cBytes(300,
                                [](int i, float* score, std::string*) {
                                  if (i == 270) *score = std::nanf("");
                                }),
                   300),
              HasSubstr("token 270"));
  EXPECT_THAT(load(Llama2cBytes(300,
                                [](int i, float*, std::string* piece) {
                                  if (i == 259) *piece = "x";
                                }),
                   300),
              HasSubstr("single space"));
}

GgufFile SmallGguf() {
  GgufFile gguf;
  gguf.version = 3;
  const auto set = [&](const char* key, auto value) { gguf.metadata[key].value = value; };
  set("tokenizer.ggml.model", std::string("gpt2"));
  set("tokenizer.ggml.pre", std::string("gpt-2"));
  set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|x|>"});
  set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  set("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 3});
  return gguf;
}

TEST(Hostile, Gguf) {
  EXPECT_EQ(LoadTokenizerGguf(SmallGguf())->Encode("abba"), (std::vector<int32_t>{2, 1, 0}));
  using Value = decltype(GgufValue::value);
  const auto message = [](const char* key, const Value& value) {
    GgufFile gguf = SmallGguf();
    gguf.metadata[key].value = value;
    return MessageOf([&] { LoadTokenizerGguf(gguf); });
  };
  using Texts = std::vector<std::string>;
  using Ints = std::vector<int64_t>;
  EXPECT_THAT(message("tokenizer.ggml.pre", std::string("klingon")),
              AllOf(HasSubstr("'klingon'"), HasSubstr("--ids"), HasSubstr("smollm")));
  EXPECT_THAT(message("tokenizer.ggml.pre", std::string()), HasSubstr("missing"));
  EXPECT_THAT(message("tokenizer.ggml.model", std::string("rwkv")), HasSubstr("'rwkv'"));
  EXPECT_THAT(message("tokenizer.ggml.model", std::string("t5")), HasSubstr("scores"));
  EXPECT_THAT(message("tokenizer.ggml.model", int64_t{1}), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(message("tokenizer.ggml.token_type", Ints{1, 1}), HasSubstr("2 elements"));
  EXPECT_THAT(message("tokenizer.ggml.token_type", Ints{1, 1, 9, 1}), HasSubstr("type 9"));
  EXPECT_THAT(message("tokenizer.ggml.token_type", Texts{"1"}), HasSubstr("another type"));
  EXPECT_THAT(message("tokenizer.ggml.tokens", Texts{}), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(message("tokenizer.ggml.tokens", Texts{"a", "b", "ab", "a"}),
              HasSubstr("token 0 and token 3"));
  EXPECT_THAT(message("tokenizer.ggml.merges", Texts{"a c"}), HasSubstr("merges[0]"));
  EXPECT_THAT(message("tokenizer.ggml.merges", Texts{"ab"}), HasSubstr("merges[0]"));
  EXPECT_THAT(message("tokenizer.ggml.merges", Texts{""}), HasSubstr("merges[0]"));
  EXPECT_THAT(message("tokenizer.ggml.merges", Texts{}), HasSubstr("missing or empty"));
  EXPECT_THAT(message("tokenizer.ggml.bos_token_id", int64_t{4}), HasSubstr("bos_token_id"));
  EXPECT_THAT(message("tokenizer.ggml.bos_token_id", uint64_t{1} << 63), HasSubstr("bos_token_id"));
  EXPECT_THAT(message("tokenizer.ggml.model", std::string("llama")), HasSubstr("scores"));
}

TEST(Hostile, IdsOutsideTheVocabulary) {
  for (const char* name : {"gpt2", "llama2", "spm_bpe"}) {
    const auto tokenizer = LoadTokenizerFolder(kGoldens + "/" + name);
    const auto end = static_cast<int32_t>(tokenizer->vocab_size());
    for (const int32_t id : {-1, end, 0x7FFFFFFF}) {
      EXPECT_THROW(tokenizer->Piece(id), Error) << name << " " << id;
      EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{id}), Error) << name << " " << id;
    }
    EXPECT_EQ(tokenizer->Decode({}), "");
  }
}

}  // namespace hostile_test
}  // namespace ropewalk
