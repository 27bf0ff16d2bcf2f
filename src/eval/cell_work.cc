#include "src/eval/cell_work.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "ropewalk/eval/task.h"
#include "src/plan/local_base.h"

namespace ropewalk::internal {
namespace {

// In which form the cache gets the keys of the layers that rotate.
const char* KeysOf(const PositionPlan& plan) {
  const auto& layers = plan.layers;
  const auto any = [&](bool mapped) {
    return std::any_of(layers.begin(), layers.end(), [mapped](const LayerPlan& l) {
      return l.rotation.has_value() && l.map.has_value() == mapped;
    });
  };
  if (any(true)) return any(false) ? "both" : "unrotated";
  return any(false) ? "rotated" : "unrotated";
}

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
  cell.setting_place = task.plan.place;
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

TaskOptions TaskOptionsOf(const SampledTask& sampled, const SweepInputs& inputs) {
  TaskOptions options{.generate = sampled.generate(), .tokenizer = inputs.tokenizer};
  if (inputs.tokenizer != nullptr && inputs.tokenizer->eos_id()) {
    options.stop = {*inputs.tokenizer->eos_id()};
  }
  return options;
}

// Whether a task is asked behind the windows of perplexity, where these hold it.
bool Shares(const SweepSpec& spec, const SampledTask& sampled) {
  return spec.share && spec.perplexity && spec.protocol.kind == Protocol::Kind::kAligned &&
         sampled.task().CanHide() && !sampled.generate();
}

}  // namespace

std::string BehindWindows(const Task& task) { return task.Protocol() + ", behind windows"; }

std::string ProtocolOf(const SweepSpec& spec) {
  if (!spec.perplexity) return "none";
  std::string name = spec.protocol.Name();
  for (const auto& sampled : spec.tasks) {
    if (Shares(spec, *sampled)) return name + "+" + sampled->task().Name();
  }
  return name;
}

CellWindows WindowsOf(const SweepSpec& spec, const TokenText* text, int64_t length,
                      int64_t longest_length) {
  CellWindows cell;
  if (!spec.perplexity) return cell;
  std::vector<EvalWindow> windows =
      MakeWindows(*text, spec.protocol, length, longest_length, spec.bos_id);
  for (const auto& sampled : spec.tasks) {
    if (!Shares(spec, *sampled)) continue;
    cell.windows = sampled->task().HideIn(windows, length, sampled->samples());
    if (cell.windows.empty()) continue;
    cell.shared = sampled.get();
    return cell;
  }
  cell.windows = Unasked(std::move(windows));
  return cell;
}

Cell EmptyRow(const SweepTask& task, const Cell& common) {
  Cell cell = common;
  cell.method = task.method;
  cell.factor = task.factor;
  cell.length = task.length;
  cell.scaling = task.scaling;
  cell.plan_hash = task.plan_hash;
  cell.kv = task.kv;
  if (task.kv != KvType::kF32) cell.kv_keys = KeysOf(task.plan);
  return cell;
}

CellWork::CellWork(const SweepTask& task, const SweepSpec& spec, const SweepInputs& inputs,
                   const Cell& common, CellParts parts)
    : task_(task),
      spec_(spec),
      inputs_(inputs),
      row_(EmptyRow(task, common)),
      plan_(WindowsOf(spec, inputs.text, task.length, common.longest_length)),
      parts_(std::move(parts)) {
  DescribePlan(task, row_);
}

// Loss by position needs logits everywhere, so `aligned` has it at the longest length alone.
RunOptions CellWork::Options() const {
  RunOptions options;
  options.angles = spec_.angles;
  options.kv = task_.kv;
  options.bos_id = spec_.bos_id;
  options.entropy = true;
  if (spec_.key_tokens) options.key_tokens = spec_.key_tokens->tokens;
  options.by_position =
      spec_.protocol.kind == Protocol::Kind::kWindows || task_.length == row_.longest_length;
  options.progress = progress;
  return options;
}

void CellWork::MeasureWindows(int64_t begin, int64_t end) {
  end = std::min(end, windows());
  if (begin >= end) return;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<WindowScore> scores =
      ScoreWindows(*inputs_.engine, task_.plan, *inputs_.text, spec_.protocol, plan_.windows, begin,
                   end, task_.length, Options(), tokens);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::vector<UnitRecord> units;
  for (size_t i = 0; i < scores.size(); ++i) {
    units.push_back({.cell = row_.Identity(),
                     .window = begin + static_cast<int64_t>(i),
                     .score = scores[i],
                     .seconds = seconds.count() / static_cast<double>(scores.size())});
    AddUnit(units.back(), parts_);
  }
  if (keep) keep(units);
}

template <class Measure>
void CellWork::Part(UnitRecord unit, Measure&& measure) {
  const auto start = std::chrono::steady_clock::now();
  unit.cell = row_.Identity();
  measure(unit);
  unit.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  AddUnit(unit, parts_);
  if (keep) keep({&unit, 1});
}

int64_t CellWork::Rest() const {
  return std::ranges::count_if(spec_.tasks, [this](const auto& sampled) {
    return sampled.get() != plan_.shared && !sampled->Prompts(task_.length).empty();
  });
}

void CellWork::MeasureRest() {
  for (auto i = static_cast<int64_t>(parts_.tasks.size()); i < Rest(); ++i) MeasureTask(i);
}

void CellWork::MeasureTask(int64_t i) {
  int64_t index = 0;
  for (const auto& sampled : spec_.tasks) {
    if (sampled.get() == plan_.shared) continue;
    const std::span<const TaskPrompt> prompts = sampled->Prompts(task_.length);
    if (prompts.empty() || index++ != i) continue;
    Part({.task_index = i}, [&](UnitRecord& unit) {
      unit.task = ropewalk::MeasureTask(*inputs_.engine, task_.plan, sampled->task(), prompts,
                                        task_.length, TaskOptionsOf(*sampled, inputs_), Options());
    });
  }
}

// Of the windows that are there: what each has in `answers`. Nothing where none has any.
void CellWork::AddFromWindows(TaskResult result, std::vector<TaskAnswer> WindowScore::*answers,
                              Cell& row) const {
  result.prompts = static_cast<int64_t>(parts_.windows.size());
  for (const WindowScore& window : parts_.windows) {
    const std::vector<TaskAnswer>& here = window.*answers;
    result.answers.insert(result.answers.end(), here.begin(), here.end());
  }
  if (result.answers.empty()) return;
  Summarise(result);
  row.tasks.push_back(std::move(result));
}

Cell CellWork::Row() const {
  Cell row = row_;
  if (!parts_.windows.empty()) {
    AddPerplexity(Summarise(parts_.windows, task_.length), row);
    for (const WindowScore& window : parts_.windows) row.scored_tokens += window.tokens;
  }
  size_t next = 0;
  for (const auto& sampled : spec_.tasks) {
    if (sampled.get() == plan_.shared) {
      TaskResult result = NamesOf(sampled->task());
      result.protocol = BehindWindows(sampled->task());
      AddFromWindows(std::move(result), &WindowScore::answers, row);
    } else if (next < parts_.tasks.size() && !sampled->Prompts(task_.length).empty()) {
      row.tasks.push_back(parts_.tasks[next++]);
    }
  }
  if (spec_.key_tokens) {
    TaskResult result;
    result.task = kKeyTokensTask;
    result.protocol = spec_.key_tokens->protocol;
    result.data_hash = spec_.key_tokens->data_hash;
    AddFromWindows(std::move(result), &WindowScore::key_answers, row);
  }
  row.seconds = parts_.seconds;
  return row;
}

}  // namespace ropewalk::internal
