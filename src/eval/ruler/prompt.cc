#include "src/eval/ruler/prompt.h"

#include <algorithm>
#include <string_view>

namespace ropewalk::internal {
namespace {

using Ids = std::vector<int32_t>;

size_t CommonPrefix(const Ids& a, const Ids& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// What `text` adds behind `front`; empty where its beginning changes how `front` is encoded.
Ids EncodeBehind(const Tokenizer& tokenizer, const std::string& front, const std::string& text) {
  const Ids before = tokenizer.Encode(front), both = tokenizer.Encode(front + text);
  if (CommonPrefix(before, both) < before.size()) return {};
  return Ids(both.begin() + static_cast<int64_t>(before.size()), both.end());
}

// The answer as a model goes on behind the question's ids. Where the two would merge ("are: " and
// " A" share a space) it is encoded behind a new line instead, as text of its own.
Ids AnswerIds(const Tokenizer& tokenizer, const RulerQuestion& question) {
  Ids ids = EncodeBehind(tokenizer, question.text, question.answer);
  if (ids.empty()) ids = EncodeBehind(tokenizer, "\n", question.answer);
  return ids.empty() ? tokenizer.Encode(question.answer) : ids;
}

// For each byte of the answer: is it of a reference?
std::vector<bool> ReferenceBytes(const RulerQuestion& question) {
  std::vector<bool> marks(question.answer.size());
  for (const std::string& reference : question.references) {
    if (reference.empty()) continue;
    const size_t at = question.answer.find(reference);
    if (at == std::string::npos) continue;
    std::fill_n(marks.begin() + static_cast<int64_t>(at), reference.size(), true);
  }
  return marks;
}

// Tokens that hold a part of a reference, and not "and" or a number in front of it. Decoding may
// drop the space at the beginning, so places are counted from the end.
std::vector<int32_t> ScoredTokens(const Tokenizer& tokenizer, const RulerQuestion& question,
                                  const Ids& answer) {
  const std::vector<bool> marks = ReferenceBytes(question);
  const std::span<const int32_t> ids(answer);
  const size_t total = tokenizer.Decode(ids).size();
  const auto place = [&](size_t tokens) {
    const size_t behind = total - std::min(total, tokenizer.Decode(ids.first(tokens)).size());
    return marks.size() - std::min(marks.size(), behind);
  };
  std::vector<int32_t> scored;
  size_t begin = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t end = place(i + 1);
    const auto from = marks.begin() + static_cast<int64_t>(std::min(begin, end));
    if (std::find(from, marks.begin() + static_cast<int64_t>(end), true) !=
        marks.begin() + static_cast<int64_t>(end)) {
      scored.push_back(static_cast<int32_t>(i));
    }
    begin = end;
  }
  return scored;
}

}  // namespace

TaskPrompt EncodeSample(const RulerInput& input, const RulerSample& sample) {
  const Tokenizer& tokenizer = *input.tokenizer;
  TaskPrompt prompt;
  prompt.text = sample.context;
  Ids context = tokenizer.Encode(sample.context);
  for (const RulerQuestion& question : sample.questions) {
    TaskQuestion& made = prompt.questions.emplace_back();
    made.ids = tokenizer.Encode(sample.context + question.text);
    made.answer = AnswerIds(tokenizer, question);
    made.scored = ScoredTokens(tokenizer, question, made.answer);
    made.references = question.references;
    made.depth = question.depth;
    made.text = question.text;
    made.answer_text = question.answer;
    context.resize(CommonPrefix(context, made.ids));
  }
  for (TaskQuestion& question : prompt.questions) {
    question.ids.erase(question.ids.begin(),
                       question.ids.begin() + static_cast<int64_t>(context.size()));
  }
  if (input.options.bos_id) context.insert(context.begin(), *input.options.bos_id);
  prompt.context = std::move(context);
  return prompt;
}

}  // namespace ropewalk::internal
