// BOS and EOS: which ids they have and whether BOS is added, from the files as Hugging Face and
// llama.cpp read them.
#include <gmock/gmock.h>

#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace special_test {

using nlohmann::json;

const std::string kGoldens = ROPEWALK_TOKENIZER_GOLDENS;

struct Said {
  std::optional<int32_t> bos, eos;
  bool adds_bos;
  bool operator==(const Said&) const = default;
};
void PrintTo(const Said& said, std::ostream* out) {
  *out << "bos " << said.bos.value_or(-1) << " eos " << said.eos.value_or(-1) << " adds "
       << said.adds_bos;
}

// The golden folder's tokenizer with these files beside it.
Said Beside(const std::string& golden, const std::map<std::string, json>& files) {
  const TempFolder folder;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const auto path = std::filesystem::path(kGoldens) / golden / name;
    if (std::filesystem::exists(path)) folder.Write(name, ReadFile(path));
  }
  for (const auto& [name, value] : files) folder.Write(name, value.dump());
  const auto tokenizer = LoadTokenizerFolder(folder.path());
  return {tokenizer->bos_id(), tokenizer->eos_id(), tokenizer->adds_bos()};
}

TEST(Special, OfTokenizerJson) {
  const json both = {{"bos_token", "<|endoftext|>"}, {"eos_token", {{"content", "<|im_end|>"}}}};
  json null_bos = both;
  null_bos["bos_token"] = nullptr;
  EXPECT_EQ(Beside("gpt2", {}), (Said{{}, {}, false}));
  EXPECT_EQ(Beside("gpt2", {{"tokenizer_config.json", both}}), (Said{0, 1, false}));
  EXPECT_EQ(Beside("gpt2", {{"special_tokens_map.json", both}}), (Said{0, 1, false}));
  EXPECT_EQ(Beside("gpt2", {{"tokenizer_config.json", null_bos}}), (Said{{}, 1, false}));
  EXPECT_EQ(Beside("gpt2", {{"config.json", {{"bos_token_id", 1}, {"eos_token_id", {0, 1}}}}}),
            (Said{1, 0, false}));
  EXPECT_EQ(Beside("gpt2", {{"config.json", {{"bos_token_id", 100000}}}}), (Said{{}, {}, false}));
  // The post-processor puts <|endoftext|> in front.
  EXPECT_EQ(Beside("llama3", {}), (Said{0, {}, true}));
  EXPECT_EQ(Beside("llama3", {{"tokenizer_config.json", both}}), (Said{0, 1, true}));
}

