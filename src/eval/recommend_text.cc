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
  const std::string missing = Unanswered(*v.Nearest().cell, f.yardstick);
  if (scores.empty()) {
    out += fmt::format(" {}, so this rests on perplexity{} alone.",
                       missing.empty() ? "No task counts here" : "It " + missing,
                       keys ? " and key tokens" : "");
  } else if (!missing.empty()) {
    out += fmt::format(" It {}.", missing);
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
        "them, so they decide nothing here.";
  }
  for (const Contender* c : All(v, Standing::kWorseAtTask)) {
    if (!(c->loss < v.Nearest().loss)) continue;
    out += fmt::format(" {} has a lower perplexity, but is significantly worse at a task: {}.",
                       Name(*c), c->verdict.reason);
  }
  for (const Contender* c : All(v, Standing::kUnanswered)) {
    out += fmt::format(" {}{} {}, so it is not compared.", Name(*c),
                       c->loss < v.Nearest().loss ? " has a lower perplexity, but" : "",
                       c->verdict.reason);
  }
  for (const Contender* c : All(v, Standing::kNotUsable)) {
    if (!(c->loss < v.Nearest().loss)) continue;
    out += fmt::format(" {} has a lower perplexity, but is not usable: {}.", Name(*c),
                       c->verdict.reason);
  }
  return out;
}

// `any`: whether nothing but loss tells them apart, so that any of them would do.
std::string TiesText(const std::vector<const Contender*>& ties, bool any) {
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
      " A tie with {}: {} {:.3f} nats per token over {} windows, which may be chance{}. No "
      "difference was found, which is not the same as none: one of {:.3f} ({} of perplexity) would "
      "have been found four times in five.",
      ListOf(NamesOf(ties)),
      ahead              ? "their losses differ by at most"
      : ties.size() == 1 ? "it is behind by"
                         : "they are behind by at most",
      difference, windows,
      !any               ? ""
      : ties.size() == 1 ? "; either would do"
                         : "; any would do",
      detectable, Percent(detectable));
}

// What is tied, and comes behind for its scores.
std::string PassedOverText(const Verdict& v) {
  std::string out;
  for (const Contender* c : All(v, Standing::kTie)) {
    if (c->verdict.reason.empty()) continue;
    out += fmt::format(" {} {}, but {}.", Name(*c),
                       c->loss < v.Nearest().loss
                           ? "has a lower perplexity by no more than chance explains"
                           : "is a tie in loss",
                       c->verdict.reason);
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
  const bool by_loss_alone =
      std::ranges::all_of(ties, [](const Contender* c) { return c->verdict.reason.empty(); });
  if (!ties.empty()) out += TiesText(ties, by_loss_alone && !v.tasks_disagree);
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
    out += fmt::format(" {} is significantly behind: {} over {}.", Name(*behind[0]),
                       b.reason.empty() ? Nats(*b.difference) : b.reason,
                       WindowsText(b.difference->windows));
  }
  out += KeyTokensText(v);
  const bool said =
      !All(v, Standing::kBehindKeyTokens).empty() || !All(v, Standing::kUnanswered).empty();
  if (ties.empty() && untested.empty() && behind.empty() && !said) {
    const bool others = v.contenders.size() > 1 + same.size();
    const auto& tasks = v.Nearest().verdict.tasks;
    const bool counts = std::ranges::any_of(tasks, &TaskVerdict::counts);
    out += !others  ? " There is no other method to compare it with."
           : counts ? " No other method is usable and as good at every task."
                    : " No other method is usable.";
  }
  return out;
}

// Why no scaling is recommended; empty where what follows says it.
std::string WhyUnscaled(const Verdict& v) {
  if (v.contenders.size() == 1) return ": the model is good enough";
  bool lowest = true, tied = false;
  for (const Contender& c : v.contenders) {
    const Standing standing = c.verdict.standing;
    const bool tie = standing == Standing::kTie && !c.verdict.same_plan;
    tied = tied || tie || standing == Standing::kUntested;
    lowest = lowest && (tie || standing == Standing::kLeftRace || !(c.loss < v.Nearest().loss));
  }
  if (!lowest) return "";
  return tied ? ": no other method is measurably better" : ": it is best";
}

// What another cell has, and where that is of other windows what the chosen one has over those.
std::string Beside(const Cell& chosen, const Cell& other) {
  const int64_t windows = SharedWindows(chosen, other);
  std::string out = PerplexityText(PerplexityOver(other, windows));
  if (windows == kAllWindows) return out;
  return out + fmt::format(" against {}{}", PerplexityText(PerplexityOver(chosen, windows)),
                           OverBoth(windows));
}

std::string ChosenText(const Facts& f) {
  const Verdict& v = f.verdict;
  const Cell& c = *v.Nearest().cell;
  std::string out = TargetText(v);
  if (c.unscaled()) {
    out += fmt::format("use no scaling{}.", WhyUnscaled(v));
  } else {
    out += fmt::format("use {}.", Label(c));
  }
  out += fmt::format(" Perplexity is {}", PerplexityText(c.perplexity));
  if (!c.unscaled() && v.unscaled != nullptr) {
    out += fmt::format("; without scaling it would be {}", Beside(c, *v.unscaled));
  }
  out += fmt::format("; at the trained length the model has {}.", Beside(c, *f.yardstick.baseline));
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
    const std::string label = MethodLabel(f.farthest->method, f.farthest->factor);
    // It reaches past this length without having been measured here.
    if (f.farthest->longest_usable > v.length) {
      return out +
             fmt::format(" {} is usable at {} tokens, but was not measured at {}: measure it.",
                         label, f.farthest->longest_usable, v.length);
    }
    out += fmt::format(" The longest usable length is {} tokens, with {}.",
                       f.farthest->longest_usable, label);
  }
  return out + " Use shorter text, or train the model further at this length.";
}

std::string UnjudgedText(const Facts& f) {
  const Verdict& v = f.verdict;
  const Cell& c = *v.Nearest().cell;
  if (f.yardstick.broken) {
    return TargetText(v) +
           fmt::format(
               "nothing can be judged: the loss of the model without scaling is not finite at {} "
               "tokens, and every method is compared with it.",
               v.trained);
  }
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
  if (facts.yardstick.baseline == nullptr) return UnjudgedText(facts);
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
    case Standing::kUnanswered:
      return "no answers of a task";
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

}  // namespace ropewalk
