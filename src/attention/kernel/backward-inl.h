// The backward pass of a tile of queries: scores are computed again, weights follow from the stored
// log-sum-exp (Dao et al. 2022, arXiv 2205.14135, algorithm 4). Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "src/attention/kernel/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// Products of d_scores with queries and keys, in what all forms share.
class ScoreGradients {
 public:
  ScoreGradients(const Tile& tile, const Scores& scores, const Gradients& gradients)
      : tile_(tile), scores_(scores), t_(tile.t), g_(gradients) {}

  // Once per tile of queries.
  void Begin() const {
    for (int64_t r = 0; r < tile_.rows; ++r) {
      const int64_t token = tile_.Token(r), h = r % t_.group;
      const float* from = g_.b.d_out + token * g_.b.d_out_token_stride + h * g_.b.d_out_head_stride;
      const float* out = t_.out + token * t_.out_token_stride + h * t_.out_head_stride;
      std::copy_n(from, t_.value_dim, g_.d_out + r * t_.value_stride);
      const double sum = Dot(from, out);
      g_.delta[r] = static_cast<float>(sum);
      if (g_.b.d_sinks != nullptr) {
        const double log_sum = t_.log_sum_exp[token * t_.log_sum_exp_stride + h];
        g_.b.d_sinks[h] -= std::exp(t_.sinks[h] - log_sum) * sum;
      }
    }
    const int64_t floats = tile_.rows * t_.key_stride;
    std::memset(g_.d_q, 0, sizeof(float) * scores_.views() * floats);
    std::memset(g_.d_relative, 0, sizeof(float) * floats);
  }

  // Keys begin .. end of a row, whose `bias` may be null: scores become weights, d_scores, of
  // weights so far, those of the scores.
  HWY_NOINLINE void WeightLine(int64_t r, const RowBias* bias, int64_t begin, int64_t end) const {
    const D d;
    float* scores = tile_.scores + r * kScoreStride;
    float* d_scores = g_.d_scores + r * kScoreStride;
    if (t_.soft_cap != 0) {
      CapRow(tile_, r, bias, begin, end);
    } else if (bias != nullptr) {
      const RowBias own = *bias;
      for (int64_t k = begin; k < end; k += kLanes) Biased<true>(scores, own, k);
    }
    scores_.Mask(r, begin, end);
    const float log_sum = t_.log_sum_exp[tile_.Token(r) * t_.log_sum_exp_stride + r % t_.group];
    // Without a single key, weights of 0.
    const V log_sum2 = hn::Set(d, log_sum == -std::numeric_limits<float>::infinity()
                                      ? -kNoScore
                                      : static_cast<float>(log_sum * kLog2EDouble));
    if (t_.soft_cap != 0) {
      GradientLine<true>(scores, log_sum2, g_.delta[r], d_scores, begin, end);
    } else {
      GradientLine<false>(scores, log_sum2, g_.delta[r], d_scores, begin, end);
    }
  }

  // d_v += weights^T d_out
  void AddValueGradients() const {
    AddByKey(-1, tile_.scores, g_.d_out, t_.value_stride, g_.b.d_values);
  }

  // d_k += d_scores^T q, d_q += d_scores k, both as rotated in the view.
  void AddViewGradients(int view) const {
    const float* d_scores = g_.d_scores;
    if (scores_.views() > 1) {
      const Scores::Span span = scores_.SpanOf(view, 0, tile_.rows);
      if (span.end <= tile_.begin || span.begin >= tile_.end) return;
      if (!span.CoversAll(tile_.begin, tile_.end)) d_scores = OfView(view, span);
    }
    const int some = scores_.views() > 1 ? view : -1;
    AddByKey(some, d_scores, scores_.Queries(view), t_.key_stride,
             g_.b.d_keys + view * g_.b.view_stride);
    AddQueryGradients(some, d_scores, g_.b.key_rows + view * g_.b.view_stride,
                      g_.d_q + view * tile_.rows * t_.key_stride);
  }

  // R^T d_q: the sum over views, in the first.
  void RotateQueryGradientsBack() const {
    if (scores_.rotation() == nullptr) return;
    for (int v = 0; v < scores_.views(); ++v) {
      for (int64_t r = 0; r < tile_.rows; ++r) {
        float* first = g_.d_q + r * t_.key_stride;
        float* own = first + v * tile_.rows * t_.key_stride;
        RotateRow(*scores_.rotation(), scores_.QueryRow(v, r), /*adjoint=*/true, own);
        if (v == 0) continue;
        for (int64_t i = 0; i < t_.head_dim; ++i) first[i] += own[i];
      }
    }
  }

