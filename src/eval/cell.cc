// What all rows of a sweep share, what a cell costs.
#include <algorithm>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/results.h"
#include "ropewalk/eval/task.h"
#include "src/eval/cell_work.h"

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
  return name;
}

}  // namespace

double ForwardFlops(const EngineFacts& engine, const PositionPlan& plan, double tokens) {
  double flops = tokens * engine.token_flops;
  for (const LayerPlan& layer : plan.layers) {
    double seen = tokens / 2;  // keys a query sees, on average
    if (layer.window_tokens > 0) seen = std::min(seen, static_cast<double>(layer.window_tokens));
    if (const auto* sinks = layer.map ? std::get_if<AttentionSinks>(&*layer.map) : nullptr) {
      seen = std::min(seen, static_cast<double>(sinks->sinks + sinks->window));
    }
    flops += tokens * engine.pair_flops * seen;
  }
  return flops;
}

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
  const EngineFacts engine = inputs.engine->Facts();
  CellCost cost;
  const auto add = [&](int64_t count, int64_t fed, int64_t head_rows) {
    cost.tokens += count * fed;
    cost.flops +=
        static_cast<double>(count) * (ForwardFlops(engine, task.plan, static_cast<double>(fed)) +
                                      static_cast<double>(head_rows) * engine.head_flops);
  };
  // Tokens of questions, each of which sees a whole context.
  const auto behind = [&](int64_t context, int64_t tokens) {
    cost.tokens += tokens;
    cost.flops += static_cast<double>(tokens) *
                  (ForwardFlops(engine, task.plan, static_cast<double>(2 * context)) /
                   static_cast<double>(2 * context));
  };
  const internal::CellWindows there =
      internal::WindowsOf(spec, inputs.text, task.length, longest_length);
  for (const AskedWindow& asked : there.windows) {
    const bool all = task.length == longest_length;
    const auto ids = static_cast<int64_t>(asked.window.ids.size());
    add(1, ids - 1, ids - (all ? 1 : asked.window.score_begin));
    behind(ids, internal::TokensOf(asked) - (ids - 1));
  }
  for (const auto& sampled : spec.tasks) {
    if (sampled.get() == there.shared) continue;
    for (const TaskPrompt& prompt : sampled->Prompts(task.length)) {
      const auto context = static_cast<int64_t>(prompt.context.size());
      const int64_t new_tokens = sampled->generate() ? sampled->task().MaxNewTokens() : 0;
      add(1, context, 0);
      behind(context, TaskTokens(std::span(&prompt, 1), new_tokens) - context);
    }
  }
  return cost;
}

}  // namespace ropewalk
