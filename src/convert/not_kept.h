// Notes on what a conversion does not carry over.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ropewalk/model/model.h"
#include "src/tokenizer/extras.h"

namespace ropewalk::internal {

// The keys of a folder's config.json and generation_config.json without a place in GGUF: all but
// those that made the plan, the sizes and the weights, and the ids of tokens that `kept` names.
void ListFolderKeys(const ModelFiles& files, const nlohmann::ordered_json& kept,
                    std::vector<NotKept>* not_kept);

// The keys of a GGUF file without a place in a folder, besides those of its tokenizer.
void ListGgufKeys(const ModelFiles& files, const GgufFile& gguf, std::vector<NotKept>* not_kept);

// The ids of special tokens as config.json has them.
nlohmann::ordered_json TokenIdsOf(const Tokenizer& tokenizer, const TokenizerExtras& extras);

// One note per file.
std::vector<std::string> NotesOf(const std::vector<NotKept>& not_kept, const char* format);

}  // namespace ropewalk::internal
