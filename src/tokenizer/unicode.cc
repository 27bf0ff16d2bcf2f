#include "src/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "ropewalk/base/error.h"
#include "ropewalk/tokenizer/tokenizer.h"

namespace ropewalk {
namespace internal {

std::size_t ValidSequence(std::string_view text, std::size_t* invalid) {
  *invalid = 1;
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  // Table 3-7 of the Unicode standard: the second byte's range depends on the lead byte, which is
  // what forbids overlong forms, surrogates and values past U+10FFFF.
  std::size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) {
      *invalid = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

bool IsValidUtf8(std::string_view text) {
  std::size_t invalid = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = ValidSequence(text.substr(at), &invalid);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

char32_t DecodeChar(std::string_view text) {
  const auto bits = [&](std::size_t i) { return static_cast<char32_t>(text[i]) & 0x3F; };
  const auto lead = static_cast<uint8_t>(text[0]);
  switch (CharBytes(text[0])) {
    case 1:
      return lead;
    case 2:
      return (static_cast<char32_t>(lead & 0x1F) << 6) | bits(1);
    case 3:
      return (static_cast<char32_t>(lead & 0x0F) << 12) | (bits(1) << 6) | bits(2);
    default:
      return (static_cast<char32_t>(lead & 0x07) << 18) | (bits(1) << 12) | (bits(2) << 6) |
             bits(3);
  }
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordChar(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Joiners, and letters in circles and squares, which are alphabetic symbols.
      return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

bool IsControl(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

bool IsNonspacingMark(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN;
}

bool IsMark(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

void AppendLowercase(char32_t c, std::string* out) {
  if (c == 0x130) {  // the one that becomes two
    out->append("i\u0307");
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

std::string Normalize(std::string_view text, NormalForm form) {
  // ASCII is its own normal form in all four; most text takes this way.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 128; })) {
    return std::string(text);
  }
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("text: Unicode normalisation failed: ") + utf8proc_errmsg(size));
  }
  return std::string(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

}  // namespace internal

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t invalid = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = internal::ValidSequence(text.substr(at), &invalid);
    if (length > 0) {
      out.append(text, at, length);
      at += length;
    } else {
      out += "\xEF\xBF\xBD";
      at += invalid;
    }
  }
  return out;
}

}  // namespace ropewalk
