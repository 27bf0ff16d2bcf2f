// Stands for fmt where there is no package: enough for the texts of errors.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace fmt {

inline void Append(std::ostringstream& out, std::string_view pattern) { out << pattern; }

template <class T, class... Rest>
void Append(std::ostringstream& out, std::string_view pattern, const T& first,
            const Rest&... rest) {
  const std::size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return Append(out, pattern);
  out << pattern.substr(0, at) << first;
  Append(out, pattern.substr(at + 2), rest...);
}

template <class... Args>
std::string format(std::string_view pattern, const Args&... args) {
  std::ostringstream out;
  Append(out, pattern, args...);
  return out.str();
}

}  // namespace fmt
