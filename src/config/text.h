// Configurations that are text: which schema it is, and the readers of the smaller ones.
#pragma once

#include <string>
#include <string_view>

#include "ropewalk/config/config.h"
#include "src/config/json_object.h"

namespace ropewalk::internal {

// Mistral's and Meta's params.json.
bool IsParamsJson(const JsonObject& top);
ModelConfig ParseParamsJson(const JsonObject& top, bool allow_unknown);

// Megatron-LM's arguments: a JSON object of them, or `--flag value` text as in a launch script.
bool IsMegatronJson(const JsonObject& top);
bool IsMegatronText(std::string_view text);
ModelConfig ParseMegatronJson(const JsonObject& top, bool allow_unknown);
ModelConfig ParseMegatronText(std::string_view text, const std::string& file, bool allow_unknown);

// Any of them, and Hugging Face's config.json.
ModelConfig ParseConfigText(std::string_view text, const std::string& file, bool allow_unknown);

}  // namespace ropewalk::internal
