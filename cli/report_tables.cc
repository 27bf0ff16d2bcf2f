// Tables of the report: methods by lengths, of tasks, key tokens and effective lengths.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report_text.h"

namespace ropewalk::cli {
namespace {

std::string ColumnTitle(const Grid::Column& c) {
  return c.factor > 0 ? fmt::format("{} (x{:.4g})", c.length, c.factor) : std::to_string(c.length);
}

// On a terminal "2.36 ± 0.10": five lengths in a line. In Markdown "2.36, 0.859 ± 0.041 / 2.442".
std::string KeyTokensCell(const Cell& cell, const TaskResult& keys, TableForm form) {
  const double perplexity = std::exp(keys.mean_nll);
  const auto error = [&](double factor, int digits) {
    return std::isnan(keys.standard_error)
               ? ""
               : fmt::format(" ± {:.{}f}", factor * keys.standard_error, digits);
  };
  // To the error's second digit, at most that of PerplexityText.
  const int digits = perplexity < 10 ? 2 : perplexity < 1000 ? 1 : 0;
  if (form == TableForm::kText) return PerplexityText(perplexity) + error(perplexity, digits);
  return fmt::format("{}, {:.3f}{} / {:.3f}", PerplexityText(perplexity), keys.mean_nll,
                     error(1, 3), cell.mean_nll);
}

// How many key tokens each cell has; those that left a race have fewer.
std::string KeyTokensCaption(const std::vector<Cell>& cells, TableForm form) {
  size_t fewest = 0, most = 0;
  int64_t windows = 0;
  for (const Cell& cell : cells) {
    const TaskResult* r = FindTask(cell.tasks, kKeyTokensTask);
    if (r == nullptr) continue;
    fewest = most == 0 ? r->answers.size() : std::min(fewest, r->answers.size());
    most = std::max(most, r->answers.size());
    windows = std::max(windows, r->prompts);
  }
  return fmt::format(
      "key-tokens: LongPPL, the perplexity of the {} key tokens in up to {} windows of a cell{}",
      fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most), windows,
      form == TableForm::kText ? ", ± one standard error by windows."
                               : "; their loss in nats per token, ± one standard error by windows; "
                                 "behind the stroke that of all scored tokens.");
}

bool HasMoreWindows(const Cell& cell, const std::vector<Cell>& cells) {
  return !cell.race_exit && std::any_of(cells.begin(), cells.end(), [&](const Cell& other) {
    return other.length == cell.length && !other.race_exit && other.windows < cell.windows;
  });
}

std::string EffectiveText(const EffectiveLength& e) {
  std::string text = e.length > 0 ? std::to_string(e.length) : "-";
  if (e.at_least != e.length || e.at_most != e.length) {
    text += fmt::format(" ({} to {})", e.at_least, e.at_most);
  }
  return text + (e.gap ? " gap" : "");
}

}  // namespace

TextRows GridRows(const std::vector<Cell>& cells,
                  const std::function<std::string(const Cell&)>& text) {
  const Grid grid = MakeGrid(cells);
  TextRows rows(1, {"method"});
  for (const Grid::Column& c : grid.columns) rows[0].push_back(ColumnTitle(c));
  for (size_t m = 0; m < grid.methods.size(); ++m) {
    rows.push_back({grid.methods[m]});
    for (const int64_t index : grid.cells[m]) {
      rows.back().push_back(index < 0 ? "-" : text(cells[index]));
    }
  }
  return rows;
}

std::string MarkedPerplexity(const Cell& cell, const std::vector<Cell>& cells) {
  const char* mark = cell.race_exit ? "*" : HasMoreWindows(cell, cells) ? "+" : "";
  return PerplexityText(cell.perplexity) + mark;
}

std::string MarksCaption(const std::vector<Cell>& cells) {
  std::string text;
  if (std::any_of(cells.begin(), cells.end(), [](const Cell& c) { return c.race_exit; })) {
    text += " *: clearly behind another method, measured on its first windows alone.";
  }
  if (std::any_of(cells.begin(), cells.end(),
                  [&](const Cell& c) { return HasMoreWindows(c, cells); })) {
    text +=
        " +: over more windows than other methods of its length, which the budget left with fewer; "
        "differences are taken over those that both have.";
  }
  return text;
}

std::vector<std::string> TaskNames(const std::vector<Cell>& cells) {
  std::vector<std::string> names;
  for (const Cell& cell : cells) {
    for (const TaskResult& result : cell.tasks) {
      if (std::find(names.begin(), names.end(), result.task) == names.end()) {
        names.push_back(result.task);
      }
    }
  }
  return names;
}

std::string RangeText(const std::vector<int64_t>& counts) {
  const auto [least, most] = std::ranges::minmax(counts);
  return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
}

TextRows TaskRows(const std::vector<Cell>& cells, const std::string& name, TableForm form) {
  return GridRows(cells, [&](const Cell& cell) {
    const TaskResult* r = FindTask(cell.tasks, name);
    return r == nullptr ? std::string("-")
           : name == kKeyTokensTask
               ? KeyTokensCell(cell, *r, form)
               : fmt::format("{:.2f}{}{:.3f}", ScoreOf(*r), Separator(form), r->mean_nll);
  });
}

std::string TaskCaption(const std::vector<Cell>& cells, const std::string& name, TableForm form) {
  if (name == kKeyTokensTask) return KeyTokensCaption(cells, form);
  std::vector<int64_t> answers, prompts;
  bool exact = false;
  for (const Cell& cell : cells) {
    const TaskResult* r = FindTask(cell.tasks, name);
    if (r == nullptr) continue;
    answers.push_back(static_cast<int64_t>(r->answers.size()));
    prompts.push_back(r->prompts);
    exact = std::isnan(r->recall);
  }
  if (answers.empty()) return "";
  return fmt::format(
      "{}: {}, and nats per token of the true answer; {} answers behind {} prompts in a cell.",
      name, exact ? "share of exact answers" : "recall of the greedy continuation",
      RangeText(answers), RangeText(prompts));
}

TextRows EffectiveRows(const SweepReport& sweep) {
  TextRows rows = {{"method", "RULER's 0.856", "0.85 x own", "wAvg inc", "wAvg dec"}};
  const auto share = [](double v) { return std::isnan(v) ? "-" : fmt::format("{:.3f}", v); };
  for (const MethodScores& m : sweep.scores) {
    rows.push_back({m.method, EffectiveText(m.ruler), EffectiveText(m.own),
                    share(m.averages.increasing), share(m.averages.decreasing)});
  }
  return rows;
}

std::string EffectiveCaption(const SweepReport& sweep) {
  const std::vector<std::string>& tasks = sweep.scores.front().tasks;
  const auto longest = [](const MethodScores& m) { return m.scores.back().length; };
  const int64_t length = longest(*std::ranges::max_element(sweep.scores, {}, longest));
  std::vector<int64_t> answers;  // trials are the fewest of a task, times the tasks
  for (const MethodScores& m : sweep.scores) {
    if (longest(m) != length) continue;
    answers.push_back(m.scores.back().trials / static_cast<int64_t>(tasks.size()));
  }
  return fmt::format(
      "Effective length in tokens, by the mean score of {}: the longest length with at least that "
      "score, in brackets where answers ({} of each task at the longest length) leave it open. "
      "Factors matched to lengths, no scaling up to the trained one.",
      fmt::join(tasks, ", "), RangeText(answers));
}

}  // namespace ropewalk::cli
