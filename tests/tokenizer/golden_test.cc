// Ids equal those of PyPI's tokenizers and sentencepiece (tests/golden/tokenizer_make.py).
#include <gmock/gmock.h>

#include <algorithm>

#include "src/tokenizer/export.h"
#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace golden_test {

using nlohmann::json;
using Ids = std::vector<int32_t>;

const std::vector<std::string>& Texts() {
  static const auto texts = ReadGolden("texts.json")["texts"].get<std::vector<std::string>>();
  return texts;
}

void ExpectGolden(const Tokenizer& tokenizer, const json& golden) {
  const auto& texts = Texts();
  ASSERT_GT(texts.size(), 150u);
  ASSERT_EQ(golden["ids"].size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Ids expected = golden["ids"][i].get<Ids>();
    EXPECT_EQ(tokenizer.Encode(texts[i]), expected) << "text " << i << ": " << json(texts[i]);
    if (golden.contains("decoded")) {
      const auto decoded = golden["decoded"][i].get<std::string>();
      // The original replaces bytes that are no text; here they are the bytes themselves.
      EXPECT_EQ(ValidUtf8(tokenizer.Decode(expected)), decoded)
          << "text " << i << ": " << json(texts[i]);
    }
    if (!golden.contains("special")) continue;
    const auto special = golden["special"].find(std::to_string(i));
    EXPECT_EQ(tokenizer.Encode(texts[i], {.special = true}),
              special == golden["special"].end() ? expected : special->get<Ids>())
        << "with special tokens, text " << i << ": " << json(texts[i]);
  }
}

class Tiny : public testing::TestWithParam<const char*> {};
TEST_P(Tiny, IdsEqualTheOriginals) {
  const std::string name = GetParam();
  const auto tokenizer =
      LoadTokenizerFolder((std::filesystem::path(ROPEWALK_TOKENIZER_GOLDENS) / name).string());
  ExpectGolden(*tokenizer, ReadGolden(name + "/golden.json"));
}
INSTANTIATE_TEST_SUITE_P(All, Tiny,
                         testing::Values("gpt2", "added", "llama3", "qwen2", "gpt4o", "smollm",
                                         "falcon", "deepseek_coder", "deepseek_v3", "tekken",
                                         "bloom", "kimi_k2", "behaviors", "whitespace", "nfkd",
                                         "llama2", "gemma", "metaspace_first", "metaspace_always",
                                         "metaspace_never", "unknown", "spm_bpe", "spm_unigram",
                                         "bert", "bert_cased", "roberta", "t5", "deberta",
                                         "unigram_bytes"),
                         [](const auto& info) { return std::string(info.param); });

// tests/golden/wordpiece_make.py: controls, white space, Chinese, accents, words of 100 and 101
// characters; encoder_tokenizers_make.py: rules, runs of the unknown, marks; and what a text stands
// between.
TEST(Encoders, TextsOfTheirOwnAndTheFrame) {
  for (const auto& [name, kind] : {std::pair{"bert", "WordPiece"},
                                   {"bert_cased", "WordPiece"},
                                   {"roberta", "byte-level BPE"},
                                   {"t5", "Unigram"},
                                   {"deberta", "Unigram"},
                                   {"unigram_bytes", "Unigram"}}) {
    const auto tokenizer =
        LoadTokenizerFolder((std::filesystem::path(ROPEWALK_TOKENIZER_GOLDENS) / name).string());
    EXPECT_EQ(tokenizer->kind(), std::string(kind) + " (tokenizer.json)");
    const json golden = ReadGolden(std::string(name) + "/golden.json");
    ASSERT_GE(golden["more"].size(), 10u);
    for (std::size_t i = 0; i < golden["more"].size(); ++i) {
      EXPECT_EQ(tokenizer->Encode(golden["more"][i].get<std::string>()),
                golden["more_ids"][i].get<Ids>())
          << name << ", text " << i;
    }
    Ids framed = tokenizer->front();
    for (const int32_t id : tokenizer->Encode("The End")) framed.push_back(id);
    framed.insert(framed.end(), tokenizer->back().begin(), tokenizer->back().end());
    EXPECT_EQ(framed, golden["framed"].get<Ids>()) << name;
  }
}

