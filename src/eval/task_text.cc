#include "src/eval/task_text.h"

#include <algorithm>
#include <span>

namespace ropewalk::internal {
namespace {

std::size_t Agree(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

// Indices of the answer's tokens that end behind byte `from` of its text.
std::vector<int32_t> ScoredTokens(const Tokenizer& tokenizer, const TaskQuestion& question,
                                  std::size_t from) {
  std::vector<int32_t> ids = question.ids;
  const std::size_t before = tokenizer.Decode(ids).size();
  std::vector<int32_t> scored;
  for (std::size_t i = 0; i < question.answer.size(); ++i) {
    ids.push_back(question.answer[i]);
    if (tokenizer.Decode(ids).size() > before + from) scored.push_back(static_cast<int32_t>(i));
  }
  return scored.size() == question.answer.size() ? std::vector<int32_t>() : scored;
}

}  // namespace

TaskPrompt PromptOfText(const Tokenizer& tokenizer, std::optional<int32_t> bos, std::string context,
                        const std::vector<TextQuestion>& questions) {
  TaskPrompt prompt;
  std::vector<int32_t> shared = tokenizer.Encode(context);
  std::vector<std::vector<int32_t>> asked, whole;
  for (const TextQuestion& q : questions) {
    asked.push_back(tokenizer.Encode(context + q.question));
    whole.push_back(tokenizer.Encode(context + q.question + q.answer));
    shared.resize(std::min(Agree(shared, asked.back()), Agree(shared, whole.back())));
  }
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const TextQuestion& q = questions[i];
    TaskQuestion question{
        .references = q.references, .depth = q.depth, .text = q.question, .answer_text = q.answer};
    // At least one token is asked for; where the answer changes the question's last token, the
    // question ends before that.
    const std::size_t end = std::min(Agree(asked[i], whole[i]), whole[i].size() - 1);
    question.ids.assign(whole[i].begin() + static_cast<std::ptrdiff_t>(shared.size()),
                        whole[i].begin() + static_cast<std::ptrdiff_t>(end));
    question.answer.assign(whole[i].begin() + static_cast<std::ptrdiff_t>(end), whole[i].end());
    question.scored = ScoredTokens(tokenizer, question, q.scored_from);
    prompt.questions.push_back(std::move(question));
  }
  if (bos) prompt.context.push_back(*bos);
  prompt.context.insert(prompt.context.end(), shared.begin(), shared.end());
  prompt.text = std::move(context);
  return prompt;
}

int64_t TokensOf(const TaskPrompt& prompt, int64_t new_tokens) {
  int64_t behind = 0;
  for (const TaskQuestion& question : prompt.questions) {
    const auto answer = static_cast<int64_t>(question.answer.size());
    behind =
        std::max(behind, static_cast<int64_t>(question.ids.size()) + std::max(answer, new_tokens));
  }
  return static_cast<int64_t>(prompt.context.size()) + behind;
}

}  // namespace ropewalk::internal
