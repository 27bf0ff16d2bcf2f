// Bytes of tokens.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

// Words with the space in front, as SentencePiece spells them: a space is put before the text, and
// decoding drops the one at the beginning. Byte pieces for everything that is no letter.
class WordTokenizer : public test::ByteTokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    std::string word;
    for (const char c : " " + std::string(text) + " ") {
      if ((c == ' ' || !std::isalpha(static_cast<unsigned char>(c))) && !word.empty()) {
        words_.push_back(word);
        ids.push_back(999 + static_cast<int32_t>(words_.size()));
        word.clear();
      }
      if (c == ' ' || std::isalpha(static_cast<unsigned char>(c))) {
        word += c;
      } else {
        ids.push_back(static_cast<unsigned char>(c));
      }
    }
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      text += id >= 1000 ? words_[id - 1000] : std::string("\xef\xbf\xbd");  // lone bytes
    }
    return text.starts_with(" ") ? text.substr(1) : text;
  }
  std::string Piece(int32_t id) const override {
    if (id >= 1000) return "\xe2\x96\x81" + words_[id - 1000].substr(1);
    char piece[8];
    std::snprintf(piece, sizeof(piece), "<0x%02X>", static_cast<unsigned>(id));
    return piece;
  }

 private:
  mutable std::vector<std::string> words_;
};

int64_t Sum(const std::vector<int32_t>& v) {
  return std::accumulate(v.begin(), v.end(), int64_t{0});
}

TEST(Text, BytesOfByteTokens) {
  const std::string text = "a \xc3\xa4 text\n";
  const TokenText tokens = TokenizeText(test::ByteTokenizer(), text);
  EXPECT_EQ(Sum(tokens.token_bytes), static_cast<int64_t>(text.size()));
  for (const int32_t n : tokens.token_bytes) EXPECT_EQ(n, 1);
  EXPECT_EQ(tokens.tokenizer, "bytes");
  EXPECT_EQ(tokens.tokenizer_hash, "0123");
}

TEST(Text, TheSpaceInFrontOfATextIsNoByteOfIt) {
  const TokenText tokens = TokenizeText(WordTokenizer(), "one two \xe2\x82\xac three");
  EXPECT_EQ(tokens.token_bytes, (std::vector<int32_t>{3, 4, 1, 1, 1, 1, 6}));
}

// A tokenizer that drops characters still accounts for every byte of the file.
class LossyTokenizer : public test::ByteTokenizer {
 public:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (const char c : text) {
      if (c != ' ') ids.push_back(static_cast<unsigned char>(c));
    }
    return ids;
  }
};

TEST(Text, NormalisedTextCountsBytesOfTheFile) {
  const std::string text = "a   b c        d";
  const TokenText tokens = TokenizeText(LossyTokenizer(), text);
  ASSERT_EQ(tokens.token_bytes.size(), 4u);
  EXPECT_EQ(Sum(tokens.token_bytes), static_cast<int64_t>(text.size()));
}

TEST(Text, HashIsOfTheIds) {
  EXPECT_EQ(TextOfIds({1, 2, 3}).hash, TextOfIds({1, 2, 3}).hash);
  EXPECT_NE(TextOfIds({1, 2, 3}).hash, TextOfIds({1, 2, 4}).hash);
  EXPECT_NE(TextOfIds({1, 2, 3}).hash, TextOfIds({1, 2}).hash);
  EXPECT_EQ(TokenizeText(test::ByteTokenizer(), "abc").hash, TextOfIds({97, 98, 99}).hash);
  EXPECT_TRUE(TokenizeText(test::ByteTokenizer(), "").ids.empty());
}

}  // namespace
}  // namespace ropewalk
