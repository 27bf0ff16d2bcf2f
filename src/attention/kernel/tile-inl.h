// A tile of queries: its memory, and which tile of keys it meets. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_TILE_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_TILE_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/attention/kernel/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

constexpr double kLog2EDouble = 1.4426950408889634;

// The rows of one micro-kernel call and the keys that any of them sees.
struct RowGroup {
  int64_t row, rows;
  int64_t begin, end;  // keys within the current tile; empty: begin >= end
};

// Scores times `unit` are in units of log 2: exp(x) = 2^(x log2 e).
struct Tile {
  explicit Tile(const AttentionTile& tile)
      : t(tile),
        rows(t.tokens * t.group),
        seen_begin(t.seen_begin),
        scores(t.scratch),
        q(scores + WholeRows(rows) * kScoreStride),
        sums(q + WholeRows(rows) * t.key_stride),
        weights(sums + WholeRows(rows) * t.value_stride),
        weighted_scores(weights + WholeRows(rows) * AttentionAccess::kMaxLanes),
        maxima(weighted_scores + WholeRows(rows) * AttentionAccess::kMaxLanes),
        form_scratch(t.scratch + ScratchFloats(rows, t.dims)) {
    if (!t.bf16) return;
    if (t.pair_tiles) key_words = WordsOfPairTiles(t.kv.pairs());
    const KvScratch sizes(t.kv.type, t.bf16, views(), rows, t.dims);
    rounded_weights = reinterpret_cast<uint16_t*>(t.kv_scratch + sizes.floats() - sizes.weights);
    rounded_q = rounded_weights - 2 * sizes.queries;
  }

  int64_t views() const { return t.rotation == nullptr ? 1 : t.rotation->views; }

  static int64_t Down(int64_t x) { return x / kLanes * kLanes; }
  static int64_t Up(int64_t x) { return (x + kLanes - 1) / kLanes * kLanes; }

  int64_t Token(int64_t row) const { return row / t.group; }

  // Of up to `most` rows. Ranges ascend from token to token.
  RowGroup Group(int64_t row, int64_t most = kRows) const {
    RowGroup g{row, std::min(most, rows - row), 0, 0};
    g.begin = std::max(begin, seen_begin[Token(row)]);
    g.end = std::min(end, t.seen_end[Token(row + g.rows - 1)]);
    return g;
  }

  // The keys that a token sees among first .. last, in whole vectors.
  std::pair<int64_t, int64_t> Seen(int64_t token, int64_t first, int64_t last) const {
    first = std::max(first, seen_begin[token]);
    last = std::min(last, t.seen_end[token]);
    if (first >= last) return {0, 0};
    return {Down(first), Up(last)};
  }

  // The tokens that see some of the keys first .. last.
  std::pair<int64_t, int64_t> TokensThatSee(int64_t first, int64_t last) const {
    int64_t token = 0, token_end = t.tokens;
    while (token < token_end && t.seen_end[token] <= first) ++token;
    while (token_end > token && seen_begin[token_end - 1] >= last) --token_end;
    return {token, token_end};
  }

  // The scale of a token's scores, in units of log 2.
  float Scale2(int64_t token) const {
    const double factor = t.temperatures == nullptr ? 1.0 : double{t.temperatures[token]};
    return static_cast<float>(t.scale * factor * kLog2EDouble);
  }

  // [tokens]: where key positions are consecutive, the distance to key j is base()[token] - j.
  const int64_t* base() const { return t.form->ranges->base.data() + t.first_token; }

  const AttentionTile& t;
  const int64_t rows;
  int64_t begin = 0, end = 0;    // the tile's keys
  const int64_t* seen_begin;     // [tokens], among those keys
  float* const scores;           // [rows, kScoreStride]; weights after the softmax
  float* const q;                // [rows, key_stride], scaled
  float* const sums;             // [rows, value_stride], of weighted values
  float* const weights;          // [rows, kMaxLanes], sums of weights by lane
  float* const weighted_scores;  // [rows, kMaxLanes], RowSums by lane
  float* const maxima;           // [rows], of scores so far
  float* const form_scratch;     // FormScratchFloats
  // Where products are in bf16.
  uint16_t* rounded_q = nullptr;        // [views, rows, key_stride]
  uint16_t* rounded_weights = nullptr;  // [rows, kPairStride]
  int64_t key_words = 0;  // of WordsOfPairTiles for queries and keys; 0: by MultiplyPairs
  // log2 e where AMX's tiles give the scores and only the softmax reads them: it multiplies by the
  // way. Else 1.
  float unit = 1;
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
