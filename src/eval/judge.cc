// The judgement of the methods of one length; docs/recommendation.md explains the rules.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ropewalk/eval/effective_length.h"
#include "src/eval/recommend.h"

namespace ropewalk::internal {
namespace {

// NaN sorts last.
bool LowerLoss(const Contender& a, const Contender& b) {
  const bool left_a = a.cell->race_exit.has_value(), left_b = b.cell->race_exit.has_value();
  if (left_a != left_b) return left_b;
  if (std::isnan(a.loss) || std::isnan(b.loss)) return std::isnan(b.loss) && !std::isnan(a.loss);
  return a.loss < b.loss;
}

// Tasks whose score is significantly below the share of the model's own, by Holm over the cell.
std::vector<std::string> TasksBelowOwn(const Cell& cell, const Yardstick& y) {
  Family family;
  for (const TaskResult& r : cell.tasks) {
    if (!y.Counts(r.task) || r.answers.empty()) continue;
    family.Add(r.task, ProbabilityBelow(r, kNolimaShare * y.Find(r.task)->own_score));
  }
  std::vector<std::string> below;
  for (const TaskResult& r : cell.tasks) {
    if (family.Adjusted(r.task) <= kSignificance) below.push_back(r.task);
  }
  return below;
}

TaskVerdict ScoreAt(const TaskResult& r, const Yardstick& y) {
  const auto answers = static_cast<int64_t>(r.answers.size());
  return {.task = r.task,
          .score = ScoreOf(r),
          .answers = answers,
          .prompts = r.prompts,
          .interval = WilsonInterval(ScoreOf(r), static_cast<double>(answers)),
          .counts = y.Counts(r.task)};
}

// The candidate with the highest score; of equal ones the one with the lower loss.
const Contender* BestAt(const std::vector<Contender>& contenders, const std::string& task) {
  const Contender* best = nullptr;
  for (const Contender& c : contenders) {
    const TaskResult* r = FindTask(*c.cell, task);
    if (!c.candidate || r == nullptr) continue;
    if (best == nullptr || ScoreOf(*r) > ScoreOf(*FindTask(*best->cell, task))) best = &c;
  }
  return best;
}

// Compares every candidate with the best one at each task that counts.
void CompareTasks(const Yardstick& y, std::vector<Contender>& contenders) {
  Family family;
  const auto key = [](const Contender& c, const std::string& task) {
    return PlanOf(*c.cell) + " " + task;
  };
  for (const bool adjusted : {false, true}) {
    for (const TaskUse& use : y.tasks) {
      const Contender* best = use.counts ? BestAt(contenders, use.task) : nullptr;
      if (best == nullptr) continue;
      const TaskResult& theirs = *FindTask(*best->cell, use.task);
      for (Contender& c : contenders) {
        const TaskResult* ours = FindTask(*c.cell, use.task);
        if (!c.candidate || ours == nullptr || PlanOf(*c.cell) == PlanOf(*best->cell)) continue;
        const PairedAnswers paired = Compare(*ours, theirs);
        if (!adjusted) {
          family.Add(key(c, use.task), paired.p_value);
          continue;
        }
        TaskVerdict& t = *std::ranges::find(c.verdict.tasks, use.task, &TaskVerdict::task);
        t.against = Label(*best->cell);
        t.against_score = ScoreOf(theirs);
        t.p_value = family.Adjusted(key(c, use.task));
        t.worse = t.p_value <= kSignificance && paired.losses > paired.wins;
      }
    }
  }
}

// Of the usable ones those with answers of every task that counts, or where none has, all.
void FindCandidates(const Yardstick& y, std::vector<Contender>& contenders) {
  const auto complete = [&](const Contender& c) {
    return c.usable && Unanswered(*c.cell, y).empty();
  };
  const bool any = std::ranges::any_of(contenders, complete);
  for (Contender& c : contenders) {
    c.candidate = any ? complete(c) : c.usable;
    if (!c.usable || c.candidate) continue;
    c.verdict.standing = Standing::kUnanswered;
    c.verdict.reason = Unanswered(*c.cell, y);
  }
}

bool Worse(const Contender& c) { return std::ranges::any_of(c.verdict.tasks, &TaskVerdict::worse); }

// The differences to the reference, and of those that are left whether they are significant.
void CompareLosses(const std::vector<bool>& left, int64_t windows, const Contender& reference,
                   std::vector<Contender>& contenders) {
  Family family;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Contender& c = contenders[i];
    if (&c == &reference) continue;
    c.verdict.difference = CompareWindows(*c.cell, *reference.cell, windows);
    c.verdict.same_plan = PlanOf(*c.cell) == PlanOf(*reference.cell);
    if (left[i] && !c.verdict.same_plan) {
      family.Add(PlanOf(*c.cell), c.verdict.difference->p_value);
    }
  }
  const double alpha = kSignificance / static_cast<double>(std::max<std::size_t>(family.size(), 1));
  std::map<int64_t, double> shifts;  // in standard errors, by the number of windows
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    MethodVerdict& v = contenders[i].verdict;
    if (!left[i] || &contenders[i] == &reference) continue;
    v.p_value = v.same_plan ? 1 : family.Adjusted(PlanOf(*contenders[i].cell));
    v.standing = v.same_plan                  ? Standing::kTie
                 : std::isnan(v.p_value)      ? Standing::kUntested
                 : v.p_value <= kSignificance ? Standing::kBehind
                                              : Standing::kTie;
    if (v.same_plan || v.difference->windows < 2) continue;
    const auto [shift, added] = shifts.try_emplace(v.difference->windows);
    if (added) shift->second = MinimumDetectable(1, shift->first, alpha, kPower);
    v.detectable = shift->second * v.difference->standard_error;
  }
}

