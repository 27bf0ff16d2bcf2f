// Checks bytes from files, standard input or a prompt before they are used as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

struct Utf8Text {
  std::string_view text;           // of the bytes given, without a byte-order mark
  std::vector<std::string> notes;  // what was left out or replaced; each begins with `name`
};

// Accepts UTF-8. A few invalid bytes (up to 1 in 1000, including NUL) give a note. More of them, or
// the byte-order mark of another encoding, throw Error(kInvalidFile) with the offset of the first
// (from the first byte given) and the likely encoding, because a model would be measured on U+FFFD.
// `name` is for messages.
Utf8Text TakeUtf8(std::string_view bytes, const std::string& name);

}  // namespace ropewalk
