// ropewalk sweep: perplexity and tasks against length for every method.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/engines.h"
#include "cli/estimate.h"
#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/key_tokens.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/report.h"
#include "cli/search.h"
#include "cli/shard.h"
#include "cli/slurm.h"
#include "cli/tasks.h"
#include "cli/torch_engine.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

bool WantsKeyTokens(const Options& options) {
  return std::find(options.tasks.begin(), options.tasks.end(), "key-tokens") != options.tasks.end();
}

// What --tasks names; without it perplexity, and passkey where there are a text and a tokenizer.
void AddTasks(const Options& options, const Sweep& sweep, SweepSpec& spec) {
  if (!options.no_race) spec.race = RaceRule{.margin = kRaceMargin};
  spec.share = options.share.value_or(true);
  std::vector<std::string> others = options.tasks;
  if (options.tasks.empty()) {
    others = {"perplexity"};
    if (sweep.files.tokenizer != nullptr && options.ids.empty()) others.emplace_back("passkey");
  }
  std::erase(others, "key-tokens");  // AddKeyTokens
  if (std::erase(others, "perplexity") == 0) {
    throw UsageError(
        "--tasks of a sweep include perplexity, by which methods are compared; other tasks alone "
        "are commands of their own: passkey, kv, ruler");
  }
  const bool tasks = !others.empty() || WantsKeyTokens(options);
  if (tasks && !options.ids.empty()) {
    throw UsageError("--tasks: tasks need a text and a tokenizer, not --ids");
  }
  spec.tasks = TasksOf(options, others, sweep.files, &sweep.text);
}

// Opens the model, reads the text, settles every option.
Sweep Prepare(const Options& options, bool torch) {
  Sweep sweep;
  sweep.files = torch ? OpenModelFor(options, true) : OpenRunnable(options);
  sweep.text = ReadTokenText(options, sweep.files, &sweep.bytes);
  SweepSpec spec = SpecOf(options, sweep.files);
  if (spec.lengths.empty() && spec.trained_length < 8) {
    throw UsageError(
        "the trained length of the model is unknown; give --trained N, or "
        "--lengths");
  }
  spec.methods = MethodsOf(options, sweep.files, {});
  AddTasks(options, sweep, spec);
  static_cast<PreparedSweep&>(sweep) = PrepareSweep(std::move(spec), options.protocol == "aligned",
                                                    sweep.files.config.plan, sweep.text);
  if (sweep.spec.tasks.empty() && options.tasks.empty()) {
    sweep.notes.push_back(options.ids.empty()
                              ? "passkey is left out: no tokenizer (" +
                                    sweep.files.tokenizer_error + ")"
                              : "passkey is left out: it needs a text and a tokenizer, not --ids");
  }
  return sweep;
}

// --prompts FILE; whether that was all to do.
bool PromptsWritten(const Options& options, const Sweep& sweep) {
  if (options.prompts.empty()) {
    if (options.prompts_only) throw UsageError("--prompts-only goes with --prompts FILE");
    return false;
  }
  if (sweep.spec.tasks.empty()) {
    throw UsageError("--prompts: the sweep asks nothing; --tasks names what it may ask");
  }
  RefuseInput(options, "--prompts", options.prompts);
  if (!options.dry_run) {
    std::ostringstream lines;
    WritePrompts(lines, sweep.tasks, sweep.spec, sweep.text, *sweep.files.tokenizer);
    WriteWhole(options.prompts, lines.str());
  }
  return options.prompts_only;
}

// "", or ", q8_0" where the KV cache is no float32.
std::string KvSuffix(KvType kv) { return kv == KvType::kF32 ? "" : fmt::format(", {}", Name(kv)); }

std::string CellName(const SweepTask& task) {
  const std::string at = fmt::format("at {}{}", task.length, KvSuffix(task.kv));
  if (task.factor == 1) return fmt::format("{} {}", task.method, at);
  return fmt::format("{} x{:.4g} {}", task.method, task.factor, at);
}

std::string CellResult(const Cell& cell) {
  std::string text = fmt::format("perplexity {:.4g}", cell.perplexity);
  for (const TaskResult& result : cell.tasks) {
    text += result.task == kKeyTokensTask
                ? fmt::format(", {} {:.3f} nats", result.task, result.mean_nll)
                : fmt::format(", {} {:.0f}%", result.task, 100 * ScoreOf(result));
  }
  return text;
}

