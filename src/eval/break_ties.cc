// What the loss of key tokens decides: docs/recommendation.md has the rule.
#include <fmt/format.h>

#include "src/eval/recommend.h"

namespace ropewalk::internal {
namespace {

const TaskResult& AnswersAt(const Contender& c) { return *FindTask(*c.cell, kKeyTokensTask); }

// The chosen one and its ties; empty where they do not all have key tokens.
std::vector<Contender*> TiedOf(Verdict& v) {
  std::vector<Contender*> tied;
  for (Contender& c : v.contenders) {
    const Standing standing = c.verdict.standing;
    if (standing != Standing::kRecommended && standing != Standing::kTie) continue;
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

}  // namespace

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
  const auto left = std::ranges::find_if(v.contenders, [](const Contender& c) {
    return c.verdict.standing == Standing::kRecommended || c.verdict.standing == Standing::kTie;
  });
  v.chosen = left - v.contenders.begin();
  left->verdict.standing = Standing::kRecommended;
  return v.chosen != before;
}

}  // namespace ropewalk::internal
