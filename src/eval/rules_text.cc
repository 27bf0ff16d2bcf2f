// The rules of a recommendation in words, with the numbers of a sweep.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "ropewalk/eval/effective_length.h"
#include "src/eval/recommend.h"

namespace ropewalk {
namespace {

// Numbers of windows, or of answers.
struct Range {
  int64_t low = internal::kAllWindows, high = 0;
  void Add(int64_t n) {
    low = std::min(low, n);
    high = std::max(high, n);
  }
  std::string Text(const char* what) const {
    const std::string numbers =
        low == high ? std::to_string(low) : fmt::format("{} to {}", low, high);
    return fmt::format("{} {}{}", numbers, what, high == 1 ? "" : "s");
  }
};

// Over which the methods of a length are compared.
Range WindowsOfTests(const std::vector<Cell>& cells, const Cell& baseline) {
  Range windows;
  for (const Cell& c : cells) {
    const std::vector<const Cell*> here = internal::CellsAt(cells, c.length);
    const int64_t common = internal::CommonWindows(here);
    if (here.size() > 1 && common != internal::kAllWindows) windows.Add(common);
  }
  if (windows.high == 0) windows.Add(baseline.windows);
  return windows;
}

Range AnswersOf(const std::vector<Cell>& cells, const std::string& task) {
  Range answers;
  for (const Cell& c : cells) {
    const TaskResult* r = c.race_exit ? nullptr : internal::FindTask(c, task);
    if (r != nullptr) answers.Add(static_cast<int64_t>(r->answers.size()));
  }
  return answers;
}

}  // namespace

std::string TasksNote(const std::vector<Cell>& cells) {
  std::string out;
  for (const TaskUse& use : TaskUses(cells)) {
    if (!use.reason.empty()) out += (out.empty() ? "" : " ") + use.reason;
  }
  return out;
}

std::string RulesText(const std::vector<Cell>& all) {
  const internal::JudgedCells judged(all);
  const std::vector<Cell>& cells = judged.get();
  const internal::Yardstick y = internal::FindYardstick(cells);
  if (y.baseline == nullptr) {
    return y.broken ? "Nothing can be judged, because the loss of the model without scaling is not "
                      "finite at the trained length."
                    : "Nothing can be judged, because the model without scaling was not measured "
                      "at the trained length.";
  }
  const double own = y.baseline->perplexity;
  const auto other_windows = [&](const Cell& c) {
    return !c.race_exit && internal::SharedWindows(c, *y.baseline) != internal::kAllWindows;
  };
  std::string rule = fmt::format(
      "Usable means: perplexity at most {:.2f} times that without scaling at the trained length "
      "({} times {:.2f} = {}{})",
      internal::kUsablePerplexity, PerplexityText(own), internal::kUsablePerplexity,
      PerplexityText(own * internal::kUsablePerplexity),
      std::ranges::any_of(cells, other_windows) ? ", over the windows that both have" : "");
  std::vector<std::string> tasks, tests, answers;
  for (const TaskUse& use : y.tasks) {
    if (!use.counts) continue;
    tasks.push_back(fmt::format("{} {:.2f}", use.task, use.own_score));
    answers.push_back(fmt::format("{} of {}", AnswersOf(cells, use.task).Text("answer"), use.task));
  }
  if (!tasks.empty()) {
    rule += fmt::format(
        ", and a score not significantly below {:.2f} times the model's own there ({}). Of usable "
        "methods those that are significantly worse than another at one of these tasks are left "
        "out; of the rest the lowest loss is recommended, and of methods that are tied the lowest "
        "one with scores that reach this",
        kNolimaShare, internal::ListOf(tasks));
  }
  const Range windows = WindowsOfTests(cells, *y.baseline);
  const bool one_window = windows.high == 1;  // which has no variance
  if (!one_window) tests.push_back("paired t tests over " + windows.Text("window"));
  if (!answers.empty()) tests.push_back("exact sign tests over " + internal::ListOf(answers));
  rule += tests.empty()
              ? ". One window gives no test of significance"
              : fmt::format(
                    ". \"Significant\" is the 5 % level after Holm's correction for the methods{} "
                    "of a length, by {}{}",
                    tasks.empty() ? "" : " and tasks", internal::ListOf(tests),
                    one_window ? "; one window gives no test of losses" : "");
  rule += ".";
  if (std::ranges::any_of(
          cells, [](const Cell& c) { return internal::FindTask(c, kKeyTokensTask) != nullptr; })) {
    rule +=
        " Methods that loss does not tell apart are compared by the loss of their key tokens, "
        "in the same way.";
  }
  if (std::ranges::any_of(cells, [](const Cell& c) { return c.race_exit.has_value(); })) {
    rule += " A method that left the race of a length is not taken for usable there.";
  }
  if (tasks.empty() && y.tasks.empty()) {
    rule += " No task was measured, so retrieval is not known; --tasks perplexity,passkey adds it.";
  }
  const std::string note = TasksNote(cells);
  return rule + (note.empty() ? "" : " ") + note +
         " A method is usable up to the last length before the first failure.";
}

}  // namespace ropewalk
