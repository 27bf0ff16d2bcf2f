// A struct of settings as text, from its fields (ropewalk/base/fields.h).
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "ropewalk/base/fields.h"

namespace ropewalk::internal {

template <class T>
std::string FieldText(const char* name, const T& value) {
  return fmt::format("{} {}", name, value);
}
inline std::string FieldText(const char* name, bool value) {
  return value ? name : std::string("no ") + name;
}
template <class T>
std::string FieldText(const char* name, const std::optional<T>& value) {
  return value ? FieldText(name, *value) : std::string();
}
template <class T>
std::string FieldText(const char* name, const std::vector<T>& list) {
  return fmt::format("{} {}", list.size(), name);
}

// "yarn(factor 4, beta_fast 32, beta_slow 1, truncate)", or the name alone.
template <class S>
std::string DescribeFields(const char* name, const S& settings) {
  std::string text;
  VisitFields<S>([&](const auto& field) {
    const auto& value = settings.*field.member;
    if (field.written == Written::kNot) return;
    if (field.written == Written::kUnlessDefault && value == S().*field.member) return;
    std::string part = FieldText(field.words != nullptr ? field.words : field.name, value);
    if (part.empty()) return;
    if (field.written == Written::kWithPrevious || field.written == Written::kValue) {
      part.erase(0, part.find(' ') + 1);
    }
    if (!text.empty()) text += field.written == Written::kWithPrevious ? " " : ", ";
    text += part;
  });
  return text.empty() ? name : name + ("(" + text + ")");
}

}  // namespace ropewalk::internal
