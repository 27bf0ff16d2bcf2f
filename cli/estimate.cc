#include "cli/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "cli/input.h"
#include "cli/parse.h"
#include "cli/progress.h"

namespace ropewalk::cli {
namespace {

constexpr double kHour = 3600;

// Of the cell that takes most.
int64_t MemoryBytes(const Sweep& sweep, const ScoringEngine& engine) {
  int64_t most = 0;
  for (const SweepTask& task : sweep.tasks) {
    most = std::max(most, engine.MemoryBytes(task.plan, sweep.longest));
  }
  return most;
}

// The cells that may follow: for each length beyond the trained one, the setting recommended for it
// at the trained length, where no task measures that already.
std::vector<SweepTask> PossibleCosts(const Sweep& sweep) {
  const SweepSpec& spec = sweep.spec;
  std::map<int64_t, SweepTask> costs;  // by length
  if (!JudgesBeyondTrained(spec)) return {};
  for (const SweepTask& task : sweep.tasks) {
    if (task.length <= spec.trained_length || task.unscaled) continue;
    const bool there = std::any_of(sweep.tasks.begin(), sweep.tasks.end(), [&](const auto& t) {
      return t.method == task.method && t.factor == task.factor && t.length == spec.trained_length;
    });
    if (there) continue;
    costs.emplace(task.length, task).first->second.length = spec.trained_length;
  }
  std::vector<SweepTask> tasks;
  tasks.reserve(costs.size());
  for (const auto& [length, task] : costs) tasks.push_back(task);
  return tasks;
}

// The cost of the trials of --search, and of a further method at every length.
CellCost SearchCost(const Sweep& sweep, const SweepInputs& inputs, int64_t trials) {
  SweepTask task;
  task.plan = sweep.files.config.plan;
  task.length = sweep.longest;
  SweepSpec spec = sweep.spec;
  spec.tasks.clear();
  CellCost sum = CostOf(task, spec, inputs, sweep.longest);
  sum.tokens *= trials;
  sum.flops *= static_cast<double>(trials);
  for (const int64_t length : sweep.spec.lengths) {
    task.length = length;
    const CellCost cost = CostOf(task, sweep.spec, inputs, sweep.longest);
    sum.tokens += cost.tokens;
    sum.flops += cost.flops;
  }
  return sum;
}

}  // namespace

double SecondsPerFlop(const ScoringEngine& engine, const Sweep& sweep) {
  constexpr int64_t kFirst = 64;     // tokens: enough to measure matrix products of any model
  constexpr int64_t kMost = 512;     // tokens
  constexpr double kLongEnough = 1;  // seconds, to average over other load
  constexpr int kMostRuns = 8;
  const PositionPlan& plan = sweep.files.config.plan;
  const int64_t most =
      std::min<int64_t>({kMost, sweep.longest, static_cast<int64_t>(sweep.text.ids.size())});
  const EngineFacts facts = engine.Facts();
  // As many sequences as run side by side; none begins as another does.
  const int64_t lanes =
      std::min<int64_t>(facts.lanes, static_cast<int64_t>(sweep.text.ids.size()) - most + 1);
  const auto time = [&](int64_t tokens) {
    std::vector<ScoreRequest> requests;
    for (int64_t i = 0; i < lanes; ++i) {
      requests.push_back(
          {.ids = std::span(sweep.text.ids).subspan(i, tokens), .positions = {tokens - 1}});
    }
    const auto begin = std::chrono::steady_clock::now();
    engine.Score({.plan = &plan, .final_length = most, .angles = sweep.spec.angles}, requests);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  int64_t tokens = std::min(kFirst, most);
  int runs = 1;
  double seconds = time(tokens);
  if (seconds < kLongEnough) {  // the first run includes one-time work
    tokens = most;
    seconds = 0;
    for (runs = 0; runs < kMostRuns && seconds < kLongEnough; ++runs) seconds += time(tokens);
  }
  return seconds /
         (static_cast<double>(lanes * runs) *
          (ForwardFlops(facts, plan, static_cast<double>(tokens - 1)) + facts.head_flops));
}

Estimate EstimateSweep(const Sweep& sweep, const SweepInputs& inputs, std::vector<bool> finished,
                       bool costs_known, const std::vector<int64_t>& searches,
                       const double* seconds_per_flop) {
  Estimate estimate;
  estimate.finished = std::move(finished);
  estimate.memory_bytes = MemoryBytes(sweep, *inputs.engine);
  const auto add = [&](const CellCost& cost) {
    estimate.tokens += cost.tokens;
    estimate.flops += cost.flops;
  };
  for (size_t i = 0; i < sweep.tasks.size(); ++i) {
    const SweepTask& task = sweep.tasks[i];
    const bool computed = task.shares < 0 && !estimate.finished[i];
    estimate.cells.push_back(computed ? CostOf(task, sweep.spec, inputs, sweep.longest)
                                      : CellCost());
    add(estimate.cells.back());
  }
  if (!costs_known) {
    for (const SweepTask& task : PossibleCosts(sweep)) {
      ++estimate.most_costs;
      add(CostOf(task, sweep.spec, inputs, sweep.longest));
    }
  }
  for (const int64_t trials : searches) {
    estimate.search_trials += trials;
    add(SearchCost(sweep, inputs, trials));
  }
  if (estimate.flops > 0) {
    estimate.seconds =
        estimate.flops *
        (seconds_per_flop != nullptr ? *seconds_per_flop : SecondsPerFlop(*inputs.engine, sweep));
  }
  return estimate;
}

std::string Text(const Estimate& estimate) {
  const auto there = std::count(estimate.finished.begin(), estimate.finished.end(), true);
  std::string text = fmt::format("{} cells", estimate.finished.size());
  if (there > 0) text += fmt::format(" ({} of them already finished)", there);
  if (estimate.most_costs > 0) {
    text += fmt::format(
        ", up to {} more to measure the cost of the recommended settings at the trained length",
        estimate.most_costs);
  }
  if (estimate.search_trials > 0) {
    text += fmt::format(", {} trials of the search", estimate.search_trials);
  }
  return text + fmt::format(", {} tokens through the model, about {:.0f} MiB of memory, about {}",
                            estimate.tokens, static_cast<double>(estimate.memory_bytes) / (1 << 20),
                            Duration(estimate.seconds));
}

namespace {

// The sweep's command line with other values of some options.
std::string CommandWith(const Options& options, const std::map<std::string, std::string>& values) {
  std::string line = "ropewalk sweep";
  const auto add = [&](const std::string& name, const std::string& value) {
    line += " " + name + " " + Quoted(value);
  };
  for (const Given& given : options.given) {
    const OptionRow& option = *given.option;
    const std::string name = MainName(option);
    if (IsPositional(option)) {
      line += " " + Quoted(given.values.at(0));
    } else if (values.contains(name)) {
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

// The two most important methods: none and yarn, or the first two.
std::vector<SweepMethod> FewMethods(const std::vector<SweepMethod>& methods) {
  std::vector<SweepMethod> few;
  for (const SweepMethod& m : methods) {
    if (NameOf(m) == "none" || NameOf(m) == "yarn") few.push_back(m);
  }
  if (few.size() < 2)
    few.assign(methods.begin(), methods.begin() + std::min<size_t>(2, methods.size()));
  return few;
}

// A part of a sweep, and the options for it.
struct Smaller {
  std::map<std::string, std::string> values;
  Estimate estimate;
};

class Shrinker {
 public:
  Shrinker(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
           const Estimate& estimate)
      : options_(options),
        whole_(sweep),
        inputs_(inputs),
        seconds_per_flop_(estimate.seconds / estimate.flops) {}

  // The first that takes at most an hour: with fewer anchors, then also fewer methods, then without the longest lengths; else the quickest of these.
  std::optional<Smaller> LargestThatFits() const {
    const std::vector<int64_t>& lengths = whole_.spec.lengths;
    // Keeps one length beyond the trained one, if there was any.
    const auto beyond =
        std::upper_bound(lengths.begin(), lengths.end(), whole_.spec.trained_length);
    const size_t fewest =
        std::min(lengths.size(), static_cast<size_t>(beyond - lengths.begin()) + 1);
    std::optional<Smaller> quickest;
    for (size_t n = lengths.size(); n >= std::max<size_t>(1, fewest); --n) {
      for (const bool few_methods : {false, true}) {
        for (const bool few_anchors : {false, true}) {
          const Smaller s = Make(n, few_methods, few_anchors);
          if (s.values.empty()) continue;
          if (s.estimate.seconds <= kHour) return s;
          if (!quickest || s.estimate.seconds < quickest->estimate.seconds) quickest = s;
        }
      }
    }
    return quickest;
  }

 private:
  Smaller Make(size_t lengths, bool few_methods, bool few_anchors) const {
    Smaller s;
    Sweep sweep;
    sweep.files.config.plan = whole_.files.config.plan;
    SweepSpec& spec = sweep.spec = whole_.spec;
    if (lengths < spec.lengths.size()) {
      spec.lengths.resize(lengths);
      s.values["--lengths"] = fmt::format("{}", fmt::join(spec.lengths, ","));
    }
    if (few_methods && spec.methods.size() > 2 && options_.rope_scaling.empty()) {
      spec.methods = FewMethods(spec.methods);
      s.values["--methods"] = NameOf(spec.methods[0]) + "," + NameOf(spec.methods[1]);
    }
    const int64_t anchors = spec.protocol.kind == Protocol::Kind::kAligned ? 3 : 8;
    if (few_anchors && (spec.protocol.anchors == 0 || spec.protocol.anchors > anchors)) {
      spec.protocol.anchors = anchors;
      s.values["--anchors"] = std::to_string(anchors);
    }
    sweep.tasks = PlanSweep(spec, sweep.files.config.plan);
    sweep.longest = sweep.tasks.back().length;
    const std::vector<int64_t> searches(options_.search.size(), options_.budget);
    s.estimate = EstimateSweep(sweep, inputs_, std::vector<bool>(sweep.tasks.size(), false), false,
                               searches, &seconds_per_flop_);
    return s;
  }

  const Options& options_;
  const Sweep& whole_;
  const SweepInputs& inputs_;
  double seconds_per_flop_;
};

}  // namespace

std::string WhatFits(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
                     const Estimate& estimate) {
  std::optional<Smaller> part = Shrinker(options, sweep, inputs, estimate).LargestThatFits();
  if (!part) return "it cannot be made smaller";
  // A smaller sweep needs a folder of its own.
  const bool fresh = std::none_of(estimate.finished.begin(), estimate.finished.end(),
                                  [](bool there) { return there; });
  if (!fresh) part->values["--output"] = options.output + "-hour";
  return fmt::format("{} about {}: {}",
                     part->estimate.seconds <= kHour ? "a smaller one takes"
                                                     : "no smaller one fits; the quickest takes",
                     Duration(part->estimate.seconds), CommandWith(options, part->values));
}

void CheckWithinAnHour(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
                       const Estimate& estimate) {
  if (estimate.seconds <= kHour) return;
  if (options.yes) return;
  Message("ropewalk: that is more than an hour; " + WhatFits(options, sweep, inputs, estimate));
  const bool stdin_was_text = options.text == "-" || options.ids == "-";
  if (!stdin_was_text && Confirm("ropewalk: start it anyway? [y/N] ")) return;
  throw UsageError(
      fmt::format("the sweep would take about {}, which is more than an hour: nothing was started; "
                  "--yes starts it (after an interruption the same command continues)",
                  Duration(estimate.seconds)));
}

}  // namespace ropewalk::cli
