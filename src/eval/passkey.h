// Passkey retrieval: numbers with names, hidden in a text and asked for behind it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/eval/task.h"
#include "src/eval/rng.h"

namespace ropewalk::internal {

// The words; models/passkey.json has the same (a test compares them). "{name}" and "{key}" stand
// for themselves.
struct PasskeyWords {
  const char* format;
  const char* needle;
  const char* question;
  const char* answer;
  const char* default_filler;
  int64_t digits;
  std::array<const char*, 32> names;
};
extern const PasskeyWords kPasskeyWords;

struct Needle {
  std::vector<int32_t> ids = {};
  TaskQuestion question = {};  // that asks for it, with its depth
};

// Makes needles with one tokenizer. Every piece is encoded by itself, so that prompts have exactly
// their length with any tokenizer.
class NeedleMaker {
 public:
  // `tokenizer` must outlive it.
  explicit NeedleMaker(const Tokenizer& tokenizer);

  std::vector<int32_t> Encode(std::string text) const;
  // The most tokens of a needle, of an answer, and of a question with its answer.
  int64_t needle_tokens() const { return needle_tokens_; }
  int64_t answer_tokens() const { return answer_tokens_; }
  int64_t asked_tokens() const { return asked_tokens_; }
  // `count` needles with different names and keys, at depths (i + offset) / count; 0 <= offset < 1.
  std::vector<Needle> Draw(SplitMix64& rng, int64_t count, double offset) const;

 private:
  Needle Make(const std::string& name, const std::string& key) const;

  const Tokenizer& tokenizer_;
  bool adds_space_ = false;
  int64_t needle_tokens_ = 0, answer_tokens_ = 0, asked_tokens_ = 0;
};

int64_t TokensOf(std::span<const Needle> needles);
// Behind how many of `text` tokens the needle stands: round(depth * text).
int64_t PlaceOf(const Needle& needle, int64_t text);
// `text` with each needle at its place.
std::vector<int32_t> Hide(std::span<const int32_t> text, std::span<const Needle> needles);
// Where needles of context `index` begin within their share of the depth: shares of different
// contexts fill each other's gaps (multiples of the golden ratio are spread evenly).
double DepthOffset(int64_t index);

}  // namespace ropewalk::internal
