// What a sweep recommends: what it is judged by, each length in turn, and how far methods reach.
#include "src/eval/recommend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ropewalk/plan/method.h"

namespace ropewalk {
namespace internal {
namespace {

bool CannotDo(const Cell& cell, const TaskResult& result) {
  return cell.unscaled() && ProbabilityBelow(result, kCanDoTask) < kSignificance;
}

std::vector<std::string> TaskNames(const std::vector<Cell>& cells) {
  std::vector<std::string> names;
  for (const Cell& c : cells) {
    for (const TaskResult& r : c.tasks) {
      if (r.task == kKeyTokensTask) continue;  // no questions: rule 6
      if (std::ranges::find(names, r.task) == names.end()) names.push_back(r.task);
    }
  }
  return names;
}

TaskUse UseOf(const std::string& task, const std::vector<Cell>& cells, const Yardstick& y) {
  const Cell* baseline = y.baseline;
  TaskUse use{.task = task};
  const Cell *shortest = nullptr, *fails = nullptr;
  for (const Cell& c : cells) {
    const bool within = c.trained_length <= 0 || c.length <= c.trained_length;
    if (!c.unscaled() || !within || FindTask(c, task) == nullptr) continue;
    if (shortest == nullptr || c.length < shortest->length) shortest = &c;
  }
  const TaskResult* own = baseline == nullptr ? nullptr : FindTask(*baseline, task);
  if (own != nullptr) use.own_score = ScoreOf(*own);
  for (const Cell* c : {baseline, shortest}) {
    const TaskResult* r = c == nullptr ? nullptr : FindTask(*c, task);
    if (r != nullptr && CannotDo(*c, *r)) fails = c;
    // Of three answers none is right may still be chance, but no method can do worse.
    if (r != nullptr && c == baseline && ScoreOf(*r) == 0) fails = c;
  }
  use.counts = own != nullptr && fails == nullptr;
  if (fails != nullptr) {
    const TaskResult& r = *FindTask(*fails, task);
    use.reason = fmt::format(
        "Task {} is not considered: already at {} tokens the model without scaling scores only "
        "{:.2f} ({} answer{}), so it does not measure the effect of length.",
        task, fails->length, ScoreOf(r), r.answers.size(), r.answers.size() == 1 ? "" : "s");
  } else if (own == nullptr) {
    use.reason = fmt::format("Task {} is not considered: {} without scaling at the trained length.",
                             task, y.broken ? "the loss is not finite" : "it was not measured");
  }
  return use;
}

// A cost is a comparison with no scaling; no scaling has none against itself. Methods without a
// factor are the same with every one.
const Cell* CostCell(const std::vector<Cell>& cells, const std::string& method, double factor,
                     const Yardstick& y) {
  if (y.baseline == nullptr) return nullptr;
  const Cell* cell = FindCell(cells, method, factor, y.baseline->length);
  const auto named = PositionMethod::TryParse(method);
  if (cell == nullptr && named && !named->uses_factor()) {
    const auto same = std::ranges::find_if(
        cells, [&](const Cell& c) { return c.method == method && c.length == y.baseline->length; });
    if (same != cells.end()) cell = &*same;
  }
  return cell == y.baseline ? nullptr : cell;
}

}  // namespace

const TaskUse* Yardstick::Find(const std::string& task) const {
  const auto found = std::ranges::find(tasks, task, &TaskUse::task);
  return found == tasks.end() ? nullptr : &*found;
}

bool Yardstick::Counts(const std::string& task) const {
  const TaskUse* use = Find(task);
  return use != nullptr && use->counts;
}

Yardstick FindYardstick(const std::vector<Cell>& cells) {
  Yardstick y;
  for (const Cell& c : cells) {
    if (!c.unscaled() || c.length != c.trained_length) continue;
    y.broken = c.windows > 0 && !std::isfinite(c.perplexity);  // 0: tasks alone were measured
    y.baseline = y.broken ? nullptr : &c;
  }
  for (const std::string& task : TaskNames(cells)) {
    y.tasks.push_back(UseOf(task, cells, y));
  }
  return y;
}

std::map<int64_t, const Cell*> BestByLength(const std::vector<Cell>& cells,
                                            const std::string& method, const Yardstick& y) {
  std::map<int64_t, std::vector<const Cell*>> by_length;
  for (const Cell& c : cells) {
    if (c.method == method && c.length >= c.trained_length) by_length[c.length].push_back(&c);
  }
  std::map<int64_t, const Cell*> best;
  for (const auto& [length, here] : by_length) {
    best[length] = Judge(here, y).Nearest().cell;
  }
  return best;
}

std::vector<const Cell*> CellsAt(const std::vector<Cell>& cells, int64_t length) {
  std::vector<const Cell*> here;
  for (const Cell& c : cells) {
    if (c.length == length) here.push_back(&c);
  }
  return here;
}

std::vector<TaskCost> TaskCosts(const Cell& cell, const Yardstick& y) {
  std::vector<TaskCost> costs;
  for (const TaskResult& r : cell.tasks) {
    if (!y.Counts(r.task) || r.answers.empty()) continue;
    costs.push_back({r.task, Compare(r, *FindTask(*y.baseline, r.task))});
  }
  return costs;
}

}  // namespace internal

const Cell* FindCell(const std::vector<Cell>& cells, const std::string& method, double factor,
                     int64_t length) {
  for (const Cell& c : cells) {
    if (c.method == method && c.length == length && std::abs(c.factor - factor) < 1e-9) return &c;
  }
  return nullptr;
}

bool TakesFactor(const std::string& method) {
  const auto named = PositionMethod::TryParse(method);
  return named && !named->is_none();
}

std::vector<TaskUse> TaskUses(const std::vector<Cell>& all) {
  return internal::FindYardstick(internal::JudgedCells(all).get()).tasks;
}

std::vector<MethodReach> Reaches(const std::vector<Cell>& all) {
  const internal::JudgedCells judged(all);
  const std::vector<Cell>& cells = judged.get();
  const internal::Yardstick y = internal::FindYardstick(cells);
  std::vector<MethodReach> out;
  if (y.baseline == nullptr) return out;
  std::set<std::string> seen;
  for (const Cell& first : cells) {
    if (!seen.insert(first.method).second) continue;
    MethodReach reach;
    reach.method = first.method;
    const bool takes_factor = TakesFactor(reach.method);
    // With factor 1, which is no scaling, every method is usable as far as the model itself.
    if (takes_factor && internal::Objection(*y.baseline, y).empty())
      reach.longest_usable = first.trained_length;
    for (const auto& [length, cell] : internal::BestByLength(cells, reach.method, y)) {
      if (takes_factor && length == first.trained_length) continue;
      if (!internal::Objection(*cell, y).empty()) break;
      reach.longest_usable = length;
      reach.factor = cell->factor;
    }
    if (const Cell* cost = internal::CostCell(cells, reach.method, reach.factor, y)) {
      reach.cost = Compare(*cost, *y.baseline);
      reach.task_costs = internal::TaskCosts(*cost, y);
    }
    out.push_back(reach);
  }
  return out;
}

namespace {

// The one that reaches farthest; of several, the one that is recommended there.
std::optional<MethodReach> Farthest(const std::vector<MethodReach>& reaches,
                                    const std::vector<Recommendation>& shorter) {
  std::optional<MethodReach> best;
  for (const MethodReach& reach : reaches) {
    const auto recommended = [&](const Recommendation& r) {
      return r.length == reach.longest_usable && r.method == reach.method;
    };
    if (!best || reach.longest_usable > best->longest_usable ||
        (reach.longest_usable == best->longest_usable &&
         std::any_of(shorter.begin(), shorter.end(), recommended))) {
      best = reach;
    }
  }
  return best;
}

}  // namespace

std::vector<Recommendation> Recommend(const std::vector<Cell>& all) {
  const internal::JudgedCells judged(all);
  const std::vector<Cell>& cells = judged.get();
  const std::vector<KvCost> kv_costs = KvCosts(all);
  std::set<int64_t> targets;
  for (const Cell& c : cells) {
    if (c.trained_length > 0 && c.length > c.trained_length) targets.insert(c.length);
  }
  const std::vector<MethodReach> reaches = Reaches(cells);
  const internal::Yardstick yardstick = internal::FindYardstick(cells);
  std::vector<Recommendation> out;
  for (const int64_t length : targets) {
    internal::Facts facts{.verdict = internal::Judge(internal::CellsAt(cells, length), yardstick),
                          .yardstick = yardstick};
    const internal::Verdict& v = facts.verdict;
    Recommendation r{.length = length, .judged = yardstick.baseline != nullptr};
    r.perplexity = v.Nearest().cell->perplexity;
    r.factor = v.Nearest().cell->factor;
    for (const internal::Contender& c : v.contenders) r.methods.push_back(c.verdict);
    if (v.chosen >= 0) {
      r.method = v.Nearest().cell->method;
      for (const MethodReach& reach : reaches) {
        if (reach.method == r.method) facts.longest_usable = reach.longest_usable;
      }
      r.longest_usable = facts.longest_usable;
      if (const Cell* cost = internal::CostCell(cells, r.method, r.factor, yardstick)) {
        facts.cost = Compare(*cost, *yardstick.baseline);
        r.trained_length_cost = facts.cost->mean;
        r.task_costs = facts.task_costs = internal::TaskCosts(*cost, yardstick);
      }
    }
    facts.farthest = Farthest(reaches, out);
    for (const KvCost& cost : kv_costs) {
      const bool here = cost.length == length && cost.method == r.method && cost.factor == r.factor;
      if (here) r.kv_costs.push_back(cost);
    }
    r.text = internal::VerdictText(facts) + internal::KvCostText(r.kv_costs, RecommendedKv(all));
    out.push_back(r);
  }
  return out;
}

}  // namespace ropewalk
