// ropewalk sweep: perplexity and tasks against length for every method.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/engines.h"
#include "cli/estimate.h"
#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/options.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/search.h"
#include "cli/tasks.h"
#include "cli/torch_engine.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/decoder_engine.h"

namespace ropewalk::cli {
namespace {

// What --tasks names; without it perplexity and passkey, which needs a text and a tokenizer.
void AddTasks(const Options& options, const Sweep& sweep, SweepSpec& spec) {
  if (options.race.value_or(false)) spec.race = RaceRule{.margin = kRaceMargin};
  spec.share = options.share.value_or(true);
  std::vector<std::string> others = options.tasks;
  if (options.tasks.empty()) {
    others = {"perplexity"};
    if (sweep.files.tokenizer != nullptr && options.ids.empty()) others.emplace_back("passkey");
  }
  if (options.no_passkey) std::erase(others, "passkey");
  if (std::erase(others, "perplexity") == 0) {
    throw UsageError(
        "--tasks of a sweep include perplexity, by which methods are compared; other tasks alone "
        "are commands of their own: passkey, kv, ruler");
  }
  if (!others.empty() && !options.ids.empty()) {
    throw UsageError("--tasks: tasks need a text and a tokenizer, not --ids");
  }
  spec.tasks = TasksOf(options, others, sweep.files, &sweep.text);
}

// Opens the model, reads the text, settles every option.
Sweep Prepare(const Options& options, bool torch) {
  Sweep sweep;
  sweep.files = torch ? OpenModelFor(options, true) : OpenRunnable(options);
  sweep.text = ReadTokenText(options, sweep.files);
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
  if (sweep.spec.tasks.empty() && !options.no_passkey && options.tasks.empty()) {
    sweep.notes.push_back(options.ids.empty()
                              ? "passkey is left out: no tokenizer (" +
                                    sweep.files.tokenizer_error + ")"
                              : "passkey is left out: it needs a text and a tokenizer, not --ids");
  }
  return sweep;
}

std::string CellName(const SweepTask& task) {
  if (task.factor == 1) return fmt::format("{} at {}", task.method, task.length);
  return fmt::format("{} x{:.4g} at {}", task.method, task.factor, task.length);
}

std::string CellResult(const Cell& cell) {
  std::string text = fmt::format("perplexity {:.4g}", cell.perplexity);
  for (const TaskResult& result : cell.tasks) {
    text += fmt::format(", {} {:.0f}%", result.task, 100 * ScoreOf(result));
  }
  return text;
}

void DryRun(const Options& options, const Sweep& sweep, const Estimate& estimate) {
  const double pace = estimate.flops > 0 ? estimate.seconds / estimate.flops : 0;
  if (options.json) {
    nlohmann::ordered_json cells = nlohmann::ordered_json::array();
    for (size_t i = 0; i < sweep.tasks.size(); ++i) {
      const SweepTask& task = sweep.tasks[i];
      cells.push_back({{"method", task.method},
                       {"factor", task.factor},
                       {"length", task.length},
                       {"plan_hash", task.plan_hash},
                       {"shared", task.shares >= 0},
                       {"added", task.added},
                       {"finished", bool{estimate.finished[i]}},
                       {"tokens", estimate.cells[i].tokens},
                       {"seconds", estimate.cells[i].flops * pace}});
    }
    const nlohmann::ordered_json json = {{"cells", cells},
                                         {"most_cost_cells", estimate.most_costs},
                                         {"search_trials", estimate.search_trials},
                                         {"tokens", estimate.tokens},
                                         {"memory_bytes", estimate.memory_bytes},
                                         {"seconds", estimate.seconds},
                                         {"protocol", sweep.spec.protocol.Name()}};
    fmt::print("{}\n", JsonText(json));
    return;
  }
  for (size_t i = 0; i < sweep.tasks.size(); ++i) {
    const SweepTask& task = sweep.tasks[i];
    fmt::print("{:14} x{:<8.4g} {:>9} tokens   {}{}\n", task.method, task.factor, task.length,
               estimate.finished[i] ? "already finished"
               : task.shares >= 0   ? "same plan as an earlier cell"
                                    : Duration(estimate.cells[i].flops * pace),
               task.added ? ", added" : "");
  }
  fmt::print("{}\n", Text(estimate));
}

SweepHeader HeaderOf(const Options& options, const Sweep& sweep, const SweepInputs& inputs) {
  SweepHeader header;
  header.common = CommonFields(sweep.spec, inputs, sweep.longest);
  header.model_path = options.model;
  header.model_name = ModelName(options.model);
  header.text_path = options.ids.empty() ? options.text : options.ids;
  header.command = CommandLine();
  header.text_tokens = static_cast<int64_t>(sweep.text.ids.size());
  header.notes = sweep.notes;
  return header;
}

// Runs the tasks from `first` on; earlier ones are finished.
void RunTasks(const Options& options, const Sweep& sweep, const SweepInputs& inputs, size_t first) {
  const SweepHeader header = HeaderOf(options, sweep, inputs);
  std::vector<double> work;
  double all_work = 0;
  for (const SweepTask& task : sweep.tasks) {
    const bool computed = task.shares < 0 && work.size() >= first;
    work.push_back(computed ? CostOf(task, sweep.spec, inputs, sweep.longest).flops : 0);
    all_work += work.back();
  }
  ProgressLine progress(all_work);
  const auto name = [&](size_t i) {
    return fmt::format("[{}/{}] {}", i + 1, sweep.tasks.size(), CellName(sweep.tasks[i]));
  };
  SweepEvents events;
  events.message = [](const std::string& line) { Message("ropewalk: " + line); };
  events.progress = [&](size_t i, int64_t done, int64_t all) {
    progress.Update(name(i), done, all, work[i]);
    return !IsInterrupted();
  };
  events.left = [&](size_t i, const RaceExit& exit) {
    Message(fmt::format("ropewalk: {} leaves in round {}, behind {}", name(i), exit.round,
                        exit.against.empty() ? "its own loss, which is not finite"
                                             : MethodLabel(exit.against, exit.against_factor)));
  };
  events.finished = [&](size_t i, const Cell& cell, bool resumed) {
    if (i >= first) progress.Finish(name(i), CellResult(cell), work[i], !resumed);
  };
  InterruptScope scope;
  RunSweep(sweep.tasks, sweep.spec, inputs, header, options.output, events);
}

// Adds the tasks that measure the cost of the recommended settings at the trained length.
bool AddCosts(const Options& options, Sweep& sweep) {
  const size_t before = sweep.tasks.size();
  sweep.tasks = ropewalk::AddCosts(std::move(sweep.tasks), sweep.spec, sweep.files.config.plan,
                                   ReadResults(options.output).cells);
  return sweep.tasks.size() > before;
}

bool All(const std::vector<bool>& values) {
  return std::all_of(values.begin(), values.end(), [](bool x) { return x; });
}

SearchRequest RequestOf(const Options& options, const std::string& kind) {
  return {kind, ParseSearchBy(options.search_by, kind), options.budget, options.output};
}

// Runs the searches that are left, or only those whose trials are all finished, and adds their
// results as methods.
void Search(const Options& options, Sweep& sweep, const SweepInputs& inputs, bool finished_alone,
            std::vector<std::string>& left) {
  std::vector<std::string> later;
  for (const std::string& kind : left) {
    const SearchRequest request = RequestOf(options, kind);
    if (finished_alone && TrialsLeft(request) > 0) {
      later.push_back(kind);
      continue;
    }
    sweep.spec.methods.push_back(
        SearchSetting(request, sweep.spec, inputs, sweep.files, HeaderOf(options, sweep, inputs)));
  }
  if (later.size() < left.size()) {
    sweep.tasks = PlanSweep(sweep.spec, sweep.files.config.plan);
  }
  left = later;
}

// Plans the remaining work and estimates its time.
Estimate Plan(const Options& options, Sweep& sweep, const SweepInputs& inputs,
              std::vector<std::string>& searches_left) {
  Search(options, sweep, inputs, true, searches_left);
  std::vector<int64_t> searches;
  searches.reserve(searches_left.size());
  for (const std::string& kind : searches_left) {
    searches.push_back(TrialsLeft(RequestOf(options, kind)));
  }
  const auto finished = [&] {
    return FinishedTasks(sweep.tasks, HeaderOf(options, sweep, inputs), options.output,
                         sweep.spec.race.has_value());
  };
  std::vector<bool> there = finished();
  const bool costs_known = All(there) && searches.empty();
  if (costs_known && AddCosts(options, sweep)) there = finished();
  return EstimateSweep(sweep, inputs, there, costs_known, searches, nullptr);
}

}  // namespace

void RunSweep(const Options& given) {
  Options options = given;
  const bool torch = TakeTorch(options);
  const std::vector<EngineChoice> shown = EnginesOf(options.engines);  // not after hours either
  if (options.output.empty()) options.output = "ropewalk-results";
  if (!options.dry_run) RefuseForeign(options.output + "/report.html");  // not after hours
  Sweep sweep = Prepare(options, torch);
  for (const std::string& note : sweep.notes) Message("ropewalk: " + note);
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<ScoringEngine> engine;
  if (torch) {
    engine = LoadTorchEngine(options);
  } else {
    decoder = LoadDecoder(options, sweep.files);
    engine = std::make_unique<DecoderEngine>(*decoder);
  }
  SweepInputs inputs;
  inputs.engine = engine.get();
  inputs.tokenizer = sweep.files.tokenizer.get();
  inputs.text = &sweep.text;
  inputs.model_hash = sweep.files.Hash();
  const Protocol& protocol = sweep.spec.protocol;
  const EngineFacts facts = engine->Facts();
  Message(fmt::format(
      "ropewalk: {}, {} windows per cell{}, {}, {} threads; rows in {}/results.jsonl",
      protocol.Name(), protocol.anchors > 0 ? std::to_string(protocol.anchors) : "all",
      protocol.bos ? ", BOS first" : ", no BOS", facts.compute, facts.threads, options.output));
  std::vector<std::string> searches_left = options.search;
  const Estimate estimate = Plan(options, sweep, inputs, searches_left);
  if (options.dry_run) return DryRun(options, sweep, estimate);
  Message("ropewalk: " + Text(estimate));
  CheckWithinAnHour(options, sweep, inputs, estimate);
  try {
    Search(options, sweep, inputs, false, searches_left);
    RunTasks(options, sweep, inputs, 0);
    const size_t asked = sweep.tasks.size();
    if (AddCosts(options, sweep)) RunTasks(options, sweep, inputs, asked);
  } catch (const Interrupted&) {
    Message("ropewalk: finished cells are kept; the same command continues from there");
    throw;
  }
  const std::vector<SweepReport> reports = LoadSweeps({options.output}, shown);
  const std::string report = WriteReport({options.output}, "", shown);
  if (options.json) {
    fmt::print("{}\n", JsonText(ReportJson(reports)));
    Message("ropewalk: report " + report);
  } else {
    fmt::print("{}\nReport: {}\n", SummaryText(reports.front()), report);
  }
}

}  // namespace ropewalk::cli
