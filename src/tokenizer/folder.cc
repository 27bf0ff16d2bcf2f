// The tokenizer of a Hugging Face folder.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

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

std::string ReadName(const JsonNode& node, const char* key) {
  return node.Has(key) ? node.At(key).String() : std::string();
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

// The classes whose post-processor transformers 4 makes anew, and whether they add BOS unless told
// otherwise; the class is `name`, or where the files name none that of the model's type.
std::optional<bool> ClassAddsBos(std::string_view name, const std::string& model_type) {
  static constexpr const char* kLlama[] = {
      "arcee", "aria", "chameleon", "code_llama", "colpali", "deepseek_v2", "deepseek_v3",
      "deepseek_vl", "deepseek_vl_hybrid", "diffllama", "ernie4_5", "ernie4_5_moe", "idefics",
      "idefics2", "idefics3", "jamba", "janus", "jetmoe", "llama", "llama4", "llama4_text", "llava",
      "llava_next", "llava_next_video", "llava_onevision", "ministral", "mistral", "mistral3",
      "mixtral", "mllama", "paligemma", "persimmon", "phi3", "phimoe", "video_llava", "vipllava",
      "zamba", "zamba2",
      // Gemma's and Cohere's
      "aya_vision", "cohere", "cohere2", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n",
      "gemma3n_text", "recurrent_gemma", "shieldgemma2", "siglip2", "t5gemma"};
  static constexpr const char* kNeoX[] = {"falcon_mamba", "gpt_neox", "mamba", "mamba2", "mpt",
                                          "olmo",         "olmoe",    "rwkv",  "xlstm"};
  if (name.ends_with("Fast")) name.remove_suffix(4);
  if (!name.empty()) {
    for (const char* adds :
         {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"}) {
      if (name == adds) return true;
    }
    if (name == "GPTNeoXTokenizer") return false;
  } else if (std::ranges::find(kLlama, model_type) != std::end(kLlama)) {
    return true;
  } else if (std::ranges::find(kNeoX, model_type) != std::end(kNeoX)) {
    return false;
  }
  return std::nullopt;
}

class Folder {
 public:
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {
    std::string model_type, name;
    WithFile("config.json", [&](const JsonNode& node) {
      special_.bos_id = ReadId(node, "bos_token_id");
      special_.eos_id = ReadId(node, "eos_token_id");
      model_type = ReadName(node, "model_type");
      name = ReadName(node, "tokenizer_class");
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
      if (node.Has("tokenizer_class")) name = ReadName(node, "tokenizer_class");
      if (node.Has("added_tokens_decoder")) added_.clear();  // says the same with more detail
      ReadAddedTokens(node, &added_);
    });
    special_.class_adds_bos = ClassAddsBos(name, model_type);
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
