// How words are cut: POSIX brackets as Oniguruma has them, and where a text begins.
#include "src/tokenizer/pipeline.h"
#include "src/tokenizer/regex.h"
#include "tests/tokenizer/support.h"

namespace ropewalk {
namespace words_test {

using internal::CutWords;
using internal::MetaspaceStep;
using internal::PrefixSpaceStep;
using internal::Regex;
using internal::Span;
using internal::SplitBehavior;
using internal::SplitStep;
using internal::WordStep;
using testing::ElementsAre;
using testing::HasSubstr;

// Each of the letters is matched, none of the others; what PyPI's tokenizers 0.22 says.
TEST(Brackets, AreOnigurumas) {
  struct Row {
    const char *pattern, *in, *out;
  };
  const Row rows[] = {
      {"[[:alpha:]]", "aé你ªⅧⒶ\u0345\u0364", "1_ ²\u0301"},
      {"[[:alnum:]]", "a1१Ⅷ\u0345", "_²½\u0301"},
      {"[[:upper:]]", "AÉⅧⒶ", "aªǅ1"},
      {"[[:lower:]]", "aªⅷⓐ\u0345\u10fc", "Aǅ1"},
      {"[[:punct:]]", "!$+<^`|~€©😀", "a1 \u0301"},
      {"[[:space:]]", " \t\u0085\u00a0\u2028\u3000", "a\u180e\u200b"},
      {"[[:blank:]]", " \t\u00a0\u3000", "\n\u180e\u2028"},
      {"[[:word:]]", "a1_é\u0301Ⅷ\u203f", "²¼ -"},
      {"[[:graph:]]", "a!😀\u200b\ue000", " \u00a0\u2028\x01"},
      {"[[:print:]]", "a! \u00a0\u200b", "\n\x01\u2028\u0085"},
      {"[[:digit:]]", "1१", "²Ⅷa"},
      {"[[:cntrl:]]", "\x01\x7f\u0085", "a \u200b"},
      {"[[:xdigit:]]", "09afAF", "gG१"},
      {"[^[:alpha:]_]", "1 ²", "a_Ⅷ"},
      {"[x[:punct:]0-3]", "x3$", "4y"},
  };
  for (const Row& row : rows) {
    const Regex regex(row.pattern, "here");
    std::vector<Span> found;
    regex.FindAll(row.in, &found);
    std::size_t matched = 0;
    for (const Span& span : found) matched += span.second - span.first;
    EXPECT_EQ(matched, std::strlen(row.in)) << row.pattern;
    regex.FindAll(row.out, &found);
    EXPECT_TRUE(found.empty()) << row.pattern;
  }
}

TEST(Brackets, WhatIsNotTheSameIsRefused) {
  const auto message = [](const char* pattern) {
    return MessageOf([&] { Regex(pattern, "here"); });
  };
  EXPECT_THAT(message("[[:^alpha:]]"), HasSubstr("the class '[:^alpha:]'"));
  EXPECT_THAT(message("[[:letters:]]"), HasSubstr("the class '[:letters:]'"));
  EXPECT_THAT(message("(?i:[[:upper:]])"), HasSubstr("'[:upper:]' where case does not count"));
  EXPECT_THAT(message("[[:space:]-x]"), HasSubstr("a '-' behind a class"));
  EXPECT_EQ(message("[[:alpha:]-]|[[:^cntrl:]]"), "no error");
}

// What is matched, with bars between; what PyPI's tokenizers 0.22 says.
TEST(Patterns, AreReadAsOniguruma) {
  struct Row {
    const char *pattern, *text, *found;
  };
  const Row rows[] = {
      {"x(?i)h|L", "Hello l XL xh xl", "xh|xl"},
      {"(?i)h|L", "Hello xh", "H|l|l|h"},
      {"(a(?i)b|c)d|E", "aBd cd acd aE E", "aBd|acd|E|E"},
      {"a(?i)b(?-i)c", "aBc aBC", "aBc"},
      {"a{,}|b{,2}c", "a a{,} bbc", "a{,}|bbc"},
      {"{,|x{1|y{ 2}", "{, x{1 y{ 2} yy", "{,|x{1|y{ 2}"},
      {"a{2,2}?", "aaaa", "aa|aa"},
      {R"(\w+)", "a½ b²", "a½|b²"},
      {R"([\w]+)", "a½ b²", "a|b"},
      {R"([^\s\w]+)", "a½ b²-", "½|²-"},
      {R"([\w&&[^\d]]+)", "ab½cd² 12e", "ab|cd|e"},
      {R"([a-c-z]+|[-x]|[x-]+)", "b-z y-x", "b-z|-|x"},
      {"[[a-]z]+", "az-b", "az-"},
      {"[a[-z]]+", "az-b", "az-"},
      {"(?i:'s|'t|'re|'ve|'m|'ll|'d|’S)", "'S 'ſ 'LL ’s", "'S|'ſ|'LL|’s"},
  };
  for (const Row& row : rows) {
    std::vector<Span> spans;
    Regex(row.pattern, "here").FindAll(row.text, &spans);
    std::string found;
    for (const auto& [begin, end] : spans) {
      found += (found.empty() ? "" : "|") + std::string(row.text, begin, end - begin);
    }
    EXPECT_EQ(found, row.found) << row.pattern;
  }
}

// PCRE2 would match something else, or Oniguruma nothing at all.
TEST(Patterns, WhatIsNotTheSameIsRefused) {
  const std::pair<const char*, const char*> rows[] = {
      {R"(\p{N}{3}?)", "a '?' after '{n}'"},
      {"[[a]-z]", "a '-' behind a class"},
      {R"([\s-！])", "a '-' behind a class"},
      {R"([!-\s])", "a '-' before a class"},
      {"(?i:ss)", "letters that make a ligature"},
      {"(?i:gras(?:s))", "letters that make a ligature"},
      {"a(?i)x|sT", "letters that make a ligature"},
      {"(?i:ß)", "a letter beyond ASCII"},
      {"(?i:[ß])", "letters beyond ASCII in a class"},
      {"(?i:[!-’])", "letters beyond ASCII in a class"},
      {R"((?i:[\w]))", "the escape '\\w' where case does not count"},
      {R"((?i)[\p{Lu}])", "the escape '\\p' where case does not count"},
      {R"(\xa0)", "the escape '\\xa0'"},
      {R"([\xe9])", "the escape '\\xe9'"},
      {R"(\p{L&})", "the property '\\p{L&}'"},
      {R"(\pL)", "the escape '\\p' without '{'"},
      {R"([\101])", "the escape '\\10'"},
      {"(?x)a b", "the group '(?x)'"},
      {"a(?#b)+", "the group '(?#b'"},
  };
  for (const auto& [pattern, says] : rows) {
    EXPECT_THAT(MessageOf([&] { Regex(pattern, "here"); }), HasSubstr(says)) << pattern;
  }
  // Where case counts again they are what they are.
  EXPECT_EQ(MessageOf([] { Regex(R"((?i:'s|t)|ss|[\w]ß|(?-i:st))", "here"); }), "no error");
}

std::vector<std::string> Cut(const std::vector<WordStep>& steps, const std::string& text,
                             bool at_start = true) {
  const internal::Words words = CutWords(steps, text, at_start);
  std::vector<std::string> out;
  for (const auto& [begin, end] : words.spans) out.push_back(words.text.substr(begin, end - begin));
  return out;
}

// A word has the mark when it begins at offset 0 of the text, not when it is the first one left.
TEST(Metaspace, FirstIsAtOffset0) {
  const std::vector<WordStep> steps = {
      SplitStep{Regex(R"(\s)", "here"), SplitBehavior::kRemoved, false},
      MetaspaceStep{"_", MetaspaceStep::Prefix::kFirst, true}};
  EXPECT_THAT(Cut(steps, "a b"), ElementsAre("_a", "b"));
  EXPECT_THAT(Cut(steps, "  a b"), ElementsAre("a", "b"));
  EXPECT_THAT(Cut(steps, "a b", false), ElementsAre("a", "b"));
  std::vector<WordStep> more = steps;  // a step between them does not move the text
  more.insert(more.begin() + 1, SplitStep{Regex("b", "here"), SplitBehavior::kIsolated, false});
  EXPECT_THAT(Cut(more, "ab"), ElementsAre("_a", "b"));
  EXPECT_THAT(Cut(more, " ab"), ElementsAre("a", "b"));
}

}  // namespace words_test
}  // namespace ropewalk
