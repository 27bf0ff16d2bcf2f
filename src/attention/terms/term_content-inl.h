// Products with rows of a table that the distance chooses (Shaw, Transformer-XL, DeBERTa): of
// queries, of keys, and rows added to the values. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_TERM_CONTENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_TERM_CONTENT_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_TERM_CONTENT_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_TERM_CONTENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "src/attention/terms/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// Tokens of one head whose distances to a key differ by at most kChunkSpread, and the keys that any
// of them sees, in whole vectors.
struct Chunk {
  int64_t token, tokens;
  int64_t base_low, base_high;
  int64_t begin, end;  // keys
};

class ContentTerm : public NoTerm {
 public:
  static constexpr bool kReadsWeights = true;

  explicit ContentTerm(const Tile& tile)
      : tile_(tile),
        t_(tile.t),
        form_(std::get<ContentForm>(*t_.form->form)),
        columns_(*t_.form->content),
        base_(tile.base()),
        relative_q_(tile.form_scratch),
        products_(relative_q_ + tile.rows * t_.key_stride),
        line_(reinterpret_cast<int32_t*>(products_ + kChunkTokens * kColumnStride)),
        key_rows_(products_ + kChunkTokens * kColumnStride + kScoreStride),
        key_products_(key_rows_ + AttentionAccess::kBlock * t_.key_stride) {}

  static int64_t ScratchFloats(const FormRun&, int64_t rows, int64_t, int64_t head_dim) {
    const int64_t stride = AttentionAccess::RowStride(head_dim);
    return rows * stride + kChunkTokens * kColumnStride + kScoreStride +
           AttentionAccess::kBlock * (stride + kKeyColumns);
  }

  void Begin() {
    const auto scale = [this](int64_t token) { return tile_.Scale2(token); };
    if (!form_.key_bias.empty()) FillQueries(tile_, form_.key_bias, scale, tile_.q);
    FillQueries(tile_, form_.query_bias, scale, relative_q_);
  }

  void AddTo(float* scores) {
    if (columns_.query_rows.size() != 0) {
      ForChunks([&](int64_t h, const Chunk& c) {
        AddRows(h, c, relative_q_, columns_.query_rows, scores);
      });
    }
    if (columns_.key_rows.size() != 0) {
      for (int64_t block = tile_.begin; block < tile_.end; block += AttentionAccess::kBlock) {
        ForKeyChunks(block, [this](const Chunk& c, int64_t first_head, int64_t last_head) {
          AddKeyRows(c, first_head, last_head);
        });
      }
    }
  }

  void AddValueRows() {
    if (columns_.value_rows.size() == 0) return;
    ForChunks([this](int64_t h, const Chunk& c) {
      MultiplySums(h, c, SumByColumn(h, c, tile_.scores), columns_.value_rows, tile_.sums);
    });
  }

  void AddToWeightGradients(const Gradients& g) {
    if (columns_.value_rows.size() == 0) return;
    ForChunks([&](int64_t h, const Chunk& c) {
      AddRows(h, c, g.d_out, g.b.tables->packed_value_rows, g.d_scores);
    });
  }

  void Backward(const Gradients& g) {
    FormSums& s = *g.b.sums;
    if (columns_.query_rows.size() != 0) {
      ForChunks(
          [&](int64_t h, const Chunk& c) {
            const Columns x = SumByColumn(h, c, g.d_scores);
            MultiplySums(h, c, x, g.b.tables->query_rows, g.d_relative);
            AddTableGradient(h, c, x, relative_q_, s.query_rows.data());
          },
          kChunkTokens);
    }
    if (columns_.value_rows.size() != 0) {
      ForChunks(
          [&](int64_t h, const Chunk& c) {
            AddTableGradient(h, c, SumByColumn(h, c, tile_.scores), g.d_out, s.value_rows.data());
          },
          kChunkTokens);
    }
    if (columns_.key_rows.size() == 0) return;
    for (int64_t block = tile_.begin; block < tile_.end; block += AttentionAccess::kBlock) {
      ForKeyChunks(block, [&](const Chunk& c, int64_t first_head, int64_t last_head) {
        BackwardKeyRows(g, c, first_head, last_head);
      });
    }
  }

