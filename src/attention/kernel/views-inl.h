// Scores of a tile as products of queries and keys: as they are, or rotated on load (fused RoPE),
// once for each view of a distance map. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "src/attention/kernel/load_kv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// x = R x, or its adjoint R^T x: `row` has cos and sin of the pairs, times the amplitude.
HWY_INLINE void RotateRow(const RotationRun& run, const float* HWY_RESTRICT row, bool adjoint,
                          float* HWY_RESTRICT x) {
  if (run.pairs == 0) return;
  const D d;
  const int64_t first = run.dims[0], apart = run.dims[1] - first;
  const V sign = hn::Set(d, adjoint ? -1.0f : 1.0f);
  int64_t p = 0;
  for (; p + kLanes <= run.pairs; p += kLanes) {
    float* at = x + first + (apart == 1 ? 2 * p : p);
    const V c = hn::LoadU(d, row + p), s = hn::Mul(sign, hn::LoadU(d, row + run.pairs + p));
    V a, b;
    if (apart == 1) {
      hn::LoadInterleaved2(d, at, a, b);
    } else {
      a = hn::LoadU(d, at), b = hn::LoadU(d, at + apart);
    }
    const V rotated_a = hn::NegMulAdd(b, s, hn::Mul(a, c)),
            rotated_b = hn::MulAdd(a, s, hn::Mul(b, c));
    if (apart == 1) {
      hn::StoreInterleaved2(rotated_a, rotated_b, d, at);
    } else {
      hn::StoreU(rotated_a, d, at), hn::StoreU(rotated_b, d, at + apart);
    }
  }
  for (; p < run.pairs; ++p) {
    const float c = row[p], s = adjoint ? -row[run.pairs + p] : row[run.pairs + p];
    const float a = x[run.dims[2 * p]], b = x[run.dims[2 * p + 1]];
    x[run.dims[2 * p]] = a * c - b * s;
    x[run.dims[2 * p + 1]] = b * c + a * s;
  }
}

void RotateRowsT(const RotationRun& run, const float* cos_sin, int64_t count, bool adjoint,
                 float* x, int64_t stride) {
  for (int64_t j = 0; j < count; ++j) {
    RotateRow(run, cos_sin + j * 2 * run.pairs, adjoint, x + j * stride);
  }
}

// QK^T of a tile, and which keys its rows see through each view.
class Scores {
 public:
  explicit Scores(Tile& tile) : tile_(tile), t_(tile.t), rotation_(t_.rotation), kv_(tile) {
    if (rotation_ == nullptr) return;
    views_ = rotation_->views;
    view_q_ = t_.rotation_scratch;
    block_ = view_q_ + (views_ - 1) * tile_.rows * t_.key_stride;
    few_ = block_ + AttentionAccess::kBlock * t_.head_dim;
  }

  int views() const { return views_; }
  const RotationRun* rotation() const { return rotation_; }

  // The queries of a view, [rows, key_stride].
  float* Queries(int view) const {
    return view == 0 ? tile_.q : view_q_ + (view - 1) * tile_.rows * t_.key_stride;
  }

  uint16_t* RoundedQueries(int view) const {
    return tile_.rounded_q + view * tile_.rows * t_.key_stride;
  }
  KeyValues& kv() { return kv_; }

  // Once per tile of queries.
  void ScaleQueries() {
    for (int64_t token = 0, r = 0; token < t_.tokens; ++token) {
      const float* q = t_.q + token * t_.q_token_stride;
      const V scale = hn::Set(D(), tile_.Scale2(token));
      const bool more = token + kTokensAhead < t_.tokens;
      for (int64_t h = 0; h < t_.group; ++h, ++r) {
        if (more) {
          PrefetchRow(q + kTokensAhead * t_.q_token_stride + h * t_.q_head_stride, t_.head_dim);
        }
        Scale(t_.head_dim, q + h * t_.q_head_stride, scale, tile_.q + r * t_.key_stride);
      }
    }
  }
  // Rotates them where that is done on load, and rounds them where products are in bf16.
  void FinishQueries() {
    for (int v = views_ - 1; rotation_ != nullptr && v >= 0; --v) {
      for (int64_t r = 0; r < tile_.rows; ++r) {
        float* to = Queries(v) + r * t_.key_stride;
        if (v > 0) std::memcpy(to, tile_.q + r * t_.key_stride, sizeof(float) * t_.key_stride);
        RotateRow(*rotation_, QueryRow(v, r), /*adjoint=*/false, to);
      }
    }
    for (int v = 0; t_.bf16 && v < views_; ++v) {
      for (int64_t r = 0; r < tile_.rows; ++r) {
        const float* from = Queries(v) + r * t_.key_stride;
        uint16_t* to = RoundedQueries(v) + r * t_.key_stride;
        // Without the log2 e, so that a scale of a power of 2 rounds nothing.
        RoundScaled(from, t_.head_dim, kLn2, to);
      }
    }
  }

