// Feeds sequences to a decoder in chunks, and keeps the chunks that the next one begins with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/model/model.h"
#include "src/eval/lanes.h"

namespace ropewalk::internal {

// Where the chunks end in which the first `needed` tokens of a sequence are fed: at multiples of
// Decoder::kChunkTokens. With kWhole the prefix has chunks of its own, all but its last token, whose
// state predicts what is behind it, whatever is needed of it: so they are those of every request
// with this prefix.
std::vector<int64_t> ChunkEnds(int64_t needed, int64_t prefix, PrefixReuse reuse);

// How many tokens end a chunk in both, none beyond `most`.
int64_t CommonChunks(const std::vector<int64_t>& a, const std::vector<int64_t>& b, int64_t most);

// What is computed of a request: the first `needed` tokens, states of those from `first_row` on.
struct FeedExtent {
  int64_t needed = 0, first_row = 0;  // 0 tokens: nothing is asked for
};
FeedExtent ExtentOf(const ScoreRequest& request);

// One KV cache. A kept chunk has the bits that it would get again.
class SequenceFeeder {
 public:
  SequenceFeeder(const Decoder& decoder, const EngineCall& call, TickFn tick)
      : decoder_(decoder),
        reuse_(call.reuse),
        tick_(std::move(tick)),
        sequence_(decoder, *call.plan, call.final_length, call.angles, call.kv) {}

  Sequence& sequence() { return sequence_; }
  int64_t fed_tokens() const { return fed_tokens_; }

  // Feeds what `extent` says of `ids`, of which the first `prefix` are a shared prefix;
  // `use(first, states, rows)` gets the states wanted chunk by chunk: [rows, hidden].
  template <class Use>
  void Feed(std::span<const int32_t> ids, int64_t prefix, const FeedExtent& extent, Use&& use) {
    int64_t begin = Keep(ids, ChunkEnds(extent.needed, prefix, reuse_), extent.first_row);
    if (begin > 0) tick_(begin);
    for (const int64_t end : ends_) {
      if (end <= begin) continue;
      const int64_t first = std::max(begin, extent.first_row);
      const int64_t rows = std::max<int64_t>(0, end - first);
      float* states = Append(ids.subspan(begin, end - begin), rows);
      if (rows > 0) use(first, states, std::min(rows, extent.needed - first));
      tick_(std::min(end, extent.needed) - begin);
      begin = end;
    }
  }

  // Forgets all that is fed, for another source of cross-attention.
  Sequence& Restart() {
    sequence_.Truncate(0);
    ids_.clear();
    ends_.clear();
    return sequence_;
  }

  // Feeds a token behind what is fed; its state.
  const float* Next(int32_t id) {
    const float* state = Append(std::span(&id, 1), 1);
    tick_(1);
    return state;
  }

 private:
  float* Append(std::span<const int32_t> ids, int64_t rows);
  int64_t Keep(std::span<const int32_t> ids, std::vector<int64_t> ends, int64_t first_row);

  const Decoder& decoder_;
  PrefixReuse reuse_;
  TickFn tick_;
  Sequence sequence_;
  std::vector<int32_t> ids_;   // of the last sequence
  std::vector<int64_t> ends_;  // of its chunks
  AlignedBuffer<float> hidden_;
  int64_t fed_tokens_ = 0;
};

}  // namespace ropewalk::internal
