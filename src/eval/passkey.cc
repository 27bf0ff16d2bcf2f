// Passkey retrieval (Mohtashami & Jaggi 2023, arXiv 2305.16300) with several keys that have names:
// who finds one has read whose it is.
#include "src/eval/passkey.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/base/hash.h"
#include "ropewalk/eval/tasks.h"

namespace ropewalk {
namespace internal {

const PasskeyWords kPasskeyWords = {
    "ropewalk-passkey-2",
    " The pass key of {name} is {key}. Remember it. {key} is the pass key of {name}.",
    " What is the pass key of {name}? The pass key of {name} is",
    " {key}",
    " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.",
    5,
    {"Anna",  "Ben",  "Clara", "David", "Emma", "Frank", "Grace",  "Henry", "Ida",  "Jack", "Kate",
     "Leo",   "Mary", "Nora",  "Oscar", "Paul", "Rose",  "Sam",    "Tom",   "Vera", "Will", "Zoe",
     "Alice", "Bob",  "Carl",  "Diana", "Eric", "Fiona", "George", "Helen", "Ivan", "Julia"}};

namespace {

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), by);
    at += by.size();
  }
  return text;
}

// Tokenizers that put a space in front of every text would make " a" begin with two.
bool AddsSpace(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.Encode("x");
  if (ids.empty()) return false;
  const std::string piece = tokenizer.Piece(ids[0]);
  return piece.starts_with("\xe2\x96\x81") || piece.starts_with("\xc4\xa0") ||  // ▁, Ġ
         piece.starts_with(" ");
}

std::string DrawKey(SplitMix64& rng) {
  std::string key(1, static_cast<char>('1' + rng.Below(9)));
  while (static_cast<int64_t>(key.size()) < kPasskeyWords.digits) {
    key += static_cast<char>('0' + rng.Below(10));
  }
  return key;
}

// Indices of the answer's tokens that say a digit: the space in front says nothing about the key.
std::vector<int32_t> DigitTokens(const Tokenizer& tokenizer, const TaskQuestion& question) {
  std::vector<int32_t> ids = question.ids, digits;
  size_t before = tokenizer.Decode(ids).size();
  for (size_t i = 0; i < question.answer.size(); ++i) {
    ids.push_back(question.answer[i]);
    const std::string text = tokenizer.Decode(ids);
    const auto said = text.begin() + static_cast<std::ptrdiff_t>(std::min(before, text.size()));
    if (std::any_of(said, text.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) {
      digits.push_back(static_cast<int32_t>(i));
    }
    before = text.size();
  }
  return digits.size() == question.answer.size() ? std::vector<int32_t>() : digits;
}

}  // namespace

NeedleMaker::NeedleMaker(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), adds_space_(AddsSpace(tokenizer)) {
  for (const char* name : kPasskeyWords.names) {
    // Keys may differ in tokens where digits are merged; one of these has as many as any.
    for (const char* key : {"11111", "12345", "90817", "74063", "50000"}) {
      const Needle needle = Make(name, key);
      const auto answer = static_cast<int64_t>(needle.question.answer.size());
      needle_tokens_ = std::max(needle_tokens_, static_cast<int64_t>(needle.ids.size()));
      answer_tokens_ = std::max(answer_tokens_, answer);
      asked_tokens_ =
          std::max(asked_tokens_, static_cast<int64_t>(needle.question.ids.size()) + answer);
    }
  }
}

std::vector<int32_t> NeedleMaker::Encode(std::string text) const {
  if (text.starts_with(" ") && adds_space_) text.erase(0, 1);
  return tokenizer_.Encode(text);
}

Needle NeedleMaker::Make(const std::string& name, const std::string& key) const {
  const auto fill = [&](const char* text) {
    return Replaced(Replaced(text, "{name}", name), "{key}", key);
  };
  TaskQuestion question{.references = {key},
                        .text = fill(kPasskeyWords.question),
                        .answer_text = fill(kPasskeyWords.answer)};
  question.ids = Encode(question.text);
  question.answer = Encode(question.answer_text);
  question.scored = DigitTokens(tokenizer_, question);
  return {.ids = Encode(fill(kPasskeyWords.needle)), .question = std::move(question)};
}

