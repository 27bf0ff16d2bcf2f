// Invalid UTF-8 becomes what Python's bytes.decode("utf-8", "replace") makes of it.
#include "src/tokenizer/unicode.h"

#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace unicode_test {

std::string FromHex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

TEST(ValidUtf8, IsWhatPythonMakes) {
  const auto cases = ReadGolden("invalid_utf8.json");
  ASSERT_GT(cases.size(), 200u);
  for (const auto& one : cases) {
    const std::string in = FromHex(one[0].get<std::string>());
    EXPECT_EQ(ValidUtf8(in), FromHex(one[1].get<std::string>())) << one[0];
    EXPECT_EQ(internal::IsValidUtf8(in), one[0] == one[1]);
    EXPECT_TRUE(internal::IsValidUtf8(ValidUtf8(in)));
  }
}

TEST(ValidUtf8, EveryCodePointIsKept) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    internal::AppendUtf8(c, &text);
    ASSERT_EQ(internal::DecodeChar(text), c);
    ASSERT_EQ(internal::CharBytes(text[0]), text.size());
    ASSERT_EQ(ValidUtf8(text), text) << static_cast<uint32_t>(c);
  }
}

TEST(Encode, InvalidUtf8IsTheReplacementCharacter) {
  const std::string goldens = ROPEWALK_TOKENIZER_GOLDENS;
  for (const char* name : {"/gpt2", "/llama2", "/spm_bpe"}) {
    const auto tokenizer = LoadTokenizerFolder(goldens + name);
    EXPECT_EQ(tokenizer->Encode("a\xFF b\xE2\x82"),
              tokenizer->Encode("a\xEF\xBF\xBD b\xEF\xBF\xBD"))
        << name;
  }
}

TEST(Normalize, FourForms) {
  using internal::NormalForm;
  const std::string text = "e\u0301 \uFB01 \u212B";
  EXPECT_EQ(internal::Normalize(text, NormalForm::kNfc), "\u00E9 \uFB01 \u00C5");
  EXPECT_EQ(internal::Normalize(text, NormalForm::kNfd), "e\u0301 \uFB01 A\u030A");
  EXPECT_EQ(internal::Normalize(text, NormalForm::kNfkc), "\u00E9 fi \u00C5");
  EXPECT_EQ(internal::Normalize(text, NormalForm::kNfkd), "e\u0301 fi A\u030A");
}

}  // namespace unicode_test
}  // namespace ropewalk
