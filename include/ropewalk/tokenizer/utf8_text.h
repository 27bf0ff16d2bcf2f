// Bytes from outside that are to be text: a file, standard input, a prompt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

struct Utf8Text {
  std::string_view text;           // of the bytes given, without a byte-order mark
  std::vector<std::string> notes;  // what was left out or will be replaced; each begins with `name`
};

// Takes UTF-8. A few bytes that are none (up to 1 in 1000, NUL counted with them) are a note;
// more, or the byte-order mark of another encoding, throw Error(kInvalidFile) with the offset of
// the first and the encoding that it looks like: a model would be measured on U+FFFD. Offsets count
// from the first byte given. `name` is for messages.
Utf8Text TakeUtf8(std::string_view bytes, const std::string& name);

}  // namespace ropewalk
