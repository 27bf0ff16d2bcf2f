// Log-likelihood of given tokens under the model: the one loop that perplexity and passkey share.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "ropewalk/model/model.h"

namespace ropewalk::internal {

struct Score {
  int64_t position = 0;
  int32_t id = 0;
  float nll = 0;     // nats
  bool top = false;  // no token has a higher logit (the lowest id wins a tie)
};

// Runs `ids` (all but the last, which nothing follows) through the empty `sequence` and calls
// `sink` for positions [score_begin, ids.size()) in order; score_begin >= 1. The head runs over
// those rows only, in chunks: memory is O(chunk x vocabulary). `tick(n)` is called after every n
// tokens. Throws Error when a loss is not finite.
void ScoreTokens(const Decoder& decoder, Sequence& sequence, std::span<const int32_t> ids,
                 int64_t score_begin, const std::function<void(const Score&)>& sink,
                 const std::function<void(int64_t)>& tick);

}  // namespace ropewalk::internal
