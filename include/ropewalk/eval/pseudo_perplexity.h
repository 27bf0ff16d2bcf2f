// Pseudo-perplexity of a masked language model against length (Salazar et al. 2020, arXiv
// 1910.14659, eq. 2): exp of the mean of -log p(token | the window with that token masked).
//
// The same tokens are scored at every length, so that lengths can be compared in pairs. Of a text
// without special tokens, `spans` stretches are taken that do not overlap, each as long as the
// longest window's content. At a length, a span is cut into windows of length - special tokens, one
// behind the other; the last one ends with the span and may overlap the one before. Of a span,
// `scored_per_span` tokens at equal steps are scored, each in the window that it lies in (in the first
// of two), at whatever position that is. For each a copy of its window, between the special tokens
// that the model was trained with, which are never masked nor scored, passes through the model with
// that one token masked. Copies share nothing; they run side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ropewalk/eval/eval.h"
#include "ropewalk/tokenizer/tokenizer.h"

namespace ropewalk {

// A masked language model as this measurement sees it. Several threads call Predict at once.
class MaskedEngine {
 public:
  virtual ~MaskedEngine() = default;
  virtual int64_t vocab() const = 0;
  virtual int64_t max_tokens() const = 0;  // of a window; INT64_MAX where positions have no end
  // logits [vocab] of the token at `position` of a window.
  virtual void Predict(std::span<const int32_t> window, int64_t position,
                       std::span<float> logits) const = 0;
};

// What stands around a text, and in the place of a token that is to be predicted.
struct MaskedFrame {
  std::vector<int32_t> front, back;
  int32_t mask = 0;
  int64_t special_tokens() const { return static_cast<int64_t>(front.size() + back.size()); }
};
// `mask`: where the configuration says it. Throws Error, without it, for a tokenizer that has no
// [MASK] or <mask>, or puts nothing around a text.
MaskedFrame MaskedFrameOf(const Tokenizer& tokenizer, std::optional<int32_t> mask = {});

struct PseudoPerplexitySpec {
  std::vector<int64_t> lengths;  // of windows, with their special tokens; ascending
  int64_t spans = 8;             // at most as many as the text has
  int64_t scored_per_span = 32;  // 0: every token
  uint64_t seed = 1;             // which spans, and where in each the first scored token is
};

struct PseudoPerplexity {
  int64_t length = 0;
  double mean_nll = 0;        // nats per token
  double standard_error = 0;  // of mean_nll, clustered by span; NaN for one span
  double perplexity = 0;      // exp(mean_nll)
  // mean_nll less that of the first length, and the standard error of the difference, paired by span.
  double difference = 0, difference_error = 0;
  std::vector<double> span_nll;     // [spans]
  std::vector<ScoredToken> tokens;  // `window` is the span, `position` that in the window
};

struct PseudoPerplexityResult {
  int64_t spans = 0, scored_per_span = 0;  // as they were
  std::vector<PseudoPerplexity> lengths;
};

// `progress` counts tokens through the model. Throws Error for a text shorter than the longest window,
// a length that is no longer than its special tokens or passes the model's positions, and for ids
// outside the vocabulary, before anything is computed.
PseudoPerplexityResult ComputePseudoPerplexity(const MaskedEngine& engine,
                                               const std::vector<int32_t>& text,
                                               const MaskedFrame& frame,
                                               const PseudoPerplexitySpec& spec,
                                               const ProgressFn& progress = {});

}  // namespace ropewalk
