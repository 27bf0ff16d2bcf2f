// A question behind its context, as a request to the engine, and what its scores say.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/eval/task.h"

namespace ropewalk::internal {

// The request views it: it must outlive the call.
struct Asked {
  const TaskQuestion* question = nullptr;
  std::span<const int32_t> context = {};
  std::vector<int32_t> ids = {};        // question and answer
  std::vector<int64_t> positions = {};  // of the scored tokens
};
Asked Ask(std::span<const int32_t> context, const TaskQuestion& question);
// The answer, teacher-forced.
ScoreRequest RequestOf(const Asked& asked);
// `prompt` and `index` are those of the question.
TaskAnswer AnswerOf(const Asked& asked, const std::vector<TokenScore>& scores, int64_t prompt,
                    int64_t index);

}  // namespace ropewalk::internal
