// The measurement of a task: every question of a prompt behind one context.
#include "ropewalk/eval/task.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <string_view>

#include "ropewalk/base/error.h"
#include "src/eval/asked.h"
#include "src/eval/statistics.h"

namespace ropewalk {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

double Recall(const std::string& output, const std::vector<std::string>& references,
              TaskMatch match) {
  if (references.empty()) return kNaN;
  const std::string said = Lower(output);
  const auto found = std::count_if(references.begin(), references.end(), [&](const auto& r) {
    return said.find(Lower(r)) != std::string::npos;
  });
  if (match == TaskMatch::kAny) return found > 0 ? 1 : 0;
  return static_cast<double>(found) / static_cast<double>(references.size());
}

using internal::Asked;

// The requests of one question: its answer, teacher-forced, and behind it a continuation.
void AddRequests(const Asked& asked, const Task& task, int64_t length, const TaskOptions& options,
                 std::vector<ScoreRequest>& requests) {
  requests.push_back(RequestOf(asked));
  if (!options.generate) return;
  const auto prompt = static_cast<int64_t>(asked.context.size() + asked.question->ids.size());
  requests.push_back({.prefix = asked.context,
                      .ids = asked.question->ids,
                      .continue_tokens = std::min(task.MaxNewTokens(), length - prompt),
                      .stop = options.stop});
}

}  // namespace

namespace internal {

Asked Ask(std::span<const int32_t> context, const TaskQuestion& question) {
  Asked asked{.question = &question, .context = context, .ids = question.ids};
  asked.ids.insert(asked.ids.end(), question.answer.begin(), question.answer.end());
  const auto answer = static_cast<int64_t>(context.size() + question.ids.size());
  if (question.scored.empty()) {
    asked.positions.resize(question.answer.size());
    std::iota(asked.positions.begin(), asked.positions.end(), answer);
  }
  for (const int32_t i : question.scored) asked.positions.push_back(answer + i);
  return asked;
}

ScoreRequest RequestOf(const Asked& asked) {
  return {.prefix = asked.context, .ids = asked.ids, .positions = asked.positions};
}

TaskAnswer AnswerOf(const Asked& asked, const std::vector<TokenScore>& scores, int64_t prompt,
                    int64_t index) {
  TaskAnswer answer{.prompt = static_cast<int32_t>(prompt),
                    .question = static_cast<int32_t>(index),
                    .depth = asked.question->depth,
                    .tokens = static_cast<int32_t>(scores.size()),
                    .exact = true};
  const auto context = static_cast<int64_t>(asked.context.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    answer.nll -= scores[i].log_prob;
    answer.exact = answer.exact && scores[i].top == asked.ids[asked.positions[i] - context];
  }
  return answer;
}

}  // namespace internal

void Summarise(TaskResult& result) {
  double exact = 0, recall = 0;
  std::vector<double> sums(static_cast<std::size_t>(result.prompts), 0.0), counts(sums);
  for (const TaskAnswer& answer : result.answers) {
    sums[answer.prompt] += answer.nll;
    counts[answer.prompt] += answer.tokens;
    exact += answer.exact ? 1 : 0;
    recall += answer.recall;
  }
  const auto n = static_cast<double>(result.answers.size());
  result.exact = exact / n;
  result.recall = recall / n;
  // Answers behind one context are no independent trials.
  const internal::ClusteredMean mean = internal::MeanOfClusters(sums, counts);
  result.mean_nll = mean.mean;
  result.standard_error = mean.standard_error;
}

TaskResult MeasureTask(const ScoringEngine& engine, const PositionPlan& plan, const Task& task,
                       std::span<const TaskPrompt> prompts, int64_t length,
                       const TaskOptions& task_options, const RunOptions& options) {
  TaskResult result = NamesOf(task);
  result.prompts = static_cast<int64_t>(prompts.size());
  std::vector<Asked> asked;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    for (std::size_t q = 0; q < prompts[p].questions.size(); ++q) {
      asked.push_back(internal::Ask(prompts[p].context, prompts[p].questions[q]));
      result.answers.push_back(
          {.prompt = static_cast<int32_t>(p), .question = static_cast<int32_t>(q)});
    }
  }
  if (asked.empty()) {
    throw Error(ErrorCode::kInvalidArgument, task.Name() + ": expected at least one question");
  }
  if (task_options.generate && task_options.tokenizer == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "a greedy continuation needs a tokenizer");
  }
  const std::size_t each = task_options.generate ? 2 : 1;  // requests per question
  std::vector<ScoreRequest> requests;
  requests.reserve(each * asked.size());
  int64_t done = 0, all = 0;  // with shared contexts as often as they are asked behind
  for (const Asked& one : asked) {
    AddRequests(one, task, length, task_options, requests);
    all += static_cast<int64_t>(each * (one.context.size() + one.ids.size()));
  }
  const auto tick = [&](int64_t tokens) {
    done += tokens;
    if (options.progress && !options.progress(std::min(done, all), all)) throw Interrupted();
  };
  const Scores scores = engine.Score({.plan = &plan,
                                      .final_length = length,
                                      .angles = options.angles,
                                      .kv = options.kv,
                                      .reuse = PrefixReuse::kWhole,
                                      .tick = tick},
                                     requests);
  result.fed_tokens = scores.fed_tokens;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    TaskAnswer& answer = result.answers[i];
    answer = AnswerOf(asked[i], scores.tokens[each * i], answer.prompt, answer.question);
    if (!task_options.generate) continue;
    answer.output = task_options.tokenizer->Decode(scores.continuations[each * i + 1].ids);
    answer.recall = Recall(answer.output, asked[i].question->references, task.Match());
  }
  Summarise(result);
  return result;
}

TaskResult NamesOf(const Task& task) {
  TaskResult result;
  result.task = task.Name();
  result.protocol = task.Protocol();
  result.data_hash = task.DataHash();
  return result;
}

SampledTask::SampledTask(std::shared_ptr<const Task> task, int64_t samples, bool generate)
    : task_(std::move(task)), samples_(samples), generate_(generate) {}

std::span<const TaskPrompt> SampledTask::Prompts(int64_t length) const {
  const auto [it, added] = prompts_.try_emplace(length);
  if (added) {
    try {
      it->second = task_->Prompts(length, samples_);
      if (it->second.empty()) {
        too_short_ = task_->Name() + ": expected at least one prompt to be asked for, got " +
                     std::to_string(samples_);
      }
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kInvalidArgument) throw;
      too_short_ = e.what();
    }
  }
  return it->second;
}

int64_t TaskTokens(std::span<const TaskPrompt> prompts, int64_t new_tokens) {
  int64_t tokens = 0;
  for (const TaskPrompt& prompt : prompts) {
    tokens += static_cast<int64_t>(prompt.context.size());
    for (const TaskQuestion& question : prompt.questions) {
      const auto ids = static_cast<int64_t>(question.ids.size());
      tokens += ids + static_cast<int64_t>(question.answer.size());
      if (new_tokens > 0) tokens += ids + new_tokens;
    }
  }
  return tokens;
}

}  // namespace ropewalk
