// Logits of a sequence that several ranks compute together.
#pragma once

#include <mutex>
#include <vector>

#include "ropewalk/model/ranked.h"
#include "tests/model/support.h"

namespace ropewalk::test {

// [ids - first_row, vocab], as rank `group` and the others find them; what other ranks have is 0.
inline std::vector<float> RankLogits(RankGroup& group, const Decoder& decoder,
                                     const PositionPlan& plan, const std::vector<int32_t>& ids,
                                     KvType kv = KvType::kF32, int64_t first_row = 0) {
  const int64_t vocab = decoder.config().vocab, n = static_cast<int64_t>(ids.size());
  std::vector<float> logits((n - first_row) * vocab);
  RankedSequence sequence(decoder, plan, n, AnglePrecision::kExact, kv, group);
  sequence.Forward(ids, first_row, {.states = [&](int64_t first, float* states, int64_t rows) {
                     decoder.Logits(states, rows, logits.data() + (first - first_row) * vocab);
                   }});
  return logits;
}

inline std::vector<float> RankedLogits(int ranks, const Decoder& decoder, const PositionPlan& plan,
                                       const std::vector<int32_t>& ids, KvType kv = KvType::kF32,
                                       int64_t first_row = 0) {
  std::mutex mutex;
  std::vector<float> all((ids.size() - first_row) * decoder.config().vocab);
  RunThreadRanks(ranks, 1, [&](RankGroup& group) {
    const std::vector<float> own = RankLogits(group, decoder, plan, ids, kv, first_row);
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += own[i];
  });
  return all;
}

}  // namespace ropewalk::test
