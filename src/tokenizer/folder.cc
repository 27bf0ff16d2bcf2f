// The tokenizer of a Hugging Face folder.
#include <fmt/format.h>

#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/tokenizer/json.h"
#include "src/tokenizer/json_steps.h"
#include "src/tokenizer/spm_tokenizer.h"

namespace ropewalk {
namespace internal {
namespace {

using nlohmann::json;

// A token given as a string or as an object with its content.
std::optional<std::string> ReadToken(const JsonNode& node, const char* key) {
  if (!node.Has(key)) return std::nullopt;
  const JsonNode token = node.At(key);
  return token.value.is_object() ? token.At("content").String() : token.String();
}

std::optional<int64_t> ReadId(const JsonNode& node, const char* key) {
  if (!node.Has(key)) return std::nullopt;
  const JsonNode id = node.At(key);
  // Several ids that end a text: the first is the one that documents end with.
  if (id.value.is_array()) {
    if (id.value.empty()) return std::nullopt;
    return JsonNode{id.value[0], id.file, id.key + "[0]"}.Integer(INT32_MIN, INT32_MAX);
  }
  return id.Integer(INT32_MIN, INT32_MAX);
}

// The tokens that tokenizer_config.json and added_tokens.json put past tokenizer.model.
void ReadAddedTokens(const JsonNode& config, std::vector<AddedToken>* added) {
  if (!config.Has("added_tokens_decoder")) return;
  const JsonNode list = config.At("added_tokens_decoder");
  for (const auto& [id, value] : list.Object().items()) {
    const JsonNode node{value, list.file, list.key + "." + id.substr(0, 20)};
    AddedToken token;
    if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != std::string::npos) {
      node.Fail("an id is expected as the key");
    }
    token.id = std::stoi(id);
    token.content = node.At("content").String();
    token.special = node.Bool("special", false);
    token.single_word = node.Bool("single_word", false);
    token.lstrip = node.Bool("lstrip", false);
    token.rstrip = node.Bool("rstrip", false);
    added->push_back(std::move(token));
  }
}

class Folder {
 public:
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {
    WithFile("config.json", [&](const JsonNode& node) {
      special_.bos_id = ReadId(node, "bos_token_id");
      special_.eos_id = ReadId(node, "eos_token_id");
    });
    WithFile("added_tokens.json", [&](const JsonNode& node) {
      for (const auto& [content, id] : node.Object().items()) {
        const JsonNode item{id, node.file, content.substr(0, 80)};
        added_.push_back({.content = content,
                          .id = static_cast<int32_t>(item.Integer(0, INT32_MAX)),
                          .special = true});
      }
    });
    WithFile("special_tokens_map.json", [&](const JsonNode& node) { ReadTokens(node); });
    WithFile("tokenizer_config.json", [&](const JsonNode& node) {
      ReadTokens(node);
      if (node.Has("add_bos_token")) special_.add_bos = node.Bool("add_bos_token", false);
      const std::string name =
          node.Has("tokenizer_class") ? node.At("tokenizer_class").String() : "";
      for (const char* prefix : {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"}) {
        special_.adds_bos_by_class |= name.starts_with(prefix);
      }
      if (node.Has("added_tokens_decoder")) added_.clear();  // says the same with more detail
      ReadAddedTokens(node, &added_);
    });
  }

  std::unique_ptr<Tokenizer> Load() {
    const std::filesystem::path as_json = path_ / "tokenizer.json";
    if (FileExists(as_json.string())) {
      const auto file = MappedFile::Open(as_json.string());
      return ReadTokenizerJson(file->text(), as_json.string(), special_);
    }
    const std::filesystem::path as_model = path_ / "tokenizer.model";
    if (FileExists(as_model.string())) {
      const auto file = MappedFile::Open(as_model.string());
      return ReadTokenizerModel(file->text(), as_model.string(), special_, std::move(added_));
    }
    throw Error(
        ErrorCode::kIo,
        fmt::format("{}: neither tokenizer.json nor tokenizer.model is there; put one there, or "
                    "tokenize elsewhere and give the ids with --ids",
                    path_.string()));
  }

 private:
  template <class Read>
  void WithFile(const char* name, const Read& read) {
    const std::filesystem::path path = path_ / name;
    if (!FileExists(path.string())) return;
    const auto file = MappedFile::Open(path.string());
    const json document = ParseJson(file->text(), path.string());
    read(JsonNode{document, path.string(), ""});
  }
  void ReadTokens(const JsonNode& node) {
    if (auto token = ReadToken(node, "bos_token")) special_.bos_token = std::move(token);
    if (auto token = ReadToken(node, "eos_token")) special_.eos_token = std::move(token);
  }

  std::filesystem::path path_;
  SpecialTokens special_;
  std::vector<AddedToken> added_;
};

}  // namespace
}  // namespace internal

std::unique_ptr<Tokenizer> LoadTokenizerFolder(const std::string& folder) {
  return internal::Folder(folder).Load();
}

}  // namespace ropewalk
