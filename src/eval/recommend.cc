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

bool BetterPerplexity(const Cell* a, const Cell* b) {
  // Not-a-number sorts last; equal losses keep the order of the sweep.
  if (std::isnan(a->mean_nll) || std::isnan(b->mean_nll))
    return std::isnan(b->mean_nll) && !std::isnan(a->mean_nll);
  return a->mean_nll < b->mean_nll;
}

std::string Percent(double nats) { return fmt::format("{:.1f} %", 100 * std::expm1(nats)); }

std::string Nats(const PairedDifference& d, double sign = 1) {
  if (std::isnan(d.standard_error)) return fmt::format("{:.3f} nats a token", sign * d.mean);
  return fmt::format("{:.3f} ± {:.3f} nats a token", sign * d.mean, d.standard_error);
}

std::string Trials(const Cell& c) {
  return fmt::format("{} of {}", PasskeyHits(c), c.passkey_trials);
}

}  // namespace

int64_t PasskeyHits(const Cell& cell) {
  return std::llround(cell.passkey_accuracy * static_cast<double>(cell.passkey_trials));
}

const Cell* FindCell(const std::vector<Cell>& cells, const std::string& method, double factor,
                     int64_t length) {
  for (const Cell& c : cells) {
    if (c.method == method && c.length == length && std::abs(c.factor - factor) < 1e-9) return &c;
  }
  return nullptr;
}

bool TakesFactor(const std::string& method) {
  return method != "none" && PositionMethod::TryParse(method).has_value();
}

std::string MethodLabel(const std::string& method, double factor) {
  if (method == "none") return "no scaling";
  if (method == "as-shipped") return "the model as shipped";
  const auto named = PositionMethod::TryParse(method);
  return named && named->uses_factor() ? fmt::format("{} with factor {:.4g}", method, factor)
                                       : method;
}

std::string PerplexityText(double perplexity) {
  if (!std::isfinite(perplexity)) return "infinite";
  const int digits = perplexity < 10 ? 2 : perplexity < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", perplexity, digits);
}

const Cell* Baseline(const std::vector<Cell>& cells) {
  const Cell* best = nullptr;
  for (const Cell& c : cells) {
    if (c.length != c.trained_length) continue;
    if (c.method == "none") return &c;
    if (best == nullptr || BetterPerplexity(&c, best)) best = &c;
  }
  return best;
}

bool PasskeyCounts(const Cell* baseline) {
  if (baseline == nullptr || !baseline->has_passkey) return true;
  return BinomialAtMost(PasskeyHits(*baseline), baseline->passkey_trials, kUsablePasskey) >=
         kSignificance;
}

bool IsUsable(const Cell& cell, const Cell* baseline) {
  if (!std::isfinite(cell.perplexity)) return false;
  if (baseline != nullptr && cell.perplexity > kUsablePerplexity * baseline->perplexity) {
    return false;
  }
  if (!cell.has_passkey || cell.passkey_trials == 0 || !PasskeyCounts(baseline)) return true;
  return BinomialAtMost(PasskeyHits(cell), cell.passkey_trials, kUsablePasskey) >= kSignificance;
}

std::string UsabilityRule(const std::vector<Cell>& cells) {
  const Cell* baseline = Baseline(cells);
  std::string rule;
  if (baseline == nullptr) {
    rule =
        "The trained length was not measured, so perplexity cannot be judged; usable here means ";
  } else {
    rule = fmt::format(
        "Usable means: perplexity at most {:.2f} times that of {} at the trained length ({} times "
        "{:.2f} = {})",
        kUsablePerplexity, MethodLabel(baseline->method, baseline->factor),
        PerplexityText(baseline->perplexity), kUsablePerplexity,
        PerplexityText(baseline->perplexity * kUsablePerplexity));
  }
  const bool passkey =
      std::any_of(cells.begin(), cells.end(), [](const Cell& c) { return c.has_passkey; });
  const std::string test = fmt::format(
      "passkey accuracy not significantly below {} (one-sided binomial test, 5 %)", kUsablePasskey);
  if (!passkey) {
    rule += baseline == nullptr ? "nothing." : "; passkey was not measured.";
  } else if (!PasskeyCounts(baseline)) {
    rule += fmt::format(
        "; passkey does not count, since the model finds only {} at its trained length already.",
        Trials(*baseline));
  } else {
    rule += (baseline == nullptr ? "" : ", and ") + test + ".";
  }
  return rule + " A method is usable up to the longest length before the first that fails.";
}

