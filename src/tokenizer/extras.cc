#include "src/tokenizer/extras.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <unordered_map>

#include "ropewalk/base/error.h"
#include "src/io/files.h"
#include "src/io/gguf_file.h"
#include "src/io/json.h"
#include "src/tokenizer/json_steps.h"

namespace ropewalk::internal {
namespace {

namespace fs = std::filesystem;

struct Role {
  const char* name;  // in Hugging Face's files: pad_token, pad_token_id
  const char* gguf;  // in tokenizer.ggml.padding_token_id
};
constexpr Role kRoles[] = {{"bos", "bos"},       {"eos", "eos"}, {"unk", "unknown"},
                           {"sep", "seperator"},  // as ggml spells it
                           {"pad", "padding"},   {"cls", "cls"}, {"mask", "mask"},
                           {"eot", "eot"},       {"eom", "eom"}};
bool IsOfTokenizer(const Role& role) { return role.name[1] == 'o' && role.name[2] == 's'; }

std::string GgufKey(const Role& role) {
  return fmt::format("tokenizer.ggml.{}_token_id", role.gguf);
}

constexpr char kTemplate[] = "tokenizer.chat_template";
constexpr char kTemplates[] = "tokenizer.chat_templates";
constexpr char kAddEos[] = "tokenizer.ggml.add_eos_token";
constexpr char kDefault[] = "default";

class FolderExtras {
 public:
  FolderExtras(const std::string& folder, const Tokenizer& tokenizer,
               std::vector<NotKept>* not_kept)
      : folder_(folder), tokenizer_(tokenizer), not_kept_(not_kept) {}

  TokenizerExtras Run() {
    bool add_eos = false;
    Read("tokenizer_config.json", [&](const JsonNode& node, NotKept& rest) {
      ReadTokens(node, rest);
      add_eos = node.Bool("add_eos_token", false);
      if (node.Has("chat_template")) ReadTemplates(node.At("chat_template"));
      Drop(rest, {"add_bos_token", "add_eos_token", "chat_template", "added_tokens_decoder",
                  "tokenizer_class"});
    });
    Read("special_tokens_map.json",
         [&](const JsonNode& node, NotKept& rest) { ReadTokens(node, rest); });
    Read("config.json", [&](const JsonNode& node, NotKept& rest) {
      ReadIds(node);
      rest.keys.clear();  // most of it is not about tokens
    });
    Read("tokenizer.json", [&](const JsonNode& node, NotKept& rest) {
      std::erase_if(rest.keys,
                    [](const std::string& key) { return key != "truncation" && key != "padding"; });
      const auto eos = tokenizer_.eos_id();
      const std::vector<int32_t>& back = tokenizer_.back();
      add_eos |= eos && back == std::vector<int32_t>{*eos};
      if (!back.empty() && !add_eos) rest.keys.push_back(node.At("post_processor").key);
    });
    out_.adds_eos = add_eos;
    ReadTemplateFiles();
    return std::move(out_);
  }

 private:
  // Calls `read` with the file's object and all of its keys, from which it takes what it keeps.
  void Read(const char* name, const std::function<void(const JsonNode&, NotKept&)>& read) {
    const std::string path = (fs::path(folder_) / name).string();
    if (!FileExists(path)) return;
    const nlohmann::json document = ParseJson(MappedFile::Open(path)->text(), path);
    const JsonNode node{document, path, ""};
    NotKept rest{name, {}};
    for (const auto& [key, value] : node.Object().items()) {
      if (!value.is_null()) rest.keys.push_back(key);
    }
    read(node, rest);
    if (not_kept_ != nullptr && !rest.keys.empty()) not_kept_->push_back(std::move(rest));
  }
  static void Drop(NotKept& rest, std::initializer_list<std::string> kept) {
    std::erase_if(rest.keys, [&](const std::string& key) {
      return std::find(kept.begin(), kept.end(), key) != kept.end();
    });
  }

  // A token that no piece is spelled like, or that an earlier file says otherwise, is not kept.
  void ReadTokens(const JsonNode& node, NotKept& rest) {
    for (const Role& role : kRoles) {
      const std::string key = fmt::format("{}_token", role.name);
      if (!node.Has(key)) continue;
      const JsonNode token = node.At(key);
      const std::string& text =
          token.value.is_object() ? token.At("content").String() : token.String();
      if (IsOfTokenizer(role)) {
        Drop(rest, {key});
        continue;
      }
      const auto found = Ids().find(text);
      if (found == Ids().end()) continue;
      const auto [slot, inserted] = out_.ids.emplace(role.name, found->second);
      if (slot->second == found->second) Drop(rest, {key});
    }
  }
  void ReadIds(const JsonNode& node) {
    for (const Role& role : kRoles) {
      const std::string key = fmt::format("{}_token_id", role.name);
      if (IsOfTokenizer(role) || out_.ids.contains(role.name) || !node.Has(key)) continue;
      const int64_t id = node.At(key).Integer(INT32_MIN, INT32_MAX);
      if (id >= 0 && id < tokenizer_.vocab_size()) {
        out_.ids.emplace(role.name, static_cast<int32_t>(id));
      }
    }
  }
  const std::unordered_map<std::string, int32_t>& Ids() {
    if (!ids_.empty()) return ids_;
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      try {
        ids_.emplace(tokenizer_.Piece(id), id);
      } catch (const Error&) {  // an id that no token has
      }
    }
    return ids_;
  }

