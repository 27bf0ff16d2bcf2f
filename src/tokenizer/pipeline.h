// What happens to text before the merges: normalisation, then cutting into words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/tokenizer/charsmap.h"
#include "src/tokenizer/regex.h"
#include "src/tokenizer/unicode.h"

namespace ropewalk::internal {

struct ReplaceStep {
  Regex pattern;
  std::string content;
};
struct PrependStep {
  std::string prefix;
};
struct StripStep {
  bool left, right;
};
// BERT's: no control characters, every white space a space, spaces around Chinese characters, no
// accents, lower case.
struct BertStep {
  bool clean = true, chinese = true, strip_accents = true, lowercase = true;
};
struct StripAccentsStep {};
struct LowercaseStep {};
using NormalizerStep = std::variant<NormalForm, ReplaceStep, PrependStep, StripStep, BertStep,
                                    StripAccentsStep, LowercaseStep, Charsmap>;

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string text);

enum class SplitBehavior { kRemoved, kIsolated, kContiguous, kMergedWithPrevious, kMergedWithNext };
struct SplitStep {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what does not match is the match
};
struct PrefixSpaceStep {};  // a space in front of each word that has none
struct ByteMapStep {};      // bytes to the characters that stand for them in the vocabulary
struct MetaspaceStep {
  enum class Prefix { kNever, kFirst, kAlways };
  std::string mark;  // what stands for a space
  Prefix prefix = Prefix::kAlways;
  bool split = true;
};
using WordStep = std::variant<SplitStep, PrefixSpaceStep, ByteMapStep, MetaspaceStep>;

struct Words {
  std::string text;
  std::vector<Span> spans;  // of text; none is empty
  bool at_front = true;     // the first of them begins where the text began that was cut
};

// `at_start`: this is the beginning of the whole text, not what follows an added token.
Words CutWords(const std::vector<WordStep>& steps, std::string text, bool at_start);

// GPT-2's reversible map of bytes to printable characters, and back (-1: none of them).
const std::string& ByteToChar(uint8_t byte);
int CharToByte(char32_t c);

// GPT-2's pattern, which is what a ByteLevel pre-tokenizer cuts by.
extern const char kGpt2Pattern[];

}  // namespace ropewalk::internal