namespace {

// By length from the trained one on: the method's usable cell of lowest perplexity, else its best.
std::map<int64_t, const Cell*> BestByLength(const std::vector<Cell>& cells,
                                            const std::string& method, const Cell* baseline) {
  std::map<int64_t, const Cell*> best;
  for (const Cell& c : cells) {
    if (c.method != method || c.length < c.trained_length) continue;
    const Cell*& slot = best[c.length];
    const bool usable = IsUsable(c, baseline);
    const bool slot_usable = slot != nullptr && IsUsable(*slot, baseline);
    if (slot == nullptr || (usable && !slot_usable) ||
        (usable == slot_usable && BetterPerplexity(&c, slot))) {
      slot = &c;
    }
  }
  return best;
}

}  // namespace

std::vector<Reach> Reaches(const std::vector<Cell>& cells) {
  const Cell* baseline = Baseline(cells);
  std::vector<Reach> out;
  std::set<std::string> seen;
  for (const Cell& first : cells) {
    if (!seen.insert(first.method).second) continue;
    Reach reach;
    reach.method = first.method;
    const bool takes_factor = TakesFactor(reach.method);
    // With factor 1, which is no scaling, every method reaches as far as the model itself.
    if (takes_factor && baseline != nullptr && IsUsable(*baseline, baseline)) {
      reach.longest_usable = first.trained_length;
    }
    for (const auto& [length, cell] : BestByLength(cells, reach.method, baseline)) {
      if (takes_factor && length == first.trained_length) continue;
      if (!IsUsable(*cell, baseline)) break;
      reach.longest_usable = length;
      reach.factor = cell->factor;
    }
    const Cell* short_cell = FindCell(cells, reach.method, reach.factor, first.trained_length);
    if (short_cell != nullptr && baseline != nullptr) reach.cost = Compare(*short_cell, *baseline);
    out.push_back(reach);
  }
  return out;
}

namespace {

// Everything that the paragraph of one target length is made of.
struct Verdict {
  int64_t length = 0, trained = 0;
  const Cell* baseline = nullptr;
  const Cell* unscaled = nullptr;      // no scaling at this length
  const Cell* chosen = nullptr;        // null: none good enough
  const Cell* nearest = nullptr;       // the best by the rule, usable or not
  const Cell* best_passkey = nullptr;  // highest accuracy at this length
  const Cell* runner_up = nullptr;
  std::vector<const Cell*> vetoed;  // lower perplexity than `nearest`, but retrieval too bad
  std::vector<const Cell*> same;    // compute the same frequencies as `chosen`
};

bool SameNumbers(const Cell& a, const Cell& b) {
  return !a.plan_hash.empty() && a.plan_hash == b.plan_hash;
}

Verdict Judge(const std::vector<Cell>& cells, int64_t length) {
  Verdict v;
  v.length = length;
  v.baseline = Baseline(cells);
  std::vector<const Cell*> here;
  for (const Cell& c : cells) {
    if (c.length != length) continue;
    v.trained = c.trained_length;
    here.push_back(&c);
    if (c.method == "none") v.unscaled = &c;
    if (c.has_passkey && c.passkey_trials > 0 &&
        (v.best_passkey == nullptr || c.passkey_accuracy > v.best_passkey->passkey_accuracy)) {
      v.best_passkey = &c;
    }
  }
  std::stable_sort(here.begin(), here.end(), BetterPerplexity);
  std::vector<const Cell*> kept, vetoed;
  for (const Cell* c : here) {
    const bool worse = v.best_passkey != nullptr && c->has_passkey && c->passkey_trials > 0 &&
                       FisherBelow(PasskeyHits(*c), c->passkey_trials, PasskeyHits(*v.best_passkey),
                                   v.best_passkey->passkey_trials) < kSignificance;
    (worse ? vetoed : kept).push_back(c);
  }
  v.nearest = kept.front();  // the best of passkey is never worse than itself
  for (const Cell* c : kept) {
    if (v.chosen == nullptr && IsUsable(*c, v.baseline)) v.chosen = v.nearest = c;
  }
  for (const Cell* c : vetoed) {
    if (BetterPerplexity(c, v.nearest)) v.vetoed.push_back(c);
  }
  for (const Cell* c : kept) {
    if (c == v.nearest) continue;
    if (SameNumbers(*c, *v.nearest)) {
      v.same.push_back(c);
    } else if (v.runner_up == nullptr) {
      v.runner_up = c;
    }
  }
  return v;
}

std::string Names(const std::vector<const Cell*>& cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    out += i == 0 ? "" : i + 1 == cells.size() ? " and " : ", ";
    out += MethodLabel(cells[i]->method, cells[i]->factor);
  }
  return out;
}

