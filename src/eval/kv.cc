// JSON key-value retrieval of "Lost in the Middle".
#include <algorithm>
#include <string>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/eval/tasks.h"
#include "src/eval/rng.h"
#include "src/eval/task_text.h"

namespace ropewalk {
namespace {

using internal::PromptOfText;
using internal::SplitMix64;
using internal::TextQuestion;
using internal::TokensOf;

constexpr int64_t kLeastPairs = 2;  // one could be answered without reading the key
constexpr int64_t kLeastQuestions = 4, kMostQuestions = 50;
constexpr int64_t kShareOfQuestions = 5;  // questions and answers together: length / 5 tokens

constexpr char kFront[] =
    "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON "
    "data:\n";

using Pairs = std::vector<std::pair<std::string, std::string>>;

// A random UUID (RFC 9562, version 4), from our own numbers.
std::string Uuid(SplitMix64& rng) {
  const uint64_t high = (rng.Next() & ~uint64_t{0xf000}) | 0x4000;
  const uint64_t low = (rng.Next() & ~(uint64_t{3} << 62)) | (uint64_t{1} << 63);
  std::string text;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) text += '-';
    const uint64_t half = i < 16 ? high : low;
    text += "0123456789abcdef"[(half >> (60 - 4 * (i % 16))) & 15];
  }
  return text;
}

std::string ContextOf(const Pairs& pairs, std::size_t count) {
  std::string text = kFront;
  for (std::size_t i = 0; i < count; ++i) {
    text += i == 0 ? "{\"" : " \"";
    text += pairs[i].first + "\": \"" + pairs[i].second + "\"";
    text += i + 1 < count ? ",\n" : "}";
  }
  return text;
}

TextQuestion QuestionOf(const Pairs& pairs, std::size_t index, std::size_t count) {
  TextQuestion q;
  q.question = "\n\nKey: \"" + pairs[index].first + "\"\nCorresponding value:";
  q.answer = " \"" + pairs[index].second;
  q.scored_from = 2;
  q.references = {pairs[index].second};
  q.depth = (static_cast<double>(index) + 0.5) / static_cast<double>(count);
  return q;
}

class KvTask final : public Task {
 public:
  KvTask(const KvOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {
    // What a UUID takes, for a first guess of how many fit.
    SplitMix64 rng(options.seed);
    const Pairs one = {{Uuid(rng), Uuid(rng)}};
    const TextQuestion q = QuestionOf(one, 0, 1);
    pair_tokens_ = Tokens(" \"" + one[0].first + "\": \"" + one[0].second + "\",\n");
    question_tokens_ = Tokens(q.question) + Tokens(q.answer);
    new_tokens_ = Tokens(q.answer) + Tokens(q.answer) / 4 + 1;
  }

  std::string Name() const override { return "kv"; }
  std::string Protocol() const override {
    return "ropewalk-kv-1: JSON pairs of UUIDs, " +
           (options_.questions > 0 ? std::to_string(options_.questions) + " questions a prompt"
                                   : "questions of a fifth of the length, 4 to 50") +
           ", seed " + std::to_string(options_.seed) +
           (options_.bos_id ? ", BOS first" : ", no BOS");
  }
  std::string DataHash() const override {
    Hasher hasher;
    hasher.Update(kFront);
    return hasher.Hex();
  }
  int64_t MaxNewTokens() const override { return new_tokens_; }

  std::vector<TaskPrompt> Prompts(int64_t length, int64_t count) const override {
    std::vector<TaskPrompt> prompts;
    for (int64_t i = 0; i < count; ++i) prompts.push_back(PromptOf(length, i));
    return prompts;
  }

 private:
  int64_t Tokens(const std::string& text) const {
    return static_cast<int64_t>(tokenizer_.Encode(text).size());
  }

  int64_t Questions(int64_t length, int64_t pairs) const {
    const int64_t by_length =
        std::clamp(length / kShareOfQuestions / question_tokens_, kLeastQuestions, kMostQuestions);
    return std::min(pairs, options_.questions > 0 ? options_.questions : by_length);
  }

  TaskPrompt Build(const Pairs& pairs, int64_t count, int64_t questions) const {
    std::vector<TextQuestion> asked;
    for (int64_t j = 0; j < questions; ++j) {
      const int64_t index = (2 * j + 1) * count / (2 * questions);
      asked.push_back(
          QuestionOf(pairs, static_cast<std::size_t>(index), static_cast<std::size_t>(count)));
    }
    return PromptOfText(tokenizer_, options_.bos_id,
                        ContextOf(pairs, static_cast<std::size_t>(count)), asked);
  }

  // The most pairs that leave room for every question.
  TaskPrompt PromptOf(int64_t length, int64_t index) const {
    SplitMix64 rng(options_.seed ^ (0x6b7600u + (static_cast<uint64_t>(index) << 32) +
                                    static_cast<uint64_t>(length)));
    const int64_t guess = length / pair_tokens_ + 2;
    Pairs pairs;
    while (static_cast<int64_t>(pairs.size()) < guess + guess / 8) {
      std::string key = Uuid(rng);
      pairs.emplace_back(std::move(key), Uuid(rng));
    }
    int64_t count = std::min<int64_t>(guess, static_cast<int64_t>(pairs.size()));
    for (;;) {
      TaskPrompt prompt = Build(pairs, std::max(count, kLeastPairs), Questions(length, count));
      const int64_t excess = TokensOf(prompt, new_tokens_) - length;
      if (excess <= 0) return prompt;
      if (count <= kLeastPairs) {
        throw Error(ErrorCode::kInvalidArgument, "kv: two pairs of UUIDs with a question take " +
                                                     std::to_string(excess + length) +
                                                     " tokens with this tokenizer, the length is " +
                                                     std::to_string(length));
      }
      // Rather one pair too many than one too few: the next round takes it off.
      count = std::max(kLeastPairs, count - std::max<int64_t>(1, excess / (pair_tokens_ + 1)));
    }
  }

  KvOptions options_;
  const Tokenizer& tokenizer_;
  int64_t pair_tokens_ = 1, question_tokens_ = 1, new_tokens_ = 1;
};

}  // namespace

std::unique_ptr<Task> MakeKvTask(const KvOptions& options, const Tokenizer& tokenizer) {
  return std::make_unique<KvTask>(options, tokenizer);
}

}  // namespace ropewalk
