// What a setting that is left on costs text of the trained length, in words.
#include <fmt/format.h>

#include <cmath>

#include "src/eval/recommend.h"

namespace ropewalk::internal {

std::string Percent(double nats) {
  return fmt::format("{:.1f} %", 100 * std::abs(std::expm1(nats)));
}

std::string Nats(const PairedDifference& d, double sign) {
  if (std::isnan(d.standard_error)) return fmt::format("{:.3f} nats per token", sign * d.mean);
  return fmt::format("{:.3f} ± {:.3f} nats per token", sign * d.mean, d.standard_error);
}

std::string LostScores(const std::vector<TaskCost>& costs) {
  Family family;
  for (const TaskCost& c : costs) family.Add(c.task, c.answers.p_value);
  std::vector<std::string> lost;
  for (const TaskCost& c : costs) {
    if (c.answers.difference < 0 && family.Adjusted(c.task) <= kSignificance) {
      lost.push_back(fmt::format("{:.2f} of {}", -c.answers.difference, c.task));
    }
  }
  return lost.empty() ? "" : fmt::format("loses {} there, significantly", ListOf(lost));
}

std::string CostText(const Facts& f) {
  constexpr const char* kOnlyLong = ", so switch it on only for text that needs the length";
  const Cell& chosen = *f.verdict.Nearest().cell;
  const int64_t trained = f.verdict.trained;
  if (chosen.unscaled()) return "";
  if (!f.cost) return fmt::format(" What it costs at {} tokens was not measured.", trained);
  const PairedDifference& d = *f.cost;
  const std::string lost = LostScores(f.task_costs);
  if (!std::isfinite(d.mean)) {
    return fmt::format(" It breaks text of the trained {} tokens, where its loss is not finite{}.",
                       trained, kOnlyLong);
  }
  if (d.mean == 0 && lost.empty()) {
    return fmt::format(
        " It changes nothing up to the trained {} tokens, so it costs nothing there.", trained);
  }
  const bool gains = d.mean < 0;
  const std::string numbers =
      fmt::format("{} of perplexity, {}", Percent(d.mean), Nats(d, gains ? -1 : 1));
  const std::string but = lost.empty() ? "" : ", but it " + lost + kOnlyLong;
  const std::string also = lost.empty() ? "" : " It also " + lost + ".";
  if (std::isnan(d.standard_error)) {
    const std::string one =
        fmt::format(" At {} tokens it {} {} (one window, so without an error estimate)", trained,
                    gains ? "gains" : "costs", numbers);
    return one + (gains ? but + "." : "." + also);
  }
  if (!d.outside_noise) {
    return fmt::format(" At {} tokens {} no measurable cost ({}: within the noise){}.", trained,
                       lost.empty() ? "it has" : "its loss has", Nats(d), but);
  }
  if (gains) return fmt::format(" At {} tokens it even gains {}{}.", trained, numbers, but);
  return fmt::format(" At {} tokens it costs {}{}.{}", trained, numbers,
                     d.mean > 0.01 || !lost.empty() ? kOnlyLong : ", little enough to leave it on",
                     also);
}

}  // namespace ropewalk::internal
