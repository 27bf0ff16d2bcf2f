#include "src/convert/not_kept.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "src/io/bytes.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;

bool Contains(const std::vector<std::string>& list, const std::string& key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

// Known to the reader as harmless, and yet in the new file: by its architecture, its types of
// tensors, and whether it has an output.weight.
bool IsImplied(const std::string& key) {
  return key == "architectures" || key == "torch_dtype" || key == "dtype" ||
         key == "tie_word_embeddings";
}

// An id is kept when the new file says the same, first where it says several.
bool IsKept(const Json& value, const Json& kept, const std::string& key) {
  const auto it = kept.find(key);
  return it != kept.end() && (*it == value || (it->is_array() && (*it)[0] == value));
}

void Add(NotKept&& rest, std::vector<NotKept>* not_kept) {
  if (!rest.keys.empty()) not_kept->push_back(std::move(rest));
}

}  // namespace

void ListFolderKeys(const ModelFiles& files, const Json& kept, std::vector<NotKept>* not_kept) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    const std::string path = (std::filesystem::path(files.path) / name).string();
    if (!FileExists(path)) continue;
    const bool is_config = std::string_view(name) == "config.json";
    const ModelConfig& c = files.config;
    NotKept rest{name, {}};
    const Json document = ParseOrderedObject(MappedFile::Open(path)->text(), path);
    for (const auto& [key, value] : document.items()) {
      // What the reader neither called harmless nor left aside made the model that is written.
      const bool used =
          is_config &&
          (IsImplied(key) || (!Contains(c.harmless_keys, key) && !Contains(c.unknown_keys, key)));
      if (!value.is_null() && !used && !IsKept(value, kept, key)) rest.keys.push_back(key);
    }
    Add(std::move(rest), not_kept);
  }
}

void ListGgufKeys(const ModelFiles& files, const GgufFile& gguf, std::vector<NotKept>* not_kept) {
  // About the file itself, or what config.json and the weights say.
  static const std::vector<std::string> kOfTheFile = {"general.architecture", "general.alignment",
                                                      "general.file_type",
                                                      "general.quantization_version"};
  NotKept rest{std::filesystem::path(files.path).filename().string(), {}};
  for (const auto& [key, value] : gguf.metadata) {
    if (key.starts_with("tokenizer.") || key.starts_with("split.") || Contains(kOfTheFile, key)) {
      continue;
    }
    const ModelConfig& c = files.config;
    const bool aside = key.starts_with("general.") || key.starts_with("quantize.") ||
                       Contains(c.harmless_keys, key) || Contains(c.unknown_keys, key);
    if (aside) rest.keys.push_back(key);
  }
  Add(std::move(rest), not_kept);
}

Json TokenIdsOf(const Tokenizer& tokenizer, const TokenizerExtras& extras) {
  const auto id_or_null = [](const std::optional<int32_t>& id) { return id ? Json(*id) : Json(); };
  Json ids = {{"bos_token_id", id_or_null(tokenizer.bos_id())},
              {"eos_token_id", id_or_null(tokenizer.eos_id())}};
  // Every token that ends a turn of a chat ends generation.
  for (const char* role : {"eot", "eom"}) {
    const auto more = extras.ids.find(role);
    Json& eos = ids["eos_token_id"];
    if (more == extras.ids.end() || eos.is_null() || eos == more->second) continue;
    if (!eos.is_array()) eos = Json::array({eos});
    if (std::find(eos.begin(), eos.end(), more->second) == eos.end()) eos.push_back(more->second);
  }
  for (const auto& [role, id] : extras.ids) {
    if (role != "eot" && role != "eom") ids[role + "_token_id"] = id;
  }
  return ids;
}

std::vector<std::string> NotesOf(const std::vector<NotKept>& not_kept, const char* format) {
  std::vector<std::string> notes;
  for (const NotKept& file : not_kept) {
    std::vector<std::string>
        names;  // of a stranger's file: no control character of theirs is shown
    for (const std::string& key : file.keys) names.push_back(Quote(key));
    notes.push_back(fmt::format("not kept, {} has no place for it: {}: {}", format, file.file,
                                fmt::join(names, ", ")));
  }
  return notes;
}

}  // namespace ropewalk::internal