  // cos and sin of a row's query.
  const float* QueryRow(int view, int64_t row) const {
    return rotation_->Row(view, t_.first_token + tile_.Token(row));
  }

  // The keys that the rows of a group see through a view: those that any sees, and those that all
  // see.
  struct Span {
    int64_t begin, end, all_begin, all_end;
    bool CoversAll(int64_t from, int64_t to) const { return all_begin <= from && all_end >= to; }
  };
  Span SpanOf(int view, int64_t row, int64_t rows) const {
    const int64_t first = tile_.Token(row), last = tile_.Token(row + rows - 1);
    return {ViewBegin(view, first), ViewEnd(view, last), ViewBegin(view, last),
            ViewEnd(view, first)};
  }
  int64_t ViewBegin(int view, int64_t token) const {
    return rotation_->begin[view * rotation_->queries + t_.first_token + token];
  }
  int64_t ViewEnd(int view, int64_t token) const {
    return rotation_->end[view * rotation_->queries + t_.first_token + token];
  }

  // Once per tile of keys. Keys that no view scores lie in one interval, the hole (attention sinks
  // keep the first keys and the last). Leaves out the ends of the tile that no row sees; in a tile
  // that only the first view scores, also each row's keys before its own. Whether a key is left.
  bool ClipTile() {
    if (!HasHoles()) return true;
    const int64_t begin = ViewEnd(1, t_.tokens - 1), end = ViewBegin(0, 0);
    tile_.seen_begin =
        begin <= tile_.begin ? rotation_->begin.data() + t_.first_token : t_.seen_begin;
    if (begin >= end) return true;
    if (begin <= tile_.begin && end > tile_.begin) {
      tile_.begin = end / AttentionAccess::kBlock * AttentionAccess::kBlock;
    }
    if (begin < tile_.end && end >= tile_.end) tile_.end = begin;
    return tile_.begin < tile_.end;
  }

  // QK^T, once per tile of keys.
  void MultiplyKeys() {
    if (rotation_ == nullptr && t_.kv.type == KvType::kF32 && !t_.bf16) {
      return KeyProducts(tile_.scores);
    }
    if (tile_.key_words != 0 && tile_.key_words != kPairTileRows) {
      ConfigurePairTiles(tile_.key_words);
    }
    // Each view but the first writes only the scores that are its own, over those of the first.
    for (int v = 0; v < views_; ++v) {
      for (int64_t at = tile_.begin; at < tile_.end; at += AttentionAccess::kBlock) {
        BlockProducts(v, at);
      }
    }
  }

  // QK^T of the keys as the cache has them, which is of float32.
  void KeyProducts(float* to) const {
    Products(tile_.q, t_.key_stride, t_.kv.Keys<float>(), t_.head_dim, to);
  }
  // to [rows, kScoreStride] = a [rows, stride] times rows of `dim` elements that are packed as keys
  // are.
  void Products(const float* a, int64_t stride, const float* packed, int64_t dim, float* to) const {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const int64_t groups = (tile_.rows + kRows - 1) / kRows;
    for (int64_t block = tile_.begin; block < tile_.end; block += kBlock) {
      const float* keys = packed + block * dim;
      const bool more = groups >= kGroupsThatPrefetch && block + kBlock < t_.key_end;
      for (int64_t row = 0; row < tile_.rows; row += kRows) {
        if (more) PrefetchPart(keys + kBlock * dim, kBlock * dim, row / kRows, groups);
        const RowGroup g = tile_.Group(row);
        const int64_t begin = std::max(Tile::Down(g.begin), block);
        const int64_t end = std::min(g.end, block + kBlock);
        if (begin >= end) continue;
        Multiply(g.rows, Tile::Up(end - begin), a + row * stride, stride, keys + begin - block,
                 kBlock, dim, /*accumulate=*/false, to + row * kScoreStride + begin - tile_.begin,
                 kScoreStride);
      }
    }
  }

  // -infinity for the keys begin .. end of the tile (whole vectors) that row r does not see.
  void Mask(int64_t r, int64_t begin, int64_t end) const {
    constexpr float kMasked = -std::numeric_limits<float>::infinity();
    float* scores = tile_.scores + r * kScoreStride;
    const int64_t token = tile_.Token(r);
    const int64_t seen_begin = tile_.seen_begin[token] - tile_.begin;
    const int64_t seen_end = t_.seen_end[token] - tile_.begin;
    for (int64_t k = begin; k < std::min(end, seen_begin); ++k) scores[k] = kMasked;
    for (int64_t k = std::max(begin, seen_end); k < end; ++k) scores[k] = kMasked;
    if (!HasHoles()) return;
    const int64_t hole_begin = ViewEnd(1, token) - tile_.begin;
    const int64_t hole_end = std::min(end, ViewBegin(0, token) - tile_.begin);
    for (int64_t k = std::max(begin, hole_begin); k < hole_end; ++k) scores[k] = kMasked;
  }

