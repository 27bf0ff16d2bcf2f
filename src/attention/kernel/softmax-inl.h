// The one body of attention, compiled for every SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/attention/kernel/views-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

constexpr int64_t kValueSlice = 128;  // keys: 32 KiB of values at 64 dims

class TileRun : public TileViews {
 public:
  explicit TileRun(const AttentionTile& t) : TileViews(t) {}

  void Run() {
    Begin();
    const int64_t first = t_.seen_begin[0];
    const int64_t end = std::min(t_.key_end, t_.seen_end[t_.tokens - 1]);
    const int64_t begin = std::max(t_.key_begin, first / kTileKeys * kTileKeys);
    const int64_t tiles = begin < end ? (end - begin + kTileKeys - 1) / kTileKeys : 0;
    for (int64_t i = 0; i < tiles; ++i) {
      tile_begin_ = begin + (Descends() ? tiles - 1 - i : i) * kTileKeys;
      tile_end_ = std::min(tile_begin_ + kTileKeys, end);
      if (!ClipTile()) continue;
      Scores();
      Softmax();
      Values();
      if (HasContent()) AddValueRows();
    }
    if (t_.partial != nullptr) {
      WritePartial();
    } else {
      WriteOut();
    }
  }

 protected:
  // to = from * factor, [head_dim]. `to` may be `from`.
  void Scale(const float* from, V factor, float* to) const {
    const D d;
    int64_t i = 0;
    for (; i + kLanes <= t_.head_dim; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
    }
    for (; i < t_.head_dim; ++i) to[i] = from[i] * hn::GetLane(factor);
  }

  void Begin() {
    for (int64_t token = 0, r = 0; token < t_.tokens; ++token) {
      const float* q = t_.q + token * t_.q_token_stride;
      const V scale = hn::Set(D(), Scale2(token));
      for (int64_t h = 0; h < t_.group; ++h, ++r) {
        Scale(q + h * t_.q_head_stride, scale, q_ + r * t_.value_stride);
        maxima_[r] = kNoScore;
      }
    }
    if (HasContent()) BeginContent();
    if (rotation_ != nullptr) TurnQueries();
    std::memset(sums_, 0, sizeof(float) * rows_ * t_.value_stride);
    std::memset(weights_, 0, sizeof(float) * rows_ * AttentionAccess::kMaxLanes);
  }

  void Scores() {
    QueryKeyProducts();
    if (HasBias()) BeginBias();
    if (HasContent()) AddContent();
  }

  void Softmax() {
    for (int64_t row = 0; row < rows_; row += kRows) {
      const RowGroup g = Group(row);
      if (g.begin >= g.end) continue;
      const int64_t begin = g.begin / kLanes * kLanes - tile_begin_;
      const int64_t end = (g.end + kLanes - 1) / kLanes * kLanes - tile_begin_;
      if (t_.soft_cap != 0) {
        for (int64_t r = row; r < row + g.rows; ++r) CapRow(r, begin, end);
      }
      for (int64_t r = row; r < row + g.rows; ++r) Mask(r, begin, end);
      if (HasBias() && t_.soft_cap == 0) {
        SoftmaxGroup<true>(g, begin, end);
      } else {
        SoftmaxGroup<false>(g, begin, end);
      }
    }
  }

  void Mask(int64_t r, int64_t begin, int64_t end) {
    constexpr float kMasked = -std::numeric_limits<float>::infinity();
    float* scores = scores_ + r * kScoreStride;
    const int64_t seen_begin = seen_begin_[Token(r)] - tile_begin_;
    const int64_t seen_end = t_.seen_end[Token(r)] - tile_begin_;
    for (int64_t k = begin; k < std::min(end, seen_begin); ++k) scores[k] = kMasked;
    for (int64_t k = std::max(begin, seen_end); k < end; ++k) scores[k] = kMasked;
    if (!HasHoles()) return;
    const int64_t hole_begin = ViewEnd(1, Token(r)) - tile_begin_;
    const int64_t hole_end = std::min(end, ViewBegin(0, Token(r)) - tile_begin_);
    for (int64_t k = std::max(begin, hole_begin); k < hole_end; ++k) scores[k] = kMasked;
  }

  // score = cap tanh((score + bias) / cap), in units of log 2.
  void CapRow(int64_t r, int64_t begin, int64_t end) {
    const D d;
    float* scores = scores_ + r * kScoreStride;
    const V cap = hn::Set(d, t_.soft_cap * kLog2E);
    const V inverse = hn::Set(d, 1.0f / (t_.soft_cap * kLog2E));
    RowBias bias;
    if (HasBias()) bias = Bias(r, begin, end);
    for (int64_t k = begin; k < end; k += kLanes) {
      V x = hn::Load(d, scores + k);
      if (HasBias()) x = bias.AddTo(x, k);
      hn::Store(hn::Mul(cap, Tanh(hn::Mul(x, inverse))), d, scores + k);
    }
  }