// What t5_gguf_make.py wrote of spm_unigram's model.
TEST(GgufT5, IdsEqualTheOriginals) {
  const GgufFile gguf =
      OpenGguf(std::string(ROPEWALK_TOKENIZER_GOLDENS) + "/spm_unigram/tokenizer.gguf");
  const auto tokenizer = LoadTokenizerGguf(gguf);
  ExpectGolden(*tokenizer, ReadGolden("spm_unigram/golden.json"));
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_FALSE(tokenizer->adds_bos());
  // Its rules are part of it: what they say decides ids, and what is no rules is refused.
  const std::string key = "tokenizer.ggml.precompiled_charsmap";
  ASSERT_TRUE(gguf.metadata.contains(key));
  GgufFile other = OpenGguf(gguf.file->path());
  other.metadata.erase(key);
  EXPECT_NE(LoadTokenizerGguf(other)->hash(), tokenizer->hash());
  other.metadata[key].value = std::vector<int64_t>{1, 2, 300};
  EXPECT_THAT(MessageOf([&] { LoadTokenizerGguf(other); }), testing::HasSubstr("300"));
  other.metadata[key].value = std::vector<int64_t>{40, 0, 0, 0, 1};
  EXPECT_THAT(MessageOf([&] { LoadTokenizerGguf(other); }), testing::HasSubstr("corrupt"));
}

TEST(Llama2c, IdsEqualTheOriginals) {
  const json golden = ReadGolden("llama2c/golden.json");
  const auto tokenizer =
      LoadTokenizerLlama2c(std::string(ROPEWALK_TOKENIZER_GOLDENS) + "/llama2c/tokenizer.bin",
                           golden["vocab_size"].get<int64_t>());
  ExpectGolden(*tokenizer, golden);
  for (const std::string& text : Texts()) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << json(text);
  }
}

TEST(Llama2c, IdsOfStories260KEqualTheOriginals) {
  if (TestData().empty()) GTEST_SKIP() << "set ROPEWALK_TEST_DATA to run this";
  const auto path = (TestData() / "stories260K/tokenizer.bin").string();
  const auto tokenizer = LoadTokenizerLlama2c(path, 512);
  EXPECT_EQ(tokenizer->vocab_size(), 512);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_TRUE(tokenizer->adds_bos());
  ExpectGolden(*tokenizer, ReadGolden("stories260K.json"));
}

class ByteLevel : public testing::TestWithParam<const char*> {};
TEST_P(ByteLevel, DecodeInvertsEncode) {
  const auto tokenizer = LoadTokenizerFolder(
      (std::filesystem::path(ROPEWALK_TOKENIZER_GOLDENS) / GetParam()).string());
  for (const std::string& text : Texts()) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << json(text);
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, {.special = true})), text) << json(text);
  }
  // Every code point, so that every byte sequence of UTF-8 occurs.
  std::string text;
  for (char32_t c = 1; c < 0x20000; c += 7) {
    if (c >= 0xD800 && c < 0xE000) continue;
    text += static_cast<char>(0xF0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  }
  text = ValidUtf8(text);  // what was an overlong form is U+FFFD now
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
}
INSTANTIATE_TEST_SUITE_P(All, ByteLevel,
                         testing::Values("gpt2", "llama3", "gpt4o", "smollm", "falcon",
                                         "deepseek_coder", "deepseek_v3", "tekken", "bloom",
                                         "kimi_k2"),
                         [](const auto& info) { return std::string(info.param); });

