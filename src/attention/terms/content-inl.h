// Terms of a tile's scores that are products with the rows of a table; once a target.
#if defined(ROPEWALK_ATTENTION_TERMS_CONTENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_CONTENT_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_CONTENT_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_CONTENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/attention/terms/bias-inl.h"

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

class TileContent : public TileBias {
 protected:
  explicit TileContent(const AttentionTile& t) : TileBias(t) {
    if (t.form == nullptr) return;
    content_ = std::get_if<ContentForm>(t.form->form);
    if (const auto* running = std::get_if<RunningForm>(t.form->form);
        running != nullptr && running->kind == RunningForm::Kind::kContextual) {
      contextual_ = running;
    }
    columns_ = t.form->content;
    if (columns_ == nullptr) return;
    relative_q_ = bands_;
    products_ = relative_q_ + rows_ * t.value_stride;
    if (content_ != nullptr) {
      line_ = reinterpret_cast<int32_t*>(products_ + kChunkTokens * kColumnStride);
      key_rows_ = products_ + kChunkTokens * kColumnStride + kScoreStride;
      key_products_ = key_rows_ + AttentionAccess::kBlock * t.value_stride;
    } else {
      gates_line_ = products_ + rows_ * columns_->PaddedColumns();
      passed_ = reinterpret_cast<double*>(gates_line_ + kScoreStride);
    }
  }

  bool HasContent() const { return content_ != nullptr || contextual_ != nullptr; }
  // Keys from the nearest to the farthest.
  bool Descends() const { return contextual_ != nullptr; }

