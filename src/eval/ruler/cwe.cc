// RULER's common words: common_words_extraction.py.
#include <algorithm>
#include <cmath>

#include "src/eval/ruler/generator.h"
#include "src/eval/ruler/noise.h"
#include "src/eval/ruler/words.h"
#include "src/io/json.h"

namespace ropewalk::internal {
namespace {

constexpr int64_t kCommon = 10;
constexpr int64_t kFirstGuess = 4096;  // words of the list from which tokens per word are taken

// The `//` of Python's floats.
double FloorDivide(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b, whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

std::string Numbered(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : " ") + std::to_string(i + 1) + ". " + words[i];
  }
  return text;
}

// How often words occur in a list.
struct Repeats {
  int64_t common, others;
};

struct WordList {
  std::string text;
  std::vector<std::string> common;
};

std::vector<std::string> ReadEnglishWords(const RulerFile& file) {
  std::vector<std::string> words;
  if (file.empty()) return words;
  const nlohmann::ordered_json json = ParseOrderedObject(file.content, file.name);
  for (const auto& [key, word] : json.items()) {
    if (!word.is_string()) {
      throw Error(ErrorCode::kInvalidFile, file.name + ": \"" + key + "\": expected a string");
    }
    words.push_back(word.get<std::string>());
  }
  return words;
}

class Cwe {
 public:
  explicit Cwe(const RulerInput& input)
      : input_(input),
        random_(input.options.seed),
        words_(AllWords()),
        more_words_(ReadEnglishWords(input.options.english_words)) {
    PythonRandom(input.options.seed).Shuffle(words_);
  }

  std::vector<RulerSample> Samples(int64_t count) {
    constexpr int64_t kStep = 10;
    const auto draw = [this](int64_t size) { return Draw(size); };
    const double each = static_cast<double>(input_.Tokens(draw(kFirstGuess))) / kFirstGuess;
    const auto most =
        static_cast<int64_t>(FloorDivide(static_cast<double>(input_.length), each)) * 2;
    const int64_t size = FitHaystack(input_, kStep, std::max(most, 2 * kStep), 0, draw);
    std::vector<RulerSample> samples;
    for (int64_t i = 0; i < count; ++i) {
      samples.push_back(DrawFitting(input_, size, kStep, draw));
    }
    return samples;
  }

 private:
  const std::vector<std::string>& WordsFor(int64_t size) const {
    if (size <= static_cast<int64_t>(words_.size())) return words_;
    if (more_words_.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "ruler:cwe at " + std::to_string(input_.length) + " tokens takes " +
                      std::to_string(size) + " words, wonderwords has " +
                      std::to_string(words_.size()) +
                      ": give RULER's english_words.json (--english-words), or a shorter length");
    }
    return more_words_;
  }

  WordList List(int64_t size, Repeats repeats) {
    const std::vector<std::string>& from = WordsFor(size);
    std::vector<std::string> common, others, words;
    for (const int64_t i : random_.Sample(static_cast<int64_t>(from.size()), size)) {
      (common.size() < kCommon ? common : others).push_back(from[static_cast<size_t>(i)]);
    }
    for (int64_t i = 0; i < repeats.common; ++i) {
      words.insert(words.end(), common.begin(), common.end());
    }
    for (int64_t i = 0; i < repeats.others; ++i) {
      words.insert(words.end(), others.begin(), others.end());
    }
    PythonRandom(input_.options.seed).Shuffle(words);
    return {Numbered(words), std::move(common)};
  }

  // Two lists: one with its answer as an example, and the one that is asked for.
  RulerSample Draw(int64_t size) {
    const bool is_short = input_.length < 4096;
    const WordList example = is_short ? List(20, {3, 1}) : List(40, {10, 3});
    const WordList list = is_short ? List(size, {6, 1}) : List(size, {30, 3});
    const std::string head =
        "Below is a numbered list of words. In these words, some appear more often than others. "
        "Memorize the ones that appear most often.\n";
    const std::string question =
        "\nQuestion: What are the 10 most common words in the above list? Answer: The top 10 words "
        "that appear most often in the list are:";
    const std::string answer = " " + Numbered(example.common);
    return {head + example.text + question + answer + "\n" + head + list.text,
            {{.text = question, .answer = " " + Numbered(list.common), .references = list.common}}};
  }

  const RulerInput& input_;
  PythonRandom random_;
  std::vector<std::string> words_, more_words_;
};

}  // namespace

std::vector<RulerSample> CweSamples(const RulerInput& input, int64_t count) {
  return Cwe(input).Samples(count);
}

}  // namespace ropewalk::internal