// Key tokens or scores have chosen another one than loss, which put `lowest` first: differences to
// the chosen one, and of what is still tied whether they are significant.
void CompareAgain(const Contender& lowest, int64_t windows, Verdict& v) {
  std::vector<bool> left;
  for (Contender& c : v.contenders) {
    MethodVerdict& own = c.verdict;
    left.push_back(own.standing == Standing::kTie || own.standing == Standing::kUntested);
    if (left.back()) continue;
    if (own.standing == Standing::kBehind) {
      own.reason = fmt::format("{:.3f} ± {:.3f} nats per token behind {}", own.difference->mean,
                               own.difference->standard_error, Label(*lowest.cell));
    }
    own.p_value = own.detectable = kNaN;
  }
  v.contenders[static_cast<std::size_t>(v.chosen)].verdict.difference.reset();
  CompareLosses(left, windows, v.Nearest(), v.contenders);
  // What has a lower loss than the chosen one is not behind it, whatever the fewer comparisons say.
  for (std::size_t i = 0; i < left.size(); ++i) {
    MethodVerdict& own = v.contenders[i].verdict;
    const bool ahead = left[i] && own.difference && own.difference->mean < 0;
    if (ahead && own.standing == Standing::kBehind) own.standing = Standing::kTie;
    // Loss tells them apart now, not scores.
    if (left[i] && own.standing == Standing::kBehind) own.reason.clear();
  }
}

// Why a contender is left out, in words.
std::string WhyWorse(const Contender& c) {
  std::vector<std::string> at;
  for (const TaskVerdict& t : c.verdict.tasks) {
    if (t.worse) {
      at.push_back(fmt::format("{} {:.2f} against {:.2f} of {}", t.task, t.score, t.against_score,
                               t.against));
    }
  }
  return ListOf(at);
}

KeyTokenVerdict KeysOf(const TaskResult& r) {
  std::set<int32_t> windows;
  for (const TaskAnswer& answer : r.answers) windows.insert(answer.prompt);
  return {.nats = r.mean_nll,
          .standard_error = r.standard_error,
          .tokens = static_cast<int64_t>(r.answers.size()),
          .windows = static_cast<int64_t>(windows.size())};
}