  // Score with its bias, in place.
  template <bool biased>
  static HWY_INLINE V Biased(float* scores, const RowBias& bias, int64_t k) {
    const D d;
    V x = hn::Load(d, scores + k);
    if constexpr (biased) {
      x = bias.AddTo(x, k);
      hn::Store(x, d, scores + k);
    }
    return x;
  }

  // Maxima of all rows first: their reductions over lanes have long latencies that overlap.
  template <bool biased>
  HWY_INLINE void SoftmaxGroup(const RowGroup& g, int64_t begin, int64_t end) {
    const D d;
    float maxima[kRows];
    for (int64_t r = 0; r < g.rows; ++r) {
      float* scores = scores_ + (g.row + r) * kScoreStride;
      RowBias bias;
      if constexpr (biased) bias = Bias(g.row + r, begin, end);
      V max0 = hn::Set(d, maxima_[g.row + r]), max1 = max0;
      int64_t k = begin;
      for (; k + 2 * kLanes <= end; k += 2 * kLanes) {
        max0 = hn::Max(max0, Biased<biased>(scores, bias, k));
        max1 = hn::Max(max1, Biased<biased>(scores, bias, k + kLanes));
      }
      if (k < end) max0 = hn::Max(max0, Biased<biased>(scores, bias, k));
      maxima[r] = hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
    }
    for (int64_t r = 0; r < g.rows; ++r) {
      WeightRow(g.row + r, maxima[r], begin, end);
    }
  }

  // Scores to weights in place; gives sum + weights.
  template <int count>
  static HWY_INLINE V WeightVectors(float* HWY_RESTRICT scores, V max, V sum) {
    const D d;
    V w[count];
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i) w[i] = hn::Sub(hn::Load(d, scores + i * kLanes), max);
    Exp2<count>(w);
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i) {
      sum = hn::Add(sum, w[i]);
      hn::Store(w[i], d, scores + i * kLanes);
    }
    return sum;
  }

  HWY_INLINE void WeightRow(int64_t r, float new_max, int64_t begin, int64_t end) {
    const D d;
    float* HWY_RESTRICT scores = scores_ + r * kScoreStride;
    float* HWY_RESTRICT weights = weights_ + r * AttentionAccess::kMaxLanes;
    const V max = hn::Set(d, new_max);
    V sum = hn::Load(d, weights);
    if (new_max != maxima_[r]) {
      V factor = hn::Sub(hn::Set(d, maxima_[r]), max);
      Exp2<1>(&factor);
      sum = hn::Mul(sum, factor);
      float* out = sums_ + r * t_.value_stride;
      for (int64_t i = 0; i < t_.value_stride; i += kLanes) {
        hn::Store(hn::Mul(hn::Load(d, out + i), factor), d, out + i);
      }
      maxima_[r] = new_max;
    }
    int64_t k = begin;
    for (; k + 4 * kLanes <= end; k += 4 * kLanes) sum = WeightVectors<4>(scores + k, max, sum);
    for (; k < end; k += kLanes) sum = WeightVectors<1>(scores + k, max, sum);
    hn::Store(sum, d, weights);
  }

  void Values() {
    for (int64_t i = 0; i < t_.value_stride; i += t_.panel_width) {
      const int64_t width = std::min(t_.panel_width, t_.value_stride - i);
      const float* panel = t_.values + i * t_.capacity;
      for (int64_t slice = tile_begin_; slice < tile_end_; slice += kValueSlice) {
        for (int64_t row = 0; row < rows_; row += kRows) {
          const RowGroup g = Group(row);
          const int64_t begin = std::max(g.begin, slice);
          const int64_t end = std::min(g.end, slice + kValueSlice);
          if (begin >= end) continue;
          Multiply(g.rows, width, scores_ + row * kScoreStride + begin - tile_begin_, kScoreStride,
                   panel + begin * width, width, end - begin, /*accumulate=*/true,
                   sums_ + row * t_.value_stride + i, t_.value_stride);
        }
      }
    }
  }

  float SumOfWeights(int64_t r) const {
    const D d;
    return hn::GetLane(hn::SumOfLanes(d, hn::Load(d, weights_ + r * AttentionAccess::kMaxLanes)));
  }

  void WriteOut() {
    for (int64_t token = 0, r = 0; token < t_.tokens; ++token) {
      float* out = t_.out + token * t_.out_token_stride;
      for (int64_t h = 0; h < t_.group; ++h, ++r) {
        const float factor = FinishRow(t_, h, token, maxima_[r], SumOfWeights(r));
        Scale(sums_ + r * t_.value_stride, hn::Set(D(), factor), out + h * t_.out_head_stride);
      }
    }
  }

  void WritePartial() {
    for (int64_t r = 0; r < rows_; ++r) {
      float* to = t_.partial + r * (t_.value_stride + 2);
      std::memcpy(to, sums_ + r * t_.value_stride, sizeof(float) * t_.value_stride);
      to[t_.value_stride] = maxima_[r];
      to[t_.value_stride + 1] = SumOfWeights(r);
    }
  }
};

void AttendTileT(const AttentionTile& tile) { TileRun(tile).Run(); }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
