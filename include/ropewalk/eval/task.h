// Tasks with questions and answers: passkey, JSON key-value pairs, RULER. A task makes prompts; what
// a model says to them is measured by one function, MeasureTask, for all tasks.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/task_result.h"

namespace ropewalk {

// A question behind the context of a prompt, and its answer.
struct TaskQuestion {
  std::vector<int32_t> ids = {};     // behind the context; may be empty
  std::vector<int32_t> answer = {};  // behind the question, teacher-forced; at least one token
  // Indices into `answer` of the tokens that are scored; empty: all. ("the key is" leads to a space
  // that says nothing about the key.)
  std::vector<int32_t> scored = {};
  // Searched for in the greedy continuation, case-insensitively.
  std::vector<std::string> references = {};
  // Where in the context the answer stands: 0 first, 1 last; NaN: nowhere in particular.
  double depth = std::numeric_limits<double>::quiet_NaN();
  std::string text = {}, answer_text = {};  // question and answer as text
};

// What stands in front of all its questions, computed once.
struct TaskPrompt {
  std::vector<int32_t> context = {};  // BOS first where the task has one
  std::string text = {};              // the context as text
  std::vector<TaskQuestion> questions = {};
};

// A window of a text with a prompt in it: its perplexity and the answers come from one prefill.
struct AskedWindow {
  // With what is asked for hidden in front of its scored tokens. `text_begin` holds for these alone.
  EvalWindow window = {};
  // Index ranges [begin, end) of `window.ids` that are not of the text, ascending.
  std::vector<std::pair<int64_t, int64_t>> hidden = {};
  std::vector<TaskQuestion> questions = {};  // behind the window; none: it is a window alone
};

// How many references a continuation has to contain.
//   kAll  the score is the share of references found (RULER's string_match_all)
//   kAny  1 if any is found (RULER's string_match_part)
enum class TaskMatch : uint8_t { kAll, kAny };

// A task with a tokenizer, a seed and its data. Prompts depend on these and the length alone, so
// every method gets the same ones.
class Task {
 public:
  virtual ~Task() = default;
  virtual std::string Name() const = 0;      // as in --tasks: "kv", "ruler:vt"
  virtual std::string Protocol() const = 0;  // name and version of the form, with its settings
  virtual std::string DataHash() const = 0;  // of the words, texts or files it draws from
  virtual TaskMatch Match() const { return TaskMatch::kAll; }
  virtual int64_t MaxNewTokens() const = 0;  // of a greedy continuation
  // What the `count` of Prompts counts: "prompts", or "questions" of as many prompts as have them.
  virtual std::string Counts() const { return "prompts"; }
  // The first `count` prompts at `length` tokens: context, question and the longer of answer and
  // MaxNewTokens() together take at most `length`. Asking for fewer gives the same first ones.
  // Throws Error for a length that is too short, with the length required.
  virtual std::vector<TaskPrompt> Prompts(int64_t length, int64_t count) const = 0;
  virtual bool CanHide() const { return false; }  // whether HideIn does
  // What is asked for, hidden in windows of a text that are `length` tokens long, so that all of them
  // together have at least `count` questions: a window has the same scored tokens as before, the
  // text that is displaced is the farthest, and window, longest question and answer take exactly
  // `length` tokens. Empty where the windows do not hold it, and for tasks that need prompts of
  // their own.
  virtual std::vector<AskedWindow> HideIn(std::span<const EvalWindow> /*windows*/,
                                          int64_t /*length*/, int64_t /*count*/) const {
    return {};
  }
};

// A line of JSON for each question: task, protocol, data_hash, length, prompt and question
// (indices), context, question_text, answer (text), references, depth, max_new_tokens, context_ids,
// question_ids, answer_ids, scored. A prompt is its context and its question, the answer follows.
void WritePrompts(std::ostream& out, const Task& task, std::span<const TaskPrompt> prompts,
                  int64_t length);

// What MeasureTask does beyond teacher forcing.
struct TaskOptions {
  bool generate = false;                 // continue greedily and search for the references
  std::vector<int32_t> stop = {};        // ids that end a continuation, such as EOS
  const Tokenizer* tokenizer = nullptr;  // decodes continuations; required with `generate`
};

// Tokens through the model for these prompts, shared contexts once; `new_tokens` > 0: with a greedy
// continuation of so many for each question.
int64_t TaskTokens(std::span<const TaskPrompt> prompts, int64_t new_tokens);

// A result that has only the names of the task.
TaskResult NamesOf(const Task& task);
// Fills what TaskResult has beside `answers` and names: shares, means, the standard error.
void Summarise(TaskResult& result);

// Asks every question of every prompt; the context of a prompt is computed once. Length-dependent
// methods are resolved at `length`. Throws Error as ScoringEngine does.
TaskResult MeasureTask(const ScoringEngine& engine, const PositionPlan& plan, const Task& task,
                       std::span<const TaskPrompt> prompts, int64_t length,
                       const TaskOptions& task_options, const RunOptions& options);

// A task and how many prompts of it (Task::Counts) are asked at each length; each is made once. Not for several
// threads at once.
class SampledTask {
 public:
  // `generate`: also continue greedily behind every question.
  SampledTask(std::shared_ptr<const Task> task, int64_t samples, bool generate);
  const Task& task() const { return *task_; }
  int64_t samples() const { return samples_; }
  bool generate() const { return generate_; }
  // Empty for a length that is too short; too_short() says why.
  std::span<const TaskPrompt> Prompts(int64_t length) const;
  const std::string& too_short() const { return too_short_; }

 private:
  std::shared_ptr<const Task> task_;
  int64_t samples_ = 1;
  bool generate_ = false;
  mutable std::map<int64_t, std::vector<TaskPrompt>> prompts_;
  mutable std::string too_short_;
};

}  // namespace ropewalk
