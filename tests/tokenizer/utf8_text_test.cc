// What is taken for text, what is said about it, and what is refused.
#include "ropewalk/tokenizer/utf8_text.h"

#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace utf8_text_test {

using ropewalk::TakeUtf8;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using namespace std::string_literals;

// Long enough that one sequence is below the share.
std::string Prose(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "in the beginning ";
  text.resize(bytes);
  return text;
}

std::string ErrorOf(const std::string& bytes) {
  try {
    TakeUtf8(bytes, "book.txt");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidFile);
    return e.what();
  }
  return "no error";
}

// As iconv writes it, for characters of the basic plane.
std::string Utf16(const std::u32string& text, bool little, int bytes = 2) {
  std::string out;
  for (const char32_t c : text) {
    std::string unit;
    for (int i = bytes - 1; i >= 0; --i) unit += static_cast<char>(c >> (8 * i) & 0xFF);
    if (little) std::reverse(unit.begin(), unit.end());
    out += unit;
  }
  return out;
}

TEST(TakeUtf8, TextIsTakenAsItIs) {
  const std::string text = "a \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80 \xEF\xBF\xBD\n";
  EXPECT_EQ(TakeUtf8(text, "x").text, text);
  EXPECT_THAT(TakeUtf8(text, "x").notes, IsEmpty());
  EXPECT_EQ(TakeUtf8("", "x").text, "");
  // The largest character, and the ends of what surrogates leave out.
  EXPECT_THAT(TakeUtf8("\xF4\x8F\xBF\xBF \xED\x9F\xBF \xEE\x80\x80", "x").notes, IsEmpty());
}

TEST(TakeUtf8, AByteOrderMarkIsLeftOutAndSaid) {
  const std::string text = "\xEF\xBB\xBFIn the beginning";
  const auto taken = TakeUtf8(text, "book.txt");
  EXPECT_EQ(taken.text, "In the beginning");
  EXPECT_THAT(taken.notes, ElementsAre("book.txt: the byte-order mark in front is left out"));
  EXPECT_EQ(TakeUtf8("\xEF\xBB\xBF", "x").text, "");
  // In the middle it is a character like any other.
  EXPECT_EQ(TakeUtf8("a\xEF\xBB\xBF", "x").text.size(), 4u);
}

TEST(TakeUtf8, FewBadBytesAreANote) {
  struct Case {
    const char* what;
    std::string bytes;
    int bad;
  };
  for (const Case& c :
       {Case{"overlong NUL", "\xC0\x80", 2}, Case{"overlong /", "\xE0\x80\xAF", 3},
        Case{"surrogate", "\xED\xA0\x80", 3}, Case{"past U+10FFFF", "\xF4\x90\x80\x80", 4},
        Case{"five bytes", "\xF8", 1}, Case{"lone continuation", "\x80", 1},
        Case{"Latin-1", "\xE9", 1}, Case{"NUL", "\0"s, 1}}) {
    const std::string front = Prose(2500), text = front + c.bytes + Prose(2500);
    const auto taken = TakeUtf8(text, "book.txt");
    EXPECT_EQ(taken.text, text);
    ASSERT_EQ(taken.notes.size(), 1u) << c.what;
    EXPECT_THAT(taken.notes[0], AllOf(StartsWith("book.txt: " + std::to_string(c.bad) + " of " +
                                                 std::to_string(text.size()) + " bytes"),
                                      HasSubstr("(the first: byte 2500 is 0x")))
        << c.what;
    EXPECT_THAT(ErrorOf("short " + c.bytes),
                AllOf(StartsWith("book.txt: expected UTF-8, byte 6 is 0x"), HasSubstr("iconv -f")))
        << c.what;
  }
  // A tail that was cut; offsets count the mark.
  const auto cut = TakeUtf8("\xEF\xBB\xBF" + Prose(4000) + "\xE2\x82", "t");
  ASSERT_EQ(cut.notes.size(), 2u);
  EXPECT_THAT(cut.notes[1], HasSubstr("2 of 4002 bytes are NUL or no UTF-8 (the first: byte 4003 "
                                      "is 0xE2)"));
}

TEST(TakeUtf8, TheShareIsOneInAThousand) {
  EXPECT_THAT(TakeUtf8(Prose(999) + "\xE9", "x").notes, ::testing::SizeIs(1));
  EXPECT_THAT(ErrorOf(Prose(998) + "\xE9"),
              HasSubstr("byte 998 is 0xE9, and 1 of 999 bytes are NUL or belong to no character"));
}

TEST(TakeUtf8, OtherEncodingsAreNamed) {
  const std::u32string text = U"In the beginning God created the heaven and the earth.\n";
  EXPECT_THAT(ErrorOf("\xFF\xFE" + Utf16(text, true)),
              HasSubstr("byte 0 says UTF-16: convert it first, iconv -f UTF-16 -t UTF-8"));
  EXPECT_THAT(ErrorOf("\xFE\xFF" + Utf16(text, false)), HasSubstr("iconv -f UTF-16 "));
  EXPECT_THAT(ErrorOf("\xFF\xFE\0\0"s + Utf16(text, true, 4)), HasSubstr("iconv -f UTF-32 "));
  EXPECT_THAT(ErrorOf("\0\0\xFE\xFF"s + Utf16(text, false, 4)), HasSubstr("iconv -f UTF-32 "));
  EXPECT_THAT(ErrorOf(Utf16(text, true)),
              AllOf(HasSubstr("byte 1 is 0x00"), HasSubstr("iconv -f UTF-16LE ")));
  EXPECT_THAT(ErrorOf(Utf16(text, false)),
              AllOf(HasSubstr("byte 0 is 0x00"), HasSubstr("iconv -f UTF-16BE ")));
  EXPECT_THAT(ErrorOf(Utf16(text, true, 4)), HasSubstr("iconv -f UTF-32LE "));
  EXPECT_THAT(ErrorOf(Utf16(text, false, 4)), HasSubstr("iconv -f UTF-32BE "));
  // Chinese in UTF-16 has no NUL; half of its bytes are no UTF-8 either.
  EXPECT_THAT(ErrorOf(Utf16(U"起初神創造天地地是空虛混沌淵面黑暗", true)),
              HasSubstr("text in another encoding"));
  EXPECT_THAT(ErrorOf(std::string(5000, '\0')), HasSubstr("5000 of 5000 bytes"));
}

}  // namespace utf8_text_test
}  // namespace ropewalk
