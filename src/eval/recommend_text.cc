// The text of a recommendation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string Trials(const Cell& c) {
  const TaskResult& passkey = *PasskeyOf(c);
  return fmt::format("{} of {}", ExactAnswers(passkey), passkey.answers.size());
}

std::string Label(const Cell& c) { return MethodLabel(c.method, c.factor); }

}  // namespace

std::string PasskeyNote(const Yardstick& y) {
  if (y.passkey_fails == nullptr) return "";
  return fmt::format(
      "Passkey results are not considered: already at {1} tokens the model without scaling finds "
      "only {0}, so the task does not measure the effect of length.",
      Trials(*y.passkey_fails), y.passkey_fails->length);
}

namespace {

std::string Names(const std::vector<const Cell*>& cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    out += i == 0 ? "" : i + 1 == cells.size() ? " and " : ", ";
    out += Label(*cells[i]);
  }
  return out;
}

std::string TargetText(const Verdict& v) {
  return fmt::format("For {} tokens ({:.4g} times the trained {}), ", v.length,
                     static_cast<double>(v.length) / static_cast<double>(v.trained), v.trained);
}

std::string LeadText(const Verdict& v) {
  std::string out;
  if (!v.same.empty()) {
    out += fmt::format(" {} {} the same frequencies here, so the numbers are the same.",
                       Names(v.same), v.same.size() == 1 ? "has" : "have");
  }
  if (v.runner_up == nullptr) {
    return out + (v.measured > 1 + v.same.size()
                      ? " All others find the passkey significantly less often."
                      : " There is no other method to compare it with.");
  }
  const std::string runner = fmt::format("{}, perplexity {}", Label(*v.runner_up),
                                         PerplexityText(v.runner_up->perplexity));
  const PairedDifference d = Compare(*v.runner_up, *v.nearest);
  if (d.mean < 0) {
    return out + fmt::format(" The next ({}) has a lower perplexity but is not usable.", runner);
  }
  if (std::isnan(d.standard_error)) {
    return out + fmt::format(
                     " The next is {}; one window is not enough to tell whether the difference is "
                     "chance, so measure more windows before relying on it.",
                     runner);
  }
  if (d.outside_noise) {
    return out +
           fmt::format(" Its lead over the next ({}) is outside the noise: {} over {} windows.",
                       runner, Nats(d), d.windows);
  }
  return out +
         fmt::format(
             " The next ({}) does not differ significantly from it, {} over {} windows: either "
             "will do.",
             runner, Nats(d), d.windows);
}

std::string PasskeyText(const Verdict& v) {
  if (PasskeyOf(*v.nearest) == nullptr) return " Retrieval of a passkey was not measured.";
  std::string out = fmt::format(" It finds the passkey in {} trials", Trials(*v.nearest));
  if (const Cell* fails = v.yardstick.passkey_fails) {
    return out + fmt::format(
                     ", which is not considered: already at {1} tokens the model without scaling "
                     "finds only {0}.",
                     Trials(*fails), fails->length);
  }
  out += ".";
  if (!v.vetoed.empty()) {
    out += fmt::format(
        " {} {} a lower perplexity, but {} the passkey significantly less often than {} ({}; "
        "Fisher's "
        "exact test, 5 %).",
        Names(v.vetoed), v.vetoed.size() == 1 ? "has" : "have",
        v.vetoed.size() == 1 ? "finds" : "find", Label(*v.best_passkey), Trials(*v.best_passkey));
  }
  return out;
}

std::string CostText(const Verdict& v) {
  if (v.chosen->unscaled()) return "";
  if (!v.cost) return fmt::format(" What it costs at {} tokens was not measured.", v.trained);
  const PairedDifference& d = *v.cost;
  if (d.mean == 0) {
    return fmt::format(
        " It changes nothing up to the trained {} tokens, so it costs nothing there.", v.trained);
  }
  const std::string numbers =
      fmt::format("{} of perplexity, {}", Percent(std::abs(d.mean)), Nats(d, d.mean < 0 ? -1 : 1));
  if (std::isnan(d.standard_error)) {
    return fmt::format(" At {} tokens it {} {} (one window, so without an error estimate).",
                       v.trained, d.mean < 0 ? "gains" : "costs", numbers);
  }
  if (!d.outside_noise) {
    return fmt::format(" At {} tokens it has no measurable cost ({}: within the noise).", v.trained,
                       fmt::format("{:.3f} ± {:.3f} nats per token", d.mean, d.standard_error));
  }
  if (d.mean < 0) return fmt::format(" At {} tokens it even gains {}.", v.trained, numbers);
  return fmt::format(" At {} tokens it costs {}{}.", v.trained, numbers,
                     d.mean > 0.01 ? ", so switch it on only for text that needs the length"
                                   : ", little enough to leave it on");
}

