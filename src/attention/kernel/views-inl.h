// Scores of a tile as products of queries and keys: as they are, or turned on load, once for each
// view of a distance map; once a target.
#if defined(ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_VIEWS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "src/attention/terms/content-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// x = R x, or R^T x: `row` has cos and sin of the pairs, times the amplitude.
HWY_INLINE void TurnRow(const RotationRun& run, const float* HWY_RESTRICT row, bool back,
                        float* HWY_RESTRICT x) {
  if (run.pairs == 0) return;
  const D d;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  const int64_t first = run.dims[0], apart = run.dims[1] - first;
  const V sign = hn::Set(d, back ? -1.0f : 1.0f);
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
    const V turned_a = hn::NegMulAdd(b, s, hn::Mul(a, c)),
            turned_b = hn::MulAdd(a, s, hn::Mul(b, c));
    if (apart == 1) {
      hn::StoreInterleaved2(turned_a, turned_b, d, at);
    } else {
      hn::StoreU(turned_a, d, at), hn::StoreU(turned_b, d, at + apart);
    }
  }
  for (; p < run.pairs; ++p) {
    const float c = row[p], s = back ? -row[run.pairs + p] : row[run.pairs + p];
    const float a = x[run.dims[2 * p]], b = x[run.dims[2 * p + 1]];
    x[run.dims[2 * p]] = a * c - b * s;
    x[run.dims[2 * p + 1]] = b * c + a * s;
  }
}

void TurnRowsT(const RotationRun& run, const float* turns, int64_t count, bool back, float* x,
               int64_t stride) {
  for (int64_t j = 0; j < count; ++j) {
    TurnRow(run, turns + j * 2 * run.pairs, back, x + j * stride);
  }
}

class TileViews : public TileContent {
 protected:
  explicit TileViews(const AttentionTile& t) : TileContent(t), rotation_(t.rotation) {
    if (rotation_ == nullptr) return;
    views_ = rotation_->views;
    view_q_ = t.rotation_scratch;
    block_ = view_q_ + (views_ - 1) * rows_ * t.value_stride;
    few_ = block_ + AttentionAccess::kBlock * t.head_dim;
  }

  float* Queries(int view) const {
    return view == 0 ? q_ : view_q_ + (view - 1) * rows_ * t_.value_stride;
  }

  // Of queries in place.
  void TurnQueries() {
    for (int v = views_ - 1; v >= 0; --v) {
      for (int64_t r = 0; r < rows_; ++r) {
        float* to = Queries(v) + r * t_.value_stride;
        if (v > 0) std::memcpy(to, q_ + r * t_.value_stride, sizeof(float) * t_.value_stride);
        TurnRow(*rotation_, QueryRow(v, r), /*back=*/false, to);
      }
    }
  }

  const float* QueryRow(int view, int64_t row) const {
    return rotation_->Row(view, t_.first_token + Token(row));
  }

  // The keys that the rows of a group see through a view: those that any sees and those that all
  // see.
  struct Reach {
    int64_t begin, end, all_begin, all_end;
    bool Empty() const { return begin >= end; }
    bool CoversAll(int64_t from, int64_t to) const { return all_begin <= from && all_end >= to; }
  };
  Reach ReachOf(int view, int64_t row, int64_t rows) const {
    const int64_t first = Token(row), last = Token(row + rows - 1);
    return {ViewBegin(view, first), ViewEnd(view, last), ViewBegin(view, last),
            ViewEnd(view, first)};
  }
  int64_t ViewBegin(int view, int64_t token) const {
    return rotation_->begin[view * rotation_->queries + t_.first_token + token];
  }
  int64_t ViewEnd(int view, int64_t token) const {
    return rotation_->end[view * rotation_->queries + t_.first_token + token];
  }

