// RULER's needles in a haystack: niah.py.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "src/eval/ruler/generator.h"
#include "src/eval/ruler/haystack.h"
#include "src/eval/ruler/noise.h"
#include "src/eval/ruler/words.h"

namespace ropewalk::internal {
namespace {

enum class Hay : uint8_t { kNoise, kEssay, kNeedles };

struct NiahKind {
  const char* name;
  Hay hay;
  bool uuid_keys, uuid_values;
  int64_t keys, values, queries;
};

constexpr NiahKind kKinds[] = {
    {"niah_single_1", Hay::kNoise, false, false, 1, 1, 1},
    {"niah_single_2", Hay::kEssay, false, false, 1, 1, 1},
    {"niah_single_3", Hay::kEssay, false, true, 1, 1, 1},
    {"niah_multikey_1", Hay::kEssay, false, false, 4, 1, 1},
    {"niah_multikey_2", Hay::kNeedles, false, false, 1, 1, 1},
    {"niah_multikey_3", Hay::kNeedles, true, true, 1, 1, 1},
    {"niah_multivalue", Hay::kEssay, false, false, 1, 4, 1},
    {"niah_multiquery", Hay::kEssay, false, false, 4, 1, 4},
};

struct Needle {
  std::string key, value;
};

class Niah {
 public:
  explicit Niah(const RulerInput& input)
      : input_(input),
        kind_(*std::ranges::find(kKinds, input.task, &NiahKind::name)),
        random_(input.options.seed) {
    if (kind_.hay == Hay::kEssay) essay_ = ReadHaystack(input.options.haystack);
  }

  std::vector<RulerSample> Samples(int64_t count) {
    const int64_t step = kind_.hay == Hay::kEssay ? 500 : input_.length < 4096 ? 5 : 25;
    if (kind_.hay == Hay::kEssay) RefuseLongWords(step);
    const auto draw = [this](int64_t size) { return Draw(size); };
    const double tokens_each =
        static_cast<double>(input_.Tokens(draw(step))) / static_cast<double>(step);
    const auto most = static_cast<int64_t>(static_cast<double>(input_.length) / tokens_each * 3);
    const int64_t size = FitHaystack(input_, step, std::max(most, 2 * step), 0, draw);
    std::vector<RulerSample> samples;
    for (int64_t i = 0; i < count; ++i) {
      samples.push_back(DrawFitting(input_, size, step, draw));
      AddQuestions(samples.back());
    }
    return samples;
  }

 private:
  // The haystack has `words` words at least, however long they are: of an essay that hardly has a
  // space that is gigabytes, encoded again and again. Where more bytes than tokens of any text
  // stand for are too many tokens already, no prompt fits; otherwise that is known when it is drawn.
  void RefuseLongWords(int64_t words) const {
    constexpr int64_t kBytesPerToken = 16, kLeastBytes = 1 << 16;
    const auto most = static_cast<size_t>(kLeastBytes + kBytesPerToken * input_.length);
    const std::string text = essay_.Beginning(words, most + 1);
    if (text.size() <= most || input_.Tokens(text) <= input_.length) return;
    throw Error(ErrorCode::kInvalidArgument,
                "ruler:" + input_.task + ": no prompt fits " + std::to_string(input_.length) +
                    " tokens with this tokenizer: the haystack of a prompt has " +
                    std::to_string(words) + " words or more, of which those of " +
                    input_.options.haystack.name +
                    " take more; expected a text with spaces between its words");
  }

  std::string DrawText(bool uuid) {
    return uuid ? random_.Uuid4() : PairAt(random_.Below(PairCount()));
  }
  std::string DrawKey() { return DrawText(kind_.uuid_keys); }
  std::string DrawValue() {
    return kind_.uuid_values ? random_.Uuid4() : std::to_string(random_.Int(1000000, 9999999));
  }

  const char* Values() const { return kind_.uuid_values ? "uuids" : "numbers"; }
  std::string Sentence(const Needle& needle) const {
    return std::string("One of the special magic ") + Values() + " for " + needle.key +
           " is: " + needle.value + ".";
  }

  // The needles to be found, in the order in which they were drawn; hay_ has those of the haystack.
  RulerSample Draw(int64_t size) {
    needles_.clear();
    hay_.clear();
    for (int64_t i = 0; i < kind_.keys; ++i) {
      const std::string key = DrawKey();
      for (int64_t j = 0; j < kind_.values; ++j) needles_.push_back({key, DrawValue()});
    }
    std::vector<std::string> sentences;
    for (const Needle& needle : needles_) sentences.push_back(Sentence(needle));
    PythonRandom(input_.options.seed).Shuffle(sentences);
    const std::string context =
        kind_.hay == Hay::kEssay ? InsertIntoEssay(size, sentences) : Insert(size, sentences);
    return Ask(context);
  }

