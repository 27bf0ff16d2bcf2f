// Patterns of tokenizers: written for Oniguruma (Ruby syntax), matched by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ropewalk::internal {

using Span = std::pair<std::size_t, std::size_t>;  // [begin, end) in bytes

class Regex {
 public:
  // `where` names the file and key in errors. What PCRE2 would read differently from Oniguruma is
  // rewritten or refused (ruby_pattern.h).
  Regex(std::string_view pattern, std::string where);
  // The pattern that matches `text` literally.
  static Regex Literal(std::string_view text, std::string where);

  // Non-overlapping matches from left to right; an empty one never touches the match before it.
  // `text` is valid UTF-8. Throws Error when a match needs more than a bounded number of steps.
  void FindAll(std::string_view text, std::vector<Span>* matches) const;

 private:
  struct Code;
  Regex() = default;
  void Compile(const std::string& pattern);
  std::shared_ptr<const Code> code_;
  std::string where_;
};

}  // namespace ropewalk::internal