  void AddQueryGradient(const Gradients& g, int64_t h, float scale, const float* d_q,
                        const float* d_relative) const {
    FormSums& s = *g.b.sums;
    for (int64_t i = 0; i < t_.head_dim; ++i) {
      s.query_bias[h * t_.head_dim + i] += double{scale} * d_relative[i];
      s.key_bias[h * t_.head_dim + i] += double{scale} * d_q[i];
    }
  }

 private:
  // Of a head's packed rows.
  int64_t Table(int64_t h) const { return columns_.Table(t_.first_head + h, t_.head_dim); }

  // Takes tokens from c.token on while their distances differ by at most `spread`.
  void Extend(Chunk& c, int64_t most_tokens, int64_t spread) const {
    c.tokens = 1, c.base_low = c.base_high = base_[c.token];
    for (; c.tokens < most_tokens && c.token + c.tokens < t_.tokens; ++c.tokens) {
      const int64_t next = base_[c.token + c.tokens];
      const int64_t low = std::min(c.base_low, next), high = std::max(c.base_high, next);
      if (high - low > spread) break;
      c.base_low = low, c.base_high = high;
    }
  }

  template <class F>
  void ForChunks(const F& work, int64_t most_tokens = kRows) {
    for (int64_t h = 0; h < t_.group; ++h) {
      for (int64_t token = 0; token < t_.tokens;) {
        Chunk c{token, 0, 0, 0, 0, 0};
        Extend(c, most_tokens, kChunkSpread);
        token += c.tokens;
        c.begin = std::max(tile_.begin, tile_.seen_begin[c.token]);
        c.end = std::min(tile_.end, t_.seen_end[token - 1]);
        if (c.begin >= c.end) continue;
        c.begin = Tile::Down(c.begin), c.end = Tile::Up(c.end);
        work(h, c);
      }
    }
  }

  // line_[x] = column of distance first - x, less `origin`.
  void FillLine(int64_t first, int64_t count, int64_t origin) {
    const ContentColumns& c = columns_;
    const int64_t last = static_cast<int64_t>(c.column_of.size()) - 1, top = first - c.first;
    const int64_t beyond = std::clamp<int64_t>(top - last, 0, count);
    const int64_t inside = std::clamp<int64_t>(top + 1, beyond, count);
    std::fill_n(line_, beyond, static_cast<int32_t>(c.column_of[last] - origin));
    for (int64_t x = beyond; x < inside; ++x) {
      line_[x] = static_cast<int32_t>(c.column_of[top - x] - origin);
    }
    std::fill_n(line_ + inside, count - inside, static_cast<int32_t>(c.column_of[0] - origin));
  }

  // to [rows, kScoreStride] += a [rows, key_stride] times the table row of each distance.
  void AddRows(int64_t h, const Chunk& c, const float* a, const AlignedBuffer<float>& table,
               float* to) {
    const D d;
    const hn::RebindToSigned<D> di;
    const int64_t origin = Tile::Down(columns_.Column(c.base_high - c.begin));
    const int64_t last_column = columns_.Column(c.base_low - (c.end - 1));
    const int64_t row = c.token * t_.group + h;
    MultiplyColumns(t_.head_dim, c.tokens, a + row * t_.key_stride, t_.group * t_.key_stride,
                    table.data() + Table(h), origin, Tile::Up(last_column + 1), products_,
                    kColumnStride);
    for (int64_t i = 0; i < c.tokens; ++i) {
      const int64_t token = c.token + i, distance = base_[token];
      const auto [begin, end] = tile_.Seen(token, c.begin, c.end);
      if (begin == end) continue;
      const float* products = products_ + i * kColumnStride;
      float* scores = to + (row + i * t_.group) * kScoreStride + begin - tile_.begin;
      const int64_t first = columns_.Column(distance - begin) - origin;
      const int64_t last = columns_.Column(distance - (end - 1)) - origin, count = end - begin;
      if (first == last || last - first == count - 1) {
        const bool constant = first == last;
        for (int64_t k = 0; k < count; k += kLanes) {
          const V bias =
              constant ? hn::Set(d, products[first]) : hn::LoadU(d, products + first + k);
          hn::Store(hn::Add(hn::Load(d, scores + k), bias), d, scores + k);
        }
        continue;
      }
      FillLine(distance - begin, count, origin);
      for (int64_t k = 0; k < count; k += kLanes) {
        const V bias = hn::GatherIndex(d, products, hn::LoadU(di, line_ + k));
        hn::Store(hn::Add(hn::Load(d, scores + k), bias), d, scores + k);
      }
    }
  }