std::string ChosenText(const Verdict& v, int64_t longest_usable) {
  const Cell& c = *v.chosen;
  std::string out = TargetText(v);
  if (c.unscaled()) {
    out += fmt::format("use no scaling: {}.",
                       v.runner_up != nullptr ? "it is best" : "the model is good enough");
  } else {
    out += fmt::format("use {}.", Label(c));
  }
  out += fmt::format(" Perplexity is {}", PerplexityText(c.perplexity));
  if (!c.unscaled() && v.unscaled != nullptr) {
    out += fmt::format("; without scaling it would be {}", PerplexityText(v.unscaled->perplexity));
  }
  out += fmt::format("; at the trained length the model has {}.",
                     PerplexityText(v.yardstick.baseline->perplexity));
  out += PasskeyText(v) + LeadText(v) + CostText(v);
  if (!c.unscaled() && !c.as_shipped() && longest_usable > v.length) {
    const bool factor = Label(c) != c.method;
    out += fmt::format("{} {} is usable up to {} tokens.", factor ? " With a matching factor," : "",
                       c.method, longest_usable);
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

std::string NoneText(const Verdict& v, const std::vector<MethodReach>& reaches) {
  const Cell& c = *v.nearest;
  const Cell& baseline = *v.yardstick.baseline;
  std::string out =
      TargetText(v) +
      fmt::format(
          "no method is usable. The {}, {}, has perplexity {}, {:.2f} times the {} of the trained "
          "length.",
          v.measured > 1 ? "best" : "only one measured", Label(c), PerplexityText(c.perplexity),
          c.perplexity / baseline.perplexity, PerplexityText(baseline.perplexity));
  out += PasskeyText(v);
  const auto best = std::max_element(reaches.begin(), reaches.end(),
                                     [](const MethodReach& a, const MethodReach& b) {
                                       return a.longest_usable < b.longest_usable;
                                     });
  if (best != reaches.end() && best->longest_usable > v.trained) {
    out += fmt::format(" The longest usable length is {} tokens, with {}.", best->longest_usable,
                       MethodLabel(best->method, best->factor));
  }
  return out + " Use shorter text, or train the model further at this length.";
}

std::string UnjudgedText(const Verdict& v) {
  const Cell& c = *v.nearest;
  return TargetText(v) +
         fmt::format(
             "nothing can be recommended: the model without scaling was not measured at {} "
             "tokens, to compare with. {} {} {}.",
             v.trained, Label(c),
             v.measured > 1 ? "has the lowest measured perplexity," : "has perplexity",
             PerplexityText(c.perplexity)) +
         PasskeyText(v) + fmt::format(" Measure method none at {} tokens too.", v.trained);
}

}  // namespace

std::string VerdictText(const Verdict& v, const std::vector<MethodReach>& reaches) {
  if (v.yardstick.baseline == nullptr) return UnjudgedText(v);
  if (v.chosen == nullptr) return NoneText(v, reaches);
  int64_t longest_usable = 0;
  for (const MethodReach& reach : reaches) {
    if (reach.method == v.chosen->method) longest_usable = reach.longest_usable;
  }
  return ChosenText(v, longest_usable);
}

}  // namespace internal

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

std::string UsabilityRule(const std::vector<Cell>& cells) {
  const internal::Yardstick y = internal::FindYardstick(cells);
  if (y.baseline == nullptr) {
    return "Nothing can be judged, because the model without scaling was not measured at the "
           "trained "
           "length.";
  }
  const std::string baseline = PerplexityText(y.baseline->perplexity);
  std::string rule = fmt::format(
      "Usable means: perplexity at most {:.2f} times that without scaling at the trained length "
      "({} "
      "times {:.2f} = {})",
      internal::kUsablePerplexity, baseline, internal::kUsablePerplexity,
      PerplexityText(y.baseline->perplexity * internal::kUsablePerplexity));
  if (!y.passkey_measured) {
    rule += "; passkey was not measured.";
  } else if (y.passkey_fails != nullptr) {
    rule += ". " + internal::PasskeyNote(y);
  } else {
    rule += fmt::format(
        ", and passkey accuracy not significantly below {} (one-sided binomial test, 5 %).",
        internal::kUsablePasskey);
  }
  if (std::any_of(cells.begin(), cells.end(), [](const Cell& c) { return c.race_exit; })) {
    rule += " A method that left the race of a length is not taken for usable there.";
  }
  return rule + " A method is usable up to the last length before the first failure.";
}

std::string PasskeyNote(const std::vector<Cell>& cells) {
  return internal::PasskeyNote(internal::FindYardstick(cells));
}

}  // namespace ropewalk
