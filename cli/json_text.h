// JSON that a command prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ropewalk::cli {

// Paths and contents of files need not be UTF-8; invalid bytes become U+FFFD.
inline std::string JsonText(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The same on one line.
inline std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ropewalk::cli