  std::string Insert(int64_t size, const std::vector<std::string>& needles) {
    std::vector<std::string> lines;
    lines.reserve(static_cast<size_t>(size) + needles.size());
    for (int64_t i = 0; i < size; ++i) {
      if (kind_.hay == Hay::kNoise) {
        lines.emplace_back(kNoise);
      } else {
        std::string key = DrawKey();
        hay_.push_back({std::move(key), DrawValue()});
        lines.push_back(Sentence(hay_.back()));
      }
    }
    std::vector<int64_t> at = random_.Sample(size, static_cast<int64_t>(needles.size()));
    std::ranges::sort(at, std::greater<>());
    for (size_t i = 0; i < needles.size(); ++i) lines.insert(lines.begin() + at[i], needles[i]);
    return Join(lines, "\n");
  }

  std::string InsertIntoEssay(int64_t size, const std::vector<std::string>& needles) {
    const std::vector<std::string_view> sentences = essay_.Sentences(size);
    std::vector<int64_t> at = {0};
    for (const int64_t i : random_.Sample(40, static_cast<int64_t>(needles.size()))) {
      const double percent = std::nearbyint(static_cast<double>(i) * (100.0 / 39));
      at.push_back(static_cast<int64_t>(static_cast<double>(sentences.size()) * (percent / 100)));
    }
    std::ranges::sort(at);
    at.push_back(static_cast<int64_t>(sentences.size()));
    std::vector<std::string> parts;
    for (size_t i = 0; i + 1 < at.size(); ++i) {
      parts.push_back(Join(std::span(sentences).subspan(static_cast<size_t>(at[i]),
                                                        static_cast<size_t>(at[i + 1] - at[i])),
                           " "));
      if (i < needles.size()) parts.push_back(needles[i]);
    }
    return Join(parts, " ");
  }

  // RULER's own question; where there is one key and one value its template is singular.
  RulerSample Ask(const std::string& haystack) {
    std::vector<std::string> keys;
    RulerQuestion question;
    for (const int64_t i : random_.Sample(kind_.keys, kind_.queries)) {
      for (int64_t j = 0; j < kind_.values; ++j) {
        const Needle& needle = needles_[static_cast<size_t>(i * kind_.values + j)];
        if (j == 0) keys.push_back(needle.key);
        question.references.push_back(needle.value);
      }
    }
    const bool one = question.references.size() == 1;
    question.text = QuestionFor(JoinList(keys), one);
    question.answer = " " + JoinList(question.references);
    RulerSample sample;
    sample.context = (one ? "A special magic " + Singular() + " is"
                          : std::string("Some special magic ") + Values() + " are") +
                     " hidden within the following text. Make sure to memorize it. I will quiz you "
                     "about the " +
                     (one ? Singular() : Values()) + " afterwards.\n" + haystack;
    if (one) question.depth = DepthOf(sample.context, {keys[0], question.references[0]});
    sample.questions.push_back(std::move(question));
    return sample;
  }

  std::string Singular() const { return kind_.uuid_values ? "uuid" : "number"; }

  std::string QuestionFor(const std::string& keys, bool one) const {
    const std::string what = " special magic " + (one ? Singular() : Values()) + " for " + keys;
    const std::string is = one ? "is" : "are";
    return "\nWhat " + std::string(one ? "is" : "are all") + " the" + what +
           " mentioned in the provided text? The" + what + " mentioned in the provided text " + is;
  }

  double DepthOf(const std::string& context, const Needle& needle) const {
    return static_cast<double>(context.find(Sentence(needle))) /
           static_cast<double>(context.size());
  }

  // Further keys of the haystack, evenly over its depths, without those that occur twice and those
  // with which the prompt would be too long.
  void AddQuestions(RulerSample& sample) const {
    if (kind_.values > 1 || kind_.hay == Hay::kNoise) return;
    std::vector<Needle> known = hay_;
    if (hay_.empty()) known = needles_;
    std::map<std::string, int> times;
    for (const Needle& needle : known) ++times[needle.key];
    if (!hay_.empty()) ++times[needles_[0].key];
    std::vector<const Needle*> left;
    for (const Needle& needle : known) {
      const bool asked = kind_.queries == 1 && sample.questions[0].references[0] == needle.value;
      if (times[needle.key] == 1 && !asked) left.push_back(&needle);
    }
    const auto wanted = static_cast<size_t>(input_.options.questions - 1);
    const size_t take = std::min(wanted, left.size());
    for (size_t i = 0; i < take; ++i)
      AddQuestion(*left[(2 * i + 1) * left.size() / (2 * take)], sample);
  }

  void AddQuestion(const Needle& needle, RulerSample& sample) const {
    RulerQuestion question = {.text = QuestionFor(needle.key, true),
                              .answer = " " + needle.value,
                              .references = {needle.value},
                              .depth = DepthOf(sample.context, needle)};
    if (input_.Tokens(sample.context + question.text) + input_.max_new_tokens <= input_.length) {
      sample.questions.push_back(std::move(question));
    }
  }

  const RulerInput& input_;
  const NiahKind& kind_;
  PythonRandom random_;
  Haystack essay_;
  std::vector<Needle> needles_, hay_;
};

}  // namespace

std::vector<RulerSample> NiahSamples(const RulerInput& input, int64_t count) {
  return Niah(input).Samples(count);
}

}  // namespace ropewalk::internal
