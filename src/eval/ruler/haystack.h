// The text of RULER's essay tasks: words, and the sentences between which needles are inserted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/eval/ruler.h"

namespace ropewalk::internal {

class Haystack {
 public:
  Haystack() = default;
  // `text` with any white space; `sentences` of it in order, or none, and they are looked for: one
  // ends at a word with . ! or ? behind which the next word does not begin in lower case, unless
  // the word is an initial or a title ("Mr."). Throws Error for a text without words and for
  // sentences that are not the text's; `name` is for messages.
  Haystack(std::string_view text, const std::vector<std::string>& sentences,
           const std::string& name);

  // The sentences of the first `words` words, the last one cut there; the text is repeated where
  // it has fewer. Valid until the next call.
  std::vector<std::string_view> Sentences(int64_t words);
  // The text of the first `words` words, or the first `bytes` of it, up to the beginning of a
  // character, where it has more: without making what is behind.
  std::string Beginning(int64_t words, size_t bytes) const;

 private:
  struct Span {
    size_t begin, end;
  };
  void FindWords();
  void FindSentences();
  void TakeSentences(const std::vector<std::string>& sentences, const std::string& name);
  void Repeat(int64_t times);

  std::string text_;  // words with one space between them
  std::vector<size_t> word_ends_;
  std::vector<Span> sentences_;
};

// RulerOptions::haystack. Throws Error(kInvalidFile).
Haystack ReadHaystack(const RulerFile& file);

}  // namespace ropewalk::internal