  // key_rows_ from a block of packed keys, [head_dim, 64]: most of what decoding costs here.
  void TransposeKeys(const float* HWY_RESTRICT keys) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const int64_t dim = t_.head_dim, stride = t_.key_stride;
    float* HWY_RESTRICT rows = key_rows_;
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<float, 4> d;
    for (; i + 4 <= dim; i += 4) {
      for (int64_t k = 0; k < kBlock; k += 4) {
        const float* const from = keys + i * kBlock + k;
        float* const to = rows + k * stride + i;
        const auto a = hn::Load(d, from), b = hn::Load(d, from + kBlock);
        const auto c = hn::Load(d, from + 2 * kBlock), e = hn::Load(d, from + 3 * kBlock);
        const auto ab = hn::InterleaveLower(d, a, b), ab_upper = hn::InterleaveUpper(d, a, b);
        const auto ce = hn::InterleaveLower(d, c, e), ce_upper = hn::InterleaveUpper(d, c, e);
        hn::StoreU(hn::ConcatLowerLower(d, ce, ab), d, to);
        hn::StoreU(hn::ConcatUpperUpper(d, ce, ab), d, to + stride);
        hn::StoreU(hn::ConcatLowerLower(d, ce_upper, ab_upper), d, to + 2 * stride);
        hn::StoreU(hn::ConcatUpperUpper(d, ce_upper, ab_upper), d, to + 3 * stride);
      }
    }
#endif
    for (; i < dim; ++i) {
      for (int64_t k = 0; k < kBlock; ++k) rows[k * stride + i] = keys[i * kBlock + k];
    }
  }

  // Calls work(chunk, first_head, last_head) for the tokens that see the block, as many at a time
  // as have distances that fit, and the heads that share a table.
  template <class F>
  void ForKeyChunks(int64_t block, const F& work) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const int64_t end = std::min(tile_.end, block + kBlock);
    TransposeKeys(KeyValues(tile_).Keys(block));
    const bool shared = columns_.table_heads == 1;
    for (int64_t h = 0; h < (shared ? 1 : t_.group); ++h) {
      for (int64_t token = 0; token < t_.tokens;) {
        Chunk c{token, 0, 0, 0, block, end};
        Extend(c, t_.tokens, kBandSpread);
        token += c.tokens;
        if (tile_.seen_begin[c.token] < end && t_.seen_end[token - 1] > block) {
          work(c, h, shared ? t_.group : h + 1);
        }
      }
    }
  }

  // For heads `first` .. `last`, which share a table.
  void AddKeyRows(const Chunk& c, int64_t first_head, int64_t last_head) {
    const D d;
    const hn::RebindToSigned<D> di;
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    int32_t offsets[kBlock];  // of a key's column 0 among its products
    const float* table = columns_.key_rows.data() + Table(first_head);
    for (int64_t k = 0; k < kBlock; k += kRows) {
      const int64_t keys = std::min<int64_t>(kRows, kBlock - k), at = c.begin + k;
      const int64_t origin = Tile::Down(columns_.Column(c.base_high - at));
      const int64_t last = columns_.Column(c.base_low - (at + keys - 1));
      MultiplyColumns(t_.head_dim, keys, key_rows_ + k * t_.key_stride, t_.key_stride, table,
                      origin, Tile::Up(last + 1), key_products_ + k * kKeyColumns, kKeyColumns);
      for (int64_t i = k; i < k + keys; ++i) {
        offsets[i] = static_cast<int32_t>(i * kKeyColumns - origin);
      }
    }
    for (int64_t token = c.token; token < c.token + c.tokens; ++token) {
      const auto [begin, end] = tile_.Seen(token, c.begin, c.end);
      if (begin == end) continue;
      const int64_t count = end - begin, from = begin - c.begin;
      FillLine(base_[token] - begin, count, 0);
      for (int64_t k = 0; k < count; ++k) line_[k] += offsets[from + k];
      const V scale = hn::Set(d, tile_.Scale2(token));
      for (int64_t h = first_head; h < last_head; ++h) {
        float* scores = tile_.scores + (token * t_.group + h) * kScoreStride + begin - tile_.begin;
        for (int64_t k = 0; k < count; k += kLanes) {
          const V bias = hn::GatherIndex(d, key_products_, hn::LoadU(di, line_ + k));
          hn::Store(hn::MulAdd(scale, bias, hn::Load(d, scores + k)), d, scores + k);
        }
      }
    }
  }

  // products_ [tokens, kColumnStride] = sums of `from` by column, from the chunk's first one on.
  struct Columns {
    int64_t origin, count;
  };
  Columns SumByColumn(int64_t h, const Chunk& c, const float* from) {
    const D d;
    const int64_t origin = columns_.Column(c.base_high - c.begin);
    const int64_t columns = columns_.Column(c.base_low - (c.end - 1)) + 1 - origin;
    const int64_t row = c.token * t_.group + h;
    for (int64_t i = 0; i < c.tokens; ++i) {
      float* by_column = products_ + i * kColumnStride;
      std::fill_n(by_column, columns, 0.0f);
      const int64_t token = c.token + i, distance = base_[token];
      const auto [begin, end] = tile_.Seen(token, c.begin, c.end);
      if (begin == end) continue;
      const float* weights = from + (row + i * t_.group) * kScoreStride + begin - tile_.begin;
      const int64_t first = columns_.Column(distance - begin) - origin;
      const int64_t last = columns_.Column(distance - (end - 1)) - origin, count = end - begin;
      if (first == last) {
        V sum = hn::Zero(d);
        for (int64_t k = 0; k < count; k += kLanes) sum = hn::Add(sum, hn::Load(d, weights + k));
        by_column[first] = hn::GetLane(hn::SumOfLanes(d, sum));
      } else if (last - first == count - 1) {
        std::memcpy(by_column + first, weights, sizeof(float) * count);
      } else {
        FillLine(distance - begin, count, origin);
        for (int64_t k = 0; k < count; ++k) by_column[line_[k]] += weights[k];
      }
    }
    return {origin, columns};
  }

  // to [rows, key_stride] += those sums times plain rows [table_heads, columns, key_stride].
  void MultiplySums(int64_t h, const Chunk& c, const Columns& x, const AlignedBuffer<float>& rows,
                    float* to) const {
    const int64_t head = columns_.table_heads == 1 ? 0 : t_.first_head + h;
    const float* table = rows.data() + head * columns_.columns * t_.key_stride;
    for (int64_t i = 0; i < c.tokens; i += kRows) {
      const int64_t tokens = std::min<int64_t>(kRows, c.tokens - i);
      // The columns of these few: the others' are 0 here.
      const auto [low, high] =
          std::minmax_element(base_ + c.token + i, base_ + c.token + i + tokens);
      const int64_t first = columns_.Column(*high - c.begin);
      const int64_t count = columns_.Column(*low - (c.end - 1)) + 1 - first;
      Multiply(tokens, t_.key_stride, products_ + i * kColumnStride + first - x.origin,
               kColumnStride, table + first * t_.key_stride, t_.key_stride, count,
               /*accumulate=*/true, to + ((c.token + i) * t_.group + h) * t_.key_stride,
               t_.group * t_.key_stride);
    }
  }

  // d_rows += sums by column^T times the chunk's rows of `from`.
  void AddTableGradient(int64_t h, const Chunk& c, const Columns& x, const float* from,
                        float* d_rows) const {
    const int64_t head = columns_.table_heads == 1 ? 0 : h;
    MultiplyTransposed(
        products_, kColumnStride, x.count, from + (c.token * t_.group + h) * t_.key_stride,
        c.tokens, t_.group * t_.key_stride, t_.key_stride,
        d_rows + (head * columns_.columns + x.origin) * t_.key_stride, t_.key_stride);
  }

  // Gradients of a block's keys by column, times the rows for the keys, times the keys for the
  // rows.
  void BackwardKeyRows(const Gradients& g, const Chunk& c, int64_t first_head, int64_t last_head) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    int64_t offsets[kBlock];
    for (int64_t k = 0; k < kBlock; ++k) {
      offsets[k] = k * kKeyColumns - columns_.Column(c.base_high - (c.begin + k / kRows * kRows));
    }
    std::fill_n(key_products_, kBlock * kKeyColumns, 0.0f);
    for (int64_t token = c.token; token < c.token + c.tokens; ++token) {
      const int64_t begin = std::max(c.begin, tile_.seen_begin[token]);
      const int64_t end = std::min(c.end, t_.seen_end[token]);
      if (begin >= end) continue;
      FillLine(base_[token] - begin, end - begin, 0);
      const float scale = tile_.Scale2(token);  // d_keys is in units of log 2, as q is
      for (int64_t h = first_head; h < last_head; ++h) {
        const float* line =
            g.d_scores + (token * t_.group + h) * kScoreStride + begin - tile_.begin;
        for (int64_t k = 0; k < end - begin; ++k) {
          key_products_[offsets[begin - c.begin + k] + line_[k]] += scale * line[k];
        }
      }
    }
    const int64_t table = columns_.table_heads == 1 ? 0 : t_.first_head + first_head;
    const int64_t own = columns_.table_heads == 1 ? 0 : first_head;
    for (int64_t k = 0; k < c.end - c.begin; k += kRows) {
      const int64_t keys = std::min<int64_t>(kRows, c.end - c.begin - k), at = c.begin + k;
      const int64_t origin = columns_.Column(c.base_high - at);
      const int64_t count = columns_.Column(c.base_low - (at + keys - 1)) + 1 - origin;
      Multiply(keys, t_.key_stride, key_products_ + k * kKeyColumns, kKeyColumns,
               g.b.tables->key_rows.data() + (table * columns_.columns + origin) * t_.key_stride,
               t_.key_stride, count, /*accumulate=*/true, g.b.d_keys + at * t_.key_stride,
               t_.key_stride);
      MultiplyTransposed(
          key_products_ + k * kKeyColumns, kKeyColumns, count, g.b.key_rows + at * t_.key_stride,
          keys, t_.key_stride, t_.key_stride,
          g.b.sums->key_rows.data() + (own * columns_.columns + origin) * t_.key_stride,
          t_.key_stride);
    }
  }

  const Tile& tile_;
  const AttentionTile& t_;
  const ContentForm& form_;
  const ContentColumns& columns_;
  const int64_t* const base_;  // [tokens]
  float* const relative_q_;    // [rows, key_stride], scaled
  float* const products_;      // [kChunkTokens, kColumnStride]
  int32_t* const line_;        // [kScoreStride]
  float* const key_rows_;      // [64, key_stride]
  float* const key_products_;  // [64, kKeyColumns]
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
