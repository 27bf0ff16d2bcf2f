// The smallest factor that will do for each length.
#include "ropewalk/eval/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ropewalk/plan/method.h"
#include "src/eval/recommend.h"

namespace ropewalk {
namespace {

using internal::Contender;
using internal::Verdict;
using internal::Yardstick;

double FactorOf(const Cell& c) { return c.unscaled() ? 1 : c.factor; }

// The method whose factors are compared; empty: none.
std::string MethodOf(const std::vector<Cell>& cells) {
  std::string method;
  for (const Recommendation& r : Recommend(cells)) {
    if (!r.method.empty()) method = r.method;
  }
  const auto named = PositionMethod::TryParse(method);
  return named && named->uses_factor() && !named->length_dependent() ? method : "";
}

std::vector<const Cell*> Candidates(const std::vector<Cell>& cells, const std::string& method,
                                    int64_t length) {
  std::vector<const Cell*> here = internal::CellsAt(cells, length);
  std::erase_if(here, [&](const Cell* c) { return !c->unscaled() && c->method != method; });
  return here;
}

// The rung of a length; absent where no factor is usable.
std::optional<LadderRung> RungAt(const std::vector<const Cell*>& here, const Yardstick& y) {
  const Verdict v = internal::Judge(here, y);
  if (v.chosen < 0) return std::nullopt;
  const Contender* smallest = &v.Nearest();
  LadderRung rung{.up_to = v.length, .best_factor = FactorOf(*smallest->cell)};
  for (const Contender& c : v.contenders) {
    rung.measured.push_back(FactorOf(*c.cell));
    const Standing standing = c.verdict.standing;
    const bool will_do = standing == Standing::kRecommended || standing == Standing::kTie;
    if (will_do && FactorOf(*c.cell) < FactorOf(*smallest->cell)) smallest = &c;
  }
  std::ranges::sort(rung.measured);
  rung.factor = FactorOf(*smallest->cell);
  rung.perplexity = smallest->cell->perplexity;
  rung.behind_best = smallest->verdict.difference;
  return rung;
}

const Cell* CellOf(const std::vector<Cell>& cells, const Ladder& ladder, double factor,
                   int64_t length) {
  for (const Cell* c : Candidates(cells, ladder.method, length)) {
    if (std::abs(FactorOf(*c) - factor) < 1e-9) return c;
  }
  return nullptr;
}

void AddStaticCost(const std::vector<Cell>& cells, const Ladder& ladder, LadderRung& rung) {
  if (rung.factor == ladder.largest) return;
  const Cell* fixed = CellOf(cells, ladder, ladder.largest, rung.up_to);
  if (fixed == nullptr) return;
  const Cell& own = *CellOf(cells, ladder, rung.factor, rung.up_to);
  rung.static_cost = Compare(*fixed, own);
  for (const TaskUse& use : TaskUses(cells)) {
    const TaskResult* theirs = internal::FindTask(*fixed, use.task);
    const TaskResult* ours = internal::FindTask(own, use.task);
    if (use.counts && theirs != nullptr && ours != nullptr) {
      rung.static_task_costs.push_back({use.task, Compare(*theirs, *ours)});
    }
  }
}

BreakEven BreakEvenOf(const std::vector<Cell>& cells, const Ladder& ladder, double factor,
                      const std::set<int64_t>& lengths) {
  internal::Family family;
  for (const int64_t length : lengths) {
    const Cell* with = CellOf(cells, ladder, factor, length);
    const Cell* without = CellOf(cells, ladder, 1, length);
    if (with == nullptr || without == nullptr || with->unscaled()) continue;
    const PairedDifference d = Compare(*with, *without);
    const bool broken = !std::isfinite(without->mean_nll) && std::isfinite(with->mean_nll);
    family.Add(std::to_string(length), broken ? 0 : d.mean < 0 ? d.p_value : 1);
  }
  BreakEven even{.factor = factor};
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    const std::string key = std::to_string(*length);
    if (!family.Has(key)) continue;
    if (!(family.Adjusted(key) <= internal::kSignificance)) break;
    even.length = *length;
  }
  return even;
}

std::string StaticCostText(const LadderRung& rung) {
  const PairedDifference& d = *rung.static_cost;
  if (!std::isfinite(d.mean)) {
    return fmt::format("breaks text of {} tokens, where its loss is not finite", rung.up_to);
  }
  const bool gains = d.mean < 0;
  const std::string lost = internal::LostScores(rung.static_task_costs);
  return fmt::format("{} {} of perplexity at {} tokens{}{}{}", gains ? "gains" : "costs",
                     internal::Percent(d.mean), rung.up_to,
                     std::isnan(d.standard_error) ? " (one window, so without an error estimate)"
                     : d.outside_noise            ? ""
                                                  : " (within the noise)",
                     lost.empty() ? ""
                     : gains      ? ", but "
                                  : " and ",
                     lost);
}

}  // namespace