 private:
  bool HasHoles() const { return views_ > 1; }

  // cos and sin of the block's keys in a view; null: they stay as they are.
  const float* BlockRotation(int view, int64_t block) const {
    if (rotation_ == nullptr) return nullptr;
    return rotation_->KeyBlock(view, block / AttentionAccess::kBlock);
  }

  // The block's keys, rotated to their positions in a view.
  const float* RotateBlock(int view, int64_t block) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const D d;
    const float* keys = kv_.Keys(block);
    const float* cos = BlockRotation(view, block);
    if (cos == nullptr) return keys;
    const float* sin = cos + rotation_->pairs * kBlock;
    for (const int32_t i : rotation_->unrotated) {
      std::memcpy(block_ + i * kBlock, keys + i * kBlock, sizeof(float) * kBlock);
    }
    for (int64_t p = 0; p < rotation_->pairs; ++p) {
      const int64_t x = rotation_->dims[2 * p] * kBlock, y = rotation_->dims[2 * p + 1] * kBlock;
      for (int64_t k = 0; k < kBlock; k += kLanes) {
        const V c = hn::Load(d, cos + p * kBlock + k), s = hn::Load(d, sin + p * kBlock + k);
        const V a = hn::Load(d, keys + x + k), b = hn::Load(d, keys + y + k);
        hn::Store(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, block_ + x + k);
        hn::Store(hn::MulAdd(a, s, hn::Mul(b, c)), d, block_ + y + k);
      }
    }
    return block_;
  }

  void BlockProducts(int view, int64_t block) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const float* keys = nullptr;
    const uint32_t* pairs = nullptr;
    const int64_t most = tile_.key_words != 0 ? kPairTileGroup : kRows;
    for (int64_t row = 0; row < tile_.rows; row += most) {
      const RowGroup g = tile_.Group(row, most);
      int64_t begin = std::max(g.begin, block), end = std::min(g.end, block + kBlock);
      bool whole = true;
      if (views_ > 1) {
        const Span span = SpanOf(view, row, g.rows);
        whole = view == 0 || span.CoversAll(begin, end);
        begin = std::max(begin, span.begin), end = std::min(end, span.end);
      }
      if (begin >= end) continue;
      const int64_t lanes = t_.bf16 ? kPairLanes : kLanes;
      const int64_t first = begin / lanes * lanes,
                    width = (end - first + lanes - 1) / lanes * lanes;
      float* const own = tile_.scores + row * kScoreStride + first - tile_.begin;
      float* const to = whole ? own : few_;
      const int64_t stride = whole ? kScoreStride : kBlock;
      if (t_.bf16) {
        if (pairs == nullptr) {
          const bool rotates = BlockRotation(view, block) != nullptr;
          pairs = kv_.KeyPairs(block, rotates ? RotateBlock(view, block) : nullptr);
        }
        const uint16_t* q = RoundedQueries(view) + row * t_.key_stride;
        const uint32_t* k = pairs + first - block;
        if (tile_.key_words != 0) {
          MultiplyPairTiles(g.rows, width, q, t_.key_stride, k, kBlock, tile_.key_words,
                            t_.kv.pairs(), kLog2E / tile_.unit, to, stride);
        } else {
          MultiplyPairs(g.rows, width, q, t_.key_stride, k, kBlock, t_.kv.pairs(),
                        kLog2E / tile_.unit, to, stride);
        }
      } else {
        if (keys == nullptr) keys = RotateBlock(view, block);
        Multiply(g.rows, width, Queries(view) + row * t_.key_stride, t_.key_stride,
                 keys + first - block, kBlock, t_.head_dim, /*accumulate=*/false, to, stride);
      }
      if (whole) continue;
      for (int64_t r = 0; r < g.rows; ++r) {
        const int64_t from = std::max(begin, ViewBegin(view, tile_.Token(row + r)));
        const int64_t to = std::min(end, ViewEnd(view, tile_.Token(row + r)));
        for (int64_t k = from; k < to; ++k) {
          own[r * kScoreStride + k - first] = few_[r * kBlock + k - first];
        }
      }
    }
  }

  Tile& tile_;
  const AttentionTile& t_;
  const RotationRun* const rotation_;
  KeyValues kv_;
  int views_ = 1;
  float* view_q_ = nullptr;  // [views - 1, rows, key_stride]
  float* block_ = nullptr;   // [head_dim, 64]
  float* few_ = nullptr;     // [kPairTileGroup, 64]
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
