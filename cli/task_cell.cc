// ropewalk passkey, kv, ruler: the tasks of one cell.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/single_cell.h"
#include "cli/tasks.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {
namespace {

// The share that is exact, by tenths of the depth.
void PrintDepths(const TaskResult& result) {
  std::map<int, std::pair<int, int>> tenths;  // exact, all
  for (const TaskAnswer& answer : result.answers) {
    if (!(answer.depth >= 0)) continue;
    auto& [exact, all] = tenths[std::min(9, static_cast<int>(answer.depth * 10))];
    exact += answer.exact ? 1 : 0;
    ++all;
  }
  if (tenths.size() < 2) return;
  for (const auto& [tenth, counts] : tenths) {
    fmt::print("  depth {:.1f} to {:.1f}  exact {} of {}\n", tenth / 10.0, (tenth + 1) / 10.0,
               counts.first, counts.second);
  }
}

void Print(const TaskResult& result) {
  const std::string error =
      result.prompts > 1 ? fmt::format(" ± {:.3f}", result.standard_error) : "";
  fmt::print("{:<22} exact {:.0f}% of {} answers, {:.3f}{} nats per token of an answer",
             result.task, 100 * result.exact, result.answers.size(), result.mean_nll, error);
  if (!std::isnan(result.recall)) fmt::print(", recall {:.1f}", 100 * result.recall);
  fmt::print("\n");
  PrintDepths(result);
}

void RunTasks(const Options& options, const std::vector<std::string>& names) {
  const ModelFiles files = OpenRunnable(options);
  SweepSpec spec = SpecOf(options, files);
  const int64_t length = OneLength(spec);
  spec.perplexity = false;
  TokenText text;
  if (!options.text.empty()) text = ReadTokenText(options, files);
  const TokenText* given = options.text.empty() ? nullptr : &text;
  spec.tasks = TasksOf(options, names, files, given);
  for (const auto& sampled : spec.tasks) {
    if (sampled->Prompts(length).empty()) {
      throw Error(ErrorCode::kInvalidArgument, sampled->too_short());
    }
  }
  const SweepTask task = SingleTask(options, files, spec, length);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  const std::unique_ptr<ScoringEngine> engine = EngineOf(*decoder);
  SweepInputs inputs;
  inputs.engine = engine.get();
  inputs.tokenizer = files.tokenizer.get();
  inputs.text = given;
  engine->CheckKv(task.kv);
  if (options.dry_run) return DryRunCell(options, task, spec, inputs);
  inputs.model_hash = files.Hash();
  const Cell cell = ComputeCell(task, spec, inputs, task.length, nullptr);
  if (options.json) {
    fmt::print("{}\n", ToJson(cell, 2));
    return;
  }
  for (const TaskResult& result : cell.tasks) Print(result);
  for (const TaskResult& result : cell.tasks) {
    fmt::print("{:<14} {}, data {}, {} prompts of {} tokens\n", "protocol", result.protocol,
               result.data_hash, result.prompts, cell.length);
  }
  PrintProvenance(options, cell);
}

}  // namespace

void RunPasskey(const Options& options) {
  if (!options.text.empty() && options.passkey_filler != "text") {
    throw UsageError(
        "--text: the passkeys are hidden in the built-in filler, which needs no text; add "
        "--passkey-filler text to hide them in this one, or leave --text out");
  }
  RunTasks(options, {"passkey"});
}

void RunKv(const Options& options) { RunTasks(options, {"kv"}); }

void RunRuler(const Options& options) {
  std::vector<std::string> names;
  for (const std::string& name : options.tasks) {
    const bool whole = name == "ruler" || name.starts_with("ruler:");
    names.push_back(whole ? name : "ruler:" + name);
  }
  if (names.empty()) names = {"ruler"};
  RunTasks(options, names);
}

}  // namespace ropewalk::cli
