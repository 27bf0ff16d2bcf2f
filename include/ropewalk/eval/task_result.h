// What a model says to the questions of a task.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

// The answer of a model to one question.
struct TaskAnswer {
  int32_t prompt = 0, question = 0;  // indices
  double depth = std::numeric_limits<double>::quiet_NaN();
  double nll = 0;      // nats, the sum over the scored tokens of the answer, teacher-forced
  int32_t tokens = 0;  // scored
  bool exact = false;  // every scored token was the most probable one, teacher-forced
  // Share of references found in the greedy continuation, by the task's TaskMatch; NaN without one.
  double recall = std::numeric_limits<double>::quiet_NaN();
  std::string output = {};  // the continuation
};

struct TaskResult {
  std::string task, protocol, data_hash;
  std::vector<TaskAnswer> answers;  // by prompt, then question
  int64_t prompts = 0;
  double exact = 0;     // share of answers
  double recall = 0;    // mean; NaN where nothing was generated
  double mean_nll = 0;  // nats per scored token of an answer
  // Of `mean_nll`, clustered by prompt; NaN for one prompt.
  double standard_error = 0;
  int64_t fed_tokens = 0;  // that went through the model; 0: the engine does not count
};

// The task whose answers are the key tokens of a text (ropewalk/eval/key_tokens.h), by window: a
// loss, of which no score is taken.
inline constexpr std::string_view kKeyTokensTask = "key-tokens";

// The score that papers print: the mean recall where continuations were searched, else the share of
// exact answers.
inline double ScoreOf(const TaskResult& result) {
  return result.recall == result.recall ? result.recall : result.exact;
}

// The result of the task of this name; null: there is none.
inline const TaskResult* FindTask(std::span<const TaskResult> results, std::string_view name) {
  for (const TaskResult& result : results) {
    if (result.task == name) return &result;
  }
  return nullptr;
}

}  // namespace ropewalk
