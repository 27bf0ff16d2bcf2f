// What a tile gives the gradients of a form's numbers, from the gradients of its scores; once a
// target.
#if defined(ROPEWALK_ATTENTION_TERMS_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_GRADIENTS_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_GRADIENTS_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_GRADIENTS_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "src/attention/terms/contextual-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

constexpr int64_t kBackwardSlice = 64;  // rows or keys that are summed over at a time
constexpr int64_t kBackwardWidth = 64;  // dims

class TileGradients : public TileContextual {
 protected:
  explicit TileGradients(const BackwardTile& b)
      : TileContextual(b.forward, b.contextual),
        b_(b),
        d_scores_(b.scratch),
        d_out_(d_scores_ + rows_ * kScoreStride),
        d_q_(d_out_ + rows_ * t_.value_stride),
        d_relative_(d_q_ + views_ * rows_ * t_.value_stride),
        d_view_(d_relative_ + rows_ * t_.value_stride),
        delta_(d_view_ + (views_ > 1 ? rows_ * kScoreStride : 0)) {}

  // c [columns, value_stride] += a^T b, a [depth, columns], b [depth, value_stride].
  void MultiplyTransposed(const float* a, int64_t a_stride, int64_t columns, const float* b,
                          int64_t depth, int64_t b_stride, float* c, int64_t c_stride) const {
    for (int64_t x = 0; x < t_.value_stride; x += kBackwardWidth) {
      const int64_t width = std::min(kBackwardWidth, t_.value_stride - x);
      for (int64_t i = 0; i < columns; i += kRows) {
        Multiply<true>(std::min<int64_t>(kRows, columns - i), width, a + i, a_stride, b + x,
                       b_stride, depth, /*accumulate=*/true, c + i * c_stride + x, c_stride);
      }
    }
  }

  void AddFormGradients() {
    if (contextual_ != nullptr) return;  // once for all keys: AddPositionRows
    if (content_ != nullptr) return AddContentGradients();
    if (pair_ != nullptr) return AddPairGradients();
    if (gates_) return AddGateGradients();
    for (int64_t h = 0; h < t_.group; ++h) {
      float* band = bands_;  // the biases are used up
      const int64_t count = spread_ + tile_end_ - tile_begin_;
      if (InBands()) std::fill_n(band, kBandStride, 0.0f);
      for (int64_t token = 0; token < t_.tokens; ++token) {
        const float* line = d_scores_ + (token * t_.group + h) * kScoreStride;
        const auto [begin, end] = Seen(token, tile_begin_, tile_end_);
        if (!InBands()) {
          AddLine(h, token, line, begin - tile_begin_, end - tile_begin_);
          continue;
        }
        float* to = band + base_high_ - base()[token];
        for (int64_t k = begin - tile_begin_; k < end - tile_begin_; k += kLanes) {
          const D d;
          hn::StoreU(hn::Add(hn::LoadU(d, to + k), hn::Load(d, line + k)), d, to + k);
        }
      }
      if (InBands()) AddBand(h, base_high_ - tile_begin_, count, band);
    }
  }

  // Distances one by one.
  void AddLine(int64_t h, int64_t token, const float* line, int64_t begin, int64_t end) {
    const QueryRanges& r = *t_.form->ranges;
    for (int64_t k = begin; k < std::min(end, tile_end_ - tile_begin_); ++k) {
      const int64_t distance = r.consecutive ? base()[token] - tile_begin_ - k
                                             : r.query_positions[t_.first_token + token] -
                                                   r.key_positions[tile_begin_ + k];
      AddBand(h, distance, 1, line + k);
    }
  }

  // gradient[x] is that of the bias of distance first - x.
  void AddBand(int64_t h, int64_t first, int64_t count, const float* gradient) {
    for (int64_t x = 0; x < count; ++x) {
      const int64_t distance = first - x;
      const double g = gradient[x];
      if (table_ != nullptr) {
        const int64_t column =
            std::clamp<int64_t>(distance - table_->first, 0, table_->columns - 1);
        b_.sums->values[h * table_->columns + column] += g;
      } else if (distance >= 0) {
        b_.sums->behind[h] -= g * static_cast<double>(distance);
      } else {
        b_.sums->ahead[h] += g * static_cast<double>(distance);
      }
    }
  }

  void AddPairGradients() {
    ForPairs([this](int64_t h, std::span<const int64_t> queries, std::span<const int64_t> keys,
                    int64_t row, int64_t key) {
      pair_->Backward(t_.first_head + h, queries, keys, d_scores_ + row * kScoreStride + key,
                      t_.group * kScoreStride, b_.sums->pair.span());
    });
  }

  // bias = G(query) - G(key): a row's sum goes to the query, a column's leaves the key.
  void AddGateGradients() {
    const D d;
    const int64_t stride = t_.form->gate_stride, index = t_.form->first_index + t_.first_token + 1;
    float* by_key = bands_;  // the biases are used up
    for (int64_t h = 0; h < t_.group; ++h) {
      double* sums = b_.sums->gates.data() + h * stride;
      std::fill_n(by_key, kTileKeys, 0.0f);
      for (int64_t token = 0; token < t_.tokens; ++token) {
        const float* line = d_scores_ + (token * t_.group + h) * kScoreStride;
        const auto [begin, end] = Seen(token, tile_begin_, tile_end_);
        V sum = hn::Zero(d);
        for (int64_t k = begin - tile_begin_; k < end - tile_begin_; k += kLanes) {
          const V x = hn::Load(d, line + k);
          sum = hn::Add(sum, x);
          hn::Store(hn::Add(hn::Load(d, by_key + k), x), d, by_key + k);
        }
        sums[index + token] += hn::GetLane(hn::SumOfLanes(d, sum));
      }
      for (int64_t k = 0; k < tile_end_ - tile_begin_; ++k) sums[tile_begin_ + k + 1] -= by_key[k];
    }
  }

