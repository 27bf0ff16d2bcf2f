// RULER's frequent words: freq_words_extraction.py with alpha 2.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "src/eval/ruler/generator.h"
#include "src/eval/ruler/noise.h"

namespace ropewalk::internal {
namespace {

constexpr int64_t kLetters = 6;
constexpr double kZeta2 = std::numbers::pi * std::numbers::pi / 6;
// Below, there are fewer than the dots and three words, or the search takes no step.
constexpr int64_t kLeastRoom = 200;

class Fwe {
 public:
  explicit Fwe(const RulerInput& input)
      : input_(input),
        random_(input.options.seed),
        room_(input.length - input.max_new_tokens),
        step_(room_ / 32) {}

  std::vector<RulerSample> Samples(int64_t count) {
    if (room_ < kLeastRoom) ThrowTooShort(input_, kLeastRoom + input_.max_new_tokens);
    const int64_t words = FindSize();
    std::vector<RulerSample> samples;
    for (int64_t i = 0; i < count; ++i) samples.push_back(DrawAtMost(words));
    return samples;
  }

 private:
  // Grows until the text is too long. It draws a vocabulary of its own.
  int64_t FindSize() {
    DrawVocabulary();
    int64_t words = room_ / kLetters;
    while (input_.Tokens(TextOf(words)) < room_) words += step_;
    return words - step_;
  }

  RulerSample DrawAtMost(int64_t words) {
    DrawVocabulary();
    RulerSample sample = TextOf(words);
    int64_t tokens = input_.Tokens(sample);
    while (tokens > room_ && words > step_) {
      words -= step_;
      sample = TextOf(words);
      tokens = input_.Tokens(sample);
    }
    // RULER has no samples without its answers; ours have each of them at least once.
    if (tokens > room_ || CountOf(3, words) < 1) {
      ThrowTooShort(input_, std::max(tokens, room_) + input_.max_new_tokens + step_);
    }
    return sample;
  }

  void DrawVocabulary() {
    const auto size = static_cast<size_t>(room_ / 50);
    std::set<std::string> words;
    for (size_t i = 0; i < size || words.size() < size; ++i) {
      words.insert(random_.Letters('a', kLetters));
    }
    vocabulary_.assign(words.begin(), words.end());
    PythonRandom(input_.options.seed).Shuffle(vocabulary_);
    vocabulary_[0] = "...";  // the most frequent one is noise
  }

  // Of the word at `rank`, from 0: the zeta distribution with exponent 2.
  static int64_t CountOf(size_t rank, int64_t words) {
    const double weight = std::pow(static_cast<double>(rank + 1), -2.0);
    return static_cast<int64_t>(static_cast<double>(words) * weight / kZeta2);
  }

  RulerSample TextOf(int64_t words) const {
    std::vector<std::string> text;
    for (size_t i = 0; i < vocabulary_.size(); ++i) {
      text.insert(text.end(), static_cast<size_t>(std::max<int64_t>(0, CountOf(i, words))),
                  vocabulary_[i]);
    }
    PythonRandom(input_.options.seed).Shuffle(text);
    const std::vector<std::string> answers(vocabulary_.begin() + 1, vocabulary_.begin() + 4);
    return {
        "Read the following coded text and track the frequency of each coded word. Find the three "
        "most frequently appeared coded words. " +
            Join(text, " "),
        {{.text = "\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What "
                  "are the three most frequently appeared words in the above coded text? Answer: "
                  "According to the coded text above, the three most frequently appeared words "
                  "are:",
          .answer = " " + JoinList(answers),
          .references = answers}}};
  }

  const RulerInput& input_;
  PythonRandom random_;
  int64_t room_, step_;
  std::vector<std::string> vocabulary_;
};

}  // namespace

std::vector<RulerSample> FweSamples(const RulerInput& input, int64_t count) {
  return Fwe(input).Samples(count);
}

}  // namespace ropewalk::internal
