// UTF-8 and the few Unicode operations that tokenizers need. Text that enters a tokenizer is made
// valid once (ValidUtf8); everything here but that function expects valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ropewalk::internal {

// Bytes of the valid sequence at the front of `text`, 0 where it is empty or starts with no valid
// sequence; then `*invalid` is the length of the maximal invalid subpart (at least 1).
std::size_t ValidSequence(std::string_view text, std::size_t* invalid);

bool IsValidUtf8(std::string_view text);

// Length in bytes of the character that starts with `lead`, in valid UTF-8.
inline std::size_t CharBytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
inline bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

char32_t DecodeChar(std::string_view text);  // the first character; text is not empty
void AppendUtf8(char32_t c, std::string* out);

bool IsWhiteSpace(char32_t c);  // the White_Space property
bool IsWordChar(char32_t c);    // letter, mark, decimal digit, connector, joiner: UTS 18's \w

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
std::string Normalize(std::string_view text, NormalForm form);

bool IsControl(char32_t c);         // categories Cc, Cf, Co
bool IsNonspacingMark(char32_t c);  // category Mn
bool IsMark(char32_t c);            // categories Mn, Mc, Me
// Without the rules of single languages or of a letter's neighbours.
void AppendLowercase(char32_t c, std::string* out);

}  // namespace ropewalk::internal
