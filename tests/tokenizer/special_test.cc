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
  json no_bos = both, with_bos = both, llama = both, null_bos = both;
  no_bos["add_bos_token"] = false;
  with_bos["add_bos_token"] = true;
  llama["tokenizer_class"] = "LlamaTokenizerFast";
  null_bos["bos_token"] = nullptr;
  EXPECT_EQ(Beside("gpt2", {}), (Said{{}, {}, false}));
  EXPECT_EQ(Beside("gpt2", {{"tokenizer_config.json", both}}), (Said{0, 1, false}));
  EXPECT_EQ(Beside("gpt2", {{"special_tokens_map.json", both}}), (Said{0, 1, false}));
  EXPECT_EQ(Beside("gpt2", {{"tokenizer_config.json", with_bos}}), (Said{0, 1, true}));
  EXPECT_EQ(Beside("gpt2", {{"tokenizer_config.json", llama}}), (Said{0, 1, true}));
  EXPECT_EQ(Beside("gpt2", {{"tokenizer_config.json", null_bos}}), (Said{{}, 1, false}));
  EXPECT_EQ(Beside("gpt2", {{"config.json", {{"bos_token_id", 1}, {"eos_token_id", {0, 1}}}}}),
            (Said{1, 0, false}));
  EXPECT_EQ(Beside("gpt2", {{"config.json", {{"bos_token_id", 100000}}}}), (Said{{}, {}, false}));
  // The post-processor puts <|endoftext|> in front.
  EXPECT_EQ(Beside("llama3", {}), (Said{0, {}, true}));
  EXPECT_EQ(Beside("llama3", {{"tokenizer_config.json", both}}), (Said{0, 1, true}));
  EXPECT_EQ(Beside("llama3", {{"tokenizer_config.json", no_bos}}), (Said{0, 1, false}));
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
