// The effective length of a model: up to where its scores stay above a threshold. By both rules
// that papers use, and with what the number of trials leaves open.
#pragma once

#include <cstdint>
#include <span>

namespace ropewalk {

// A score at one length: a share of right answers, or a mean of scores from 0 to 1.
struct LengthScore {
  int64_t length = 0;  // tokens
  double score = 0;    // 0 to 1
  // Independent trials behind it: prompts, where the questions of a prompt fail together. 0: not
  // known, so nothing is certain.
  int64_t trials = 0;
};

// RULER (Hsieh et al. 2024, arXiv 2404.06654): the score of Llama-2-7b-chat at 4k.
inline constexpr double kRulerThreshold = 0.856;
// NoLiMa (Modarressi et al. 2025, arXiv 2502.05167): of the model's own score on short text. The
// rule for models that never reach RULER's.
inline constexpr double kNolimaShare = 0.85;

// Lengths in tokens; 0: none of those measured.
struct EffectiveLength {
  double threshold = 0;
  int64_t length = 0;  // the longest with a score of at least the threshold, as papers print it
  // The longest up to which every score is significantly above, and the longest that is not
  // significantly below (one-sided 5 % each).
  int64_t at_least = 0;
  int64_t at_most = 0;
  bool gap = false;  // a shorter length is below the threshold
};

// `scores` in any order. Throws Error for two of one length, a length that is not positive, a
// score outside of 0 to 1, negative trials.
EffectiveLength RulerEffectiveLength(std::span<const LengthScore> scores,
                                     double threshold = kRulerThreshold);
// Against `share` times the score at `base_length`, whose own uncertainty counts: the limits are
// those of score - share * base by Newcombe's hybrid of Wilson intervals (1998). `base_length` is
// the shortest length for models as they are, the trained one for their extension; longer lengths
// are judged, and the base itself, to which the rule grants its own length; where it scores 0 there
// is no effective length. Throws Error as above, and where `base_length` was not measured.
EffectiveLength OwnEffectiveLength(std::span<const LengthScore> scores, int64_t base_length,
                                   double share = kNolimaShare);

// The weighted averages that RULER prints: weights 1, 2, .. n from the shortest length to the
// longest ("inc"), and n, .. 2, 1 ("dec"). NaN for no scores. Throws Error as above.
struct WeightedAverages {
  double increasing = 0, decreasing = 0;
};
WeightedAverages WeightedAveragesOf(std::span<const LengthScore> scores);

}  // namespace ropewalk
