#include "ropewalk/eval/effective_length.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/eval/statistics.h"

namespace ropewalk {
namespace {

constexpr double kOneSided = 0.90;  // both ends of an interval at 5 %

void CheckScore(const LengthScore& s) {
  if (s.length > 0 && s.score >= 0 && s.score <= 1 && s.trials >= 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a score of length " + std::to_string(s.length) + " is " + std::to_string(s.score) +
                  " of " + std::to_string(s.trials) +
                  " trials: lengths are positive, scores from 0 to 1, trials not negative");
}

// Checked and by length.
std::vector<LengthScore> Sorted(std::span<const LengthScore> scores) {
  std::vector<LengthScore> sorted(scores.begin(), scores.end());
  std::ranges::for_each(sorted, CheckScore);
  std::ranges::sort(sorted, {}, &LengthScore::length);
  const auto twice = std::ranges::adjacent_find(sorted, {}, &LengthScore::length);
  if (twice != sorted.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "two scores of length " + std::to_string(twice->length) + ": one is expected");
  }
  return sorted;
}

Interval Limits(const LengthScore& s) {
  return WilsonInterval(s.score, static_cast<double>(s.trials), kOneSided);
}

struct Threshold {
  double value = 0;
  Interval limits;  // of the value
};

// Whether the score is significantly above the threshold, or below it: score - threshold lies in
// difference -+ the distances of both to their limits, added as squares.
bool Above(const LengthScore& s, const Threshold& t) {
  const double spread = std::hypot(s.score - Limits(s).low, t.limits.high - t.value);
  return s.score - t.value > spread;
}
bool Below(const LengthScore& s, const Threshold& t) {
  const double spread = std::hypot(Limits(s).high - s.score, t.value - t.limits.low);
  return t.value - s.score > spread;
}

// `sorted` from the shortest on. A base is what it is measured by: at most and at least itself.
EffectiveLength Judge(std::span<const LengthScore> sorted, const Threshold& threshold,
                      int64_t base_length) {
  EffectiveLength effective{.threshold = threshold.value};
  bool all_above = true, below_before = false;
  for (const LengthScore& s : sorted) {
    const bool base = s.length == base_length;
    all_above = all_above && (base || Above(s, threshold));
    if (all_above) effective.at_least = s.length;
    if (base || !Below(s, threshold)) effective.at_most = s.length;
    if (internal::ReachesScore(s.score, threshold.value)) {
      effective.length = s.length;
      effective.gap = below_before;
    } else {
      below_before = true;
    }
  }
  return effective;
}

}  // namespace

EffectiveLength RulerEffectiveLength(std::span<const LengthScore> scores, double threshold) {
  return Judge(Sorted(scores),
               {.value = threshold, .limits = {.low = threshold, .high = threshold}}, 0);
}

EffectiveLength OwnEffectiveLength(std::span<const LengthScore> scores, int64_t base_length,
                                   double share) {
  const std::vector<LengthScore> sorted = Sorted(scores);
  const auto base = std::ranges::find(sorted, base_length, &LengthScore::length);
  if (base == sorted.end()) {
    throw Error(ErrorCode::kInvalidArgument, "no score of length " + std::to_string(base_length) +
                                                 ", by which the others are judged");
  }
  if (base->score == 0) return {};
  const Interval limits = Limits(*base);
  const Threshold threshold{.value = share * base->score,
                            .limits = {.low = share * limits.low, .high = share * limits.high}};
  return Judge(std::span(base, sorted.end()), threshold, base_length);
}

WeightedAverages WeightedAveragesOf(std::span<const LengthScore> scores) {
  WeightedAverages averages;
  const std::vector<LengthScore> sorted = Sorted(scores);
  const size_t n = sorted.size();
  for (size_t i = 0; i < n; ++i) {
    averages.increasing += static_cast<double>(i + 1) * sorted[i].score;
    averages.decreasing += static_cast<double>(n - i) * sorted[i].score;
  }
  const double weights = static_cast<double>(n * (n + 1)) / 2;
  return {.increasing = averages.increasing / weights, .decreasing = averages.decreasing / weights};
}

}  // namespace ropewalk
