#include "src/eval/sequence_feeder.h"

namespace ropewalk::internal {

std::vector<int64_t> ChunkEnds(int64_t needed, int64_t prefix, PrefixReuse reuse) {
  const int64_t whole = reuse == PrefixReuse::kWhole ? prefix - 1 : 0;
  std::vector<int64_t> ends;
  for (int64_t end = 0; end < needed;) {
    end = std::min(end + Decoder::kChunkTokens, end < whole ? whole : needed);
    ends.push_back(end);
  }
  return ends;
}

int64_t CommonChunks(const std::vector<int64_t>& a, const std::vector<int64_t>& b, int64_t most) {
  int64_t common = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] != b[i] || a[i] > most) break;
    common = a[i];
  }
  return common;
}

// The state of a token predicts the next, so the last one that is scored is not fed.
FeedExtent ExtentOf(const ScoreRequest& request) {
  const auto tokens = static_cast<int64_t>(request.prefix.size() + request.ids.size());
  const bool scored = !request.positions.empty(), continued = request.continue_tokens > 0;
  if (!scored) return continued ? FeedExtent{tokens, tokens - 1} : FeedExtent{};
  return {continued ? tokens : request.positions.back(), request.positions.front() - 1};
}

float* SequenceFeeder::Append(std::span<const int32_t> ids, int64_t rows) {
  if (rows > 0 && hidden_.size() == 0) {
    hidden_ =
        AlignedBuffer<float>(static_cast<size_t>(Decoder::kChunkTokens * decoder_.config().hidden));
  }
  decoder_.Forward(sequence_, ids, hidden_.data(), rows);
  fed_tokens_ += static_cast<int64_t>(ids.size());
  return hidden_.data();
}

// Forgets all but the chunks that `ids` begins with, none of them beyond `first_row`; how many
// tokens that are.
int64_t SequenceFeeder::Keep(std::span<const int32_t> ids, std::vector<int64_t> ends,
                             int64_t first_row) {
  const auto differ = std::mismatch(ids_.begin(), ids_.end(), ids.begin(), ids.end()).first;
  const int64_t most = std::min<int64_t>(differ - ids_.begin(), first_row);
  const int64_t kept = CommonChunks(ends, ends_, most);
  sequence_.Truncate(kept);
  ids_.assign(ids.begin(), ids.end());
  ends_ = std::move(ends);
  return kept;
}

}  // namespace ropewalk::internal
