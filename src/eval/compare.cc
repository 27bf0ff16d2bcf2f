// Paired comparisons of two cells: window by window, question by question.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "src/eval/recommend.h"

namespace ropewalk {
namespace internal {

PairedDifference DifferenceOf(const PairedTest& test) {
  return {.mean = test.mean,
          .standard_error = test.standard_error,
          .p_value = test.p_value,
          .windows = test.n,
          .outside_noise = test.p_value < kSignificance};
}

PairedDifference CompareWindows(const Cell& a, const Cell& b, int64_t windows) {
  const std::size_t n = std::min({a.window_nll.size(), b.window_nll.size(),
                                  static_cast<std::size_t>(std::max<int64_t>(windows, 0))});
  if (n == 0) {
    return {.mean = a.mean_nll - b.mean_nll, .standard_error = kNaN, .p_value = kNaN};
  }
  std::vector<double> differences(n);
  for (std::size_t i = 0; i < n; ++i) differences[i] = a.window_nll[i] - b.window_nll[i];
  const std::vector<double> tokens = TokensOfWindows(a);
  return DifferenceOf(TestWeighted(differences, std::span(tokens).first(n)));
}

const TaskResult* FindTask(const Cell& cell, std::string_view task) {
  const auto found = std::ranges::find(cell.tasks, task, &TaskResult::task);
  return found == cell.tasks.end() || found->answers.empty() ? nullptr : &*found;
}

double ProbabilityBelow(const TaskResult& result, double share) {
  const auto n = static_cast<int64_t>(result.answers.size());
  return BinomialAtMost(std::llround(ScoreOf(result) * static_cast<double>(n)), n, share);
}

void Family::Add(const std::string& key, double p_value) {
  if (order_.try_emplace(key, p_values_.size()).second) p_values_.push_back(p_value);
}

double Family::Adjusted(const std::string& key) const {
  const auto found = order_.find(key);
  return found == order_.end() ? kNaN : HolmAdjusted(p_values_)[found->second];
}

}  // namespace internal

PairedDifference Compare(const Cell& a, const Cell& b) {
  return internal::CompareWindows(a, b, std::numeric_limits<int64_t>::max());
}

PairedDifference CompareKeyTokens(const TaskResult& a, const TaskResult& b) {
  std::map<std::pair<int32_t, int32_t>, double> theirs;
  for (const TaskAnswer& answer : b.answers) {
    theirs[{answer.prompt, answer.question}] = answer.nll;
  }
  std::map<int32_t, double> sums;  // by window
  double tokens = 0;
  for (const TaskAnswer& answer : a.answers) {
    const auto other = theirs.find({answer.prompt, answer.question});
    if (other == theirs.end()) continue;
    sums[answer.prompt] += answer.nll - other->second;
    tokens += answer.tokens;
  }
  // Sums of windows, in units that make their mean the mean over tokens.
  std::vector<double> differences;
  differences.reserve(sums.size());
  for (const auto& [window, sum] : sums) {
    differences.push_back(sum * static_cast<double>(sums.size()) / tokens);
  }
  return internal::DifferenceOf(TestPaired(differences));
}

PairedAnswers Compare(const TaskResult& a, const TaskResult& b) {
  // Of one kind in both: recall where both were continued.
  const bool recall = !std::isnan(a.recall) && !std::isnan(b.recall);
  const auto score = [&](const TaskAnswer& answer) {
    return recall ? answer.recall : static_cast<double>(answer.exact);
  };
  std::map<std::pair<int32_t, int32_t>, double> theirs;
  for (const TaskAnswer& answer : b.answers) {
    theirs[{answer.prompt, answer.question}] = score(answer);
  }
  PairedAnswers paired;
  for (const TaskAnswer& answer : a.answers) {
    const auto other = theirs.find({answer.prompt, answer.question});
    if (other == theirs.end()) continue;
    const double difference = score(answer) - other->second;
    ++paired.questions;
    paired.difference += difference;
    if (difference > 0) ++paired.wins;
    if (difference < 0) ++paired.losses;
  }
  if (paired.questions > 0) paired.difference /= static_cast<double>(paired.questions);
  paired.p_value = internal::SignTest(paired.wins, paired.losses);
  return paired;
}

}  // namespace ropewalk
