#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"
#include "ropewalk/eval/recommend.h"
#include "ropewalk/plan/method.h"

namespace ropewalk {
namespace {

const RotarySpec* FirstRotation(const PositionPlan& plan) {
  for (const LayerPlan& layer : plan.layers) {
    if (layer.rotation) return &*layer.rotation;
  }
  return nullptr;
}

void CheckSpec(const SweepSpec& spec) {
  if (spec.methods.empty() || spec.lengths.empty() || spec.kv.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a sweep needs at least one method, one length and one type of KV cache");
  }
  for (const int64_t length : spec.lengths) {
    if (length < 4 || length > (int64_t{1} << 30)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "length: expected 4 to 2^30 tokens, got " + std::to_string(length));
    }
  }
  for (const double factor : spec.factors) {
    if (!(factor >= 1 && factor <= 1e6)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "factor: expected 1 to 1e6 (target length / trained length), got " +
                      std::to_string(factor));
    }
  }
}

bool TakesFactor(const SweepMethod& method) {
  const auto* named = std::get_if<PositionMethod>(&method);
  return named != nullptr && !named->is_none();
}

int64_t Longest(const SweepSpec& spec) {
  const auto longest = std::max_element(spec.lengths.begin(), spec.lengths.end());
  return longest == spec.lengths.end() ? 0 : *longest;
}

// (factor, length) of a method that takes a factor.
std::vector<std::pair<double, int64_t>> FactorsAndLengths(const SweepSpec& spec,
                                                          const SweepMethod& method) {
  std::vector<std::pair<double, int64_t>> result;
  if (!spec.factors.empty()) {
    for (const double factor : spec.factors) {
      for (const int64_t length : spec.lengths) result.emplace_back(factor, length);
    }
    return result;
  }
  if (spec.trained_length <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "method " + NameOf(method) +
                    ": the trained length of the model is unknown; give --trained N, "
                    "or --factors");
  }
  const auto factor = [&](int64_t length) {
    return static_cast<double>(length) / static_cast<double>(spec.trained_length);
  };
  const int64_t longest = Longest(spec);
  if (longest <= spec.trained_length) {
    throw Error(ErrorCode::kInvalidArgument,
                "method " + NameOf(method) + " has nothing to do: every length is within the " +
                    std::to_string(spec.trained_length) +
                    " tokens the model was trained at; give a longer one or --factors");
  }
  for (const int64_t length : spec.lengths) {
    result.emplace_back(factor(length > spec.trained_length ? length : longest), length);
  }
  return result;
}

// Tasks that compute the same as an earlier one of that length and KV type point to it.
void FindShared(std::vector<SweepTask>& tasks) {
  std::map<std::tuple<int64_t, KvType, std::string>, int64_t> first_with;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto [it, added] = first_with.try_emplace(
        {tasks[i].length, tasks[i].kv, tasks[i].plan_hash}, static_cast<int64_t>(i));
    if (!added) tasks[i].shares = it->second;
  }
}

// All of them with one type after the other.
std::vector<SweepTask> WithEveryKv(std::vector<SweepTask> tasks, const SweepSpec& spec) {
  const size_t each = tasks.size();
  tasks.reserve(each * spec.kv.size());
  for (size_t i = 1; i < spec.kv.size(); ++i) {
    for (size_t k = 0; k < each; ++k) tasks.push_back(tasks[k]);
  }
  for (size_t k = 0; k < tasks.size(); ++k) tasks[k].kv = spec.kv[k / each];
  return tasks;
}

bool Measures(const std::vector<SweepTask>& tasks, const SweepTask& task, int64_t length) {
  return std::any_of(tasks.begin(), tasks.end(), [&](const SweepTask& t) {
    return t.method == task.method && t.factor == task.factor && t.length == length &&
           t.kv == task.kv;
  });
}

}  // namespace

const std::string& NameOf(const SweepMethod& method) {
  const auto* named = std::get_if<PositionMethod>(&method);
  return named != nullptr ? named->name() : std::get<FixedPlan>(method).name;
}

bool JudgesBeyondTrained(const SweepSpec& spec) {
  const int64_t trained = spec.trained_length;
  return trained > 0 && Longest(spec) > trained && spec.protocol.CanScore(trained);
}

