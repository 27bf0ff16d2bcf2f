// ropewalk sweep: perplexity and passkey against length for every method.
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
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/decoder_engine.h"

namespace ropewalk::cli {
namespace {

// Half the trained length, the trained length, 2, 4 and 8 times it, as far as the text goes.
void DefaultLengths(const Options& options, Sweep& sweep) {
  const int64_t trained = sweep.spec.trained_length;
  if (trained < 8) {
    throw UsageError(
        "the trained length of the model is unknown; give --trained N, or "
        "--lengths");
  }
  SettleProtocol(options, trained / 2, sweep.spec);
  const Protocol& protocol = sweep.spec.protocol;
  const bool aligned = protocol.kind == Protocol::Kind::kAligned;
  const int64_t room = static_cast<int64_t>(sweep.text.ids.size()) + (protocol.bos ? 1 : 0) -
                       (aligned ? (protocol.anchors - 1) * protocol.scored_per_anchor : 0);
  std::string left_out;
  const auto& learned = sweep.files.config.plan.learned;  // end where the table ends
  for (const int64_t length : {trained / 2, trained, 2 * trained, 4 * trained, 8 * trained}) {
    if (learned && length > learned->positions) break;
    if (length <= room || length <= trained) {
      sweep.spec.lengths.push_back(length);
    } else {
      left_out += (left_out.empty() ? "" : ", ") + std::to_string(length);
    }
  }
  if (!left_out.empty()) {
    sweep.notes.push_back(fmt::format("the text ({} tokens) is too short for length {}",
                                      sweep.text.ids.size(), left_out));
  }
}

// Notes on cells that are added for the recommendations, or on why there are none.
void AddNotesOnTrained(Sweep& sweep) {
  const int64_t trained = sweep.spec.trained_length;
  if (trained <= 0) {
    sweep.notes.push_back(
        "the trained length is unknown, so nothing will be recommended; give it with --trained N");
  } else if (sweep.longest > trained && !JudgesBeyondTrained(sweep.spec)) {
    sweep.notes.push_back(fmt::format(
        "{} cannot score windows of the trained {} tokens, so nothing will be recommended; use a "
        "smaller number",
        sweep.spec.protocol.Name(), trained));
  }
  for (const SweepTask& task : sweep.tasks) {
    if (!task.added) continue;
    sweep.notes.push_back(fmt::format(
        "{} at {} tokens, the trained length, is added: usability is judged relative to it",
        task.method, task.length));
  }
}

// Opens the model, reads the text, settles every option.
Sweep Prepare(const Options& options) {
  Sweep sweep;
  sweep.files = OpenRunnable(options);
  sweep.text = ReadTokenText(options, sweep.files);
  sweep.spec = SpecOf(options, sweep.files);
  if (sweep.spec.lengths.empty()) DefaultLengths(options, sweep);
  std::vector<std::string> defaults;
  const bool beyond = sweep.spec.lengths.back() > sweep.spec.trained_length;
  const std::vector<LayerPlan>& layers = sweep.files.config.plan.layers;
  const bool rotates = std::any_of(layers.begin(), layers.end(),
                                   [](const LayerPlan& l) { return l.rotation.has_value(); });
  for (const MethodInfo& method : Methods()) {
    const bool none = PositionMethod().name() == method.name;
    if (!method.usual || (!rotates && !none)) continue;
    if (none || beyond || !sweep.spec.factors.empty()) defaults.emplace_back(method.name);
  }
  for (const LayerPlan& layer : sweep.files.config.plan.layers) {
    if (layer.rotation && !std::holds_alternative<NoScaling>(layer.rotation->scaling)) {
      defaults.push_back(kAsShipped);
      break;
    }
  }
  sweep.spec.methods = MethodsOf(options, sweep.files, defaults);
  const int64_t trained = sweep.spec.trained_length, shortest = sweep.spec.lengths.front();
  SettleProtocol(options, beyond && trained > 0 ? std::min(trained, shortest) : shortest,
                 sweep.spec);
  sweep.tasks = PlanSweep(sweep.spec, sweep.files.config.plan);
  sweep.longest = sweep.tasks.back().length;
  AddNotesOnTrained(sweep);
  for (const std::string& note : sweep.files.config.plan.notes) sweep.notes.push_back(note);
  if (!sweep.spec.passkey && !options.no_passkey) {
    sweep.notes.push_back(options.ids.empty()
                              ? "passkey is left out: no tokenizer (" +
                                    sweep.files.tokenizer_error + ")"
                              : "passkey is left out: it needs a text and a tokenizer, not --ids");
  }
  if (sweep.spec.passkey) {
    const int64_t needed = MinPasskeyTokens(*sweep.files.tokenizer, sweep.spec.passkey_options.bos);
    if (sweep.tasks.front().length < needed) {
      sweep.notes.push_back(
          fmt::format("passkey is left out below {} tokens, which its prompt needs", needed));
    }
  }
  // Too short a text is found now, not after the first cells.
  for (const SweepTask& task : sweep.tasks) {
    MakeWindows(sweep.text, sweep.spec.protocol, task.length, sweep.longest, sweep.spec.bos_id);
  }
  return sweep;
}

std::string CellName(const SweepTask& task) {
  if (task.factor == 1) return fmt::format("{} at {}", task.method, task.length);
  return fmt::format("{} x{:.4g} at {}", task.method, task.factor, task.length);
}

std::string CellResult(const Cell& cell) {
  std::string text = fmt::format("perplexity {:.4g}", cell.perplexity);
  if (cell.has_passkey) text += fmt::format(", passkey {:.0f}%", 100 * cell.passkey_accuracy);
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

// Runs the searches that are left, or only those whose trials are all finished, and adds their
// results as methods.
void Search(const Options& options, Sweep& sweep, const SweepInputs& inputs, bool finished_alone,
            std::vector<std::string>& left) {
  std::vector<std::string> later;
  for (const std::string& kind : left) {
    const SearchRequest request{kind, options.budget, options.output};
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
    searches.push_back(TrialsLeft({kind, options.budget, options.output}));
  }
  const auto finished = [&] {
    return FinishedTasks(sweep.tasks, HeaderOf(options, sweep, inputs), options.output);
  };
  std::vector<bool> there = finished();
  const bool costs_known = All(there) && searches.empty();
  if (costs_known && AddCosts(options, sweep)) there = finished();
  return EstimateSweep(sweep, inputs, there, costs_known, searches, nullptr);
}

}  // namespace

void RunSweep(const Options& given) {
  Options options = given;
  if (options.output.empty()) options.output = "ropewalk-results";
  if (!options.dry_run) RefuseForeign(options.output + "/report.html");  // not after hours
  Sweep sweep = Prepare(options);
  for (const std::string& note : sweep.notes) Message("ropewalk: " + note);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, sweep.files);
  const DecoderEngine engine(*decoder);
  SweepInputs inputs;
  inputs.engine = &engine;
  inputs.tokenizer = sweep.files.tokenizer.get();
  inputs.text = &sweep.text;
  inputs.model_hash = sweep.files.Hash();
  const Protocol& protocol = sweep.spec.protocol;
  Message(fmt::format(
      "ropewalk: {}, {} windows per cell{}, {}, {} threads; rows in {}/results.jsonl",
      protocol.Name(), protocol.anchors > 0 ? std::to_string(protocol.anchors) : "all",
      protocol.bos ? ", BOS first" : ", no BOS", options.compute, NumThreads(), options.output));
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
  const std::vector<SweepReport> reports = LoadSweeps({options.output}, EnginesOf(options.engines));
  const std::string report = WriteReport({options.output}, "", EnginesOf(options.engines));
  if (options.json) {
    fmt::print("{}\n", JsonText(ReportJson(reports)));
    Message("ropewalk: report " + report);
  } else {
    fmt::print("{}\nReport: {}\n", SummaryText(reports.front()), report);
  }
}

}  // namespace ropewalk::cli
