// What all rows of a sweep share, what a cell costs.
#include <algorithm>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/eval/task.h"
#include "src/eval/cell_work.h"
#include "src/eval/sweep_folder.h"

namespace ropewalk {
namespace {

std::string TasksName(const SweepSpec& spec) {
  std::string name;
  for (const auto& sampled : spec.tasks) {
    const Task& task = sampled->task();
    if (!name.empty()) name += "; ";
    name += task.Name() + " = " + task.Protocol() + ", data " + task.DataHash() + ", " +
            std::to_string(sampled->samples()) + " " + task.Counts() +
            (sampled->generate() ? ", continued greedily" : "");
  }
  if (spec.key_tokens) {
    if (!name.empty()) name += "; ";
    name += "key-tokens = " + spec.key_tokens->protocol + ", data " + spec.key_tokens->data_hash;
  }
  return name;
}

}  // namespace

Cell CommonFields(const SweepSpec& spec, const SweepInputs& inputs, int64_t longest_length) {
  const EngineFacts engine = inputs.engine->Facts();
  Cell cell;
  cell.version = Version();
  cell.model_hash = inputs.model_hash;
  if (inputs.text != nullptr) {
    cell.text_hash = inputs.text->hash;
    cell.tokenizer = inputs.text->tokenizer;
    cell.tokenizer_hash = inputs.text->tokenizer_hash;
  }
  cell.protocol = internal::ProtocolOf(spec);
  cell.anchors = spec.protocol.anchors;
  cell.bos = spec.protocol.bos && spec.bos_id
                 ? "id " + std::to_string(*spec.bos_id) + " first in every window"
                 : "none";
  cell.tasks_protocol = TasksName(spec);
  cell.compute = engine.compute;
  cell.angles = spec.angles == AnglePrecision::kExact ? "exact" : "float32";
  if (!engine.angles.empty()) cell.angles = engine.angles;
  cell.trained_length = spec.trained_length;
  cell.longest_length = longest_length;
  cell.threads = engine.threads;
  cell.seed = spec.protocol.seed;
  return cell;
}

Cell RunCell(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
             const Cell& common, const ProgressFn& progress, std::vector<ScoredToken>* tokens) {
  internal::CellWork work(task, spec, inputs, common);
  work.progress = progress;
  work.tokens = tokens;
  work.MeasureWindows(work.windows());
  work.MeasureRest();
  return work.Row();
}

CellCost CostOf(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                int64_t longest_length) {
  Cell common;
  common.longest_length = longest_length;
  CellLeft left = internal::LeftOf(task, spec, inputs, common, {});
  left.of_windows += left.of_others;
  return left.of_windows;
}

}  // namespace ropewalk
