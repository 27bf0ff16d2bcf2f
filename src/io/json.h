// The one entry for JSON that comes from a file: configs, safetensors headers, tokenizers, indexes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ropewalk::internal {

// Brackets inside brackets; real files stay below 10.
inline constexpr int kMaxJsonDepth = 64;

// One strict JSON value over all of `text`. Throws Error(kInvalidFile) naming `file` and the byte
// offset for anything else: trailing bytes, NUL, NaN, numbers past double's range, invalid UTF-8, a
// key twice in one object, nesting deeper than kMaxJsonDepth.
nlohmann::json ParseJson(std::string_view text, const std::string& file);

// The same with the keys of objects in the order of the file, and what is no object refused.
nlohmann::ordered_json ParseOrderedObject(std::string_view text, const std::string& file);

// As text; Error(kInvalidFile) that names `what` where a string is not valid UTF-8, as those of
// GGUF may be.
std::string DumpJson(const nlohmann::ordered_json& json, int indent, const std::string& what);

}  // namespace ropewalk::internal
