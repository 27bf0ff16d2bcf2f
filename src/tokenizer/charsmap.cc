#include "src/tokenizer/charsmap.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <array>
#include <cstring>

#include "ropewalk/base/error.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {
namespace {

// The units of darts-clone: a label, an offset to the children, and whether a value hangs there.
uint32_t Label(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xFF); }
uint32_t Value(uint32_t unit) { return unit & ~(uint32_t{1} << 31); }
bool HasValue(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (uint32_t{1} << 9)) >> 6); }

std::string DecodeBase64(std::string_view text, const std::string& where) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int, 256> value;
  value.fill(-1);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    value[static_cast<uint8_t>(kDigits[i])] = static_cast<int>(i);
  }
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = value[static_cast<uint8_t>(c)];
    if (digit < 0) throw Error(ErrorCode::kInvalidFile, where + ": no base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return out;
}

}  // namespace

Charsmap Charsmap::OfBase64(std::string_view base64, const std::string& where) {
  const std::string bytes = DecodeBase64(base64, where);
  uint32_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (size == 0 || size % sizeof(uint32_t) != 0 || size > bytes.size() - sizeof(size)) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format("{}: a trie of {} bytes is said to begin {} bytes", where, size, bytes.size()));
  }
  Charsmap map;
  map.trie_.resize(size / sizeof(uint32_t));
  std::memcpy(map.trie_.data(), bytes.data() + sizeof(size), size);
  map.strings_ = bytes.substr(sizeof(size) + size);
  if (!IsValidUtf8(map.strings_)) throw Error(ErrorCode::kInvalidFile, where + ": no UTF-8");
  return map;
}

const char* Charsmap::Find(std::string_view key) const {
  // A broken file may point anywhere: what is outside holds nothing.
  const auto at = [&](uint32_t place) { return place < trie_.size() ? trie_[place] : 0; };
  uint32_t place = Offset(at(0));
  for (const char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return nullptr;
    place ^= byte;
    const uint32_t unit = at(place);
    if (Label(unit) != byte) return nullptr;
    place ^= Offset(unit);
    if (!HasValue(unit)) continue;
    const uint32_t start = Value(at(place));
    const bool sound = start < strings_.size() && !IsContinuation(strings_[start]);
    return sound ? strings_.c_str() + start : nullptr;
  }
  return nullptr;
}

std::string Charsmap::Apply(const std::string& text) const {
  constexpr std::size_t kLongest = 5;  // bytes of a grapheme that is looked up whole
  std::string out;
  out.reserve(text.size());
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    utf8proc_int32_t state = 0;
    do {
      const char32_t c = DecodeChar(std::string_view(text).substr(end));
      end += CharBytes(text[end]);
      if (end == text.size()) break;
      const char32_t next = DecodeChar(std::string_view(text).substr(end));
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c),
                                           static_cast<utf8proc_int32_t>(next), &state)) {
        break;
      }
    } while (true);
    const std::string_view grapheme = std::string_view(text).substr(begin, end - begin);
    const char* whole = grapheme.size() <= kLongest ? Find(grapheme) : nullptr;
    if (whole != nullptr) out += whole;
    for (std::size_t at = 0; whole == nullptr && at < grapheme.size();) {
      const std::string_view c = grapheme.substr(at, CharBytes(grapheme[at]));
      const char* rule = Find(c);
      rule != nullptr ? out.append(rule) : out.append(c);
      at += c.size();
    }
    begin = end;
  }
  return out;
}

}  // namespace ropewalk::internal