  void AddContentGradients() {
    FormSums& s = *b_.sums;
    const BackwardTables& tables = *b_.tables;
    if (columns_->query_rows.size() != 0) {
      ForChunks(
          [&](int64_t h, const Chunk& c) {
            const Columns x = SumByColumn(h, c, d_scores_);
            MultiplySums(h, c, x, tables.query_rows, d_relative_);
            AddTableGradient(h, c, x, relative_q_, s.query_rows.data());
          },
          kChunkTokens);
    }
    if (columns_->value_rows.size() != 0) {
      ForChunks(
          [&](int64_t h, const Chunk& c) {
            AddTableGradient(h, c, SumByColumn(h, c, scores_), d_out_, s.value_rows.data());
          },
          kChunkTokens);
    }
    if (columns_->key_rows.size() == 0) return;
    for (int64_t block = tile_begin_; block < tile_end_; block += AttentionAccess::kBlock) {
      ForKeyChunks(block, [&](const Chunk& c, int64_t first_head, int64_t last_head) {
        AddKeyRowGradients(c, first_head, last_head);
      });
    }
  }

  // d_rows += sums by column^T times the chunk's rows of `from`.
  void AddTableGradient(int64_t h, const Chunk& c, const Columns& x, const float* from,
                        float* d_rows) const {
    const int64_t head = columns_->table_heads == 1 ? 0 : h;
    MultiplyTransposed(
        products_, kColumnStride, x.count, from + (c.token * t_.group + h) * t_.value_stride,
        c.tokens, t_.group * t_.value_stride,
        d_rows + (head * columns_->columns + x.origin) * t_.value_stride, t_.value_stride);
  }

  void AddPositionRows() {
    const int64_t stride = columns_->PaddedColumns(), columns = columns_->columns;
    const bool shared = columns_->table_heads == 1;
    for (int64_t h = 0; h < t_.group; ++h) {
      const float* rows = b_.tables->query_rows.data() +
                          (shared ? 0 : t_.first_head + h) * columns * t_.value_stride;
      for (int64_t token = 0; token < t_.tokens; token += kRows) {
        const int64_t row = token * t_.group + h,
                      count = std::min<int64_t>(kRows, t_.tokens - token);
        Multiply(count, t_.value_stride, d_products_ + row * stride, t_.group * stride, rows,
                 t_.value_stride, columns, /*accumulate=*/true, d_relative_ + row * t_.value_stride,
                 t_.group * t_.value_stride);
        MultiplyTransposed(
            d_products_ + row * stride, t_.group * stride, columns,
            relative_q_ + row * t_.value_stride, count, t_.group * t_.value_stride,
            b_.sums->query_rows.data() + (shared ? 0 : h) * columns * t_.value_stride,
            t_.value_stride);
      }
    }
  }

  // Gradients of a block's keys by column, times the rows for the keys, times the keys for the
  // rows.
  void AddKeyRowGradients(const Chunk& c, int64_t first_head, int64_t last_head) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    int64_t offsets[kBlock];
    for (int64_t k = 0; k < kBlock; ++k) {
      offsets[k] = k * kKeyColumns - columns_->Column(c.base_high - (c.begin + k / kRows * kRows));
    }
    std::fill_n(key_products_, kBlock * kKeyColumns, 0.0f);
    for (int64_t token = c.token; token < c.token + c.tokens; ++token) {
      const int64_t begin = std::max(c.begin, seen_begin_[token]);
      const int64_t end = std::min(c.end, t_.seen_end[token]);
      if (begin >= end) continue;
      FillLine(base()[token] - begin, end - begin, 0);
      const float scale = Scale2(token);  // d_keys is in units of log 2, as q is
      for (int64_t h = first_head; h < last_head; ++h) {
        const float* line = d_scores_ + (token * t_.group + h) * kScoreStride + begin - tile_begin_;
        for (int64_t k = 0; k < end - begin; ++k) {
          key_products_[offsets[begin - c.begin + k] + line_[k]] += scale * line[k];
        }
      }
    }
    const int64_t table = columns_->table_heads == 1 ? 0 : t_.first_head + first_head;
    const int64_t own = columns_->table_heads == 1 ? 0 : first_head;
    for (int64_t k = 0; k < c.end - c.begin; k += kRows) {
      const int64_t keys = std::min<int64_t>(kRows, c.end - c.begin - k), at = c.begin + k;
      const int64_t origin = columns_->Column(c.base_high - at);
      const int64_t count = columns_->Column(c.base_low - (at + keys - 1)) + 1 - origin;
      Multiply(keys, t_.value_stride, key_products_ + k * kKeyColumns, kKeyColumns,
               b_.tables->key_rows.data() + (table * columns_->columns + origin) * t_.value_stride,
               t_.value_stride, count, /*accumulate=*/true, b_.d_keys + at * t_.value_stride,
               t_.value_stride);
      MultiplyTransposed(
          key_products_ + k * kKeyColumns, kKeyColumns, count, b_.key_rows + at * t_.value_stride,
          keys, t_.value_stride,
          b_.sums->key_rows.data() + (own * columns_->columns + origin) * t_.value_stride,
          t_.value_stride);
    }
  }

  const BackwardTile& b_;
  float* const d_scores_;    // [rows, kScoreStride], of weights at first
  float* const d_out_;       // [rows, value_stride]
  float* const d_q_;         // [views, rows, value_stride], by way of the keys, before the scale
  float* const d_relative_;  // [rows, value_stride], by way of query_rows
  float* const d_view_;      // [rows, kScoreStride], the scores' gradients of one of several views
  float* const delta_;       // [rows], d_out . out
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