nlohmann::ordered_json PriceJson(const Price& price) {
  return {{"least_tokens", price.least_tokens},
          {"tokens", price.tokens},
          {"least_seconds", price.least_seconds},
          {"seconds", price.seconds}};
}

void PrintPlan(const Sweep& sweep, const Estimate& estimate, const std::string& protocol) {
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (size_t i = 0; i < sweep.tasks.size(); ++i) {
    const SweepTask& task = sweep.tasks[i];
    const CellLeft& left = estimate.left[i];
    cells.push_back({{"method", task.method},
                     {"factor", task.factor},
                     {"length", task.length},
                     {"plan_hash", task.plan_hash},
                     {"shared", task.shares >= 0},
                     {"added", task.added},
                     {"finished", left.finished},
                     {"tokens", left.of_windows.tokens + left.of_others.tokens},
                     {"seconds", estimate.cell_seconds[i]}});
    if (task.kv != KvType::kF32) cells.back()["kv"] = Name(task.kv);
  }
  nlohmann::ordered_json lengths = nlohmann::ordered_json::array();
  for (const LengthEstimate& length : estimate.lengths) {
    nlohmann::ordered_json json = {{"length", length.length},
                                   {"cells", length.cells},
                                   {"memory_bytes", length.memory_bytes},
                                   {"left_out", length.left_out}};
    json.update(PriceJson(length.price));
    lengths.push_back(std::move(json));
  }
  nlohmann::ordered_json json = {{"cells", cells},
                                 {"lengths", lengths},
                                 {"most_cost_cells", estimate.most_costs},
                                 {"search_trials", estimate.search_trials}};
  json.update(PriceJson(estimate.price));
  json["key_tokens"] = {{"tokens", estimate.key_tokens.tokens},
                        {"seconds", estimate.key_tokens.seconds}};
  json["budget_seconds"] = estimate.budget;  // null: none
  json["memory_bytes"] = estimate.memory_bytes;
  json["mapped_bytes"] = estimate.mapped_bytes;
  json["protocol"] = protocol;
  fmt::print("{}\n", JsonText(json));
}

void DryRun(const Options& options, const Sweep& sweep, const SweepInputs& inputs,
            const Estimate& estimate) {
  if (options.json) {
    return PrintPlan(sweep, estimate, CommonFields(sweep.spec, inputs, sweep.longest).protocol);
  }
  for (size_t i = 0; i < sweep.tasks.size(); ++i) {
    const SweepTask& task = sweep.tasks[i];
    fmt::print("{:14} x{:<8.4g} {:>9} tokens   {}{}{}\n", task.method, task.factor, task.length,
               estimate.left[i].finished ? "already finished"
               : task.shares >= 0        ? "same plan as an earlier cell"
                                         : Duration(estimate.cell_seconds[i]),
               KvSuffix(task.kv), task.added ? ", added" : "");
  }
  fmt::print("\n{}\n{}\n", LengthsText(estimate), Text(estimate));
}

SweepHeader HeaderOf(const Options& options, const Sweep& sweep, const SweepInputs& inputs) {
  SweepHeader header;
  header.common = CommonFields(sweep.spec, inputs, sweep.longest);
  header.model_path = options.model;
  header.model_name = ModelName(options.model);
  header.family = sweep.files.config.architecture;
  header.text_path = options.ids.empty() ? options.text : options.ids;
  header.command = CommandLine();
  header.text_tokens = static_cast<int64_t>(sweep.text.ids.size());
  header.notes = sweep.notes;
  return header;
}

