// The sentence of which noise haystacks are made (Mohtashami and Jaggi 2023), and joined lines.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ropewalk::internal {

inline constexpr char kNoise[] =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

template <class Lines>
std::string Join(const Lines& lines, std::string_view between) {
  std::string text;
  for (const auto& line : lines) {
    if (&line != &lines.front()) text += between;
    text += line;
  }
  return text;
}

}  // namespace ropewalk::internal