 private:
  template <bool capped>
  void GradientLine(float* scores, V log_sum2, float delta, float* d_scores, int64_t begin,
                    int64_t end) const {
    int64_t k = begin;
    for (; k + 4 * kLanes <= end; k += 4 * kLanes) {
      GradientVectors<4, capped>(scores + k, log_sum2, delta, d_scores + k);
    }
    for (; k < end; k += kLanes) {
      GradientVectors<1, capped>(scores + k, log_sum2, delta, d_scores + k);
    }
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

  // Several sums at a time, in a fixed order: a single chain of additions is bound by its latency.
  double Dot(const float* a, const float* b) const {
    constexpr int64_t kChains = 16;
    double sums[kChains] = {};
    int64_t i = 0;
    for (; i + kChains <= t_.value_dim; i += kChains) {
      for (int64_t x = 0; x < kChains; ++x) sums[x] += double{a[i + x]} * double{b[i + x]};
    }
    for (int64_t x = 0; i + x < t_.value_dim; ++x) sums[x] += double{a[i + x]} * double{b[i + x]};
    return std::accumulate(sums, sums + kChains, 0.0);
  }

  // c [keys, stride] += a^T b for the keys of the tile; a is by row and key, b by row. Of a view, or
  // -1: all.
  void AddByKey(int view, const float* a, const float* b, int64_t stride, float* c) const {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    for (int64_t block = tile_.begin; block < tile_.end; block += kBlock) {
      const int64_t keys = std::min(kBlock, tile_.end - block);
      auto [first, last] = tile_.TokensThatSee(block, block + keys);
      if (view >= 0) {
        while (first < last && scores_.ViewEnd(view, first) <= block) ++first;
        while (last > first && scores_.ViewBegin(view, last - 1) >= block + keys) --last;
      }
      for (int64_t row = first * t_.group; row < last * t_.group; row += kBackwardSlice) {
        const int64_t rows = std::min(kBackwardSlice, last * t_.group - row);
        AddRows(a + row * kScoreStride + block - tile_.begin, b + row * stride, stride, row, rows,
                block, keys, c + block * stride);
      }
    }
  }

  // The part of AddByKey of rows row .. row + rows and keys block .. block + keys: a, b and c begin
  // there. Rows that see none of a panel of keys come first; their weights are 0.
  void AddRows(const float* a, const float* b, int64_t stride, int64_t row, int64_t rows,
               int64_t block, int64_t keys, float* c) const {
    for (int64_t x = 0; x < stride; x += kBackwardWidth) {
      const int64_t width = std::min(kBackwardWidth, stride - x);
      int64_t skipped = 0;
      for (int64_t k = 0; k < keys; k += kRows) {
        while (skipped < rows && t_.seen_end[tile_.Token(row + skipped)] <= block + k) ++skipped;
        if (skipped == rows) break;
        Multiply<true>(std::min<int64_t>(kRows, keys - k), width, a + skipped * kScoreStride + k,
                       kScoreStride, b + skipped * stride + x, stride, rows - skipped,
                       /*accumulate=*/true, c + k * stride + x, stride);
      }
    }
  }

  // d_scores where the view scores, 0 elsewhere in the blocks of which it scores some.
  const float* OfView(int view, const Scores::Span& span) const {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    const int64_t low = (std::max(span.begin, tile_.begin) - tile_.begin) / kBlock * kBlock;
    const int64_t high = std::min(span.end, tile_.end) - tile_.begin;
    const int64_t all = (high + kBlock - 1) / kBlock * kBlock;
    for (int64_t r = 0; r < tile_.rows; ++r) {
      const int64_t token = tile_.Token(r);
      const int64_t begin =
          std::clamp<int64_t>(scores_.ViewBegin(view, token) - tile_.begin, low, all);
      const int64_t end =
          std::clamp<int64_t>(scores_.ViewEnd(view, token) - tile_.begin, begin, all);
      float* to = g_.d_view + r * kScoreStride;
      std::fill_n(to + low, begin - low, 0.0f);
      std::copy_n(g_.d_scores + r * kScoreStride + begin, end - begin, to + begin);
      std::fill_n(to + end, all - end, 0.0f);
    }
    return g_.d_view;
  }

  void AddQueryGradients(int view, const float* d_scores, const float* key_rows, float* d_q) const {
    for (int64_t x = 0; x < t_.key_stride; x += kBackwardWidth) {
      const int64_t width = std::min(kBackwardWidth, t_.key_stride - x);
      for (int64_t slice = tile_.begin; slice < tile_.end; slice += kBackwardSlice) {
        for (int64_t row = 0; row < tile_.rows; row += kRows) {
          const RowGroup g = tile_.Group(row);
          int64_t begin = std::max(g.begin, slice);
          int64_t end = std::min(g.end, slice + kBackwardSlice);
          if (view >= 0) {
            const Scores::Span span = scores_.SpanOf(view, row, g.rows);
            begin = std::max(begin, span.begin), end = std::min(end, span.end);
          }
          if (begin >= end) continue;
          Multiply(g.rows, width, d_scores + row * kScoreStride + begin - tile_.begin, kScoreStride,
                   key_rows + begin * t_.key_stride + x, t_.key_stride, end - begin,
                   /*accumulate=*/true, d_q + row * t_.key_stride + x, t_.key_stride);
        }
      }
    }
  }

  const Tile& tile_;
  const Scores& scores_;
  const AttentionTile& t_;
  const Gradients& g_;
};

template <class Term>
class Backward {
 public:
  explicit Backward(const BackwardTile& b)
      : t_(b.forward),
        tile_(b.forward),
        scores_(tile_),
        term_(tile_),
        g_(b, tile_.rows, scores_.views()),
        score_gradients_(tile_, scores_, g_) {}