std::string LeadText(const Verdict& v) {
  std::string out;
  if (!v.same.empty()) {
    out += fmt::format(" {} {} the same frequencies here, so the numbers are the same.",
                       Names(v.same), v.same.size() == 1 ? "has" : "have");
  }
  if (v.runner_up == nullptr) return out + " There is no other method to compare it with.";
  const std::string runner =
      fmt::format("{}, perplexity {}", MethodLabel(v.runner_up->method, v.runner_up->factor),
                  PerplexityText(v.runner_up->perplexity));
  const PairedDifference d = Compare(*v.runner_up, *v.nearest);
  if (d.mean < 0) {
    return out + fmt::format(" The next ({}) has a lower perplexity but is not usable.", runner);
  }
  if (std::isnan(d.standard_error)) {
    return out +
           fmt::format(
               " The next is {}; from one window nobody can tell whether that lead is chance, so "
               "measure more windows before relying on it.",
               runner);
  }
  if (d.outside_noise) {
    return out +
           fmt::format(" Its lead over the next ({}) is outside the noise: {} over {} windows.",
                       runner, Nats(d), d.windows);
  }
  return out +
         fmt::format(
             " The next ({}) cannot be told apart from it, {} over {} windows: either will do.",
             runner, Nats(d), d.windows);
}

std::string PasskeyText(const Verdict& v) {
  if (!v.nearest->has_passkey) return " Retrieval of a passkey was not measured.";
  std::string out = fmt::format(" It finds the passkey in {} trials.", Trials(*v.nearest));
  if (!v.vetoed.empty()) {
    out += fmt::format(
        " {} {} a lower perplexity, but {} the passkey significantly less often than {} ({}; "
        "Fisher's "
        "exact test, 5 %).",
        Names(v.vetoed), v.vetoed.size() == 1 ? "has" : "have",
        v.vetoed.size() == 1 ? "finds" : "find",
        MethodLabel(v.best_passkey->method, v.best_passkey->factor), Trials(*v.best_passkey));
  }
  return out;
}

std::string CostText(const Verdict& v, const std::vector<Cell>& cells) {
  const Cell& c = *v.chosen;
  if (c.method == "none") return "";
  const Cell* at_trained = FindCell(cells, c.method, c.factor, v.trained);
  if (at_trained == nullptr || v.baseline == nullptr) {
    return fmt::format(" What it costs at {} tokens was not measured.", v.trained);
  }
  const PairedDifference d = Compare(*at_trained, *v.baseline);
  if (d.mean == 0) {
    return fmt::format(" It costs nothing up to the trained {} tokens: there it changes nothing.",
                       v.trained);
  }
  const std::string numbers =
      fmt::format("{} of perplexity, {}", Percent(std::abs(d.mean)), Nats(d, d.mean < 0 ? -1 : 1));
  if (std::isnan(d.standard_error)) {
    return fmt::format(" At {} tokens it {} {} (one window: no error known).", v.trained,
                       d.mean < 0 ? "gains" : "costs", numbers);
  }
  if (!d.outside_noise) {
    return fmt::format(
        " At {} tokens it costs nothing that can be measured ({}: within the noise).", v.trained,
        fmt::format("{:.3f} ± {:.3f} nats a token", d.mean, d.standard_error));
  }
  if (d.mean < 0) return fmt::format(" At {} tokens it even gains {}.", v.trained, numbers);
  return fmt::format(" At {} tokens it costs {}{}.", v.trained, numbers,
                     d.mean > 0.01 ? ", so switch it on only for text that needs the length"
                                   : ", little enough to leave it on");
}

