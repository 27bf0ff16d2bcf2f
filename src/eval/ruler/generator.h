// What RULER's generators have in common: the search for the size of a haystack, and samples that
// are drawn again until they fit.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/ruler.h"
#include "src/eval/ruler/python_random.h"

namespace ropewalk::internal {

struct RulerQuestion {
  std::string text = {};    // from behind the context to the end of the prompt
  std::string answer = {};  // as a model would go on, with the space in front
  std::vector<std::string> references = {};
  double depth = std::numeric_limits<double>::quiet_NaN();
};

// A prompt of RULER is context + questions[0].text.
struct RulerSample {
  std::string context = {};
  std::vector<RulerQuestion> questions = {};
};

// What a generator works with.
struct RulerInput {
  const Tokenizer* tokenizer = nullptr;
  RulerOptions options = {};
  int64_t length = 0;          // of prompt and generated tokens
  int64_t max_new_tokens = 0;  // generated ones
  std::string task = {};       // for messages

  int64_t Tokens(const std::string& text) const {
    return static_cast<int64_t>(tokenizer->Encode(text).size());
  }
  int64_t Tokens(const RulerSample& sample) const {
    return Tokens(sample.context + sample.questions[0].text);
  }
};

// Error for a length at which not even the smallest prompt fits; `required` is what that takes.
[[noreturn]] void ThrowTooShort(const RulerInput& input, int64_t required);

// The largest size in [lower, upper] for which the tokens of `draw(size)`, with those generated and
// `more` in front, fit, by RULER's binary search; `lower` where none does.
template <class Draw>
int64_t FitHaystack(const RulerInput& input, int64_t lower, int64_t upper, int64_t more,
                    Draw&& draw) {
  int64_t best = lower;
  while (lower <= upper) {
    const int64_t middle = (lower + upper) / 2;
    if (input.Tokens(draw(middle)) + more + input.max_new_tokens <= input.length) {
      best = middle;
      lower = middle + 1;
    } else {
      upper = middle - 1;
    }
  }
  return best;
}

// Draws until a sample fits, each time with `step` less hay as long as there is more than that.
// RULER tries for ever.
template <class Draw>
RulerSample DrawFitting(const RulerInput& input, int64_t size, int64_t step, Draw&& draw) {
  constexpr int kTries = 100;  // of the smallest size
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int tries = 0; tries < kTries; tries += size <= step ? 1 : 0) {
    try {
      RulerSample sample = draw(size);
      const int64_t tokens = input.Tokens(sample) + input.max_new_tokens;
      if (tokens <= input.length) return sample;
      least = std::min(least, tokens);
    } catch (const PythonError&) {  // RULER draws again as well
    }
    if (size > step) size -= step;
  }
  ThrowTooShort(input, least);
}

std::vector<RulerSample> NiahSamples(const RulerInput& input, int64_t count);
std::vector<RulerSample> VtSamples(const RulerInput& input, int64_t count);
std::vector<RulerSample> CweSamples(const RulerInput& input, int64_t count);
std::vector<RulerSample> FweSamples(const RulerInput& input, int64_t count);
std::vector<RulerSample> QaSamples(const RulerInput& input, int64_t count);

// "A", "A, and B", "A, B, and C", as RULER lists the keys that it asks for.
std::string JoinList(const std::vector<std::string>& items);

}  // namespace ropewalk::internal
