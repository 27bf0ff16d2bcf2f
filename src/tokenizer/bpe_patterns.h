// How words are cut under each `tokenizer.ggml.pre` of GGUF, which names a pattern and does not
// hold it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::internal {

struct BpePattern {
  std::vector<const char*> cuts;  // one after the other; matches and what lies between both stay
  bool nfc = false;               // the original normalises, which GGUF does not record
  bool ignore_merges = false;
  bool add_bos = false;  // where the file has no add_bos_token
};

// nullptr for an unknown name.
const BpePattern* FindBpePattern(std::string_view pre);
// The names, in order, for messages.
std::vector<std::string> BpePatternNames();

}  // namespace ropewalk::internal
