// The text of a recommendation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/eval/effective_length.h"
#include "ropewalk/plan/method.h"
#include "src/eval/recommend.h"

namespace ropewalk {
namespace internal {
namespace {

std::string Percent(double nats) { return fmt::format("{:.1f} %", 100 * std::expm1(nats)); }

std::string Nats(const PairedDifference& d, double sign = 1) {
  if (std::isnan(d.standard_error)) return fmt::format("{:.3f} nats per token", sign * d.mean);
  return fmt::format("{:.3f} ± {:.3f} nats per token", sign * d.mean, d.standard_error);
}

std::string Name(const Contender& c) { return Label(*c.cell); }

std::vector<std::string> NamesOf(const std::vector<const Contender*>& contenders) {
  std::vector<std::string> names;
  names.reserve(contenders.size());
  for (const Contender* c : contenders) names.push_back(Name(*c));
  return names;
}

std::vector<const Contender*> All(const Verdict& v, Standing standing) {
  std::vector<const Contender*> out;
  for (const Contender& c : v.contenders) {
    if (c.verdict.standing == standing) out.push_back(&c);
  }
  return out;
}

std::string TargetText(const Verdict& v) {
  return fmt::format("For {} tokens ({:.4g} times the trained {}), ", v.length,
                     static_cast<double>(v.length) / static_cast<double>(v.trained), v.trained);
}

// Scores of the tasks that count, with what is known of them, and which others do not.
std::string TasksText(const Facts& f) {
  const Verdict& v = f.verdict;
  std::vector<std::string> scores, ignored;
  for (const TaskVerdict& t : v.Nearest().verdict.tasks) {
    if (t.counts) {
      scores.push_back(fmt::format("{} {:.2f} ({:.2f} to {:.2f})", t.task, t.score, t.interval.low,
                                   t.interval.high));
    } else {
      ignored.push_back(fmt::format("{} ({:.2f})", t.task, t.score));
    }
  }
  std::string out;
  if (!scores.empty()) out = fmt::format(" Scores: {}.", ListOf(scores));
  if (!ignored.empty()) {
    out += fmt::format(" {} {} not considered, see below.", ListOf(ignored),
                       ignored.size() == 1 ? "is" : "are");
  }
  const auto& keys = v.Nearest().verdict.key_tokens;
  if (scores.empty()) {
    out += fmt::format(" No task counts here, so this rests on perplexity{} alone.",
                       keys ? " and key tokens" : "");
  }
  if (keys) {
    out += fmt::format(" Of its {} key tokens the loss is {:.3f}", keys->tokens, keys->nats);
    if (!std::isnan(keys->standard_error)) out += fmt::format(" ± {:.3f}", keys->standard_error);
    out += fmt::format(" nats per token (LongPPL {}).", PerplexityText(std::exp(keys->nats)));
  }
  return out;
}

// What key tokens say of methods that loss does not tell apart.
std::string KeyTokensText(const Verdict& v) {
  std::string out;
  for (const Contender* c : All(v, Standing::kBehindKeyTokens)) {
    out += fmt::format(
        " {} {}, but is significantly behind at key tokens, which break the tie: {}.", Name(*c),
        c->loss < v.Nearest().loss ? "has a lower perplexity by no more than chance explains"
                                   : "is behind in loss by no more than chance explains",
        c->verdict.reason);
  }
  if (!out.empty()) return out;
  for (const Contender* c : All(v, Standing::kTie)) {
    const auto& keys = c->verdict.key_tokens;
    if (!keys || c->verdict.same_plan) continue;
    return keys->windows < 2
               ? fmt::format(" Key tokens cannot break the tie: all {} are in one window.",
                             keys->tokens)
               : fmt::format(" Key tokens do not break the tie either ({} in {} windows).",
                             keys->tokens, keys->windows);
  }
  return out;
}

// What has a lower loss than the chosen one and is not recommended, and why.
std::string LeftOutText(const Verdict& v) {
  std::string out;
  if (v.tasks_disagree) {
    out =
        " Tasks disagree: every usable method is significantly worse than another at one of "
        "them, so the loss decides alone.";
  }
  for (const Contender* c : All(v, Standing::kWorseAtTask)) {
    if (!(c->loss < v.Nearest().loss)) continue;
    out += fmt::format(" {} has a lower perplexity, but is significantly worse at a task: {}.",
                       Name(*c), c->verdict.reason);
  }
  for (const Contender* c : All(v, Standing::kNotUsable)) {
    if (!(c->loss < v.Nearest().loss)) continue;
    out += fmt::format(" {} has a lower perplexity, but is not usable: {}.", Name(*c),
                       c->verdict.reason);
  }
  return out;
}

std::string TiesText(const std::vector<const Contender*>& ties) {
  double detectable = 0, difference = 0;
  int64_t windows = 0;
  bool ahead = false;
  for (const Contender* c : ties) {
    detectable = std::max(detectable, c->verdict.detectable);
    difference = std::max(difference, std::abs(c->verdict.difference->mean));
    windows = c->verdict.difference->windows;
    ahead = ahead || c->verdict.difference->mean < 0;
  }
  return fmt::format(
      " A tie with {}: {} {:.3f} nats per token over {} windows, which may be chance; {} "
      "would do. No difference was found, which is not the same as none: one of {:.3f} ({} of "
      "perplexity) would have been found four times in five.",
      ListOf(NamesOf(ties)),
      ahead              ? "their losses differ by at most"
      : ties.size() == 1 ? "it is behind by"
                         : "they are behind by at most",
      difference, windows, ties.size() == 1 ? "either" : "any", detectable, Percent(detectable));
}

// What has a lower loss and is tied, and is passed over for its scores.
std::string PassedOverText(const Verdict& v) {
  std::string out;
  for (const Contender* c : All(v, Standing::kTie)) {
    if (c->verdict.reason.empty() || !(c->loss < v.Nearest().loss)) continue;
    out += fmt::format(" {} has a lower perplexity by no more than chance explains, but {}.",
                       Name(*c), c->verdict.reason);
  }
  return out;
}

std::string LeadText(const Verdict& v) {
  std::vector<const Contender*> same, ties;
  for (const Contender* c : All(v, Standing::kTie)) {
    (c->verdict.same_plan ? same : ties).push_back(c);
  }
  std::string out;
  if (!same.empty()) {
    out += fmt::format(" {} {} the same frequencies here, so the numbers are the same.",
                       ListOf(NamesOf(same)), same.size() == 1 ? "has" : "have");
  }
  if (!ties.empty()) out += TiesText(ties);
  out += PassedOverText(v);
  const auto untested = All(v, Standing::kUntested), behind = All(v, Standing::kBehind);
  if (!untested.empty()) {
    out += fmt::format(
        " The next is {}, perplexity {}; one window is not enough to tell whether the difference "
        "is chance, so measure more windows before relying on it.",
        Name(*untested[0]), PerplexityText(untested[0]->cell->perplexity));
  }
  if (!behind.empty()) {
    const MethodVerdict& b = behind[0]->verdict;
    out += fmt::format(" {} is significantly behind: {} over {} windows.", Name(*behind[0]),
                       b.reason.empty() ? Nats(*b.difference) : b.reason, b.difference->windows);
  }
  out += KeyTokensText(v);
  const bool broken = !All(v, Standing::kBehindKeyTokens).empty();
  if (ties.empty() && untested.empty() && behind.empty() && !broken) {
    const bool others = v.contenders.size() > 1 + same.size();
    const auto& tasks = v.Nearest().verdict.tasks;
    const bool counts = std::ranges::any_of(tasks, &TaskVerdict::counts);
    out += !others  ? " There is no other method to compare it with."
           : counts ? " No other method is usable and as good at every task."
                    : " No other method is usable.";
  }
  return out;
}

// Where a task suffers from a setting that is left on.
std::string TaskCostText(const std::vector<TaskCost>& costs) {
  Family family;
  for (const TaskCost& c : costs) family.Add(c.task, c.answers.p_value);
  std::vector<std::string> worse;
  for (const TaskCost& c : costs) {
    if (c.answers.difference < 0 && family.Adjusted(c.task) <= kSignificance) {
      worse.push_back(fmt::format("{:.2f} of {}", -c.answers.difference, c.task));
    }
  }
  return worse.empty() ? "" : fmt::format(" It also loses {} there, significantly.", ListOf(worse));
}

std::string CostText(const Facts& f) {
  const Cell& chosen = *f.verdict.Nearest().cell;
  const int64_t trained = f.verdict.trained;
  if (chosen.unscaled()) return "";
  if (!f.cost) return fmt::format(" What it costs at {} tokens was not measured.", trained);
  const PairedDifference& d = *f.cost;
  if (d.mean == 0) {
    return fmt::format(
        " It changes nothing up to the trained {} tokens, so it costs nothing there.", trained);
  }
  const std::string tasks = TaskCostText(f.task_costs);
  const std::string numbers =
      fmt::format("{} of perplexity, {}", Percent(std::abs(d.mean)), Nats(d, d.mean < 0 ? -1 : 1));
  if (std::isnan(d.standard_error)) {
    return fmt::format(" At {} tokens it {} {} (one window, so without an error estimate).{}",
                       trained, d.mean < 0 ? "gains" : "costs", numbers, tasks);
  }
  if (!d.outside_noise) {
    return fmt::format(" At {} tokens it has no measurable cost ({}: within the noise).{}", trained,
                       Nats(d), tasks);
  }
  if (d.mean < 0) return fmt::format(" At {} tokens it even gains {}.{}", trained, numbers, tasks);
  return fmt::format(" At {} tokens it costs {}{}.{}", trained, numbers,
                     d.mean > 0.01 || !tasks.empty()
                         ? ", so switch it on only for text that needs the length"
                         : ", little enough to leave it on",
                     tasks);
}

std::string ChosenText(const Facts& f) {
  const Verdict& v = f.verdict;
  const Cell& c = *v.Nearest().cell;
  std::string out = TargetText(v);
  if (c.unscaled()) {
    out += fmt::format("use no scaling: {}.",
                       v.contenders.size() > 1 ? "it is best" : "the model is good enough");
  } else {
    out += fmt::format("use {}.", Label(c));
  }
  out += fmt::format(" Perplexity is {}", PerplexityText(c.perplexity));
  if (!c.unscaled() && v.unscaled != nullptr) {
    out += fmt::format("; without scaling it would be {}", PerplexityText(v.unscaled->perplexity));
  }
  out += fmt::format("; at the trained length the model has {}.",
                     PerplexityText(f.yardstick.baseline->perplexity));
  out += TasksText(f) + LeftOutText(v) + LeadText(v) + CostText(f);
  if (!c.unscaled() && !c.as_shipped() && f.longest_usable > v.length) {
    const bool factor = Label(c) != c.method;
    out += fmt::format("{} {} is usable up to {} tokens.", factor ? " With a matching factor," : "",
                       c.method, f.longest_usable);
  }
  const auto method = c.named();
  if (method && !method->only_scales()) {
    out +=
        " It changes how attention uses positions, which few engines support; the settings list "
        "them.";
  }
  if (method && method->length_dependent()) {
    out += " It was measured with the frequencies of the final length of each text.";
  }
  return out;
}

std::string NoneText(const Facts& f) {
  const Verdict& v = f.verdict;
  const Contender& c = v.Nearest();
  std::string out =
      TargetText(v) + fmt::format("no method is usable. The {} is {}: {}.",
                                  v.contenders.size() > 1 ? "nearest" : "only one measured",
                                  Name(c), c.verdict.reason);
  if (f.farthest && f.farthest->longest_usable > v.trained) {
    out +=
        fmt::format(" The longest usable length is {} tokens, with {}.", f.farthest->longest_usable,
                    MethodLabel(f.farthest->method, f.farthest->factor));
  }
  return out + " Use shorter text, or train the model further at this length.";
}

std::string UnjudgedText(const Verdict& v) {
  const Cell& c = *v.Nearest().cell;
  return TargetText(v) +
         fmt::format(
             "nothing can be recommended: the model without scaling was not measured at {} "
             "tokens, to compare with. {} {} {}. Measure method none at {} tokens too.",
             v.trained, Label(c),
             v.contenders.size() > 1 ? "has the lowest measured perplexity," : "has perplexity",
             PerplexityText(c.perplexity), v.trained);
}

}  // namespace

std::string Label(const Cell& cell) { return MethodLabel(cell.method, cell.factor); }

std::string ListOf(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    out += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    out += words[i];
  }
  return out;
}

std::string VerdictText(const Facts& facts) {
  if (facts.yardstick.baseline == nullptr) return UnjudgedText(facts.verdict);
  return facts.verdict.chosen < 0 ? NoneText(facts) : ChosenText(facts);
}

}  // namespace internal

