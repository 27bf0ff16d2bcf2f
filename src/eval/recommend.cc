// The rules of the recommendation; docs/recommendation.md explains them.
#include "src/eval/recommend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ropewalk/plan/method.h"

namespace ropewalk {
namespace internal {
namespace {

bool BetterPerplexity(const Cell* a, const Cell* b) {
  // Not-a-number sorts last; equal losses keep the order of the sweep.
  if (std::isnan(a->mean_nll) || std::isnan(b->mean_nll))
    return std::isnan(b->mean_nll) && !std::isnan(a->mean_nll);
  return a->mean_nll < b->mean_nll;
}

int64_t Trials(const TaskResult& r) { return static_cast<int64_t>(r.answers.size()); }

bool FailsPasskey(const Cell& c) {
  const TaskResult* r = PasskeyOf(c);
  return r != nullptr &&
         BinomialAtMost(ExactAnswers(*r), Trials(*r), kUsablePasskey) < kSignificance;
}

bool FindsLess(const TaskResult& a, const TaskResult& b) {
  return FisherBelow(ExactAnswers(a), Trials(a), ExactAnswers(b), Trials(b)) < kSignificance;
}

// A cost is a comparison with no scaling; no scaling has none against itself.
std::optional<PairedDifference> CostAtTrained(const std::vector<Cell>& cells,
                                              const std::string& method, double factor,
                                              const Cell* baseline) {
  if (baseline == nullptr) return std::nullopt;
  const Cell* cell = FindCell(cells, method, factor, baseline->length);
  if (cell == nullptr || cell == baseline) return std::nullopt;
  return Compare(*cell, *baseline);
}

}  // namespace

const TaskResult* PasskeyOf(const Cell& cell) {
  const TaskResult* r = FindTask(cell.tasks, "passkey");
  return r != nullptr && !r->answers.empty() ? r : nullptr;
}

Yardstick FindYardstick(const std::vector<Cell>& cells) {
  Yardstick y;
  const Cell* shortest = nullptr;
  for (const Cell& c : cells) {
    y.passkey_measured = y.passkey_measured || PasskeyOf(c) != nullptr;
    if (!c.unscaled()) continue;
    if (c.length == c.trained_length) y.baseline = &c;
    const bool within = c.trained_length <= 0 || c.length <= c.trained_length;
    if (within && PasskeyOf(c) != nullptr && (shortest == nullptr || c.length < shortest->length)) {
      shortest = &c;
    }
  }
  for (const Cell* c : {y.baseline, shortest}) {
    if (c != nullptr && FailsPasskey(*c)) y.passkey_fails = c;
  }
  return y;
}

bool IsUsable(const Cell& cell, const Yardstick& y) {
  if (y.baseline == nullptr || !std::isfinite(cell.perplexity) || cell.race_exit) return false;
  if (cell.perplexity > kUsablePerplexity * y.baseline->perplexity) return false;
  return y.passkey_fails != nullptr || !FailsPasskey(cell);
}

namespace {

// By length from the trained one on: the method's usable cell of lowest perplexity, else its best.
std::map<int64_t, const Cell*> BestByLength(const std::vector<Cell>& cells,
                                            const std::string& method, const Yardstick& y) {
  std::map<int64_t, const Cell*> best;
  for (const Cell& c : cells) {
    if (c.method != method || c.length < c.trained_length) continue;
    const Cell*& slot = best[c.length];
    const bool usable = IsUsable(c, y);
    const bool slot_usable = slot != nullptr && IsUsable(*slot, y);
    if (slot == nullptr || (usable && !slot_usable) ||
        (usable == slot_usable && BetterPerplexity(&c, slot))) {
      slot = &c;
    }
  }
  return best;
}

}  // namespace

namespace {

bool SameNumbers(const Cell& a, const Cell& b) {
  return !a.plan_hash.empty() && a.plan_hash == b.plan_hash;
}

}  // namespace

Verdict Judge(const std::vector<Cell>& cells, int64_t length) {
  Verdict v;
  v.length = length;
  v.yardstick = FindYardstick(cells);
  std::vector<const Cell*> here;
  for (const Cell& c : cells) {
    if (c.length != length) continue;
    v.trained = c.trained_length;
    here.push_back(&c);
    if (c.unscaled()) v.unscaled = &c;
    if (PasskeyOf(c) != nullptr &&
        (v.best_passkey == nullptr || PasskeyOf(c)->exact > PasskeyOf(*v.best_passkey)->exact)) {
      v.best_passkey = &c;
    }
  }
  v.measured = here.size();
  std::stable_sort(here.begin(), here.end(), BetterPerplexity);
  // What left a race is behind a cell of `here`, and has no tasks: it is a runner-up at best.
  std::vector<const Cell*> kept, vetoed, left;
  for (const Cell* c : here) {
    if (c->race_exit && !std::all_of(here.begin(), here.end(),
                                     [](const Cell* other) { return other->race_exit; })) {
      left.push_back(c);
      continue;
    }
    const bool worse = v.yardstick.passkey_fails == nullptr && v.best_passkey != nullptr &&
                       PasskeyOf(*c) != nullptr &&
                       FindsLess(*PasskeyOf(*c), *PasskeyOf(*v.best_passkey));
    (worse ? vetoed : kept).push_back(c);
  }
  v.nearest = kept.front();  // the best of passkey is never worse than itself
  for (const Cell* c : kept) {
    if (v.chosen == nullptr && IsUsable(*c, v.yardstick)) v.chosen = v.nearest = c;
  }
  for (const Cell* c : vetoed) {
    if (BetterPerplexity(c, v.nearest)) v.vetoed.push_back(c);
  }
  kept.insert(kept.end(), left.begin(), left.end());
  for (const Cell* c : kept) {
    if (c == v.nearest) continue;
    if (SameNumbers(*c, *v.nearest)) {
      v.same.push_back(c);
    } else if (v.runner_up == nullptr) {
      v.runner_up = c;
    }
  }
  if (v.chosen != nullptr) {
    v.cost = CostAtTrained(cells, v.chosen->method, v.chosen->factor, v.yardstick.baseline);
  }
  return v;
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

std::vector<MethodReach> Reaches(const std::vector<Cell>& cells) {
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
    if (takes_factor && internal::IsUsable(*y.baseline, y))
      reach.longest_usable = first.trained_length;
    for (const auto& [length, cell] : internal::BestByLength(cells, reach.method, y)) {
      if (takes_factor && length == first.trained_length) continue;
      if (!internal::IsUsable(*cell, y)) break;
      reach.longest_usable = length;
      reach.factor = cell->factor;
    }
    reach.cost = internal::CostAtTrained(cells, reach.method, reach.factor, y.baseline);
    out.push_back(reach);
  }
  return out;
}

bool PasskeyMeasured(const std::vector<Cell>& cells) {
  return internal::FindYardstick(cells).passkey_measured;
}

std::vector<Recommendation> Recommend(const std::vector<Cell>& cells) {
  std::set<int64_t> targets;
  for (const Cell& c : cells) {
    if (c.trained_length > 0 && c.length > c.trained_length) targets.insert(c.length);
  }
  const std::vector<MethodReach> reaches = Reaches(cells);
  std::vector<Recommendation> out;
  for (const int64_t length : targets) {
    const internal::Verdict v = internal::Judge(cells, length);
    Recommendation r;
    r.length = length;
    r.judged = v.yardstick.baseline != nullptr;
    if (v.runner_up != nullptr) {
      r.runner_up = v.runner_up->method;
      const PairedDifference d = Compare(*v.runner_up, *v.nearest);
      r.lead_outside_noise = d.outside_noise && d.mean > 0;
    }
    r.perplexity = v.nearest->perplexity;
    const TaskResult* passkey = internal::PasskeyOf(*v.nearest);
    r.passkey_accuracy = passkey != nullptr ? passkey->exact : internal::kNaN;
    r.factor = v.nearest->factor;
    if (v.chosen != nullptr) {
      r.method = v.chosen->method;
      for (const MethodReach& reach : reaches) {
        if (reach.method == r.method) r.longest_usable = reach.longest_usable;
      }
      if (v.cost) r.trained_length_cost = v.cost->mean;
    }
    r.text = internal::VerdictText(v, reaches);
    out.push_back(r);
  }
  return out;
}

}  // namespace ropewalk
