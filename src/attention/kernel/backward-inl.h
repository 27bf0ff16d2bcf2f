// The backward pass of a tile of queries: scores are computed again, weights follow from the stored
// log-sum-exp; once a target.
#if defined(ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "src/attention/terms/gradients-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

class TileBackward : public TileGradients {
 public:
  explicit TileBackward(const BackwardTile& b) : TileGradients(b) {}

  void Backward() {
    Begin();
    LoadGradients();
    const int64_t first = t_.seen_begin[0] / kTileKeys * kTileKeys;
    const int64_t end = t_.seen_end[t_.tokens - 1];
    if (contextual_ != nullptr) BeginContextual(first, end);
    for (int64_t k = first; k < end; k += kTileKeys) {
      tile_begin_ = k;
      tile_end_ = std::min(k + kTileKeys, end);
      if (!ClipTile()) continue;
      if (contextual_ != nullptr) BeginContextualTile(first);
      Scores();
      Products(d_out_, b_.packed_values, d_scores_);
      if (HasValueRows()) {
        ForChunks([this](int64_t h, const Chunk& c) {
          AddRows(h, c, d_out_, b_.tables->packed_value_rows, d_scores_);
        });
      }
      Weights();
      if (contextual_ != nullptr) AddContextualGradients(first, d_scores_);
      AddValueGradients();
      for (int v = 0; v < views_; ++v) AddViewGradients(v);
      if (t_.form != nullptr) AddFormGradients();
    }
    if (contextual_ != nullptr) AddPositionRows();
    WriteGradients();
  }

 private:
  bool HasValueRows() const { return content_ != nullptr && columns_->value_rows.size() != 0; }