  // Keys that no view has lie in one interval (sinks keep the first keys and the last).
  bool HasHoles() const { return views_ > 1; }
  // Leaves out what lies in the hole: the ends of the tile that no row sees, and in a tile that
  // only the first view scores each row's keys before its own. Whether a key is left.
  bool ClipTile() {
    if (!HasHoles()) return true;
    const int64_t begin = ViewEnd(1, t_.tokens - 1), end = ViewBegin(0, 0);
    seen_begin_ = begin <= tile_begin_ ? rotation_->begin.data() + t_.first_token : t_.seen_begin;
    if (begin >= end) return true;
    if (begin <= tile_begin_ && end > tile_begin_) {
      tile_begin_ = end / AttentionAccess::kBlock * AttentionAccess::kBlock;
    }
    if (begin < tile_end_ && end >= tile_end_) tile_end_ = begin;
    return tile_begin_ < tile_end_;
  }

  // Whatever is added by row is left to what follows.
  void QueryKeyProducts() {
    if (rotation_ == nullptr) return Products(q_, t_.keys, scores_);
    // Views behind the first write only what is theirs, over what it left.
    for (int v = 0; v < views_; ++v) {
      for (int64_t at = tile_begin_; at < tile_end_; at += AttentionAccess::kBlock) {
        BlockProducts(v, at);
      }
    }
  }

  // to [rows, kScoreStride] = a [rows, value_stride] times what is packed as keys are.
  void Products(const float* a, const float* packed, float* to) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    for (int64_t block = tile_begin_; block < tile_end_; block += kBlock) {
      const float* keys = packed + block * t_.head_dim;
      for (int64_t row = 0; row < rows_; row += kRows) {
        const RowGroup g = Group(row);
        const int64_t begin = std::max(g.begin / kLanes * kLanes, block);
        const int64_t end = std::min(g.end, block + kBlock);
        if (begin >= end) continue;
        Multiply(g.rows, Up(end - begin), a + row * t_.value_stride, t_.value_stride,
                 keys + begin - block, kBlock, t_.head_dim, /*accumulate=*/false,
                 to + row * kScoreStride + begin - tile_begin_, kScoreStride);
      }
    }
  }

  const RotationRun* const rotation_;
  int views_ = 1;

 private:
  // The block's keys at their positions in a view.
  const float* TurnBlock(int view, int64_t block) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const D d;
    const float* keys = t_.keys + block * t_.head_dim;
    const float* cos = LoadRotationAccess::KeyBlock(*rotation_->rotation, view, block / kBlock);
    if (cos == nullptr) return keys;
    const float* sin = cos + rotation_->pairs * kBlock;
    for (const int32_t i : rotation_->still) {
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
    for (int64_t row = 0; row < rows_; row += kRows) {
      const RowGroup g = Group(row);
      int64_t begin = std::max(g.begin, block), end = std::min(g.end, block + kBlock);
      bool whole = true;
      if (views_ > 1) {
        const Reach reach = ReachOf(view, row, g.rows);
        whole = view == 0 || reach.CoversAll(begin, end);
        begin = std::max(begin, reach.begin), end = std::min(end, reach.end);
      }
      if (begin >= end) continue;
      if (keys == nullptr) keys = TurnBlock(view, block);
      const int64_t first = Down(begin);
      float* scores = scores_ + row * kScoreStride + first - tile_begin_;
      Multiply(g.rows, Up(end - first), Queries(view) + row * t_.value_stride, t_.value_stride,
               keys + first - block, kBlock, t_.head_dim, /*accumulate=*/false,
               whole ? scores : few_, whole ? kScoreStride : kBlock);
      if (whole) continue;
      for (int64_t r = 0; r < g.rows; ++r) {
        const int64_t from = std::max(begin, ViewBegin(view, Token(row + r)));
        const int64_t to = std::min(end, ViewEnd(view, Token(row + r)));
        for (int64_t k = from; k < to; ++k) {
          scores[r * kScoreStride + k - first] = few_[r * kBlock + k - first];
        }
      }
    }
  }

  float* view_q_ = nullptr;  // [views - 1, rows, value_stride]
  float* block_ = nullptr;   // [head_dim, 64]
  float* few_ = nullptr;     // [kRows, 64]
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
