// Parts of the texts of settings.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "ropewalk/plan/plan.h"

namespace ropewalk::internal {

inline std::string Join(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + " " + b;
}

// llama-server ends at the file's context_length, whatever -c is.
inline std::string ContextLength(int64_t length) {
  return fmt::format(" --override-kv ARCH.context_length=int:{}", length);
}

inline constexpr char kArchitecture[] = "ARCH is the file's general.architecture.";

// The keys of `form` in the part that `path` names, with dots between parts of parts.
inline nlohmann::ordered_json Placed(nlohmann::ordered_json form, std::string path) {
  while (!path.empty()) {  // the innermost first
    const std::size_t dot = path.rfind('.');
    const std::size_t at = dot == std::string::npos ? 0 : dot + 1;
    form = nlohmann::ordered_json{{path.substr(at), std::move(form)}};
    path.resize(at == 0 ? 0 : dot);
  }
  return form;
}

// As it stands in the file.
inline nlohmann::ordered_json InFile(nlohmann::ordered_json form, const SettingPlace& place) {
  return Placed(std::move(form), place.flat_file ? "" : place.text_part);
}

}  // namespace ropewalk::internal