Contender Enter(const Cell& cell, int64_t windows, const Yardstick& y) {
  Contender c{.cell = &cell, .loss = LossOver(cell, windows)};
  MethodVerdict& v = c.verdict;
  v.method = cell.method;
  v.factor = cell.factor;
  v.perplexity = cell.perplexity;
  for (const TaskResult& r : cell.tasks) {
    if (r.answers.empty()) continue;
    if (r.task == kKeyTokensTask) {
      v.key_tokens = KeysOf(r);
    } else {
      v.tasks.push_back(ScoreAt(r, y));
    }
  }
  if (y.baseline == nullptr) return c;
  v.reason = Objection(cell, y);
  c.usable = v.reason.empty();
  v.standing = cell.race_exit ? Standing::kLeftRace : Standing::kNotUsable;
  for (const std::string& task : TasksBelowOwn(cell, y)) {
    std::ranges::find(v.tasks, task, &TaskVerdict::task)->below_own = true;
  }
  return c;
}

}  // namespace

std::string PlanOf(const Cell& c) {
  return c.plan_hash.empty() ? c.method + fmt::format(" {}", c.factor) : c.plan_hash;
}

std::string Unanswered(const Cell& cell, const Yardstick& y) {
  std::vector<std::string> tasks;
  for (const TaskUse& use : y.tasks) {
    if (use.counts && FindTask(cell, use.task) == nullptr) tasks.push_back(use.task);
  }
  return tasks.empty() ? "" : "has no answers of " + ListOf(tasks);
}

std::string Objection(const Cell& cell, const Yardstick& y) {
  if (const auto& exit = cell.race_exit) {
    return exit->against.empty()
               ? fmt::format("its loss was no finite number in round {}", exit->round)
               : fmt::format("{:.3f} ± {:.3f} nats per token behind {} in round {}",
                             exit->difference, exit->standard_error,
                             MethodLabel(exit->against, exit->against_factor), exit->round);
  }
  if (!std::isfinite(cell.perplexity)) {
    return cell.windows == 0 ? "its perplexity was not measured" : "its perplexity is not finite";
  }
  const int64_t windows = SharedWindows(cell, *y.baseline);
  const double perplexity = PerplexityOver(cell, windows);
  const double own = PerplexityOver(*y.baseline, windows);
  if (!(perplexity <= kUsablePerplexity * own)) {
    return fmt::format("perplexity {} is {:.2f} times the {} of the trained length{}",
                       PerplexityText(perplexity), perplexity / own, PerplexityText(own),
                       OverBoth(windows));
  }
  std::vector<std::string> below;
  for (const std::string& task : TasksBelowOwn(cell, y)) {
    below.push_back(fmt::format("{} {:.2f} after {:.2f} at the trained length", task,
                                ScoreOf(*FindTask(cell, task)), y.Find(task)->own_score));
  }
  return ListOf(below);
}

Verdict Judge(const std::vector<const Cell*>& here, const Yardstick& y) {
  Verdict v{.length = here.front()->length, .trained = here.front()->trained_length};
  const int64_t windows = CommonWindows(here);
  for (const Cell* cell : here) {
    v.contenders.push_back(Enter(*cell, windows, y));
    if (cell->unscaled()) v.unscaled = cell;
  }
  std::ranges::stable_sort(v.contenders, LowerLoss);
  if (y.baseline == nullptr) return v;
  FindCandidates(y, v.contenders);
  CompareTasks(y, v.contenders);
  v.tasks_disagree = std::ranges::any_of(v.contenders, &Contender::candidate) &&
                     std::ranges::all_of(
                         v.contenders, [](const Contender& c) { return !c.candidate || Worse(c); });
  std::vector<bool> left;
  for (Contender& c : v.contenders) {
    left.push_back(c.candidate && (v.tasks_disagree || !Worse(c)));
    if (c.candidate && !left.back()) {
      c.verdict.standing = Standing::kWorseAtTask;
      c.verdict.reason = WhyWorse(c);
    }
    if (left.back() && v.chosen < 0) {
      v.chosen = static_cast<int64_t>(left.size()) - 1;
      c.verdict.standing = Standing::kRecommended;
    }
  }
  CompareLosses(left, windows, v.Nearest(), v.contenders);
  const Contender& lowest = v.Nearest();
  const bool by_keys = BreakTies(v), by_scores = !v.tasks_disagree && PreferScores(y, v);
  if (by_keys || by_scores) CompareAgain(lowest, windows, v);
  return v;
}

}  // namespace ropewalk::internal
