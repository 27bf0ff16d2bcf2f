// Spans of a text, in bytes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ropewalk/eval/key_tokens.h"

namespace ropewalk::internal {

// Of each token. Throws Error where the bytes of the tokens are not those of the text.
std::vector<ByteSpan> TokenSpans(std::string_view text, const TokenText& tokens);
// To whole characters of UTF-8.
ByteSpan Widened(std::string_view text, ByteSpan span);
// Ascending spans; those that touch or overlap become one, empty ones are left out.
std::vector<ByteSpan> Merged(std::span<const ByteSpan> spans);

}  // namespace ropewalk::internal
