// What decides between methods that loss does not tell apart: docs/recommendation.md has the rules.
#include <fmt/format.h>

#include "ropewalk/eval/effective_length.h"
#include "src/eval/recommend.h"

namespace ropewalk::internal {
namespace {

bool IsTied(const Contender& c) {
  return c.verdict.standing == Standing::kRecommended || c.verdict.standing == Standing::kTie;
}

const TaskResult& AnswersAt(const Contender& c) { return *FindTask(*c.cell, kKeyTokensTask); }

// The chosen one and its ties; empty where they do not all have key tokens.
std::vector<Contender*> TiedOf(Verdict& v) {
  std::vector<Contender*> tied;
  for (Contender& c : v.contenders) {
    if (!IsTied(c)) continue;
    if (!c.verdict.key_tokens) return {};
    tied.push_back(&c);
  }
  return tied;
}

std::string WhyBehind(const KeyTokenVerdict& keys, double nats_of_best) {
  return fmt::format(
      "key tokens {:.3f} against {:.3f} nats of {}, {:.3f} ± {:.3f} behind over {} windows",
      keys.nats, nats_of_best, keys.against, keys.difference->mean, keys.difference->standard_error,
      keys.difference->windows);
}

// Its scores below the share of the model's own that usable methods have to reach.
std::vector<std::string> BelowOwn(const Contender& c, const Yardstick& y) {
  std::vector<std::string> below;
  for (const TaskVerdict& t : c.verdict.tasks) {
    const double own = t.counts ? y.Find(t.task)->own_score : 0;
    if (!ReachesScore(t.score, kNolimaShare * own)) {
      below.push_back(fmt::format("{} ({:.2f}) is below {:.2f} times the model's own ({:.2f})",
                                  t.task, t.score, kNolimaShare, own));
    }
  }
  return below;
}

}  // namespace

bool PreferScores(const Yardstick& y, Verdict& v) {
  const auto reaches = [&](const Contender& c) {
    return IsTied(c) && Unanswered(*c.cell, y).empty() && BelowOwn(c, y).empty();
  };
  const auto first = std::ranges::find_if(v.contenders, reaches);
  if (first == v.contenders.end()) return false;
  for (Contender& c : v.contenders) {
    if (!IsTied(c) || reaches(c)) continue;
    c.verdict.standing = Standing::kTie;
    c.verdict.reason = "its score of " + ListOf(BelowOwn(c, y));
  }
  const int64_t before = v.chosen;
  v.chosen = first - v.contenders.begin();
  first->verdict.standing = Standing::kRecommended;
  return v.chosen != before;
}

bool BreakTies(Verdict& v) {
  const std::vector<Contender*> tied = TiedOf(v);
  if (tied.size() < 2) return false;
  const Contender* best = tied.front();
  for (const Contender* c : tied) {
    if (CompareKeyTokens(AnswersAt(*c), AnswersAt(*best)).mean < 0) best = c;
  }
  Family family;
  for (Contender* c : tied) {
    if (PlanOf(*c->cell) == PlanOf(*best->cell)) continue;
    KeyTokenVerdict& keys = *c->verdict.key_tokens;
    keys.difference = CompareKeyTokens(AnswersAt(*c), AnswersAt(*best));
    keys.against = Label(*best->cell);
    family.Add(PlanOf(*c->cell), keys.difference->p_value);
  }
  for (Contender* c : tied) {
    KeyTokenVerdict& keys = *c->verdict.key_tokens;
    if (!keys.difference) continue;
    keys.p_value = family.Adjusted(PlanOf(*c->cell));
    if (!(keys.p_value <= kSignificance)) continue;
    c->verdict.standing = Standing::kBehindKeyTokens;
    c->verdict.reason = WhyBehind(keys, best->verdict.key_tokens->nats);
  }
  const int64_t before = v.chosen;
  const auto left = std::ranges::find_if(v.contenders, IsTied);
  v.chosen = left - v.contenders.begin();
  left->verdict.standing = Standing::kRecommended;
  return v.chosen != before;
}

}  // namespace ropewalk::internal