std::string ChosenText(const Verdict& v, const std::vector<Cell>& cells, int64_t longest_usable) {
  const Cell& c = *v.chosen;
  std::string out = fmt::format("For {} tokens ({:.4g} times the trained {}), ", v.length,
                                static_cast<double>(v.length) / v.trained, v.trained);
  out += c.method == "none" ? "change nothing: no scaling is best."
                            : fmt::format("use {}.", MethodLabel(c.method, c.factor));
  out += fmt::format(" Perplexity is {}", PerplexityText(c.perplexity));
  if (c.method != "none" && v.unscaled != nullptr) {
    out += fmt::format("; without scaling it would be {}", PerplexityText(v.unscaled->perplexity));
  }
  if (v.baseline != nullptr) {
    out += fmt::format("; at the trained length the model has {}",
                       PerplexityText(v.baseline->perplexity));
  }
  out += ".";
  out += PasskeyText(v) + LeadText(v) + CostText(v, cells);
  if (c.method != "none" && c.method != "as-shipped" && longest_usable > v.length) {
    const bool factor = MethodLabel(c.method, c.factor) != c.method;
    out += fmt::format("{} {} is usable up to {} tokens.",
                       factor ? " With the factor to match," : "", c.method, longest_usable);
  }
  const auto method = PositionMethod::TryParse(c.method);
  if (method && !method->only_scales()) {
    out +=
        " It is what attention does with positions, and few engines do it; the settings say which.";
  }
  if (method && method->length_dependent()) {
    out += " It was measured with its frequencies fixed for the final length of each text.";
  }
  return out;
}

std::string NoneText(const Verdict& v, const std::vector<Reach>& reaches) {
  const Cell& c = *v.nearest;
  std::string out = fmt::format(
      "For {} tokens ({:.4g} times the trained {}), no method is good "
      "enough. The best, {}, has perplexity {}",
      v.length, static_cast<double>(v.length) / v.trained, v.trained,
      MethodLabel(c.method, c.factor), PerplexityText(c.perplexity));
  if (v.baseline != nullptr) {
    out +=
        fmt::format(", {:.2f} times the {} of the trained length",
                    c.perplexity / v.baseline->perplexity, PerplexityText(v.baseline->perplexity));
  }
  out += ".";
  out += PasskeyText(v);
  const auto best = std::max_element(
      reaches.begin(), reaches.end(),
      [](const Reach& a, const Reach& b) { return a.longest_usable < b.longest_usable; });
  if (best != reaches.end() && best->longest_usable > v.trained) {
    out += fmt::format(" The longest usable length is {} tokens, with {}.", best->longest_usable,
                       MethodLabel(best->method, best->factor));
  }
  return out + " Use shorter text, or train the model further at this length.";
}

}  // namespace
}  // namespace internal

std::vector<Recommendation> Recommend(const std::vector<Cell>& cells) {
  std::set<int64_t> targets;
  for (const Cell& c : cells) {
    if (c.length > c.trained_length) targets.insert(c.length);
  }
  const std::vector<internal::Reach> reaches = internal::Reaches(cells);
  std::vector<Recommendation> out;
  for (const int64_t length : targets) {
    const internal::Verdict v = internal::Judge(cells, length);
    Recommendation r;
    r.length = length;
    if (v.runner_up != nullptr) {
      r.runner_up = v.runner_up->method;
      const internal::PairedDifference d = internal::Compare(*v.runner_up, *v.nearest);
      r.lead_outside_noise = d.outside_noise && d.mean > 0;
    }
    r.perplexity = v.nearest->perplexity;
    r.passkey_accuracy = v.nearest->passkey_accuracy;
    r.factor = v.nearest->factor;
    if (v.chosen == nullptr) {
      r.text = internal::NoneText(v, reaches);
      out.push_back(r);
      continue;
    }
    r.method = v.chosen->method;
    for (const internal::Reach& reach : reaches) {
      if (reach.method == r.method) r.longest_usable = reach.longest_usable;
    }
    const Cell* at_trained = internal::FindCell(cells, r.method, r.factor, v.trained);
    if (at_trained != nullptr && v.baseline != nullptr) {
      r.trained_length_cost = internal::Compare(*at_trained, *v.baseline).mean;
    }
    r.text = internal::ChosenText(v, cells, r.longest_usable);
    out.push_back(r);
  }
  return out;
}

}  // namespace ropewalk