  void ReadTemplates(const JsonNode& node) {
    if (!node.value.is_array()) {
      out_.chat_templates[kDefault] = node.String();
      return;
    }
    for (std::size_t i = 0; i < node.Array().size(); ++i) {
      const JsonNode item{node.value[i], node.file, fmt::format("{}[{}]", node.key, i)};
      out_.chat_templates[item.At("name").String()] = item.At("template").String();
    }
  }
  void ReadTemplateFiles() {
    const fs::path folder(folder_);
    if (FileExists((folder / "chat_template.jinja").string())) {
      out_.chat_templates.clear();  // in place of those of tokenizer_config.json
      AddFile(kDefault, folder / "chat_template.jinja");
      const fs::path more = folder / "additional_chat_templates";
      for (const std::string& name : NamesIn(more.string())) {
        const fs::path file(name);
        if (file.extension() == ".jinja") AddFile(file.stem().string(), more / file);
      }
    } else if (out_.chat_templates.empty()) {
      Read("chat_template.json", [&](const JsonNode& node, NotKept& rest) {
        if (node.Has("chat_template")) ReadTemplates(node.At("chat_template"));
        Drop(rest, {"chat_template"});
      });
    }
  }
  void AddFile(const std::string& name, const fs::path& path) {
    out_.chat_templates[name] = std::string(MappedFile::Open(path.string())->text());
  }

  const std::string& folder_;
  const Tokenizer& tokenizer_;
  std::vector<NotKept>* not_kept_;
  TokenizerExtras out_;
  std::unordered_map<std::string, int32_t> ids_;
};

// Which of the keys under tokenizer. make the files of a tokenizer of this kind.
std::set<std::string> KeptKeys(const std::string& model) {
  std::set<std::string> kept = {"tokenizer.ggml.model",
                                "tokenizer.ggml.pre",
                                "tokenizer.ggml.tokens",
                                "tokenizer.ggml.token_type",
                                "tokenizer.ggml.add_bos_token",
                                kAddEos,
                                kTemplate,
                                kTemplates};
  const auto add = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) kept.insert(fmt::format("tokenizer.ggml.{}", name));
  };
  if (model == "llama") {
    add({"scores", "add_space_prefix", "remove_extra_whitespaces"});
  } else {
    add({"merges"});
  }
  return kept;
}

}  // namespace

TokenizerExtras ExtrasOfFolder(const std::string& folder, const Tokenizer& tokenizer,
                               std::vector<NotKept>* not_kept) {
  return FolderExtras(folder, tokenizer, not_kept).Run();
}

std::map<std::string, GgufValue> GgufKeysOf(const TokenizerExtras& extras) {
  std::map<std::string, GgufValue> keys;
  for (const Role& role : kRoles) {
    const auto id = extras.ids.find(role.name);
    if (id != extras.ids.end()) keys[GgufKey(role)] = {int64_t{id->second}, GgufType::kU32};
  }
  if (extras.adds_eos) keys[kAddEos] = {true, GgufType::kBool};
  std::vector<std::string> names;
  for (const auto& [name, text] : extras.chat_templates) {
    const bool usual = name == kDefault;
    keys[usual ? kTemplate : fmt::format("{}.{}", kTemplate, name)] = {text, GgufType::kString};
    if (!usual) names.push_back(name);
  }
  if (!names.empty()) keys[kTemplates] = {std::move(names), GgufType::kString};
  return keys;
}

namespace {

TokenizerExtras ReadGguf(const GgufFile& gguf, int64_t vocab_size, NotKept* rest) {
  TokenizerExtras out;
  const auto model = gguf.metadata.find("tokenizer.ggml.model");
  std::set<std::string> kept =
      KeptKeys(model == gguf.metadata.end() ? "" : model->second.AsString(model->first));
  for (const Role& role : kRoles) {
    const std::string key = GgufKey(role);
    const auto found = gguf.metadata.find(key);
    if (found == gguf.metadata.end()) continue;
    const int64_t id = found->second.AsInt(key);
    if (id < 0 || id >= vocab_size) continue;
    kept.insert(key);
    if (!IsOfTokenizer(role)) out.ids[role.name] = static_cast<int32_t>(id);
  }
  for (const auto& [key, value] : gguf.metadata) {
    if (!key.starts_with("tokenizer.")) continue;
    if (key == kAddEos) out.adds_eos = value.AsBool(key);
    const bool named = key.starts_with(std::string(kTemplate) + ".");
    if (key == kTemplate || named) {
      out.chat_templates[named ? key.substr(sizeof(kTemplate)) : kDefault] = value.AsString(key);
    } else if (!kept.contains(key)) {
      rest->keys.push_back(key);
    }
  }
  return out;
}

}  // namespace

TokenizerExtras ExtrasOfGguf(const GgufFile& gguf, const Tokenizer& tokenizer,
                             std::vector<NotKept>* not_kept) {
  const std::string file = gguf.file ? gguf.file->path() : "GGUF metadata";
  NotKept rest{fs::path(file).filename().string(), {}};
  TokenizerExtras out =
      WithFile(file, [&] { return ReadGguf(gguf, tokenizer.vocab_size(), &rest); });
  if (not_kept != nullptr && !rest.keys.empty()) not_kept->push_back(std::move(rest));
  return out;
}

}  // namespace ropewalk::internal