  void LoadGradients() {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t token = Token(r), h = r % t_.group;
      const float* from = b_.d_out + token * b_.d_out_token_stride + h * b_.d_out_head_stride;
      const float* out = t_.out + token * t_.out_token_stride + h * t_.out_head_stride;
      std::copy_n(from, t_.head_dim, d_out_ + r * t_.value_stride);
      const double sum = Dot(from, out);
      delta_[r] = static_cast<float>(sum);
      if (b_.d_sinks != nullptr) {
        const double log_sum = t_.log_sum_exp[token * t_.log_sum_exp_stride + h];
        b_.d_sinks[h] -= std::exp(t_.sinks[h] - log_sum) * sum;
      }
    }
    std::memset(d_q_, 0, sizeof(float) * views_ * rows_ * t_.value_stride);
    std::memset(d_relative_, 0, sizeof(float) * rows_ * t_.value_stride);
  }

  // Several sums at a time, in a fixed order: one chain of additions would wait for itself.
  double Dot(const float* a, const float* b) const {
    constexpr int64_t kChains = 16;
    double sums[kChains] = {};
    int64_t i = 0;
    for (; i + kChains <= t_.head_dim; i += kChains) {
      for (int64_t x = 0; x < kChains; ++x) sums[x] += double{a[i + x]} * double{b[i + x]};
    }
    for (int64_t x = 0; i + x < t_.head_dim; ++x) sums[x] += double{a[i + x]} * double{b[i + x]};
    return std::accumulate(sums, sums + kChains, 0.0);
  }

  // scores_ becomes weights, d_scores_ the gradient of scores and biases; 0 where a row sees
  // nothing.
  void Weights() {
    const int64_t all = Up(tile_end_ - tile_begin_);
    for (int64_t row = 0; row < rows_; row += kRows) {
      const RowGroup g = Group(row);
      const bool none = g.begin >= g.end;
      const int64_t begin = none ? all : Down(g.begin) - tile_begin_;
      const int64_t end = none ? all : Up(g.end) - tile_begin_;
      for (int64_t r = row; r < row + g.rows; ++r) {
        for (float* line : {scores_ + r * kScoreStride, d_scores_ + r * kScoreStride}) {
          std::fill_n(line, begin, 0.0f);
          std::fill_n(line + end, all - end, 0.0f);
        }
        if (!none) WeightLine(r, begin, end);
      }
    }
  }

  void WeightLine(int64_t r, int64_t begin, int64_t end) {
    const D d;
    if (t_.soft_cap != 0) {
      CapRow(r, begin, end);
    } else if (HasBias()) {
      const RowBias bias = Bias(r, begin, end);
      for (int64_t k = begin; k < end; k += kLanes) {
        Biased<true>(scores_ + r * kScoreStride, bias, k);
      }
    }
    Mask(r, begin, end);
    const float log_sum = t_.log_sum_exp[Token(r) * t_.log_sum_exp_stride + r % t_.group];
    // Without a single key, weights of 0.
    const V log_sum2 = hn::Set(d, log_sum == -std::numeric_limits<float>::infinity()
                                      ? -kNoScore
                                      : static_cast<float>(log_sum * kLog2EDouble));
    float* scores = scores_ + r * kScoreStride;
    float* d_scores = d_scores_ + r * kScoreStride;
    const auto turn = [&](auto count, int64_t k) HWY_ATTR {
      if (t_.soft_cap != 0)
        return GradientVectors<decltype(count)::value, true>(scores + k, log_sum2, delta_[r],
                                                             d_scores + k);
      GradientVectors<decltype(count)::value, false>(scores + k, log_sum2, delta_[r], d_scores + k);
    };
    int64_t k = begin;
    for (; k + 4 * kLanes <= end; k += 4 * kLanes) turn(std::integral_constant<int, 4>(), k);
    for (; k < end; k += kLanes) turn(std::integral_constant<int, 1>(), k);
  }

  // Scores to weights, and their gradients to those of the scores, in place.
  template <int count, bool capped>
  HWY_INLINE void GradientVectors(float* HWY_RESTRICT scores, V log_sum2, float delta_of_row,
                                  float* HWY_RESTRICT d_scores) const {
    const D d;
    const V delta = hn::Set(d, delta_of_row);
    V weights[count];
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i)
      weights[i] = hn::Sub(hn::Load(d, scores + i * kLanes), log_sum2);
    Exp2<count>(weights);
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i) {
      V gradient = hn::Mul(weights[i], hn::Sub(hn::Load(d, d_scores + i * kLanes), delta));
      if constexpr (capped) {  // score / cap is a tanh; -infinity where masked
        const V bent =
            hn::Mul(hn::Load(d, scores + i * kLanes), hn::Set(d, 1.0f / (t_.soft_cap * kLog2E)));
        gradient =
            hn::Mul(gradient, hn::Max(hn::Zero(d), hn::NegMulAdd(bent, bent, hn::Set(d, 1.0f))));
      }
      hn::Store(weights[i], d, scores + i * kLanes);
      hn::Store(gradient, d, d_scores + i * kLanes);
    }
  }

  // c [keys, value_stride] += a^T b for the keys of the tile; a is by row and key, b by row. Of a
  // view, or -1: all.
  void AddByKey(int view, const float* a, const float* b, float* c) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    for (int64_t block = tile_begin_; block < tile_end_; block += kBlock) {
      const int64_t keys = std::min(kBlock, tile_end_ - block);
      auto [first, last] = TokensThatSee(block, block + keys);
      if (view >= 0) {
        while (first < last && ViewEnd(view, first) <= block) ++first;
        while (last > first && ViewBegin(view, last - 1) >= block + keys) --last;
      }
      for (int64_t row = first * t_.group; row < last * t_.group; row += kBackwardSlice) {
        const int64_t rows = std::min(kBackwardSlice, last * t_.group - row);
        MultiplyTransposed(a + row * kScoreStride + block - tile_begin_, kScoreStride, keys,
                           b + row * t_.value_stride, rows, t_.value_stride,
                           c + block * t_.value_stride, t_.value_stride);
      }
    }
  }

  // d_v += weights^T d_out
  void AddValueGradients() { AddByKey(-1, scores_, d_out_, b_.d_values); }

  // d_k += d_scores^T q, d_q += d_scores k, both as turned in the view.
  void AddViewGradients(int view) {
    const float* d_scores = d_scores_;
    if (views_ > 1) {
      const Reach reach = ReachOf(view, 0, rows_);
      if (reach.end <= tile_begin_ || reach.begin >= tile_end_) return;
      if (!reach.CoversAll(tile_begin_, tile_end_)) d_scores = OfView(view, reach);
    }
    const int some = views_ > 1 ? view : -1;
    AddByKey(some, d_scores, Queries(view), b_.d_keys + view * b_.view_stride);
    AddQueryGradients(some, d_scores, b_.key_rows + view * b_.view_stride,
                      d_q_ + view * rows_ * t_.value_stride);
  }

  // d_scores where the view scores, 0 elsewhere in the blocks that it reaches.
  const float* OfView(int view, const Reach& reach) {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const int64_t low = (std::max(reach.begin, tile_begin_) - tile_begin_) / kBlock * kBlock;
    const int64_t high = std::min(reach.end, tile_end_) - tile_begin_;
    const int64_t all = (high + kBlock - 1) / kBlock * kBlock;
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t token = Token(r);
      const int64_t begin = std::clamp<int64_t>(ViewBegin(view, token) - tile_begin_, low, all);
      const int64_t end = std::clamp<int64_t>(ViewEnd(view, token) - tile_begin_, begin, all);
      float* to = d_view_ + r * kScoreStride;
      std::fill_n(to + low, begin - low, 0.0f);
      std::copy_n(d_scores_ + r * kScoreStride + begin, end - begin, to + begin);
      std::fill_n(to + end, all - end, 0.0f);
    }
    return d_view_;
  }

  void AddQueryGradients(int view, const float* d_scores, const float* key_rows, float* d_q) {
    for (int64_t x = 0; x < t_.value_stride; x += kBackwardWidth) {
      const int64_t width = std::min(kBackwardWidth, t_.value_stride - x);
      for (int64_t slice = tile_begin_; slice < tile_end_; slice += kBackwardSlice) {
        for (int64_t row = 0; row < rows_; row += kRows) {
          const RowGroup g = Group(row);
          int64_t begin = std::max(g.begin, slice);
          int64_t end = std::min(g.end, slice + kBackwardSlice);
          if (view >= 0) {
            const Reach reach = ReachOf(view, row, g.rows);
            begin = std::max(begin, reach.begin), end = std::min(end, reach.end);
          }
          if (begin >= end) continue;
          Multiply(g.rows, width, d_scores + row * kScoreStride + begin - tile_begin_, kScoreStride,
                   key_rows + begin * t_.value_stride + x, t_.value_stride, end - begin,
                   /*accumulate=*/true, d_q + row * t_.value_stride + x, t_.value_stride);
        }
      }
    }
  }

  // The sum over views of what turns back, in the first.
  void TurnQueryGradientsBack() {
    for (int v = 0; v < views_; ++v) {
      for (int64_t r = 0; r < rows_; ++r) {
        float* first = d_q_ + r * t_.value_stride;
        float* own = first + v * rows_ * t_.value_stride;
        TurnRow(*rotation_, QueryRow(v, r), /*back=*/true, own);
        if (v == 0) continue;
        for (int64_t i = 0; i < t_.head_dim; ++i) first[i] += own[i];
      }
    }
  }

  void WriteGradients() {
    if (rotation_ != nullptr) TurnQueryGradientsBack();
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t token = Token(r), h = r % t_.group;
      const float scale = t_.scale * (t_.temperatures == nullptr ? 1.0f : t_.temperatures[token]);
      float* to = b_.d_q + token * b_.d_q_token_stride + h * b_.d_q_head_stride;
      const float* keys = d_q_ + r * t_.value_stride;
      const float* rows = d_relative_ + r * t_.value_stride;
      // Contextual positions' rows are not scaled.
      const float row_scale = contextual_ != nullptr ? 1.0f : scale;
      for (int64_t i = 0; i < t_.head_dim; ++i) to[i] = scale * keys[i] + row_scale * rows[i];
      if (content_ == nullptr) continue;
      for (int64_t i = 0; i < t_.head_dim; ++i) {
        b_.sums->query_bias[h * t_.head_dim + i] += double{scale} * rows[i];
        b_.sums->key_bias[h * t_.head_dim + i] += double{scale} * keys[i];
      }
    }
  }
};

void AttendBackwardT(const BackwardTile& tile) { TileBackward(tile).Backward(); }

int64_t AttentionTargetT() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
