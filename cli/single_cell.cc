#include "cli/single_cell.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/json_text.h"
#include "cli/progress.h"

namespace ropewalk::cli {

int64_t OneLength(const SweepSpec& spec) {
  if (spec.lengths.size() != 1) throw UsageError("give one length with --length N");
  if (spec.lengths[0] < 4) throw UsageError("--length: expected at least 4 tokens");
  return spec.lengths[0];
}

Cell ComputeCell(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                 int64_t longest, std::vector<ScoredToken>* tokens) {
  const Cell common = CommonFields(spec, inputs, longest);
  ProgressLine progress;
  InterruptScope scope;
  return RunCell(
      task, spec, inputs, common,
      [&](int64_t done, int64_t all) {
        progress.Update(task.method, done, all);
        return !IsInterrupted();
      },
      tokens);
}

void DryRunCell(const Options& options, const SweepTask& task, const SweepSpec& spec,
                const SweepInputs& inputs) {
  const CellCost cost = CostOf(task, spec, inputs, task.length);
  if (options.json) {
    const nlohmann::ordered_json json = {
        {"tokens", cost.tokens}, {"flops", cost.flops}, {"plan_hash", task.plan_hash}};
    fmt::print("{}\n", JsonText(json));
  } else {
    fmt::print("{} at {}: {} tokens through the model, {:.3g} floating-point operations, plan {}\n",
               task.scaling, task.length, cost.tokens, cost.flops, task.plan_hash);
  }
}

void PrintProvenance(const Options& options, const Cell& cell) {
  fmt::print("scaling        {}, plan {}\n", cell.scaling, cell.plan_hash);
  fmt::print("model          {}, {}\n", ModelName(options.model), cell.model_hash);
  if (!cell.text_hash.empty()) {
    fmt::print("text           {}, {}\n", options.ids.empty() ? options.text : options.ids,
               cell.text_hash);
    fmt::print("tokenizer      {} {}\n", cell.tokenizer, cell.tokenizer_hash);
  }
  if (cell.kv != KvType::kF32) {
    fmt::print("KV cache       {}, keys {}\n", Name(cell.kv), cell.kv_keys);
  }
  fmt::print("computed       {}, angles {}, {} threads, {:.1f} s, ropewalk {}\n", cell.compute,
             cell.angles, cell.threads, cell.seconds, cell.version);
}

}  // namespace ropewalk::cli