std::vector<Needle> NeedleMaker::Draw(SplitMix64& rng, int64_t count, double offset) const {
  auto names = kPasskeyWords.names;
  std::set<std::string> keys;
  std::vector<Needle> needles;
  for (int64_t i = 0; i < count; ++i) {
    const auto left = static_cast<int64_t>(names.size()) - i;
    std::swap(names[static_cast<size_t>(i)], names[static_cast<size_t>(i + rng.Below(left))]);
    std::string key = DrawKey(rng);
    while (!keys.insert(key).second) key = DrawKey(rng);
    needles.push_back(Make(names[static_cast<size_t>(i)], key));
    needles.back().question.depth = (static_cast<double>(i) + offset) / static_cast<double>(count);
  }
  return needles;
}

int64_t TokensOf(std::span<const Needle> needles) {
  int64_t tokens = 0;
  for (const Needle& needle : needles) tokens += static_cast<int64_t>(needle.ids.size());
  return tokens;
}

int64_t PlaceOf(const Needle& needle, int64_t text) {
  return static_cast<int64_t>(std::floor(needle.question.depth * static_cast<double>(text) + 0.5));
}

std::vector<int32_t> Hide(std::span<const int32_t> text, std::span<const Needle> needles) {
  std::vector<int32_t> ids;
  ids.reserve(text.size() + static_cast<size_t>(TokensOf(needles)));
  size_t done = 0;
  for (const Needle& needle : needles) {
    const auto end = static_cast<size_t>(PlaceOf(needle, static_cast<int64_t>(text.size())));
    ids.insert(ids.end(), text.begin() + static_cast<std::ptrdiff_t>(done),
               text.begin() + static_cast<std::ptrdiff_t>(end));
    ids.insert(ids.end(), needle.ids.begin(), needle.ids.end());
    done = end;
  }
  ids.insert(ids.end(), text.begin() + static_cast<std::ptrdiff_t>(done), text.end());
  return ids;
}

double DepthOffset(int64_t index) {
  constexpr double kGolden = 0.6180339887498949;
  const double at = 0.5 + static_cast<double>(index) * kGolden;
  return at - std::floor(at);
}

}  // namespace internal

namespace {

using internal::kPasskeyWords;
using internal::Needle;
using internal::SplitMix64;

// As many at every length, so that longer contexts are not also more crowded: 25 questions take 3.
constexpr int64_t kNeedles = 9;
constexpr int64_t kShareOfNeedles = 3;  // of a context at most length / 3 tokens

class PasskeyTask final : public Task {
 public:
  PasskeyTask(const PasskeyOptions& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), maker_(tokenizer) {
    filler_ = options.filler.empty() ? maker_.Encode(kPasskeyWords.default_filler) : options.filler;
    needed_ = maker_.needle_tokens() + maker_.asked_tokens() + (options.bos_id ? 1 : 0);
  }

  std::string Name() const override { return "passkey"; }
  std::string Protocol() const override {
    return std::string(kPasskeyWords.format) + ": " + std::to_string(kPasskeyWords.digits) +
           " digits, up to " + std::to_string(kNeedles) + " names in a third of a context, " +
           (options_.filler.empty() ? "built-in filler" : "filler from the text") + ", seed " +
           std::to_string(options_.seed) + (options_.bos_id ? ", BOS first" : ", no BOS");
  }
  std::string DataHash() const override {
    Hasher hasher;
    for (const char* text : {kPasskeyWords.needle, kPasskeyWords.question, kPasskeyWords.answer,
                             kPasskeyWords.default_filler}) {
      hasher.Update(text);
    }
    for (const char* name : kPasskeyWords.names) hasher.Update(name);
    hasher.Update(options_.filler.data(), options_.filler.size() * sizeof(int32_t));
    return hasher.Hex();
  }
  std::string Counts() const override { return "questions"; }
  int64_t MaxNewTokens() const override { return maker_.answer_tokens(); }

