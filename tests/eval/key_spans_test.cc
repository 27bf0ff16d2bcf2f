// Spans of key tokens: merged, mapped to other tokenizers, kept in a file.
#include "src/eval/key_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/eval/key_tokens.h"
#include "tests/eval/tiny_model.h"

namespace ropewalk {
namespace {

using internal::Merged;
using internal::Widened;
using test::TempFolder;
using testing::HasSubstr;

using Spans = std::vector<ByteSpan>;

// A text cut into tokens of these bytes.
TokenText Cut(std::vector<int32_t> bytes) {
  TokenText text = TextOfIds(std::vector<int32_t>(bytes.size(), 1));
  text.token_bytes = std::move(bytes);
  return text;
}

KeySpans KeysOf(const std::string& text, Spans spans) {
  KeySpans keys;
  keys.text_hash = HashHex(text);
  keys.evaluator = {"model", "0a", "bytes \"q\" \xc3\xa4", "0b"};
  keys.settings = {.document = 300, .short_context = 40, .step = 10, .lsd = 1.5, .bos = true};
  keys.spans = std::move(spans);
  keys.covered = {{0, static_cast<int64_t>(text.size())}};
  return keys;
}

TEST(KeySpans, SpansThatTouchOrOverlapAreOne) {
  EXPECT_EQ(Merged(Spans{}), Spans{});
  EXPECT_EQ(Merged(Spans{{0, 1}, {1, 3}, {4, 5}, {4, 5}, {5, 5}, {4, 6}, {8, 9}}),
            (Spans{{0, 3}, {4, 6}, {8, 9}}));
}

TEST(KeySpans, CoverWholeCharacters) {
  const std::string text = "a\xc3\xa4z\xe2\x82\xac\xf0\x9f\x98\x80!";  // 1 2 1 3 4 1 bytes
  EXPECT_EQ(Widened(text, {0, 1}), (ByteSpan{0, 1}));
  EXPECT_EQ(Widened(text, {0, 2}), (ByteSpan{0, 3}));
  EXPECT_EQ(Widened(text, {2, 4}), (ByteSpan{1, 4}));
  EXPECT_EQ(Widened(text, {5, 6}), (ByteSpan{4, 7}));
  EXPECT_EQ(Widened(text, {10, 11}), (ByteSpan{7, 11}));
  EXPECT_EQ(Widened(text, {11, 12}), (ByteSpan{11, 12}));
  const std::string stray(40, '\x80');  // no character, and not walked through
  EXPECT_EQ(Widened(stray, {20, 21}), (ByteSpan{17, 24}));
}

// The key characters are "ro", the euro sign and "x yz".
TEST(KeySpans, EveryTokenizerHasItsOwnTokensInside) {
  const std::string text =
      "euro \xe2\x82\xac"
      "ab x yz";
  const KeySpans keys = KeysOf(text, {{2, 4}, {5, 8}, {11, 15}});
  const auto indices = [&](std::vector<int32_t> bytes) {
    return KeyTokenIndices(text, Cut(std::move(bytes)), keys);
  };
  using Indices = std::vector<int64_t>;
  EXPECT_EQ(indices(std::vector<int32_t>(15, 1)),
            (Indices{2, 3, 5, 6, 7, 11, 12, 13, 14}));  // bytes of the euro sign too
  EXPECT_EQ(indices({4, 1, 3, 2, 1, 1, 3}), (Indices{2, 5, 6}));
  EXPECT_EQ(indices({4, 1, 1, 2, 3, 4}), (Indices{2, 3, 5}));  // "x yz", a part of the euro sign
  EXPECT_EQ(indices({2, 2, 1, 3, 7}), (Indices{1, 3}));        // "ab x yz" is not inside
  EXPECT_EQ(indices({2, 3, 10}), Indices{});                   // "ro " is not either
  EXPECT_EQ(indices({2, 0, 2, 0, 11}), (Indices{2}));          // tokens without bytes
  EXPECT_EQ(indices({15}), Indices{});
  EXPECT_EQ(KeyTokenIndices(text, Cut({15}), KeysOf(text, {{0, 15}})), (Indices{0}));
  EXPECT_EQ(KeyTokenIndices(text, Cut({7, 8}), KeysOf(text, {})), Indices{});
  EXPECT_THROW(KeyTokenIndices(text, Cut({14}), keys), Error);
  EXPECT_THROW(KeyTokenIndices(text, TextOfIds({1}), keys), Error);
  EXPECT_THROW(KeyTokenIndices("Euro \xe2\x82\xac"
                               "ab x yz",
                               Cut({15}), keys),
               Error);
}

TEST(KeySpans, AFileHoldsAll) {
  const TempFolder folder;
  const std::string text = "some text of 26 bytes ....", path = folder / "spans.json";
  const KeySpans keys = KeysOf(text, {{0, 3}, {5, 6}, {20, 26}});
  WriteKeySpans(path, keys);
  EXPECT_EQ(ReadKeySpans(path, text), keys);
  WriteKeySpans(path, KeysOf(text, {}));
  EXPECT_EQ(ReadKeySpans(path, text).spans, Spans{});
  EXPECT_NE(keys.Hash(), KeysOf(text, {}).Hash());
  KeySpans other = keys;
  other.evaluator.model_hash = "0c";
  EXPECT_NE(keys.Hash(), other.Hash());
  EXPECT_THROW(WriteKeySpans(folder / "none/spans.json", keys), Error);
  EXPECT_THROW(ReadKeySpans(folder / "none.json", text), Error);
}

class HostileSpans : public testing::Test {
 protected:
  std::string Message(const std::string& json, ErrorCode code = ErrorCode::kInvalidFile) {
    const std::string path = folder_ / "spans.json";
    std::ofstream(path, std::ios::binary) << json;
    try {
      ReadKeySpans(path, text_);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << json;
      EXPECT_THAT(e.what(), HasSubstr(path));
      return e.what();
    }
    return "no error";
  }
  // The file with `from` replaced.
  std::string With(const std::string& from, const std::string& to) {
    const std::string path = folder_ / "whole.json";
    WriteKeySpans(path, KeysOf(text_, {{3, 5}, {7, 9}}));
    std::ostringstream whole;
    whole << std::ifstream(path).rdbuf();
    std::string json = whole.str();
    const size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return json.replace(at, from.size(), to);
  }
  const TempFolder folder_;
  const std::string text_ = "twelve bytes";
};

TEST_F(HostileSpans, SpansThatAreNone) {
  EXPECT_EQ(Message(With("", "")), "no error");
  const std::string spans = "[[3,5],[7,9]]";
  for (const char* bad :
       {"[[3,5],[4,9]]", "[[3,5],[5,9]]", "[[7,9],[3,5]]", "[[3,5],[7,13]]", "[[-3,5],[7,9]]",
        "[[3,5],[9,7]]", "[[3,3]]", "[[3.0,5.0]]", "[[3,null]]", "[[3]]", "[3,5]", "[[3,5,7]]",
        "[[0,18446744073709551615]]", "[[9223372036854775807,9223372036854775808]]", "[[\"3\",5]]",
        "[[3,1e3]]", "[[[],[]]]", "[{}]"}) {
    EXPECT_THAT(Message(With(spans, bad)), HasSubstr("expected [begin, end] with")) << bad;
  }
  for (const char* bad : {"[[NaN,5]]", "[[3,5]", "[[3,1e999]]"}) {
    EXPECT_NE(Message(With(spans, bad)), "no error") << bad;
  }
  EXPECT_THAT(Message(With(spans, "{}")), HasSubstr("spans: expected an array"));
  EXPECT_THAT(Message(With("\"covered\":[[0,12]]", "\"covered\":[[0,13]]")),
              HasSubstr("covered[0]"));
}

TEST_F(HostileSpans, FilesThatAreNone) {
  const std::string whole = With("", "");
  for (size_t n = 0; n + 1 < whole.size(); ++n) {
    EXPECT_NE(Message(whole.substr(0, n)), "no error") << n;
  }
  EXPECT_THAT(Message("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(Message(With("ropewalk-key-tokens", "ropewalk-sweep")), HasSubstr("expected format"));
  EXPECT_THAT(Message(With("\"version\":1", "\"version\":2")), HasSubstr("version 1"));
  EXPECT_THAT(Message(With("\"step\":10", "\"step\":0")), HasSubstr("settings: step"));
  EXPECT_THAT(Message(With("\"step\":10", "\"stop\":10")), HasSubstr("step is missing"));
  EXPECT_THAT(Message(With("\"lsd\":1.5", "\"lsd\":null")), HasSubstr("lsd: expected a number"));
  EXPECT_THAT(Message(With("\"bos\":true", "\"bos\":1")), HasSubstr("bos: expected true or false"));
  EXPECT_THAT(Message(With("\"name\":\"model\"", "\"name\":7")), HasSubstr("evaluator: name"));
  EXPECT_THAT(Message(With(HashHex(text_), HashHex("x")), ErrorCode::kMismatch),
              HasSubstr("another text"));
  EXPECT_NE(Message(std::string(100000, '[')), "no error");
}

}  // namespace
}  // namespace ropewalk
