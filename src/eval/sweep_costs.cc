// A sweep and what its recommendations cost, within one budget.
#include <algorithm>
#include <chrono>

#include "ropewalk/eval/results.h"

namespace ropewalk {

Pace MeasurePace(const std::vector<SweepTask>& tasks, const SweepSpec& spec,
                 const SweepInputs& inputs, const PositionPlan& model_plan) {
  std::vector<const PositionPlan*> plans = {&model_plan};
  int64_t longest = 0;
  for (const SweepTask& task : tasks) {
    longest = std::max(longest, task.length);
    if (task.shares < 0) plans.push_back(&task.plan);
  }
  return Pace::Measure(*inputs.engine, plans, longest, *inputs.text, spec.angles);
}

std::vector<LeftOut> RunSweepAndCosts(std::vector<SweepTask>& tasks, const SweepSpec& spec,
                                      const PositionPlan& model_plan, const SweepInputs& inputs,
                                      const SweepHeader& header, const std::string& folder,
                                      const SweepEvents& events, const SweepBudget& budget,
                                      double costs_seconds, const std::optional<Shard>& shard) {
  const auto now = [&] {
    return budget.clock
               ? budget.clock()
               : std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
                     .count();
  };
  const double end = now() + budget.seconds;
  SweepBudget rest = budget;
  std::vector<LeftOut> left_out;
  SweepEvents own = events;
  own.left_out = [&](const LeftOut& out) { left_out.push_back(out); };
  own.progress = [&](const SweepProgress& now) {
    rest.begins = false;  // of the costs, where the sweep has measured something
    return !events.progress || events.progress(now);
  };
  rest.seconds = budget.seconds - std::min(costs_seconds, budget.seconds / 4);
  const bool any = !RunSweep(tasks, spec, inputs, header, folder, own, rest, shard).empty();
  const size_t asked = tasks.size();
  if (any || left_out.empty()) {
    tasks = AddCosts(std::move(tasks), spec, model_plan, ReadResults(folder).cells);
  }
  if (!any || (tasks.size() == asked && left_out.empty())) return left_out;
  left_out.clear();
  own.finished = [&](size_t index, const Cell& cell, bool resumed) {
    if (index >= asked && events.finished) events.finished(index, cell, resumed);
  };
  rest.seconds = end - now();
  RunSweep(tasks, spec, inputs, header, folder, own, rest, shard);
  return left_out;
}

}  // namespace ropewalk