// Whether BOS is added, by class (of the model where none is named), add_bos_token and what the
// post-processor is; what AutoTokenizer of transformers 4.57 and 5.23 does. Where they differ: what
// a template says, else what version 4 does.
TEST(Special, AddsBos) {
  const json both = {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|im_end|>"}};
  const json begins = json::parse(ReadFile(kGoldens + "/llama3/tokenizer.json"))["post_processor"];
  const json offsets = {{"type", "ByteLevel"}};
  json silent = begins;
  silent["processors"][1]["single"].erase(0);
  struct Row {
    const char *name, *model;
    json add_bos, post_processor;
    bool four, five, here;
  };
  const Row rows[] = {
      {"PreTrainedTokenizerFast", "llama", true, offsets, false, false, false},
      {"PreTrainedTokenizerFast", "llama", false, begins, true, true, true},
      {"GPT2Tokenizer", "llama", true, nullptr, false, false, false},
      {"Qwen2TokenizerFast", "llama", false, begins, true, true, true},
      {"LlamaTokenizerFast", "llama", nullptr, begins, true, true, true},
      {"LlamaTokenizerFast", "llama", nullptr, offsets, true, false, true},
      {"LlamaTokenizer", "llama", true, silent, true, false, false},
      {"LlamaTokenizer", "llama", false, begins, false, true, true},
      {"LlamaTokenizer", "llama", false, nullptr, false, false, false},
      {"GemmaTokenizer", "gemma", nullptr, nullptr, true, false, true},
      {"CohereTokenizer", "cohere", nullptr, offsets, true, false, true},
      {"GPTNeoXTokenizer", "gpt_neox", nullptr, begins, false, false, false},
      {"GPTNeoXTokenizer", "gpt_neox", true, begins, true, false, true},
      {"GPTNeoXTokenizer", "gpt_neox", nullptr, offsets, false, false, false},
      {"", "llama", nullptr, offsets, true, false, true},
      {"", "llama", false, begins, false, true, true},
      {"", "gpt_neox", nullptr, begins, false, false, false},
      {"", "qwen2", true, offsets, false, false, false},
  };
  for (const Row& row : rows) {
    json config = both;
    if (*row.name != '\0') config["tokenizer_class"] = row.name;
    if (!row.add_bos.is_null()) config["add_bos_token"] = row.add_bos;
    json file = json::parse(ReadFile(kGoldens + "/llama3/tokenizer.json"));
    file["post_processor"] = row.post_processor;
    const TempFolder folder;
    folder.Write("tokenizer.json", file.dump());
    folder.Write("tokenizer_config.json", config.dump());
    folder.Write("config.json", json{{"model_type", row.model}}.dump());
    const auto tokenizer = LoadTokenizerFolder(folder.path());
    EXPECT_EQ(tokenizer->adds_bos(), row.here) << config << row.post_processor;
    const std::string note = tokenizer->notes().empty() ? "" : tokenizer->notes()[0];
    EXPECT_EQ(note, row.four == row.five
                        ? ""
                        : std::string("transformers ") + (row.four ? "4" : "5") +
                              " adds a BOS token for this tokenizer, transformers " +
                              (row.four ? "5" : "4") + " does not; here it is " +
                              (row.here ? "added" : "not added"))
        << config << row.post_processor;
  }
}

TEST(Special, OfTokenizerModel) {
  EXPECT_EQ(Beside("spm_bpe", {}), (Said{1, 2, true}));
  EXPECT_EQ(Beside("spm_bpe", {{"tokenizer_config.json", {{"add_bos_token", false}}}}),
            (Said{1, 2, false}));
  EXPECT_EQ(Beside("spm_bpe", {{"tokenizer_config.json", {{"eos_token", "<|im_end|>"}}}}),
            (Said{1, 3, true}));
}

TEST(Special, TokensStayTextUnlessAskedFor) {
  for (const char* name : {"gpt2", "spm_bpe"}) {
    const auto tokenizer = LoadTokenizerFolder(kGoldens + "/" + name);
    const auto plain = tokenizer->Encode("a<|im_end|>b");
    const auto special = tokenizer->Encode("a<|im_end|>b", {.special = true});
    const auto id = tokenizer->Encode("<|im_end|>", {.special = true});
    ASSERT_EQ(id.size(), 1u) << name;
    EXPECT_EQ(tokenizer->Piece(id[0]), "<|im_end|>");
    EXPECT_THAT(plain, testing::Not(testing::Contains(id[0]))) << name;
    EXPECT_THAT(special, testing::Contains(id[0])) << name;
    EXPECT_EQ(tokenizer->Decode(plain), "a<|im_end|>b") << name;
  }
}

TEST(Special, AddedTokensPastTheModel) {
  const TempFolder folder;
  folder.Write("tokenizer.model", ReadFile(kGoldens + "/spm_bpe/tokenizer.model"));
  const auto bare = LoadTokenizerFolder(folder.path());
  const auto first = static_cast<int32_t>(bare->vocab_size());
  folder.Write("added_tokens.json", json{{"<pad>", first}, {"<more>", first + 1}}.dump());
  const auto with = LoadTokenizerFolder(folder.path());
  EXPECT_EQ(with->vocab_size(), first + 2);
  EXPECT_EQ(with->Piece(first + 1), "<more>");
  EXPECT_EQ(with->Encode("a <pad> b"), bare->Encode("a <pad> b"));
  EXPECT_THAT(with->Encode("a <pad> b", {.special = true}), testing::Contains(first));
  EXPECT_THROW(with->Decode(std::vector<int32_t>{first + 2}), Error);
}

// PyPI's tokenizers 0.22 and 0.23 number what the vocabulary (of 4) lacks from 4 on, in
// the order of the list, empty tokens left out: another id in the file is not the one it has there.
TEST(Special, IdsOfAddedTokens) {
  struct Row {
    std::vector<std::pair<const char*, int32_t>> added;
    const char* says;
  };
  const Row rows[] = {
      {{{"<x>", 4}, {"<y>", 5}}, "no error"},
      {{{"b", 1}, {"<x>", 4}, {"c", 2}, {"<y>", 5}}, "no error"},
      {{{"<x>", 4}, {"", 5}}, "no error"},
      {{{"<x>", 14}}, "'<x>' has id 14 there and 4 in"},
      {{{"<x>", 5}, {"<y>", 4}}, "'<x>' has id 5 there and 4 in"},
      {{{"", 4}, {"<x>", 5}}, "'<x>' has id 5 there and 4 in"},
  };
  for (const Row& row : rows) {
    json file = {{"added_tokens", json::array()},
                 {"model",
                  {{"type", "BPE"},
                   {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}}},
                   {"merges", json::array()}}}};
    for (const auto& [content, id] : row.added) {
      file["added_tokens"].push_back({{"content", content}, {"id", id}});
    }
    const TempFolder folder;
    folder.Write("tokenizer.json", file.dump());
    EXPECT_THAT(MessageOf([&] { LoadTokenizerFolder(folder.path()); }),
                testing::HasSubstr(row.says));
  }
}

