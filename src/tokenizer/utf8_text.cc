#include "ropewalk/tokenizer/utf8_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ropewalk/base/error.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kBytesPerBadOne = 1000;

struct Mark {
  std::string_view bytes;
  const char* encoding;
};
// UTF-32's first, since UTF-16's begins it. None of them can begin UTF-8 text but its own.
constexpr Mark kMarks[] = {{"\xFF\xFE\0\0"sv, "UTF-32"},
                           {"\0\0\xFE\xFF"sv, "UTF-32"},
                           {"\xFF\xFE"sv, "UTF-16"},
                           {"\xFE\xFF"sv, "UTF-16"}};
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF"sv;

[[noreturn]] void Refuse(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kInvalidFile, fmt::format("{}: expected UTF-8, {}", name, what));
}

struct Bad {
  std::size_t bytes = 0, first = 0;
  std::array<std::size_t, 4> nuls = {};  // by offset modulo 4
};

Bad FindBad(std::string_view bytes, std::size_t begin) {
  Bad bad;
  const auto add = [&](std::size_t at, std::size_t n) {
    if (bad.bytes == 0) bad.first = at;
    bad.bytes += n;
  };
  std::size_t invalid = 0;
  for (std::size_t at = begin; at < bytes.size();) {
    const std::size_t length = internal::ValidSequence(bytes.substr(at), &invalid);
    if (length == 0) add(at, invalid);
    if (bytes[at] == '\0') {
      add(at, 1);
      ++bad.nuls[at % 4];
    }
    at += length == 0 ? invalid : length;
  }
  return bad;
}

// Where the NULs stand says which encoding has them: Latin letters have one NUL byte of two, or
// three of four.
const char* EncodingOf(const Bad& bad, std::size_t size) {
  const auto& n = bad.nuls;
  const auto most = [&](std::size_t i) { return n[i] * 10 > size / 4 * 9; };
  if (n[0] + n[1] + n[2] + n[3] < 4) return nullptr;  // chance
  if (most(2) && most(3) && !most(0)) return "UTF-32LE";
  if (most(0) && most(1) && !most(3)) return "UTF-32BE";
  if (n[1] + n[3] > 9 * (n[0] + n[2])) return "UTF-16LE";
  if (n[0] + n[2] > 9 * (n[1] + n[3])) return "UTF-16BE";
  return nullptr;
}

std::string Advice(const Bad& bad, std::size_t size) {
  if (const char* encoding = EncodingOf(bad, size)) {
    return fmt::format("it looks like {0}: convert it first, iconv -f {0} -t UTF-8", encoding);
  }
  return "text in another encoding has to be converted first, such as iconv -f WINDOWS-1252 -t "
         "UTF-8";
}

}  // namespace

Utf8Text TakeUtf8(std::string_view bytes, const std::string& name) {
  for (const Mark& mark : kMarks) {
    if (!bytes.starts_with(mark.bytes)) continue;
    Refuse(name, fmt::format("the byte-order mark at byte 0 says {0}: convert it first, iconv -f "
                             "{0} -t UTF-8",
                             mark.encoding));
  }
  Utf8Text out;
  const std::size_t begin = bytes.starts_with(kUtf8Mark) ? kUtf8Mark.size() : 0;
  out.text = bytes.substr(begin);
  if (begin > 0) out.notes.push_back(name + ": the byte-order mark in front is left out");
  const Bad bad = FindBad(bytes, begin);
  if (bad.bytes == 0) return out;
  const std::string first =
      fmt::format("byte {} is 0x{:02X}", bad.first, static_cast<uint8_t>(bytes[bad.first]));
  if (bad.bytes * kBytesPerBadOne > out.text.size()) {
    Refuse(name, fmt::format("{}, and {} of {} bytes are NUL or belong to no character, more than "
                             "1 in {}; {}",
                             first, bad.bytes, out.text.size(), kBytesPerBadOne,
                             Advice(bad, out.text.size())));
  }
  out.notes.push_back(fmt::format(
      "{}: {} of {} bytes are NUL or no UTF-8 (the first: {}); those that are no UTF-8 are read as "
      "U+FFFD",
      name, bad.bytes, out.text.size(), first));
  return out;
}

}  // namespace ropewalk
