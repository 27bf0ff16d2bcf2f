#include "src/eval/cell_work.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/task.h"
#include "src/plan/local_base.h"

namespace ropewalk::internal {
namespace {

void DescribePlan(const SweepTask& task, Cell& cell) {
  const ResolvedPlan resolved = Resolve(task.plan, task.length);
  cell.plan_hash = resolved.hash;
  const std::vector<LayerPlan>& layers = task.plan.layers;
  const auto layer = std::find_if(layers.begin(), layers.end(), [&](const LayerPlan& l) {
    return l.rotation && !HasLocalBase(task.plan, l);
  });
  if (layer == layers.end()) return;
  const auto index = static_cast<size_t>(layer - layers.begin());
  const ResolvedRotation& rotation =
      resolved.rotations[static_cast<size_t>(resolved.layers[index].rotation)];
  if (const auto local = LocalBase(task.plan)) cell.local_base = *local;
  for (const DoubleDouble& f : rotation.frequencies.inv_freq) cell.inv_freq.push_back(f.hi + f.lo);
  cell.amplitude = rotation.frequencies.amplitude;
  cell.rope_base = rotation.spec.base;
  cell.rotary_dim = rotation.spec.rotary_dim;
}

void AddPerplexity(PerplexityResult&& result, Cell& cell) {
  cell.mean_nll = result.mean_nll;
  cell.standard_error = result.standard_error;
  cell.perplexity = result.perplexity;
  cell.bits_per_byte = result.bits_per_byte;
  cell.windows = result.windows;
  cell.window_nll = std::move(result.window_nll);
  cell.bucket_edges = std::move(result.bucket_edges);
  cell.bucket_nll = std::move(result.bucket_nll);
  cell.entropy = result.entropy;
  cell.entropy_share = result.entropy_share;
}

void AddPasskey(const PasskeyResult& result, const PasskeyOptions& options, Cell& cell) {
  cell.has_passkey = true;
  cell.passkey_accuracy = result.accuracy;
  cell.passkey_depths = options.depths;
  cell.passkey_trials = static_cast<int64_t>(result.trials.size());
  const size_t per_depth = static_cast<size_t>(options.trials);
  for (size_t d = 0; d < options.depths.size(); ++d) {
    int hits = 0;
    for (size_t i = 0; i < per_depth; ++i) hits += result.trials[d * per_depth + i].exact ? 1 : 0;
    cell.passkey_by_depth.push_back(hits / static_cast<double>(per_depth));
  }
}

TaskOptions TaskOptionsOf(const SampledTask& sampled, const SweepInputs& inputs) {
  TaskOptions options{.generate = sampled.generate(), .tokenizer = inputs.tokenizer};
  if (inputs.tokenizer != nullptr && inputs.tokenizer->eos_id()) {
    options.stop = {*inputs.tokenizer->eos_id()};
  }
  return options;
}

// The filler of passkey prompts; empty: the template's own.
std::span<const int32_t> FillerOf(const SweepSpec& spec, const SweepInputs& inputs) {
  if (!spec.passkey_text_filler) return {};
  if (inputs.text == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "passkey filler from the text needs a text");
  }
  return inputs.text->ids;
}

}  // namespace

Cell EmptyRow(const SweepTask& task, const Cell& common) {
  Cell cell = common;
  cell.method = task.method;
  cell.factor = task.factor;
  cell.length = task.length;
  cell.scaling = task.scaling;
  cell.plan_hash = task.plan_hash;
  return cell;
}

bool HasPasskey(const SweepSpec& spec, const SweepInputs& inputs, int64_t length) {
  return spec.passkey && inputs.tokenizer != nullptr &&
         length >= MinPasskeyTokens(*inputs.tokenizer, spec.passkey_options.bos);
}

int64_t PasskeyTrials(const SweepSpec& spec) {
  return spec.passkey_options.trials * static_cast<int64_t>(spec.passkey_options.depths.size());
}

CellWork::CellWork(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                   const Cell& common, CellParts parts)
    : task_(task),
      spec_(spec),
      inputs_(inputs),
      row_(EmptyRow(task, common)),
      parts_(std::move(parts)) {
  DescribePlan(task, row_);
  if (spec.perplexity) {
    windows_ =
        MakeWindows(*inputs.text, spec.protocol, task.length, common.longest_length, spec.bos_id);
  }
  all_tokens_ = CostOf(task, spec, inputs, common.longest_length).tokens;
}

// Loss by position needs logits everywhere, so `aligned` has it at the longest length alone.
RunOptions CellWork::Options() const {
  RunOptions options;
  options.angles = spec_.angles;
  options.bos_id = spec_.bos_id;
  options.entropy = true;
  options.by_position =
      spec_.protocol.kind == Protocol::Kind::kWindows || task_.length == row_.longest_length;
  if (progress) {
    options.progress = [this](int64_t done, int64_t) {
      return progress(done_tokens_ + done, all_tokens_);
    };
  }
  return options;
}

void CellWork::MeasureWindows(int64_t end) {
  const auto begin = static_cast<int64_t>(parts_.windows.size());
  end = std::min(end, windows());
  if (begin >= end) return;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<WindowScore> scores =
      ScoreWindows(*inputs_.engine, task_.plan, *inputs_.text, spec_.protocol, windows_, begin, end,
                   task_.length, Options(), tokens);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  done_tokens_ += (end - begin) * (task_.length - 1);
  for (size_t i = 0; i < scores.size(); ++i) {
    const UnitRecord unit{.cell = row_.Identity(),
                          .window = begin + static_cast<int64_t>(i),
                          .score = scores[i],
                          .seconds = seconds.count() / static_cast<double>(scores.size())};
    AddUnit(unit, parts_);
    if (keep) keep(unit);
  }
}

template <class Measure>
void CellWork::Part(UnitRecord unit, Measure&& measure) {
  const auto start = std::chrono::steady_clock::now();
  unit.cell = row_.Identity();
  measure(unit);
  unit.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  AddUnit(unit, parts_);
  if (keep) keep(unit);
}

void CellWork::MeasureRest() {
  if (HasPasskey(spec_, inputs_, task_.length)) {
    if (!parts_.passkey) {
      Part({}, [&](UnitRecord& unit) {
        unit.passkey = MeasurePasskey(*inputs_.engine, task_.plan, *inputs_.tokenizer,
                                      FillerOf(spec_, inputs_), task_.length, spec_.passkey_options,
                                      Options());
      });
    }
    done_tokens_ += PasskeyTrials(spec_) * (task_.length - 1);
  }
  size_t index = 0;
  for (const auto& sampled : spec_.tasks) {
    const std::span<const TaskPrompt> prompts = sampled->Prompts(task_.length);
    if (prompts.empty()) continue;
    if (index++ < parts_.tasks.size()) continue;
    Part({}, [&](UnitRecord& unit) {
      unit.task = MeasureTask(*inputs_.engine, task_.plan, sampled->task(), prompts, task_.length,
                              TaskOptionsOf(*sampled, inputs_), Options());
    });
  }
}

Cell CellWork::Row() const {
  Cell row = row_;
  if (!parts_.windows.empty()) {
    AddPerplexity(Summarise(parts_.windows, task_.length), row);
    for (const WindowScore& window : parts_.windows) row.scored_tokens += window.tokens;
  }
  if (parts_.passkey) AddPasskey(*parts_.passkey, spec_.passkey_options, row);
  row.tasks = parts_.tasks;
  row.seconds = parts_.seconds;
  return row;
}

}  // namespace ropewalk::internal