SweepTask MakeTask(const SweepMethod& method, double factor, int64_t length, int64_t trained_length,
                   const PositionPlan& model_plan) {
  const auto* named = std::get_if<PositionMethod>(&method);
  const auto* fixed = std::get_if<FixedPlan>(&method);
  SweepTask task;
  task.method = NameOf(method);
  task.unscaled = named != nullptr && named->is_none();
  task.length = length;
  task.factor = task.unscaled ? 1 : factor;
  task.plan =
      fixed != nullptr ? fixed->plan : named->Apply(model_plan, task.factor, trained_length);
  const RotarySpec* rotation = FirstRotation(task.plan);
  const bool scored = std::any_of(task.plan.layers.begin(), task.plan.layers.end(),
                                  [](const LayerPlan& l) { return l.bias || l.encoding; });
  const bool embedded = task.plan.learned || task.plan.absolute || task.plan.recurrent_layer;
  if (rotation == nullptr && !embedded && !scored && !task.unscaled) {
    throw Error(
        ErrorCode::kUnsupported,
        "the model has no rotary layer, so there is no method to compare; none measures it");
  }
  if (length > PositionsOf(task.plan)) {
    throw Error(ErrorCode::kInvalidArgument, "length " + std::to_string(length) + ": position " +
                                                 std::to_string(length - 1) + " has " +
                                                 DescribeEnd(task.plan) + "; give a shorter one");
  }
  const Scaling scaling = rotation != nullptr ? rotation->scaling : Scaling{NoScaling{}};
  if (fixed != nullptr) {
    task.scaling = fixed->dictionary.empty() ? Describe(scaling) : fixed->dictionary;
    task.factor = FactorOf(scaling);
  } else {
    task.scaling = named->Describe(task.factor, task.plan.trained_length);
  }
  task.plan_hash = Resolve(task.plan, length).hash;
  return task;
}

std::vector<SweepTask> PlanSweep(const SweepSpec& spec, const PositionPlan& model_plan) {
  CheckSpec(spec);
  std::vector<SweepTask> tasks;
  std::set<std::tuple<std::string, double, int64_t>> seen;
  for (const SweepMethod& method : spec.methods) {
    std::vector<std::pair<double, int64_t>> cells;
    if (TakesFactor(method)) {
      cells = FactorsAndLengths(spec, method);
    } else {
      for (const int64_t length : spec.lengths) cells.emplace_back(1.0, length);
    }
    for (const auto& [factor, length] : cells) {
      if (!seen.emplace(NameOf(method), factor, length).second) continue;
      tasks.push_back(MakeTask(method, factor, length, spec.trained_length, model_plan));
    }
  }
  const PositionMethod none;
  if (JudgesBeyondTrained(spec) && !seen.contains({none.name(), 1, spec.trained_length})) {
    tasks.insert(tasks.begin(),
                 MakeTask(none, 1, spec.trained_length, spec.trained_length, model_plan));
    tasks.front().added = true;
  }
  tasks = WithEveryKv(std::move(tasks), spec);
  // Short lengths first: they take seconds and already show what a method costs there.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const SweepTask& a, const SweepTask& b) { return a.length < b.length; });
  FindShared(tasks);
  return tasks;
}

std::vector<SweepTask> PossibleCosts(const std::vector<SweepTask>& tasks, const SweepSpec& spec) {
  if (!JudgesBeyondTrained(spec)) return {};
  std::map<int64_t, SweepTask> costs;  // by length
  for (const SweepTask& task : tasks) {
    if (task.length <= spec.trained_length || task.unscaled || task.kv != tasks.front().kv ||
        Measures(tasks, task, spec.trained_length)) {
      continue;
    }
    costs.emplace(task.length, task).first->second.length = spec.trained_length;
  }
  std::vector<SweepTask> out;
  out.reserve(costs.size());
  for (const auto& [length, task] : costs) out.push_back(task);
  return out;
}

std::vector<SweepTask> AddCosts(std::vector<SweepTask> tasks, const SweepSpec& spec,
                                const PositionPlan& model_plan, const std::vector<Cell>& cells) {
  if (!JudgesBeyondTrained(spec)) return tasks;
  const KvType kv = RecommendedKv(cells);
  for (const Recommendation& r : Recommend(cells)) {
    const auto method = std::find_if(spec.methods.begin(), spec.methods.end(),
                                     [&](const SweepMethod& m) { return NameOf(m) == r.method; });
    if (method == spec.methods.end()) continue;
    SweepTask task =
        MakeTask(*method, r.factor, spec.trained_length, spec.trained_length, model_plan);
    task.added = true;
    task.kv = kv;
    if (!Measures(tasks, task, task.length)) tasks.push_back(std::move(task));
  }
  FindShared(tasks);
  return tasks;
}

}  // namespace ropewalk