  // Once a tile, after the queries are in place.
  void BeginContent() {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t head = t_.first_head + r % t_.group, token = Token(r);
      const float* q = t_.q + token * t_.q_token_stride + r % t_.group * t_.q_head_stride;
      const float scale = contextual_ != nullptr ? kLog2E : Scale2(token);
      float* to = relative_q_ + r * t_.value_stride;
      const float* bias = nullptr;
      if (content_ != nullptr) {
        if (!content_->query_bias.empty()) bias = content_->query_bias.data() + head * t_.head_dim;
        if (!content_->key_bias.empty()) {
          const float* key_bias = content_->key_bias.data() + head * t_.head_dim;
          for (int64_t i = 0; i < t_.head_dim; ++i) {
            q_[r * t_.value_stride + i] = (q[i] + key_bias[i]) * scale;
          }
        }
      }
      for (int64_t i = 0; i < t_.head_dim; ++i) {
        to[i] = (bias == nullptr ? q[i] : q[i] + bias[i]) * scale;
      }
    }
    if (contextual_ == nullptr) return;
    std::fill_n(passed_, rows_, 0.0);
    const int64_t stride = columns_->PaddedColumns();
    for (int64_t h = 0; h < t_.group; ++h) {
      for (int64_t token = 0; token < t_.tokens; token += kRows) {
        const int64_t row = token * t_.group + h;
        MultiplyColumns(std::min<int64_t>(kRows, t_.tokens - token),
                        relative_q_ + row * t_.value_stride, t_.group * t_.value_stride,
                        columns_->query_rows.data() + Table(h), 0, stride, products_ + row * stride,
                        t_.group * stride);
      }
    }
  }

  // Once a tile of keys, between Scores and Softmax.
  void AddContent() {
    if (contextual_ != nullptr) {
      for (int64_t r = 0; r < rows_; ++r) AddContextual(r);
      return;
    }
    if (columns_->query_rows.size() != 0) {
      ForChunks([this](int64_t h, const Chunk& c) {
        AddRows(h, c, relative_q_, columns_->query_rows, scores_);
      });
    }
    if (columns_->key_rows.size() != 0) {
      for (int64_t block = tile_begin_; block < tile_end_; block += AttentionAccess::kBlock) {
        ForKeyChunks(block, [this](const Chunk& c, int64_t first_head, int64_t last_head) {
          AddKeyRows(c, first_head, last_head);
        });
      }
    }
  }

  // After Values, while scores_ holds weights.
  void AddValueRows() {
    if (columns_->value_rows.size() == 0) return;
    ForChunks([this](int64_t h, const Chunk& c) {
      MultiplySums(h, c, SumByColumn(h, c, scores_), columns_->value_rows, sums_);
    });
  }

  int64_t Table(int64_t h) const { return columns_->Table(t_.first_head + h, t_.head_dim); }
  static int64_t Down(int64_t x) { return x / kLanes * kLanes; }
  static int64_t Up(int64_t x) { return (x + kLanes - 1) / kLanes * kLanes; }

  // c [rows, columns begin .. end] = a [rows, head_dim] times packed columns; c starts at `begin`,
  // a multiple of the lanes.
  void MultiplyColumns(int64_t rows, const float* a, int64_t a_stride, const float* packed,
                       int64_t begin, int64_t end, float* c, int64_t c_stride) const {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    for (int64_t x = begin; x < end;) {
      const int64_t block = x / kBlock * kBlock, stop = std::min(end, block + kBlock);
      Multiply(rows, Up(stop - x), a, a_stride, packed + block * t_.head_dim + x - block, kBlock,
               t_.head_dim, /*accumulate=*/false, c + x - begin, c_stride);
      x = stop;
    }
  }

  template <class F>
  void ForChunks(const F& work, int64_t most_tokens = kRows) {
    for (int64_t h = 0; h < t_.group; ++h) {
      for (int64_t token = 0; token < t_.tokens;) {
        Chunk c{token, 1, base()[token], base()[token], 0, 0};
        for (; c.tokens < most_tokens && token + c.tokens < t_.tokens; ++c.tokens) {
          const int64_t next = base()[token + c.tokens];
          const int64_t low = std::min(c.base_low, next), high = std::max(c.base_high, next);
          if (high - low > kChunkSpread) break;
          c.base_low = low, c.base_high = high;
        }
        token += c.tokens;
        c.begin = std::max(tile_begin_, seen_begin_[c.token]);
        c.end = std::min(tile_end_, t_.seen_end[token - 1]);
        if (c.begin >= c.end) continue;
        c.begin = Down(c.begin), c.end = Up(c.end);
        work(h, c);
      }
    }
  }

  // Keys that a token sees among `begin` .. `end`, in whole vectors.
  std::pair<int64_t, int64_t> Seen(int64_t token, int64_t begin, int64_t end) const {
    const int64_t first = std::max(begin, seen_begin_[token]);
    const int64_t last = std::min(end, t_.seen_end[token]);
    if (first >= last) return {0, 0};
    return {Down(first), Up(last)};
  }

  // line_[x] = column of distance first - x, less `origin`.
  void FillLine(int64_t first, int64_t count, int64_t origin) {
    const ContentColumns& c = *columns_;
    const int64_t last = static_cast<int64_t>(c.column_of.size()) - 1, top = first - c.first;
    const int64_t beyond = std::clamp<int64_t>(top - last, 0, count);
    const int64_t inside = std::clamp<int64_t>(top + 1, beyond, count);
    std::fill_n(line_, beyond, static_cast<int32_t>(c.column_of[last] - origin));
    for (int64_t x = beyond; x < inside; ++x) {
      line_[x] = static_cast<int32_t>(c.column_of[top - x] - origin);
    }
    std::fill_n(line_ + inside, count - inside, static_cast<int32_t>(c.column_of[0] - origin));
  }

  // to [rows, kScoreStride] += a [rows, value_stride] times the table row of each distance.
  void AddRows(int64_t h, const Chunk& c, const float* a, const AlignedBuffer<float>& table,
               float* to) {
    const D d;
    const hn::RebindToSigned<D> di;
    const int64_t origin = Down(columns_->Column(c.base_high - c.begin));
    const int64_t last_column = columns_->Column(c.base_low - (c.end - 1));
    const int64_t row = c.token * t_.group + h;
    MultiplyColumns(c.tokens, a + row * t_.value_stride, t_.group * t_.value_stride,
                    table.data() + Table(h), origin, Up(last_column + 1), products_, kColumnStride);
    for (int64_t i = 0; i < c.tokens; ++i) {
      const int64_t token = c.token + i, distance = base()[token];
      const auto [begin, end] = Seen(token, c.begin, c.end);
      if (begin == end) continue;
      const float* products = products_ + i * kColumnStride;
      float* scores = to + (row + i * t_.group) * kScoreStride + begin - tile_begin_;
      const int64_t first = columns_->Column(distance - begin) - origin;
      const int64_t last = columns_->Column(distance - (end - 1)) - origin, count = end - begin;
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

  // Calls work(chunk, first_head, last_head) for the tokens that see the block, in turns whose
  // distances fit, and the heads that share a table.
  template <class F>
  void ForKeyChunks(int64_t block, const F& work) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const int64_t end = std::min(tile_end_, block + kBlock);
    const float* keys = t_.keys + block * t_.head_dim;
    for (int64_t i = 0; i < t_.head_dim; ++i) {
      for (int64_t k = 0; k < kBlock; ++k)
        key_rows_[k * t_.value_stride + i] = keys[i * kBlock + k];
    }
    const bool shared = columns_->table_heads == 1;
    for (int64_t h = 0; h < (shared ? 1 : t_.group); ++h) {
      for (int64_t token = 0; token < t_.tokens;) {
        Chunk c{token, 1, base()[token], base()[token], block, end};
        for (; token + c.tokens < t_.tokens; ++c.tokens) {
          const int64_t next = base()[token + c.tokens];
          const int64_t low = std::min(c.base_low, next), high = std::max(c.base_high, next);
          if (high - low > kBandSpread) break;
          c.base_low = low, c.base_high = high;
        }
        token += c.tokens;
        if (seen_begin_[c.token] < end && t_.seen_end[token - 1] > block) {
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
    const float* table = columns_->key_rows.data() + Table(first_head);
    for (int64_t k = 0; k < kBlock; k += kRows) {
      const int64_t keys = std::min<int64_t>(kRows, kBlock - k), at = c.begin + k;
      const int64_t origin = Down(columns_->Column(c.base_high - at));
      const int64_t last = columns_->Column(c.base_low - (at + keys - 1));
      MultiplyColumns(keys, key_rows_ + k * t_.value_stride, t_.value_stride, table, origin,
                      Up(last + 1), key_products_ + k * kKeyColumns, kKeyColumns);
      for (int64_t i = k; i < k + keys; ++i) {
        offsets[i] = static_cast<int32_t>(i * kKeyColumns - origin);
      }
    }
    for (int64_t token = c.token; token < c.token + c.tokens; ++token) {
      const auto [begin, end] = Seen(token, c.begin, c.end);
      if (begin == end) continue;
      const int64_t count = end - begin, from = begin - c.begin;
      FillLine(base()[token] - begin, count, 0);
      for (int64_t k = 0; k < count; ++k) line_[k] += offsets[from + k];
      const V scale = hn::Set(d, Scale2(token));
      for (int64_t h = first_head; h < last_head; ++h) {
        float* scores = scores_ + (token * t_.group + h) * kScoreStride + begin - tile_begin_;
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
    const int64_t origin = columns_->Column(c.base_high - c.begin);
    const int64_t columns = columns_->Column(c.base_low - (c.end - 1)) + 1 - origin;
    const int64_t row = c.token * t_.group + h;
    for (int64_t i = 0; i < c.tokens; ++i) {
      float* by_column = products_ + i * kColumnStride;
      std::fill_n(by_column, columns, 0.0f);
      const int64_t token = c.token + i, distance = base()[token];
      const auto [begin, end] = Seen(token, c.begin, c.end);
      if (begin == end) continue;
      const float* weights = from + (row + i * t_.group) * kScoreStride + begin - tile_begin_;
      const int64_t first = columns_->Column(distance - begin) - origin;
      const int64_t last = columns_->Column(distance - (end - 1)) - origin, count = end - begin;
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

  // to [rows, value_stride] += those sums times plain rows [table_heads, columns, value_stride].
  void MultiplySums(int64_t h, const Chunk& c, const Columns& x, const AlignedBuffer<float>& rows,
                    float* to) const {
    const int64_t head = columns_->table_heads == 1 ? 0 : t_.first_head + h;
    const float* table = rows.data() + head * columns_->columns * t_.value_stride;
    for (int64_t i = 0; i < c.tokens; i += kRows) {
      const int64_t tokens = std::min<int64_t>(kRows, c.tokens - i);
      // The columns of these few: the others' are 0 here.
      const auto [low, high] =
          std::minmax_element(base() + c.token + i, base() + c.token + i + tokens);
      const int64_t first = columns_->Column(*high - c.begin);
      const int64_t count = columns_->Column(*low - (c.end - 1)) + 1 - first;
      Multiply(tokens, t_.value_stride, products_ + i * kColumnStride + first - x.origin,
               kColumnStride, table + first * t_.value_stride, t_.value_stride, count,
               /*accumulate=*/true, to + ((c.token + i) * t_.group + h) * t_.value_stride,
               t_.group * t_.value_stride);
    }
  }

  // The gates of keys begin .. end of the tile, sigmoids of their scores.
  static void FillGates(const float* scores, int64_t begin, int64_t end, float* gates) {
    const D d;
    const V one = hn::Set(d, 1.0f);
    for (int64_t k = begin; k < end; k += kLanes) {
      const V x = hn::Load(d, scores + k);
      V e = hn::Neg(hn::Abs(x));
      Exp2<1>(&e);
      const V small = hn::Div(e, hn::Add(one, e));
      hn::Store(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, hn::Sub(one, small)), d, gates + k);
    }
  }

  // Whether all keys beyond a sum of gates stand at the last position: NaN does as well.
  bool AtLast(double sum) const { return !(sum < static_cast<double>(columns_->columns - 1)); }

  // Positions are sums of sigmoids from the query back to the key. Keys beyond the last position
  // need no gates.
  void AddContextual(int64_t row) {
    const auto [begin, end] = Seen(Token(row), tile_begin_, tile_end_);
    if (begin == end) return;
    float* scores = scores_ + row * kScoreStride;
    float* gates = all_gates_ == nullptr ? gates_line_ : all_gates_ + row * kScoreStride;
    const float* products = products_ + row * columns_->PaddedColumns();
    const auto last = static_cast<int32_t>(columns_->columns - 1);
    double sum = passed_[row];
    if (!AtLast(sum)) FillGates(scores, begin - tile_begin_, end - tile_begin_, gates);
    const int64_t first = std::max(tile_begin_, seen_begin_[Token(row)]) - tile_begin_;
    int64_t k = std::min(tile_end_, t_.seen_end[Token(row)]) - tile_begin_ - 1;
    for (; k >= first && !AtLast(sum); --k) {
      sum += gates[k];
      const double position = AtLast(sum) ? last : sum;
      const auto below = static_cast<int32_t>(position);
      const int32_t above = std::min(below + 1, last);
      const auto part = static_cast<float>(position - below);
      scores[k] += products[below] + part * (products[above] - products[below]);
    }
    for (int64_t beyond = first; beyond <= k; ++beyond) scores[beyond] += products[last];
    passed_[row] = sum;
  }

  const ContentForm* content_ = nullptr;
  const RunningForm* contextual_ = nullptr;
  const ContentColumns* columns_ = nullptr;
  float* relative_q_ = nullptr;    // [rows, value_stride], scaled
  float* products_ = nullptr;      // [kRows, kColumnStride]; contextual: [rows, padded columns]
  int32_t* line_ = nullptr;        // [kScoreStride]
  float* key_rows_ = nullptr;      // [64, value_stride]
  float* key_products_ = nullptr;  // [64, kKeyColumns]
  float* gates_line_ = nullptr;    // [kScoreStride]
  float* all_gates_ = nullptr;     // [rows, kScoreStride], when the backward pass keeps them
  double* passed_ = nullptr;       // [rows], sums of the gates of nearer tiles
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