// Measures the cells, and what the recommended settings cost; what the budget left out.
std::vector<LeftOut> RunTasks(const Options& options, Sweep& sweep, const SweepInputs& inputs,
                              const SweepBudget& budget, double costs_seconds) {
  const std::optional<Shard> shard = ShardOf(options);
  const SweepHeader header = HeaderOf(options, sweep, inputs);
  ProgressLine progress;
  const auto name = [&](size_t i) {
    return fmt::format("[{}/{}] {}", i + 1, sweep.tasks.size(), CellName(sweep.tasks[i]));
  };
  SweepEvents events;
  events.message = [](const std::string& line) { Message("ropewalk: " + line); };
  events.progress = [&](const SweepProgress& now) {
    progress.Update(name(now.index), now.done_tokens, now.all_tokens, now.seconds_left);
    return !IsInterrupted();
  };
  events.left = [&](size_t i, const RaceExit& exit) {
    Message(fmt::format("ropewalk: {} leaves in round {}, behind {}", name(i), exit.round,
                        exit.against.empty() ? "its own loss, which is not finite"
                                             : MethodLabel(exit.against, exit.against_factor)));
  };
  events.finished = [&](size_t i, const Cell& cell, bool resumed) {
    progress.Finish(name(i), CellResult(cell), !resumed);
  };
  events.waiting = Waiting();
  InterruptScope scope;
  return RunSweepAndCosts(sweep.tasks, sweep.spec, sweep.files.config.plan, inputs, header,
                          options.output, events, budget, costs_seconds, shard);
}

// Adds the tasks that measure the cost of the recommended settings at the trained length.
bool AddCosts(const Options& options, Sweep& sweep) {
  const size_t before = sweep.tasks.size();
  sweep.tasks = ropewalk::AddCosts(std::move(sweep.tasks), sweep.spec, sweep.files.config.plan,
                                   ReadResults(options.output).cells);
  return sweep.tasks.size() > before;
}

SearchRequest RequestOf(const Options& options, const std::string& kind) {
  return {kind, ParseSearchBy(options.search_by, kind), options.search_trials, options.output};
}

// Runs the searches that are left, or only those whose trials are all finished, and adds their
// results as methods.
void Search(const Options& options, Sweep& sweep, const SweepInputs& inputs, bool finished_alone,
            int64_t most_trials, std::vector<std::string>& left) {
  std::vector<std::string> later;
  for (const std::string& kind : left) {
    // Of several shards one searches, and the others read what it tried.
    OneAtATime(options, "search-" + kind, [&] {
      SearchRequest request = RequestOf(options, kind);
      if (finished_alone && TrialsLeft(request) > 0) {
        later.push_back(kind);
        return;
      }
      request.trials -= std::max<int64_t>(0, TrialsLeft(request) - most_trials);
      sweep.spec.methods.push_back(SearchSetting(request, sweep.spec, inputs, sweep.files,
                                                 HeaderOf(options, sweep, inputs)));
    });
  }
  if (later.size() < left.size()) {
    sweep.tasks = PlanSweep(sweep.spec, sweep.files.config.plan);
  }
  left = later;
}

// As many trials of each search as take half of the budget.
int64_t TrialsThatFit(const Estimate& estimate, size_t searches) {
  constexpr int64_t kFewest = 2;
  // Shards need one result, whatever time each has left.
  if (estimate.shards > 1) return std::numeric_limits<int64_t>::max();
  if (estimate.searches_seconds <= estimate.budget / 2) return std::numeric_limits<int64_t>::max();
  const double share = estimate.budget / 2 / estimate.searches_seconds;
  const double each = static_cast<double>(estimate.search_trials) / static_cast<double>(searches);
  const auto fit = std::max(kFewest, static_cast<int64_t>(share * each));
  Message(fmt::format("ropewalk: {} more trials of a search fit into half of the budget", fit));
  return fit;
}

// Plans the remaining work and estimates its time.
Estimate Plan(const Options& options, Sweep& sweep, const SweepInputs& inputs, double budget,
              std::vector<std::string>& searches_left) {
  Search(options, sweep, inputs, true, options.search_trials, searches_left);
  std::vector<SearchLeft> searches;
  searches.reserve(searches_left.size());
  for (const std::string& kind : searches_left) {
    const SearchRequest request = RequestOf(options, kind);
    searches.push_back({TrialsLeft(request), SearchSpec(sweep.spec, request.by)});
  }
  const auto left = [&] {
    return WhatIsLeft(sweep.tasks, sweep.spec, inputs, HeaderOf(options, sweep, inputs),
                      options.output);
  };
  std::vector<CellLeft> cells = left();
  const bool costs_known =
      searches.empty() &&
      std::all_of(cells.begin(), cells.end(), [](const CellLeft& cell) { return cell.finished; });
  if (costs_known && AddCosts(options, sweep)) cells = left();
  const std::optional<Shard> shard = ShardOf(options);
  return EstimateSweep(sweep, inputs, std::move(cells), costs_known, searches, budget,
                       shard ? shard->count : 1);
}