std::optional<Ladder> LadderOf(const std::vector<Cell>& all) {
  const internal::JudgedCells judged(all);
  const std::vector<Cell>& cells = judged.get();
  Ladder ladder{.method = MethodOf(cells)};
  if (ladder.method.empty()) return std::nullopt;
  const Yardstick y = internal::FindYardstick(cells);
  ladder.trained = y.baseline->trained_length;
  std::set<int64_t> lengths;
  for (const Cell& c : cells) lengths.insert(c.length);
  int64_t above = 0;
  for (const int64_t length : lengths) {
    const std::vector<const Cell*> here = Candidates(cells, ladder.method, length);
    if (here.empty()) continue;
    std::optional<LadderRung> rung = RungAt(here, y);
    // Short text may be too short for the model to be as good as at its trained length.
    if (!rung && length > ladder.trained) break;
    if (!rung) continue;
    rung->above = above;
    above = length;
    ladder.largest = std::max(ladder.largest, rung->factor);
    ladder.rungs.push_back(*std::move(rung));
  }
  if (ladder.largest == 1) return std::nullopt;
  std::set<double> factors;
  for (LadderRung& rung : ladder.rungs) {
    AddStaticCost(cells, ladder, rung);
    if (rung.factor > 1) factors.insert(rung.factor);
  }
  for (const double factor : factors) {
    ladder.break_even.push_back(BreakEvenOf(cells, ladder, factor, lengths));
  }
  return ladder;
}

std::string LadderText(const Ladder& ladder) {
  std::vector<std::string> steps, from;
  bool one_each = true;
  for (std::size_t i = 0; i < ladder.rungs.size(); ++i) {
    const LadderRung& rung = ladder.rungs[i];
    one_each = one_each && rung.measured.size() < 3;
    if (i + 1 < ladder.rungs.size() && ladder.rungs[i + 1].factor == rung.factor) continue;
    steps.push_back(rung.factor == 1
                        ? fmt::format("no scaling up to {} tokens", rung.up_to)
                        : fmt::format("factor {:.4g} up to {}", rung.factor, rung.up_to));
  }
  std::string text = fmt::format("Ladder of {}: {}.", ladder.method, internal::ListOf(steps));
  for (const LadderRung& rung : ladder.rungs) {
    if (rung.up_to != ladder.trained || !rung.static_cost) continue;
    text += fmt::format(" Factor {:.4g} for all text {}.", ladder.largest, StaticCostText(rung));
  }
  for (const BreakEven& even : ladder.break_even) {
    from.push_back(even.length > 0
                       ? fmt::format("factor {:.4g} from {} tokens on", even.factor, even.length)
                       : fmt::format("factor {:.4g} nowhere significantly", even.factor));
  }
  text += fmt::format(" It beats no scaling with {}.", internal::ListOf(from));
  if (one_each) {
    text += " Only one factor was measured at each length; --factors 2,4,.. compares several.";
  }
  return text;
}

}  // namespace ropewalk
