// The bound and the race. docs/tasks/statistics.md says why the threshold is (arms - 1) / (2 alpha).
#include "ropewalk/eval/race.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ropewalk/base/error.h"
#include "src/eval/statistics.h"

namespace ropewalk {
namespace {

// The |t| of n differences at which AnytimeLogE is log_e; infinite: no t is enough.
double CriticalT(int64_t n, double log_e) {
  if (n < 2) return internal::kInfinity;
  const double units = static_cast<double>(n);
  const double spread = 1 + units * kRaceEffectVariance;
  const double ratio = std::exp(2 / units * (log_e + 0.5 * std::log(spread)));
  if (!(ratio < spread)) return internal::kInfinity;
  return std::sqrt((units - 1) * (ratio - 1) / (1 - ratio / spread));
}

AnytimeInterval IntervalOf(const internal::Moments& m, double log_e) {
  AnytimeInterval interval{.mean = m.mean, .standard_error = m.standard_error};
  const double t = CriticalT(m.n, log_e);
  // Of losses that overflow nothing is known either.
  const double half =
      std::isfinite(t * m.rounded_error) ? t * m.rounded_error : internal::kInfinity;
  interval.low = m.mean - half;
  interval.high = m.mean + half;
  return interval;
}

class Racing {
 public:
  Racing(std::span<const std::vector<double>> losses, const RaceRule& rule)
      : losses_(losses), margin_(rule.margin) {
    state_.alive.assign(losses.size(), true);
    log_threshold_ = std::log(static_cast<double>(losses.size() - 1) / (2 * rule.alpha));
  }

  bool HasRound(int64_t end) const {
    for (size_t arm = 0; arm < losses_.size(); ++arm) {
      const bool complete = static_cast<int64_t>(losses_[arm].size()) >= end;
      if (state_.alive[arm] && !complete && Finite(arm, end)) return false;
    }
    return true;
  }

  void Round(int64_t end) {
    DropNotFinite(end);
    const std::vector<bool> before = state_.alive;
    for (size_t arm = 0; arm < losses_.size(); ++arm) {
      if (!before[arm]) continue;
      RaceDrop worst{.against = -1, .log_e = -internal::kInfinity};
      for (size_t other = 0; other < losses_.size(); ++other) {
        if (!before[other] || other == arm) continue;
        const RaceDrop drop = Against(arm, other, end);
        if (drop.difference > margin_ && drop.log_e > worst.log_e) worst = drop;
      }
      if (worst.against >= 0 && worst.log_e >= log_threshold_) Drop(worst);
    }
    ++state_.rounds;
  }

  RaceState Take() { return std::move(state_); }

 private:
  std::span<const double> Units(size_t arm, int64_t end) const {
    return std::span(losses_[arm]).first(std::min(losses_[arm].size(), static_cast<size_t>(end)));
  }
  bool Finite(size_t arm, int64_t end) const {
    return std::ranges::all_of(Units(arm, end), [](double loss) { return std::isfinite(loss); });
  }

  void DropNotFinite(int64_t end) {
    for (size_t arm = 0; arm < losses_.size(); ++arm) {
      if (!state_.alive[arm] || Finite(arm, end)) continue;
      Drop({.arm = static_cast<int64_t>(arm),
            .against = -1,
            .units = end,
            .difference = internal::kNaN,
            .standard_error = internal::kNaN,
            .at_least = internal::kNaN,
            .log_e = internal::kNaN});
    }
  }

  RaceDrop Against(size_t arm, size_t other, int64_t end) {
    const auto a = Units(arm, end), b = Units(other, end);
    differences_.resize(a.size());
    for (size_t i = 0; i < a.size(); ++i) differences_[i] = a[i] - b[i];
    const internal::Moments m = internal::MomentsOf(differences_);
    return {.arm = static_cast<int64_t>(arm),
            .against = static_cast<int64_t>(other),
            .units = end,
            .difference = m.mean,
            .standard_error = m.standard_error,
            .at_least = IntervalOf(m, log_threshold_).low,
            .log_e = AnytimeLogE((m.mean - margin_) / m.rounded_error, end)};
  }

  void Drop(RaceDrop drop) {
    drop.round = state_.rounds;
    state_.alive[static_cast<size_t>(drop.arm)] = false;
    state_.drops.push_back(drop);
  }

  std::span<const std::vector<double>> losses_;
  double margin_ = 0, log_threshold_ = 0;
  std::vector<double> differences_;
  RaceState state_;
};

void CheckShare(double share, const char* name) {
  if (share > 0 && share < 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(name) + " of a race is between 0 and 1, not " + std::to_string(share));
}

}  // namespace

double AnytimeLogE(double t, int64_t n) {
  if (n < 2) return 0;
  const double units = static_cast<double>(n);
  const double spread = 1 + units * kRaceEffectVariance;
  const double x = t * t / (units - 1);
  if (std::isinf(x)) return (units - 1) / 2 * std::log(spread);
  return -0.5 * std::log(spread) + units / 2 * (std::log1p(x) - std::log1p(x / spread));
}

AnytimeInterval AnytimeMean(std::span<const double> differences, double confidence) {
  CheckShare(confidence, "the confidence");
  return IntervalOf(internal::MomentsOf(differences), -std::log1p(-confidence));
}

RaceState RunRace(std::span<const std::vector<double>> losses, std::span<const int64_t> round_ends,
                  const RaceRule& rule) {
  CheckShare(rule.alpha, "alpha");
  if (!(rule.margin >= 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the margin of a race is at least 0 nats, not " + std::to_string(rule.margin));
  }
  for (size_t i = 0; i < round_ends.size(); ++i) {
    if (round_ends[i] > (i == 0 ? 0 : round_ends[i - 1])) continue;
    throw Error(ErrorCode::kInvalidArgument, "round " + std::to_string(i) + " of a race ends at " +
                                                 std::to_string(round_ends[i]) +
                                                 " units: each must end behind the one before it");
  }
  if (losses.empty()) return {};
  Racing race(losses, rule);
  for (const int64_t end : round_ends) {
    if (!race.HasRound(end)) break;
    race.Round(end);
  }
  return race.Take();
}

std::vector<int64_t> RoundsOf(int64_t units, std::span<const int64_t> done) {
  constexpr int64_t kFirst = 4;  // with fewer none of more than 5 arms can leave
  constexpr int64_t kStep = 2;   // so that small models run them side by side
  std::vector<int64_t> ends(done.begin(), done.end());
  for (int64_t end = kFirst; end < units; end += std::max<int64_t>(kStep, end / 4)) {
    if (ends.empty() || end > ends.back()) ends.push_back(end);
  }
  if (units > 0 && (ends.empty() || units > ends.back())) ends.push_back(units);
  return ends;
}

}  // namespace ropewalk
