#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"
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
  if (spec.methods.empty() || spec.lengths.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a sweep needs at least one method and one length");
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

// (factor, length) of a method that takes a factor.
std::vector<std::pair<double, int64_t>> FactorsAndLengths(const SweepSpec& spec,
                                                          const std::set<int64_t>& lengths) {
  std::vector<std::pair<double, int64_t>> result;
  if (!spec.factors.empty()) {
    for (const double factor : spec.factors) {
      for (const int64_t length : lengths) result.emplace_back(factor, length);
    }
    return result;
  }
  for (const int64_t target : spec.lengths) {
    if (target <= spec.trained_length) continue;
    const double factor = static_cast<double>(target) / static_cast<double>(spec.trained_length);
    result.emplace_back(factor, target);
    for (const int64_t length : lengths) {
      if (length <= spec.trained_length) result.emplace_back(factor, length);
    }
  }
  return result;
}

// The lengths given, and those that show what a factor costs on short text.
std::set<int64_t> AllLengths(const SweepSpec& spec) {
  std::set<int64_t> lengths(spec.lengths.begin(), spec.lengths.end());
  const bool takes_factor =
      std::any_of(spec.methods.begin(), spec.methods.end(),
                  [](const SweepMethod& m) { return !m.fixed && m.name != "none"; });
  if (!takes_factor || !spec.factors.empty()) return lengths;
  if (spec.trained_length <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the model does not say at which length it was trained; give --trained N");
  }
  if (*lengths.rbegin() <= spec.trained_length) return lengths;
  if (*lengths.begin() >= spec.trained_length && spec.trained_length >= 8) {
    lengths.insert(spec.trained_length / 2);
  }
  lengths.insert(spec.trained_length);
  return lengths;
}

}  // namespace

SweepTask MakeTask(const SweepMethod& method, double factor, int64_t length, int64_t trained_length,
                   const PositionPlan& model_plan) {
  SweepTask task;
  task.method = method.name;
  task.length = length;
  task.factor = method.name == "none" ? 1 : factor;
  const std::optional<PositionMethod> named =
      method.fixed ? std::nullopt : std::optional(PositionMethod::Parse(method.name));
  task.plan = named ? named->Apply(model_plan, task.factor, trained_length) : method.plan;
  const RotarySpec* rotation = FirstRotation(task.plan);
  const bool biased = std::any_of(task.plan.layers.begin(), task.plan.layers.end(),
                                  [](const LayerPlan& l) { return l.bias.has_value(); });
  if (rotation == nullptr && !task.plan.learned && !biased) {
    throw Error(ErrorCode::kUnsupported,
                "the model has no rotary layer, so there is no method to compare");
  }
  if (task.plan.learned && length > task.plan.learned->positions) {
    throw Error(ErrorCode::kInvalidArgument, "length " + std::to_string(length) +
                                                 ": the model has learned vectors for " +
                                                 std::to_string(task.plan.learned->positions) +
                                                 " positions; give a shorter one");
  }
  const Scaling scaling = rotation != nullptr ? rotation->scaling : Scaling{NoScaling{}};
  task.scaling = named ? named->Describe(task.factor, task.plan.trained_length)
                 : method.dictionary.empty() ? Describe(scaling)
                                             : method.dictionary;
  if (method.fixed) task.factor = FactorOf(scaling);
  task.plan_hash = Resolve(task.plan, length).hash;
  return task;
}

std::vector<SweepTask> PlanSweep(const SweepSpec& spec, const PositionPlan& model_plan) {
  CheckSpec(spec);
  const std::set<int64_t> lengths = AllLengths(spec);
  std::vector<SweepTask> tasks;
  std::set<std::tuple<std::string, double, int64_t>> seen;
  for (const SweepMethod& method : spec.methods) {
    std::vector<std::pair<double, int64_t>> cells;
    if (method.fixed || method.name == "none") {
      for (const int64_t length : lengths) cells.emplace_back(1.0, length);
    } else {
      cells = FactorsAndLengths(spec, lengths);
      if (cells.empty()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "method " + method.name + " has nothing to do: every length is within the " +
                        std::to_string(spec.trained_length) +
                        " tokens the model was trained at; give a longer one or --factors");
      }
    }
    for (const auto& [factor, length] : cells) {
      if (!seen.emplace(method.name, factor, length).second) continue;
      tasks.push_back(MakeTask(method, factor, length, spec.trained_length, model_plan));
    }
  }
  // Short lengths first: they take seconds and already show what a method costs there.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const SweepTask& a, const SweepTask& b) { return a.length < b.length; });
  std::map<std::pair<int64_t, std::string>, int64_t> first_with;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto [it, added] =
        first_with.try_emplace({tasks[i].length, tasks[i].plan_hash}, static_cast<int64_t>(i));
    if (!added) tasks[i].shares = it->second;
  }
  return tasks;
}

}  // namespace ropewalk