struct RealFile {
  const char* name;
  const char* kind;
  int32_t bos, eos;
  bool adds_bos;
};
class Real : public testing::TestWithParam<RealFile> {};
TEST_P(Real, IdsEqualTheOriginals) {
  if (TestData().empty()) GTEST_SKIP() << "set ROPEWALK_TEST_DATA to run this";
  const RealFile& file = GetParam();
  const auto path = TestData() / "gguf_vocab" / (std::string("ggml-vocab-") + file.name + ".gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto tokenizer = LoadTokenizerGguf(OpenGguf(path.string()));
  EXPECT_EQ(tokenizer->kind(), file.kind);
  EXPECT_EQ(tokenizer->bos_id(), file.bos);
  EXPECT_EQ(tokenizer->eos_id(), file.eos);
  EXPECT_EQ(tokenizer->adds_bos(), file.adds_bos);
  ExpectGolden(*tokenizer, ReadGolden(std::string(file.name) + ".json"));
}
INSTANTIATE_TEST_SUITE_P(All, Real,
                         testing::Values(RealFile{"deepseek-coder", "byte-level BPE (GGUF)", 32013,
                                                  32014, true},
                                         RealFile{"gpt-neox", "byte-level BPE (GGUF)", 0, 0, false},
                                         RealFile{"mpt", "byte-level BPE (GGUF)", 0, 0, false},
                                         RealFile{"llama-spm", "SentencePiece (GGUF)", 1, 2, true},
                                         RealFile{"phi-3", "SentencePiece (GGUF)", 1, 32000, true}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Real, WordPieceIsRefusedByName) {
  if (TestData().empty()) GTEST_SKIP() << "set ROPEWALK_TEST_DATA to run this";
  const auto gguf = OpenGguf((TestData() / "gguf_vocab/ggml-vocab-bert-bge.gguf").string());
  EXPECT_THAT(MessageOf([&] { LoadTokenizerGguf(gguf); }),
              testing::AllOf(testing::HasSubstr("tokenizer.ggml.model"),
                             testing::HasSubstr("'bert'"), testing::HasSubstr("--ids")));
}

// A tokenizer.json as GGUF metadata, under the name that llama.cpp has for its pattern, and as a
// folder again: the original's ids all the way.
struct Exported {
  const char* name;
  const char* pre;
};
class Export : public testing::TestWithParam<Exported> {};
TEST_P(Export, IdsSurviveGgufAndBack) {
  const auto folder = std::filesystem::path(ROPEWALK_TOKENIZER_GOLDENS) / GetParam().name;
  const json golden = ReadGolden(std::string(GetParam().name) + "/golden.json");
  const auto original = LoadTokenizerFolder(folder.string());
  GgufFile gguf;
  gguf.metadata = internal::TokenizerKeysOfFolder(folder.string(), original->vocab_size() + 3);
  if (GetParam().pre != nullptr) {
    EXPECT_EQ(gguf.metadata.at("tokenizer.ggml.pre").AsString(""), GetParam().pre);
  }
  const auto there = LoadTokenizerGguf(gguf);
  EXPECT_EQ(there->vocab_size(), original->vocab_size() + 3);  // padded to the embeddings
  EXPECT_EQ(there->bos_id(), original->bos_id());
  EXPECT_EQ(there->adds_bos(), original->adds_bos());
  ExpectGolden(*there, golden);

  const TempFolder back;
  const TokenizerExtras extras = internal::ExtrasOfGguf(gguf, *there, nullptr);
  for (const auto& [name, text] : internal::TokenizerFilesOfGguf(gguf, extras)) {
    back.Write(name, text);
  }
  const auto again = LoadTokenizerFolder(back.path());
  EXPECT_EQ(again->bos_id(), original->bos_id());
  EXPECT_EQ(again->adds_bos(), original->adds_bos());
  ExpectGolden(*again, golden);
}
INSTANTIATE_TEST_SUITE_P(All, Export,
                         testing::Values(Exported{"gpt2", "gpt-2"}, Exported{"qwen2", "qwen2"},
                                         Exported{"llama3", "llama-bpe"},
                                         Exported{"smollm", "smollm"}, Exported{"gpt4o", "gpt-4o"},
                                         Exported{"deepseek_coder", "deepseek-coder"},
                                         Exported{"deepseek_v3", "deepseek-v3"},
                                         Exported{"tekken", "tekken"}, Exported{"bloom", "bloom"},
                                         Exported{"kimi_k2", "kimi-k2"},
                                         Exported{"spm_bpe", "default"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ExportRefuses, WhatGgufCannotHold) {
  using testing::AllOf;
  using testing::HasSubstr;
  using testing::Not;
  const auto message = [](const char* name) {
    const auto folder = std::filesystem::path(ROPEWALK_TOKENIZER_GOLDENS) / name;
    return MessageOf([&] { internal::TokenizerKeysOfFolder(folder.string(), 2000); });
  };
  EXPECT_THAT(message("added"), HasSubstr("add_prefix_space"));
  EXPECT_THAT(message("behaviors"), HasSubstr("normaliser"));
  EXPECT_THAT(message("nfkd"), HasSubstr("normaliser"));
  EXPECT_THAT(message("falcon"), HasSubstr("Punctuation"));
  EXPECT_THAT(message("llama2"), HasSubstr("byte_fallback"));
  EXPECT_THAT(message("unknown"), HasSubstr("Metaspace"));
  EXPECT_THAT(message("spm_unigram"), HasSubstr("unigram"));
  EXPECT_THAT(message("t5"), HasSubstr("BPE alone"));
  for (const char* name : {"added", "behaviors", "falcon", "llama2", "unknown", "t5"}) {
    EXPECT_THAT(message(name), HasSubstr("; --no-tokenizer converts the weights alone")) << name;
    EXPECT_THAT(message(name), Not(HasSubstr("is not known here"))) << name;
  }
  TempFolder marked;  // a token with a flag
  json json_of_it =
      json::parse(ReadFile(std::string(ROPEWALK_TOKENIZER_GOLDENS) + "/gpt2/tokenizer.json"));
  json_of_it["added_tokens"][0]["lstrip"] = true;
  marked.Write("tokenizer.json", json_of_it.dump());
  EXPECT_THAT(MessageOf([&] { internal::TokenizerKeysOfFolder(marked.path(), 2000); }),
              AllOf(HasSubstr("added_tokens[0]: lstrip: GGUF has no such flag of a token; --no-"),
                    Not(HasSubstr("--ids"))));
  const auto gpt2 = std::filesystem::path(ROPEWALK_TOKENIZER_GOLDENS) / "gpt2";
  EXPECT_THAT(MessageOf([&] { internal::TokenizerKeysOfFolder(gpt2.string(), 100); }),
              HasSubstr("100 embeddings"));
}

}  // namespace golden_test
}  // namespace ropewalk