// Measures what is left, within the rest of the budget; what it left out.
std::vector<LeftOut> Measure(const Options& options, Sweep& sweep, const SweepInputs& inputs,
                             const Estimate& estimate, std::vector<std::string> searches) {
  const auto begin = std::chrono::steady_clock::now();
  Search(options, sweep, inputs, false, TrialsThatFit(estimate, searches.size()), searches);
  const std::chrono::duration<double> searched = std::chrono::steady_clock::now() - begin;
  std::vector<LeftOut> left_out = RunTasks(
      options, sweep, inputs,
      {.seconds = estimate.budget - searched.count(), .pace = estimate.pace, .begins = true},
      estimate.costs_seconds / static_cast<double>(estimate.shards));
  if (!left_out.empty() && ReadResults(options.output).cells.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no length has its first rows within the budget of {}; what was "
                            "measured is kept, and the same command goes on from there; {}",
                            Duration(estimate.budget), LeftOutText(options, left_out)));
  }
  return left_out;
}

}  // namespace

void RunSweep(const Options& given) {
  Options options = given;
  const bool torch = TakeTorch(options);
  double budget = ParseBudget(options.budget);
  const std::vector<EngineChoice> shown = EnginesOf(options.engines);  // not after hours either
  if (options.output.empty()) options.output = "ropewalk-results";
  const std::optional<Shard> shard = ShardOf(options);
  if (options.slurm) CheckForSlurm(options);
  if (!options.dry_run && !options.slurm)
    RefuseForeign(options.output + "/report.html");  // not after hours
  Sweep sweep = Prepare(options, torch);
  for (const std::string& note : sweep.notes) Message("ropewalk: " + note);
  if (PromptsWritten(options, sweep)) return;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<ScoringEngine> engine;
  if (torch) {
    RefuseRanks("--engine torch, whose ranks torchrun starts,");
    engine = LoadTorchEngine(options);
  } else {
    decoder = LoadDecoder(options, sweep.files);
    engine = EngineOf(*decoder);
  }
  for (const KvType kv : sweep.spec.kv) engine->CheckKv(kv);  // not after hours
  SweepInputs inputs;
  inputs.engine = engine.get();
  inputs.tokenizer = sweep.files.tokenizer.get();
  inputs.text = &sweep.text;
  inputs.model_hash = sweep.files.Hash();
  if (WantsKeyTokens(options)) {
    OneAtATime(options, "key-tokens", [&] { AddKeyTokens(options, *engine, sweep, budget); });
  }
  const Protocol& protocol = sweep.spec.protocol;
  const EngineFacts facts = engine->Facts();
  Message(fmt::format("ropewalk: {}, {} windows per cell{}, {}, {} threads; rows in {}/{}",
                      protocol.Name(),
                      protocol.anchors > 0 ? std::to_string(protocol.anchors) : "all",
                      protocol.bos ? ", BOS first" : ", no BOS", facts.compute, facts.threads,
                      options.output, ResultsNameOf(shard)));
  std::vector<std::string> searches_left = options.search;
  const Estimate estimate = Plan(options, sweep, inputs, budget, searches_left);
  if (options.dry_run) return DryRun(options, sweep, inputs, estimate);
  if (options.slurm) return PrintSlurmScript(options, estimate, facts.threads);
  Message("ropewalk: " + Text(estimate));
  std::vector<LeftOut> left_out;
  try {
    left_out = Measure(options, sweep, inputs, estimate, searches_left);
  } catch (const Interrupted&) {
    Message("ropewalk: what was measured is kept; the same command continues from there");
    throw;
  }
  const std::vector<SweepReport> reports = LoadSweeps({options.output}, shown);
  std::string report;
  OneAtATime(options, "report", [&] { report = WriteReport({options.output}, "", shown); });
  if (shard && shard->index > 1) {  // the first one prints for all
    Message(fmt::format("ropewalk: shard {} is done; report {}", shard->Name(), report));
  } else if (options.json) {
    fmt::print("{}\n", JsonText(ReportJson(reports)));
    Message("ropewalk: report " + report);
  } else {
    fmt::print("{}\nReport: {}\n", SummaryText(reports.front()), report);
  }
  if (!left_out.empty()) Message("ropewalk: " + LeftOutText(options, left_out));
}

}  // namespace ropewalk::cli