const char* Word(Standing standing) {
  switch (standing) {
    case Standing::kRecommended:
      return "recommended";
    case Standing::kTie:
      return "tie";
    case Standing::kUntested:
      return "next, untested";
    case Standing::kBehind:
      return "behind";
    case Standing::kBehindKeyTokens:
      return "behind at key tokens";
    case Standing::kWorseAtTask:
      return "worse at a task";
    case Standing::kNotUsable:
      return "not usable";
    case Standing::kLeftRace:
      return "left the race";
    case Standing::kNotJudged:
      return "not judged";
  }
  return "";
}

std::string MethodLabel(const std::string& method, double factor) {
  if (method == kAsShipped) return "the model as shipped";
  const auto named = PositionMethod::TryParse(method);
  if (named && named->is_none()) return "no scaling";
  return named && named->uses_factor() ? fmt::format("{} with factor {:.4g}", method, factor)
                                       : method;
}

std::string PerplexityText(double perplexity) {
  if (!std::isfinite(perplexity)) return "infinite";
  const int digits = perplexity < 10 ? 2 : perplexity < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", perplexity, digits);
}

std::string TasksNote(const std::vector<Cell>& cells) {
  std::string out;
  for (const TaskUse& use : TaskUses(cells)) {
    if (!use.reason.empty()) out += (out.empty() ? "" : " ") + use.reason;
  }
  return out;
}