  void Run() {
    scores_.ScaleQueries();
    term_.Begin();
    scores_.FinishQueries();
    score_gradients_.Begin();
    const int64_t first = t_.seen_begin[0] / kTileKeys * kTileKeys;
    const int64_t end = t_.seen_end[t_.tokens - 1];
    term_.BeginBackward(g_, scores_, first, end);
    for (int64_t k = first; k < end; k += kTileKeys) {
      tile_.begin = k;
      tile_.end = std::min(k + kTileKeys, end);
      if (scores_.ClipTile()) RunTile(first);
    }
    term_.EndBackward(g_);
    score_gradients_.RotateQueryGradientsBack();
    WriteQueryGradients();
  }

 private:
  void RunTile(int64_t first) {
    term_.BeginBackwardTile(first);
    scores_.MultiplyKeys();
    term_.AddTo(tile_.scores);
    scores_.Products(g_.d_out, t_.value_stride, g_.b.packed_values, t_.value_dim, g_.d_scores);
    term_.AddToWeightGradients(g_);
    Weights();
    term_.BackwardScores(g_, first);
    score_gradients_.AddValueGradients();
    for (int v = 0; v < scores_.views(); ++v) score_gradients_.AddViewGradients(v);
    term_.Backward(g_);
  }

  // Scores become weights; d_scores, of weights so far, those of scores and biases; 0 where a row
  // sees nothing.
  void Weights() {
    const int64_t all = Tile::Up(tile_.end - tile_.begin);
    for (int64_t row = 0; row < tile_.rows; row += kRows) {
      const RowGroup g = tile_.Group(row);
      const bool none = g.begin >= g.end;
      const int64_t begin = none ? all : Tile::Down(g.begin) - tile_.begin;
      const int64_t end = none ? all : Tile::Up(g.end) - tile_.begin;
      for (int64_t r = row; r < row + g.rows; ++r) {
        for (float* line : {tile_.scores + r * kScoreStride, g_.d_scores + r * kScoreStride}) {
          std::fill_n(line, begin, 0.0f);
          std::fill_n(line + end, all - end, 0.0f);
        }
        if (none) continue;
        if constexpr (Term::kRowBias) {
          const RowBias bias = term_.Bias(r, begin, end);
          score_gradients_.WeightLine(r, &bias, begin, end);
        } else {
          score_gradients_.WeightLine(r, nullptr, begin, end);
        }
      }
    }
  }

  void WriteQueryGradients() {
    for (int64_t r = 0; r < tile_.rows; ++r) {
      const int64_t token = tile_.Token(r), h = r % t_.group;
      const float scale = t_.scale * (t_.temperatures == nullptr ? 1.0f : t_.temperatures[token]);
      float* to = g_.b.d_q + token * g_.b.d_q_token_stride + h * g_.b.d_q_head_stride;
      const float* keys = g_.d_q + r * t_.key_stride;
      const float* rows = g_.d_relative + r * t_.key_stride;
      const float row_scale = Term::kScaledRows ? scale : 1.0f;
      for (int64_t i = 0; i < t_.head_dim; ++i) to[i] = scale * keys[i] + row_scale * rows[i];
      term_.AddQueryGradient(g_, h, scale, keys, rows);
    }
  }

  const AttentionTile& t_;
  Tile tile_;
  Scores scores_;
  Term term_;
  const Gradients g_;
  const ScoreGradients score_gradients_;
};

void AttendBackwardT(const BackwardTile& tile) {
  VisitTerm(tile.forward.form, [&]<class Term>(TermType<Term>) { Backward<Term>(tile).Run(); });
}

int64_t AttentionTargetT() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
