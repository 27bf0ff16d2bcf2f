// SentencePiece's compiled normalisation rules, as Hugging Face's tokenizers apply them
// (the Precompiled normaliser): a double-array trie of byte strings and what each becomes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::internal {

class Charsmap {
 public:
  // Little endian: bytes of the trie, the trie, then strings that end with a zero byte. Throws
  // Error that names `where`.
  static Charsmap OfBase64(std::string_view base64, const std::string& where);

  // A grapheme of up to 5 bytes becomes what the shortest rule that it begins with says, all of it;
  // of a longer one, or without a rule, each character on its own. (SentencePiece itself takes the
  // longest rule at each place.)
  std::string Apply(const std::string& text) const;

 private:
  // The rule for the shortest beginning of `key`, or null.
  const char* Find(std::string_view key) const;

  std::vector<uint32_t> trie_;
  std::string strings_;
};

}  // namespace ropewalk::internal
