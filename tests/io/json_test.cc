#include "src/io/json.h"

#include <gtest/gtest.h>

#include "tests/io/files.h"

namespace ropewalk {
namespace json_test {

using internal::kMaxJsonDepth;
using internal::ParseJson;
using testing::ExpectRefused;

std::string Repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Json, BuildsWhatNlohmannBuilds) {
  for (const char* text : {"null", "true", "-1", "1.5e-3", "18446744073709551615", "\"\\u7e69\\n\"",
                           "[]", "{}", " [1, [2, {\"a\": [3, {}]}], \"x\"] \n",
                           R"({"a":{"b":[1,{"c":null}],"d":{}},"e":[[],[[]]]})",
                           R"({"a":1,"A":2,"":{"":0}})", "\xef\xbb\xbf[1]"}) {
    EXPECT_EQ(ParseJson(text, "f"), nlohmann::json::parse(text)) << text;
  }
}

TEST(Json, NestingUpToTheLimit) {
  const auto nested = [](int depth) { return Repeat("[", depth) + Repeat("]", depth); };
  EXPECT_EQ(ParseJson(nested(kMaxJsonDepth), "f").dump(), nested(kMaxJsonDepth));
  ExpectRefused([&] { ParseJson(nested(kMaxJsonDepth + 1), "f"); }, ErrorCode::kInvalidFile,
                {"f: byte 65", "nested deeper than 64"});
}

TEST(Json, HostileTextIsRefused) {
  const std::string huge_number = Repeat("9", 400);
  struct Case {
    std::string text;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"", {"byte 0"}},
      {"{", {}},
      {"[1,]", {"byte 4"}},
      {"{} x", {"byte 4"}},
      {"{}{}", {}},
      {"[1 2]", {}},
      {"[NaN]", {}},
      {"[Infinity]", {}},
      {"[1e999]", {}},
      {"[" + huge_number + "]", {}},
      {"['a']", {}},
      {"[01]", {}},
      {"{1:2}", {}},
      {"[\"\x80\"]", {}},
      {"[\"\xed\xa0\x80\"]", {}},  // a surrogate
      {"[\"\\ud800\"]", {}},
      {"[\"a\nb\"]", {"U+000A"}},
      {std::string("{}\0", 3), {"byte 2", "NUL"}},
      {std::string("{}\0{\"a\":1}", 10), {"byte 2", "NUL"}},
      {std::string("[\"a\0b\"]", 7), {"byte 3", "NUL"}},
      {R"({"a":1,"b":{"a":1},"a":1})", {"byte 22", "'a'", "twice"}},
      {R"([{"k":1,"\u006b":2}])", {"'k'", "twice"}},
      {Repeat("[", 1000000), {"byte 65", "nested"}},
      {Repeat("{\"a\":", 1000000), {"nested"}},
      {Repeat("[{\"a\":", 500000), {"nested"}},
      {"\"" + std::string(100000, 'a'), {}},
      {"// comment\n1", {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text.substr(0, 40));
    std::vector<std::string> parts = c.parts;
    parts.push_back("model/x.json: byte ");
    ExpectRefused([&] { ParseJson(c.text, "model/x.json"); }, ErrorCode::kInvalidFile, parts);
  }
}

TEST(Json, MessagesStayShort) {
  try {
    ParseJson("{\"" + std::string(1 << 20, 'a') + "\x01", "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 400u);
  }
}

TEST(Json, TruncatedAnywhere) {
  const std::string text = R"({"a": [1, 2.5, "x\u00e9"], "b": {"c": [true, null]}})";
  for (std::size_t size = 0; size < text.size(); ++size) {
    ExpectRefused([&] { ParseJson(text.substr(0, size), "f"); }, ErrorCode::kInvalidFile, {"f: "});
  }
}

}  // namespace json_test
}  // namespace ropewalk