TEST(Special, TokenizerJsonWinsOverTokenizerModel) {
  const TempFolder folder;
  folder.Write("tokenizer.model", ReadFile(kGoldens + "/spm_bpe/tokenizer.model"));
  folder.Write("tokenizer.json", ReadFile(kGoldens + "/gpt2/tokenizer.json"));
  EXPECT_EQ(LoadTokenizerFolder(folder.path())->kind(), "byte-level BPE (tokenizer.json)");
}

TEST(Special, HashTellsTokenizersApart) {
  const auto a = LoadTokenizerFolder(kGoldens + "/gpt2");
  const auto again = LoadTokenizerFolder(kGoldens + "/gpt2");
  const auto b = LoadTokenizerFolder(kGoldens + "/qwen2");
  EXPECT_EQ(a->hash(), again->hash());
  EXPECT_NE(a->hash(), b->hash());
  EXPECT_EQ(a->hash().size(), 32u);
}

// Pieces that are matched before any other, with spaces as llama.cpp's converter writes them
// (Gemma's): the longest that is there, and back to the same text.
TEST(Special, UserDefinedSpacesOfGguf) {
  GgufFile gguf;
  gguf.version = 3;
  const auto set = [&](const char* key, auto value) { gguf.metadata[key].value = value; };
  set("tokenizer.ggml.model", std::string("llama"));
  set("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>", "\u2581", "a", "b",
                                                        "\u2581a", "  ", "   ", "\n\n"});
  set("tokenizer.ggml.scores", std::vector<double>{0, 0, 0, -5, -6, -7, -1, -1000, -1000, -1000});
  set("tokenizer.ggml.token_type", std::vector<int64_t>{2, 3, 3, 1, 1, 1, 1, 4, 4, 4});
  set("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = LoadTokenizerGguf(gguf);
  const std::vector<std::pair<std::string, std::vector<int32_t>>> cases = {
      {"a b", {4, 3, 5}},   {"b a", {5, 6}},          {"a  b", {4, 7, 5}},
      {"b   a", {5, 8, 4}}, {"a    b", {4, 8, 3, 5}}, {"  a\n\nb", {7, 4, 9, 5}}};
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(tokenizer->Encode(text), ids) << text;
    EXPECT_EQ(tokenizer->Decode(ids), text);
  }
}

}  // namespace special_test
}  // namespace ropewalk