  std::vector<TaskPrompt> Prompts(int64_t length, int64_t count) const override {
    if (length < needed_) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a passkey prompt with this tokenizer needs at least " + std::to_string(needed_) +
                      " tokens, the length is " + std::to_string(length));
    }
    std::vector<TaskPrompt> prompts;
    for (int64_t asked = 0; asked < count;) {
      prompts.push_back(PromptOf(length, static_cast<int64_t>(prompts.size())));
      asked += static_cast<int64_t>(prompts.back().questions.size());
    }
    return prompts;
  }

  bool CanHide() const override { return true; }
  std::vector<AskedWindow> HideIn(std::span<const EvalWindow> windows, int64_t length,
                                  int64_t count) const override {
    if (windows.empty()) return {};
    const auto all = static_cast<int64_t>(windows.size());
    const int64_t each = (count + all - 1) / all;
    const EvalWindow& first = windows.front();
    const int64_t bos = options_.bos_id ? 1 : 0;
    // In front of the scored tokens, BOS left out, when the last question has its place.
    const int64_t room = first.score_begin - bos - maker_.asked_tokens();
    const auto names = static_cast<int64_t>(kPasskeyWords.names.size());
    if (each > names || kShareOfNeedles * each * maker_.needle_tokens() > room) return {};
    std::vector<AskedWindow> asked;
    for (int64_t i = 0; i < all; ++i) {
      asked.push_back(Hidden(windows[static_cast<size_t>(i)], length, i, each));
    }
    return asked;
  }

 private:
  SplitMix64 Random(int64_t length, int64_t index) const {
    return SplitMix64(options_.seed ^ (0x706173736b657900u + (static_cast<uint64_t>(index) << 32) +
                                       static_cast<uint64_t>(length)));
  }

  AskedWindow Hidden(const EvalWindow& plain, int64_t length, int64_t index, int64_t count) const {
    SplitMix64 rng = Random(length, index);
    const std::vector<Needle> needles = maker_.Draw(rng, count, internal::DepthOffset(index));
    AskedWindow asked;
    for (const Needle& needle : needles) asked.questions.push_back(needle.question);
    const int64_t bos = options_.bos_id ? 1 : 0;
    const auto tail = static_cast<int64_t>(plain.ids.size()) - plain.score_begin;
    const int64_t text = length - Behind(needles) - internal::TokensOf(needles) - bos - tail;
    const std::span<const int32_t> ids(plain.ids);
    std::vector<int32_t> context = internal::Hide(
        ids.subspan(static_cast<size_t>(plain.score_begin - text), static_cast<size_t>(text)),
        needles);
    EvalWindow& window = asked.window;
    window.ids.assign(ids.begin(), ids.begin() + bos);
    window.ids.insert(window.ids.end(), context.begin(), context.end());
    window.score_begin = static_cast<int64_t>(window.ids.size());
    window.ids.insert(window.ids.end(), ids.begin() + plain.score_begin, ids.end());
    window.text_begin = plain.text_begin + plain.score_begin - window.score_begin;
    int64_t before = bos;  // tokens of BOS and needles
    for (size_t i = 0; i < needles.size(); ++i) {
      const int64_t begin = before + internal::PlaceOf(needles[i], text);
      const auto tokens = static_cast<int64_t>(needles[i].ids.size());
      asked.hidden.emplace_back(begin, begin + tokens);
      asked.questions[i].depth =
          static_cast<double>(begin) / static_cast<double>(window.ids.size());
      before += tokens;
    }
    return asked;
  }

  // Tokens of the longest question with its answer.
  static int64_t Behind(std::span<const Needle> needles) {
    size_t behind = 0;
    for (const Needle& needle : needles) {
      behind = std::max(behind, needle.question.ids.size() + needle.question.answer.size());
    }
    return static_cast<int64_t>(behind);
  }

  // BOS, filler with needles in it; with the longest question and answer exactly `length` tokens.
  TaskPrompt PromptOf(int64_t length, int64_t index) const {
    SplitMix64 rng = Random(length, index);
    const int64_t room = std::max<int64_t>(1, static_cast<int64_t>(filler_.size()) - length);
    const int64_t begin = rng.Below(room);
    const int64_t fit = length / kShareOfNeedles / maker_.needle_tokens();
    const std::vector<Needle> needles =
        maker_.Draw(rng, std::clamp<int64_t>(fit, 1, kNeedles), internal::DepthOffset(index));
    TaskPrompt prompt;
    for (const Needle& needle : needles) prompt.questions.push_back(needle.question);
    std::vector<int32_t> filler(static_cast<size_t>(
        length - Behind(needles) - internal::TokensOf(needles) - (options_.bos_id ? 1 : 0)));
    for (size_t i = 0; i < filler.size(); ++i) {
      filler[i] = filler_[(static_cast<size_t>(begin) + i) % filler_.size()];
    }
    prompt.context = internal::Hide(filler, needles);
    prompt.text = tokenizer_.Decode(prompt.context);
    if (options_.bos_id) prompt.context.insert(prompt.context.begin(), *options_.bos_id);
    return prompt;
  }

  PasskeyOptions options_;
  const Tokenizer& tokenizer_;
  internal::NeedleMaker maker_;
  std::vector<int32_t> filler_;
  int64_t needed_ = 0;
};

}  // namespace

std::unique_ptr<Task> MakePasskeyTask(const PasskeyOptions& options, const Tokenizer& tokenizer) {
  return std::make_unique<PasskeyTask>(options, tokenizer);
}

}  // namespace ropewalk
