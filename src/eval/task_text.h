// Prompts that are texts: their tokens are those of the whole text, so that a model sees what it
// would see without a shared context.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/eval/task.h"

namespace ropewalk::internal {

struct TextQuestion {
  std::string question = {}, answer = {};
  std::size_t scored_from = 0;  // byte of the answer: tokens that end behind it are scored
  std::vector<std::string> references = {};
  double depth = std::numeric_limits<double>::quiet_NaN();
};

// The context is cut where the tokens of all whole texts, context + question + answer, agree with
// those of the context alone: tokenizers merge across the boundary.
TaskPrompt PromptOfText(const Tokenizer& tokenizer, std::optional<int32_t> bos, std::string context,
                        const std::vector<TextQuestion>& questions);

// Tokens of a prompt with its longest question and the longer of answer and `new_tokens`.
int64_t TokensOf(const TaskPrompt& prompt, int64_t new_tokens);

}  // namespace ropewalk::internal
