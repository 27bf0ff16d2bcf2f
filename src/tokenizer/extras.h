// What goes with a tokenizer and cuts no text (TokenizerExtras), read from files.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ropewalk/tokenizer/tokenizer.h"

namespace ropewalk::internal {

// The keys of one file that the other format has no place for.
struct NotKept {
  std::string file;  // "tokenizer_config.json"
  std::vector<std::string> keys;
};

// Of a Hugging Face folder: tokenizer_config.json before special_tokens_map.json before
// config.json, chat_template.jinja and additional_chat_templates/ before all of them, as
// transformers has it. `not_kept`, where it is not null, gets what GGUF has no place for. Error
// that names file and key where a value is not of its type.
TokenizerExtras ExtrasOfFolder(const std::string& folder, const Tokenizer& tokenizer,
                               std::vector<NotKept>* not_kept);
std::map<std::string, GgufValue> GgufKeysOf(const TokenizerExtras& extras);

// Of a GGUF file; `not_kept` gets the keys under tokenizer. that a folder has no place for.
TokenizerExtras ExtrasOfGguf(const GgufFile& gguf, const Tokenizer& tokenizer,
                             std::vector<NotKept>* not_kept);

}  // namespace ropewalk::internal
