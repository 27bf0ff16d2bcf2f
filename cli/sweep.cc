// ropewalk sweep: the main job.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/search.h"
#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"

namespace ropewalk::cli {
namespace {

struct Sweep {
  ModelFiles files;
  TokenText text;
  SweepSpec spec;
  std::vector<SweepTask> tasks;
  int64_t longest = 0;
  std::vector<std::string> notes;
};

// Half the trained length, the trained length, 2, 4 and 8 times it, as far as the text goes.
void DefaultLengths(const Options& options, Sweep& sweep) {
  const int64_t trained = sweep.spec.trained_length;
  if (trained < 8) {
    throw UsageError(
        "the model does not say at which length it was trained; give --trained N, or "
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
    if (!method.usual || (!rotates && std::string(method.name) != "none")) continue;
    if (std::string(method.name) == "none" || beyond || !sweep.spec.factors.empty()) {
      defaults.push_back(method.name);
    }
  }
  for (const LayerPlan& layer : sweep.files.config.plan.layers) {
    if (layer.rotation && !std::holds_alternative<NoScaling>(layer.rotation->scaling)) {
      defaults.push_back("as-shipped");
      break;
    }
  }
  sweep.spec.methods = MethodsOf(options, sweep.files, defaults);
  sweep.tasks = PlanSweep(sweep.spec, sweep.files.config.plan);
  sweep.longest = sweep.tasks.back().length;
  SettleProtocol(options, sweep.tasks.front().length, sweep.spec);
  for (const std::string& note : sweep.files.config.plan.notes) sweep.notes.push_back(note);
  if (!sweep.spec.passkey && !options.no_passkey) {
    sweep.notes.push_back(options.ids.empty()
                              ? "passkey is left out: no tokenizer (" +
                                    sweep.files.tokenizer_error + ")"
                              : "passkey is left out: it needs a text and a tokenizer, --ids gives "
                                "neither");
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

// Seconds a floating-point operation takes here: the second of two runs over one chunk.
double Calibrate(const Decoder& decoder, const Sweep& sweep) {
  const int64_t tokens = std::min<int64_t>(
      {Decoder::kChunkTokens, sweep.longest, static_cast<int64_t>(sweep.text.ids.size())});
  Sequence sequence(decoder, sweep.files.config.plan, tokens, sweep.spec.angles);
  const std::span<const int32_t> ids(sweep.text.ids.data(), static_cast<size_t>(tokens));
  std::chrono::duration<double> seconds{};
  for (int i = 0; i < 2; ++i) {
    sequence.Truncate(0);
    const auto begin = std::chrono::steady_clock::now();
    decoder.Forward(sequence, ids, nullptr, 0);
    seconds = std::chrono::steady_clock::now() - begin;
  }
  return seconds.count() /
         ForwardFlops(decoder.config(), sweep.files.config.plan, static_cast<double>(tokens));
}

void DryRun(const Options& options, const Sweep& sweep, const SweepInputs& inputs) {
  const double pace = Calibrate(*inputs.decoder, sweep);
  const ModelConfig& config = inputs.decoder->config();
  int64_t tokens = 0;
  double flops = 0;
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const SweepTask& task : sweep.tasks) {
    const CellCost cost = CostOf(task, sweep.spec, inputs, sweep.longest);
    const bool shared = task.shares >= 0;
    cells.push_back({{"method", task.method},
                     {"factor", task.factor},
                     {"length", task.length},
                     {"plan_hash", task.plan_hash},
                     {"shared", shared},
                     {"tokens", shared ? 0 : cost.tokens},
                     {"seconds", shared ? 0 : cost.flops * pace}});
    if (shared) continue;
    tokens += cost.tokens;
    flops += cost.flops;
  }
  // float32: keys and values of every layer, one table of cos and sin, five more where there is a
  // distance map (two for attention, up to three for its entropy); and what a chunk needs.
  const bool maps = std::any_of(sweep.tasks.begin(), sweep.tasks.end(), [](const SweepTask& task) {
    return std::any_of(task.plan.layers.begin(), task.plan.layers.end(),
                       [](const LayerPlan& layer) { return layer.map.has_value(); });
  });
  const int64_t tables = maps ? 6 : 1;
  const int64_t cache =
      sweep.longest * (2 * config.layers * config.kv_heads + tables) * config.head_dim * 4;
  const int64_t scratch = int64_t{128} << 20;  // logits, activations, pages of the file
  const int64_t memory = inputs.decoder->weight_bytes() + cache + scratch;
  if (options.json) {
    const nlohmann::ordered_json json = {{"cells", cells},
                                         {"tokens", tokens},
                                         {"memory_bytes", memory},
                                         {"seconds", flops * pace},
                                         {"protocol", sweep.spec.protocol.Name()}};
    fmt::print("{}\n", json.dump(2));
    return;
  }
  for (const auto& cell : cells) {
    fmt::print("{:14} x{:<8.4g} {:>9} tokens   {}\n", cell["method"].get<std::string>(),
               cell["factor"].get<double>(), cell["length"].get<int64_t>(),
               cell["shared"].get<bool>() ? "same plan as a cell before"
                                          : Duration(cell["seconds"].get<double>()));
  }
  fmt::print("{} cells, {} tokens through the model, about {:.0f} MiB of memory, about {}\n",
             cells.size(), tokens, static_cast<double>(memory) / (1 << 20), Duration(flops * pace));
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

void RunTasks(const Options& options, const Sweep& sweep, const SweepInputs& inputs) {
  const SweepHeader header = HeaderOf(options, sweep, inputs);
  std::vector<double> work;
  double all_work = 0;
  for (const SweepTask& task : sweep.tasks) {
    work.push_back(task.shares >= 0 ? 0 : CostOf(task, sweep.spec, inputs, sweep.longest).flops);
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
    progress.Finish(name(i), CellResult(cell), work[i], !resumed);
  };
  InterruptScope scope;
  RunSweep(sweep.tasks, sweep.spec, inputs, header, options.output, events);
}

void Run(const Options& options) {
  Sweep sweep = Prepare(options);
  for (const std::string& note : sweep.notes) Message("ropewalk: " + note);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, sweep.files);
  SweepInputs inputs;
  inputs.decoder = decoder.get();
  inputs.tokenizer = sweep.files.tokenizer.get();
  inputs.text = &sweep.text;
  if (options.dry_run) return DryRun(options, sweep, inputs);
  inputs.model_hash = sweep.files.Hash();
  const Protocol& protocol = sweep.spec.protocol;
  Message(fmt::format(
      "ropewalk: {} cells, {}, {} windows a cell{}, {}, {} threads; rows in {}/"
      "results.jsonl",
      sweep.tasks.size(), protocol.Name(),
      protocol.anchors > 0 ? std::to_string(protocol.anchors) : "all",
      protocol.bos ? ", BOS first" : ", no BOS", options.compute, NumThreads(), options.output));
  try {
    for (const std::string& kind : options.search) {
      sweep.spec.methods.push_back(SearchSetting({kind, options.budget, options.output}, sweep.spec,
                                                 inputs, sweep.files,
                                                 HeaderOf(options, sweep, inputs)));
    }
    if (!options.search.empty()) {
      sweep.tasks = PlanSweep(sweep.spec, sweep.files.config.plan);
    }
    RunTasks(options, sweep, inputs);
  } catch (const Interrupted&) {
    Message("ropewalk: what is finished stays; the same command goes on from there");
    throw;
  }
  const std::vector<SweepReport> reports = LoadSweeps({options.output});
  const std::string report = WriteReport({options.output}, "");
  if (options.json) {
    fmt::print("{}\n", ReportJson(reports).dump(2));
    Message("ropewalk: report " + report);
  } else {
    fmt::print("{}\nReport: {}\n", SummaryText(reports.front()), report);
  }
}

}  // namespace

void AddSweepCommand(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->output = "ropewalk-results";
  CLI::App* command = app.add_subcommand(
      "sweep", "Perplexity and passkey against length for every method; the main job");
  AddOptions(
      *command, *options,
      {Opt::kModel,        Opt::kText,    Opt::kIds,           Opt::kOutput,  Opt::kMethods,
       Opt::kRopeScaling,  Opt::kLengths, Opt::kFactors,       Opt::kTrained, Opt::kProtocol,
       Opt::kAnchors,      Opt::kSeed,    Opt::kPasskeyTrials, Opt::kDepths,  Opt::kNoPasskey,
       Opt::kAngles,       Opt::kCompute, Opt::kBos,           Opt::kSpecial, Opt::kThreads,
       Opt::kAllowUnknown, Opt::kJson,    Opt::kDryRun,        Opt::kSearch,  Opt::kBudget});
  command->footer(
      "Without --lengths: half the trained length, the trained length, 2, 4 and 8 times it, as far "
      "as the text goes.\nInterrupted (Ctrl-C, kill, power)? The same command goes on; what is "
      "finished is not done again.\n\nExample: ropewalk sweep ./model --text book.txt -o out "
      "--lengths 4k,8k,16k --methods none,ntk,yarn");
  command->callback([options] { Run(*options); });
}

}  // namespace ropewalk::cli