std::string RulesText(const std::vector<Cell>& all) {
  const internal::JudgedCells judged(all);
  const std::vector<Cell>& cells = judged.get();
  const internal::Yardstick y = internal::FindYardstick(cells);
  if (y.baseline == nullptr) {
    return "Nothing can be judged, because the model without scaling was not measured at the "
           "trained length.";
  }
  const double own = y.baseline->perplexity;
  std::string rule = fmt::format(
      "Usable means: perplexity at most {:.2f} times that without scaling at the trained length "
      "({} times {:.2f} = {})",
      internal::kUsablePerplexity, PerplexityText(own), internal::kUsablePerplexity,
      PerplexityText(own * internal::kUsablePerplexity));
  std::vector<std::string> tasks, answers;
  for (const TaskUse& use : y.tasks) {
    if (!use.counts) continue;
    tasks.push_back(fmt::format("{} {:.2f}", use.task, use.own_score));
    answers.push_back(fmt::format(
        "{} answers of {}", internal::FindTask(*y.baseline, use.task)->answers.size(), use.task));
  }
  if (!tasks.empty()) {
    rule += fmt::format(
        ", and a score not significantly below {:.2f} times the model's own there ({}). Of usable "
        "methods those that are significantly worse than another at one of these tasks are left "
        "out; of the rest the lowest loss is recommended, and of methods that are tied the lowest "
        "one with scores that reach this",
        kNolimaShare, internal::ListOf(tasks));
  }
  rule += fmt::format(
      ". \"Significant\" is the 5 % level after Holm's correction for the methods{} of a length, "
      "by "
      "paired t tests over {} windows",
      tasks.empty() ? "" : " and tasks", y.baseline->windows);
  if (!answers.empty())
    rule += fmt::format(" and exact sign tests over {}", internal::ListOf(answers));
  rule += ".";
  if (std::ranges::any_of(
          cells, [](const Cell& c) { return internal::FindTask(c, kKeyTokensTask) != nullptr; })) {
    rule +=
        " Methods that loss does not tell apart are compared by the loss of their key tokens, "
        "in the same way.";
  }
  if (std::ranges::any_of(cells, [](const Cell& c) { return c.race_exit.has_value(); })) {
    rule += " A method that left the race of a length is not taken for usable there.";
  }
  if (tasks.empty() && y.tasks.empty()) {
    rule += " No task was measured, so retrieval is not known; --tasks perplexity,passkey adds it.";
  }
  const std::string note = TasksNote(cells);
  return rule + (note.empty() ? "" : " ") + note +
         " A method is usable up to the last length before the first failure.";
}

}  // namespace ropewalk
