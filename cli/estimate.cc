#include "cli/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/input.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/rows.h"

namespace ropewalk::cli {
namespace {

class Estimator {
 public:
  Estimator(const Sweep& sweep, const SweepInputs& inputs, Estimate& estimate)
      : sweep_(sweep), inputs_(inputs), out_(estimate) {}

  void AddLength(int64_t length) {
    LengthEstimate& of_length = out_.lengths.emplace_back();
    of_length.length = length;
    std::map<KvType, int64_t> others;  // beside no scaling at the trained length, which stays
    for (size_t i = 0; i < sweep_.tasks.size(); ++i) {
      const SweepTask& task = sweep_.tasks[i];
      const CellLeft& left = out_.left[i];
      if (task.length != length) continue;
      of_length.memory_bytes =
          std::max(of_length.memory_bytes,
                   inputs_.engine->MemoryBytesWith(task.kv, task.plan, sweep_.longest));
      if (task.shares >= 0 || left.finished) continue;
      ++of_length.cells;
      const bool stays = !sweep_.spec.race ||
                         (task.unscaled && length == sweep_.spec.trained_length) ||
                         ++others[task.kv] <= 2;
      out_.cell_seconds[i] = AddCell(task, left, stays, of_length);
    }
    out_.price += of_length.price;
    out_.memory_bytes = std::max(out_.memory_bytes, of_length.memory_bytes);
  }

  // A cell of which nothing is there and that nothing makes leave.
  void AddWhole(const CellCost& cost, const PositionPlan& plan, double& seconds_sum) {
    const double seconds = out_.pace.Seconds(cost, plan);
    out_.price += {cost.tokens, cost.tokens, seconds, seconds};
    seconds_sum += seconds;
  }

 private:
  // Its seconds if it stays.
  double AddCell(const SweepTask& task, const CellLeft& left, bool stays,
                 LengthEstimate& of_length) const {
    const double windows = out_.pace.Seconds(left.of_windows, task.plan);
    const double others = out_.pace.Seconds(left.of_others, task.plan);
    // The share of its missing windows that belong to the first round.
    const std::vector<int64_t> rounds = RoundsOf(left.asked);
    const int64_t there = left.asked - left.windows;
    const int64_t first = rounds.empty() ? 0 : std::max<int64_t>(0, rounds[0] - there);
    const double share =
        left.windows > 0 ? static_cast<double>(first) / static_cast<double>(left.windows) : 0;
    of_length.first_seconds += share * windows + others;
    const int64_t all = left.of_windows.tokens + left.of_others.tokens;
    const CellCost early = left.of_windows * share;
    of_length.price += {stays ? all : early.tokens, all, stays ? windows + others : share * windows,
                        windows + others};
    return windows + others;
  }

  const Sweep& sweep_;
  const SweepInputs& inputs_;
  Estimate& out_;
};

// Lengths in ascending order get their first round while there is time.
void LeaveOut(Estimate& estimate, double searches_seconds) {
  double time = estimate.budget * static_cast<double>(estimate.shards) - searches_seconds -
                estimate.costs_seconds;
  for (LengthEstimate& length : estimate.lengths) {
    time -= length.first_seconds;
    length.left_out = time < 0 && length.cells > 0;
  }
}

std::string Range(double least, double most, const std::function<std::string(double)>& text) {
  const std::string low = text(least), high = text(most);
  return low == high ? high : low + " to " + high;
}

std::string Tokens(double tokens) {
  if (tokens < 1e5) return fmt::format("{:.0f}", tokens);
  return fmt::format("{:.3g} million", tokens / 1e6);
}

std::string Times(const Price& price) {
  return Range(price.least_seconds, price.seconds, Duration);
}

std::string AllTokens(const Price& price) {
  return Range(static_cast<double>(price.least_tokens), static_cast<double>(price.tokens), Tokens);
}

std::string Lengths(const std::vector<LengthEstimate>& lengths) {
  std::string text;
  for (const LengthEstimate& length : lengths) {
    if (!length.left_out) continue;
    text += fmt::format("{}{} tokens (about {})", text.empty() ? "" : ", ", length.length,
                        Duration(length.first_seconds));
  }
  return text;
}

}  // namespace

Price& Price::operator+=(const Price& other) {
  least_tokens += other.least_tokens;
  tokens += other.tokens;
  least_seconds += other.least_seconds;
  seconds += other.seconds;
  return *this;
}

Estimate EstimateSweep(const Sweep& sweep, const SweepInputs& inputs, std::vector<CellLeft> left,
                       bool costs_known, const std::vector<SearchLeft>& searches, double budget,
                       int64_t shards) {
  Estimate estimate{.left = std::move(left),
                    .budget = budget,
                    .shards = shards,
                    .mapped_bytes = inputs.engine->Facts().mapped_bytes};
  estimate.cell_seconds.resize(sweep.tasks.size());
  const bool done = costs_known && std::all_of(estimate.left.begin(), estimate.left.end(),
                                               [](const CellLeft& l) { return l.finished; });
  if (!done) estimate.pace = MeasurePace(sweep.tasks, sweep.spec, inputs, sweep.files.config.plan);
  Estimator estimator(sweep, inputs, estimate);
  std::vector<int64_t> lengths;
  for (const SweepTask& task : sweep.tasks) lengths.push_back(task.length);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  for (const int64_t length : lengths) estimator.AddLength(length);
  if (!costs_known) {
    for (const SweepTask& task : PossibleCosts(sweep.tasks, sweep.spec)) {
      ++estimate.most_costs;
      estimator.AddWhole(CostOf(task, sweep.spec, inputs, sweep.longest), task.plan,
                         estimate.costs_seconds);
    }
  }
  SweepTask found;  // by a search: like the model's own plan
  found.plan = sweep.files.config.plan;
  double found_seconds = 0;
  for (const SearchLeft& search : searches) {
    estimate.search_trials += search.trials;
    found.length = sweep.longest;
    const CellCost trial = CostOf(found, search.spec, inputs, sweep.longest);
    estimator.AddWhole(trial * static_cast<double>(search.trials), found.plan,
                       estimate.searches_seconds);
    for (const int64_t length : sweep.spec.lengths) {
      found.length = length;
      estimator.AddWhole(CostOf(found, sweep.spec, inputs, sweep.longest), found.plan,
                         found_seconds);
    }
  }
  estimate.price += sweep.key_tokens_price;
  estimate.key_tokens = sweep.key_tokens_price;
  LeaveOut(estimate, std::min(estimate.searches_seconds, budget / 2) + found_seconds +
                         estimate.key_tokens.seconds);
  return estimate;
}

std::string Text(const Estimate& estimate) {
  const auto there = std::count_if(estimate.left.begin(), estimate.left.end(),
                                   [](const CellLeft& l) { return l.finished; });
  std::string text = fmt::format("{} cells", estimate.left.size());
  if (there > 0) text += fmt::format(" ({} of them already finished)", there);
  if (estimate.most_costs > 0) {
    text += fmt::format(
        ", up to {} more to measure the cost of the recommended settings at the trained length",
        estimate.most_costs);
  }
  if (estimate.search_trials > 0) {
    text += fmt::format(", {} trials of the search", estimate.search_trials);
  }
  if (estimate.key_tokens.tokens > 0) {
    text += fmt::format(", the key tokens, which take about {} to find",
                        Duration(estimate.key_tokens.seconds));
  }
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  text += fmt::format(", {} tokens through the model, about {:.0f} MiB of memory",
                      AllTokens(estimate.price), mebibytes(estimate.memory_bytes));
  if (estimate.mapped_bytes > 0) {
    text += fmt::format(" beside {:.0f} MiB of weights that stay in the file",
                        mebibytes(estimate.mapped_bytes));
  }
  text += fmt::format(", about {}", Times(estimate.price));
  if (estimate.shards > 1) text += fmt::format(", which {} shards divide", estimate.shards);
  if (estimate.price.seconds > estimate.budget * static_cast<double>(estimate.shards)) {
    text += fmt::format("; the budget ends it after {}", Duration(estimate.budget));
    const std::string without = Lengths(estimate.lengths);
    if (!without.empty()) text += ", without " + without + " if no method leaves the race";
  }
  return text;
}

std::string LengthsText(const Estimate& estimate) {
  std::string text = fmt::format("{:>9}  {:>5}  {:>9}  {:<30}  {}\n", "tokens", "cells", "MiB",
                                 "through the model", "time");
  for (const LengthEstimate& length : estimate.lengths) {
    text +=
        fmt::format("{:>9}  {:>5}  {:>9.0f}  {:<30}  {}{}\n", length.length, length.cells,
                    static_cast<double>(length.memory_bytes) / (1 << 20), AllTokens(length.price),
                    Times(length.price), length.left_out ? ", beyond the budget" : "");
  }
  return text;
}

std::string CommandWith(const Options& options, const std::map<std::string, std::string>& values,
                        const std::set<std::string>& without) {
  std::string line = "ropewalk sweep";
  const auto add = [&](const std::string& name, const std::string& value) {
    line += " " + name + " " + Quoted(value);
  };
  for (const Given& given : options.given) {
    const OptionRow& option = *given.option;
    const std::string name = MainName(option);
    if (IsPositional(option)) {
      line += " " + Quoted(given.values.at(0));
    } else if (values.contains(name) || without.contains(name)) {
      continue;
    } else if (IsFlag(option)) {
      line += " " + (given.values.at(0) == "false" ? NamesOf(option).back() : name);
    } else if (IsList(option)) {
      add(name, fmt::format("{}", fmt::join(given.values, ",")));
    } else {
      for (const std::string& value : given.values) add(name, value);
    }
  }
  for (const auto& [name, value] : values) add(name, value);
  return line;
}

std::string LeftOutText(const Options& options, const std::vector<LeftOut>& left_out) {
  std::string text;
  double seconds = 0;
  for (const LeftOut& out : left_out) {
    seconds += out.seconds;
    if (!text.empty()) text += "; ";
    const std::string where =
        fmt::format("{} tokens{}", out.length,
                    out.kv == KvType::kF32 ? "" : fmt::format(" with a {} KV cache", Name(out.kv)));
    if (out.windows == 0) {
      text += fmt::format("{} (about {})", where, Duration(out.seconds));
    } else {
      text += fmt::format("windows {} to {} at {} (about {}){}", out.windows + 1, out.asked, where,
                          Duration(out.seconds),
                          out.open ? ", which may still change the recommendation" : "");
    }
  }
  const std::string budget =
      fmt::format("{}m", static_cast<int64_t>(std::ceil(seconds / 60 * 1.1)));
  return "not measured within the budget: " + text +
         "; to go on: " + CommandWith(options, {{"--budget", budget}});
}

}  // namespace ropewalk::cli
