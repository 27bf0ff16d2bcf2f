// The one body of attention, compiled for every SIMD target.
#if defined(ROPEWALK_ATTENTION_CPU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_CPU_INL_H_
#undef ROPEWALK_ATTENTION_CPU_INL_H_
#else
#define ROPEWALK_ATTENTION_CPU_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "src/attention/attention_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// The micro kernel holds kRows x kVecs sums in registers: 24 of 32, or 12 of 16.
constexpr int kRows = 6;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kVecs = 2;
#else
constexpr int kVecs = 4;
#endif
// 2^f on [-0.5, 0.5]: least maximum relative error with a constant term of 1, each coefficient
// rounded to float32 before the next was fitted. In float32 arithmetic off by at most 1.6e-7, 1.3
// ULP.
constexpr float kExp2[] = {1.0f,          0.693147004f,   0.240222469f,
                           0.0555071123f, 0.00967129413f, 0.00132694072f};
constexpr int64_t kValueSlice = 128;  // keys: 32 KiB of values at 64 dims

// c [rows, vecs * lanes] (+)= a [rows, depth] b [depth, vecs * lanes]. Each element sums over depth
// in order, so its bits do not depend on rows or vecs.
template <int rows, int vecs>
HWY_INLINE void MultiplyPanel(const float* HWY_RESTRICT a, int64_t a_stride,
                              const float* HWY_RESTRICT b, int64_t b_stride, int64_t depth,
                              bool accumulate, float* HWY_RESTRICT c, int64_t c_stride) {
  const D d;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  V sums[rows][vecs];
  HWY_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < vecs; ++v) {
      sums[r][v] = accumulate ? hn::Load(d, c + r * c_stride + v * kLanes) : hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    V rhs[vecs];
    HWY_UNROLL(8)
    for (int v = 0; v < vecs; ++v) rhs[v] = hn::Load(d, b + k * b_stride + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < rows; ++r) {
      const V lhs = hn::Set(d, a[r * a_stride + k]);
      HWY_UNROLL(8)
      for (int v = 0; v < vecs; ++v) sums[r][v] = hn::MulAdd(lhs, rhs[v], sums[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < vecs; ++v) hn::Store(sums[r][v], d, c + r * c_stride + v * kLanes);
  }
}

template <int vecs>
HWY_NOINLINE void MultiplyRows(int64_t rows, const float* a, int64_t a_stride, const float* b,
                               int64_t b_stride, int64_t depth, bool accumulate, float* c,
                               int64_t c_stride) {
  switch (rows) {
    case 1:
      return MultiplyPanel<1, vecs>(a, a_stride, b, b_stride, depth, accumulate, c, c_stride);
    case 2:
      return MultiplyPanel<2, vecs>(a, a_stride, b, b_stride, depth, accumulate, c, c_stride);
    case 3:
      return MultiplyPanel<3, vecs>(a, a_stride, b, b_stride, depth, accumulate, c, c_stride);
    case 4:
      return MultiplyPanel<4, vecs>(a, a_stride, b, b_stride, depth, accumulate, c, c_stride);
    case 5:
      return MultiplyPanel<5, vecs>(a, a_stride, b, b_stride, depth, accumulate, c, c_stride);
    default:
      return MultiplyPanel<6, vecs>(a, a_stride, b, b_stride, depth, accumulate, c, c_stride);
  }
}

// The same for any width, a multiple of the lanes.
HWY_INLINE void Multiply(int64_t rows, int64_t width, const float* a, int64_t a_stride,
                         const float* b, int64_t b_stride, int64_t depth, bool accumulate, float* c,
                         int64_t c_stride) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  for (int64_t x = 0; x < width; x += kVecs * kLanes) {
    const int64_t vecs = std::min<int64_t>(kVecs, (width - x) / kLanes);
    switch (vecs) {
      case 1:
        MultiplyRows<1>(rows, a, a_stride, b + x, b_stride, depth, accumulate, c + x, c_stride);
        break;
      case 2:
        MultiplyRows<2>(rows, a, a_stride, b + x, b_stride, depth, accumulate, c + x, c_stride);
        break;
      case 3:
        MultiplyRows<kVecs == 4 ? 3 : 1>(rows, a, a_stride, b + x, b_stride, depth, accumulate,
                                         c + x, c_stride);
        break;
      default:
        MultiplyRows<kVecs>(rows, a, a_stride, b + x, b_stride, depth, accumulate, c + x, c_stride);
    }
  }
}

// x = 2^x for count vectors at once (one alone waits for its own latencies), x <= 0, within 2 ULP;
// 0 below -126 and at -infinity; NaN stays NaN.
template <int count>
HWY_INLINE void Exp2(V* HWY_RESTRICT x) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const V round = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the sum's low bits are the integer
  V shifted[count], f[count], p[count];
  HWY_UNROLL(4)
  for (int i = 0; i < count; ++i) {
    shifted[i] = hn::Add(x[i], round);
    f[i] = hn::Sub(x[i], hn::Sub(shifted[i], round));
    p[i] = hn::Set(d, kExp2[5]);
  }
  HWY_UNROLL(5)
  for (int k = 4; k >= 0; --k) {
    const V term = hn::Set(d, kExp2[k]);
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], term);
  }
  HWY_UNROLL(4)
  for (int i = 0; i < count; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted[i]));
    const V y = hn::BitCast(d, hn::Add(hn::BitCast(du, p[i]), exponent));
    x[i] = hn::IfThenZeroElse(hn::Lt(x[i], hn::Set(d, -126.0f)), y);
  }
}

// The rows of one micro-kernel call and the keys that any of them sees.
struct RowGroup {
  int64_t row, rows;
  int64_t begin, end;  // keys within the current tile; empty: begin >= end
};

class TileRun {
 public:
  explicit TileRun(const AttentionTile& t)
      : t_(t),
        rows_(t.tokens * t.group),
        scores_(t.scratch),
        q_(scores_ + rows_ * kScoreStride),
        sums_(q_ + rows_ * t.value_stride),
        weights_(sums_ + rows_ * t.value_stride),
        maxima_(weights_ + rows_ * AttentionAccess::kMaxLanes) {}

  void Run() {
    Begin();
    const int64_t last = t_.first_position + t_.tokens - 1;
    const int64_t first = std::max<int64_t>(0, t_.first_position - t_.window + 1);
    const int64_t end = std::min(t_.key_end, last + 1);
    for (int64_t k = std::max(t_.key_begin, first / kTileKeys * kTileKeys); k < end;
         k += kTileKeys) {
      tile_begin_ = k;
      tile_end_ = std::min(k + kTileKeys, end);
      Scores();
      Softmax();
      Values();
    }
    if (t_.partial != nullptr) {
      WritePartial();
    } else {
      WriteOut();
    }
  }

 private:
  static constexpr int64_t kLanes = hn::MaxLanes(D());
  // Any finite score is above; far enough from it that a difference stays a number.
  static constexpr float kNoScore = -1.7e38f;

  int64_t Position(int64_t row) const { return t_.first_position + row / t_.group; }

  RowGroup Group(int64_t row) const {
    RowGroup g{row, std::min<int64_t>(kRows, rows_ - row), 0, 0};
    g.begin = std::max(tile_begin_, Position(row) - t_.window + 1);
    g.end = std::min(tile_end_, Position(row + g.rows - 1) + 1);
    return g;
  }

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
    // exp(x) = 2^(x log2 e): both factors go into q once.
    const V scale = hn::Set(D(), static_cast<float>(t_.scale * 1.4426950408889634));
    for (int64_t token = 0, r = 0; token < t_.tokens; ++token) {
      const float* q = t_.q + token * t_.q_token_stride;
      for (int64_t h = 0; h < t_.group; ++h, ++r) {
        Scale(q + h * t_.q_head_stride, scale, q_ + r * t_.value_stride);
        maxima_[r] = kNoScore;
      }
    }
    std::memset(sums_, 0, sizeof(float) * rows_ * t_.value_stride);
    std::memset(weights_, 0, sizeof(float) * rows_ * AttentionAccess::kMaxLanes);
  }

  void Scores() {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    for (int64_t block = tile_begin_; block < tile_end_; block += kBlock) {
      const float* keys = t_.keys + block * t_.head_dim;
      for (int64_t row = 0; row < rows_; row += kRows) {
        const RowGroup g = Group(row);
        const int64_t begin = std::max(g.begin / kLanes * kLanes, block);
        const int64_t end = std::min(g.end, block + kBlock);
        if (begin >= end) continue;
        const int64_t width = (end - begin + kLanes - 1) / kLanes * kLanes;
        Multiply(g.rows, width, q_ + row * t_.value_stride, t_.value_stride, keys + begin - block,
                 kBlock, t_.head_dim, /*accumulate=*/false,
                 scores_ + row * kScoreStride + begin - tile_begin_, kScoreStride);
      }
    }
  }

  void Softmax() {
    for (int64_t row = 0; row < rows_; row += kRows) {
      const RowGroup g = Group(row);
      if (g.begin >= g.end) continue;
      const int64_t begin = g.begin / kLanes * kLanes - tile_begin_;
      const int64_t end = (g.end + kLanes - 1) / kLanes * kLanes - tile_begin_;
      for (int64_t r = row; r < row + g.rows; ++r) Mask(r, begin, end);
      SoftmaxGroup(g, begin, end);
    }
  }

  void Mask(int64_t r, int64_t begin, int64_t end) {
    constexpr float kMasked = -std::numeric_limits<float>::infinity();
    float* scores = scores_ + r * kScoreStride;
    const int64_t seen_begin = Position(r) - t_.window + 1 - tile_begin_;
    const int64_t seen_end = Position(r) + 1 - tile_begin_;
    for (int64_t k = begin; k < std::min(end, seen_begin); ++k) scores[k] = kMasked;
    for (int64_t k = std::max(begin, seen_end); k < end; ++k) scores[k] = kMasked;
  }

  // Maxima of all rows first: their reductions over lanes have long latencies that overlap.
  HWY_INLINE void SoftmaxGroup(const RowGroup& g, int64_t begin, int64_t end) {
    const D d;
    float maxima[kRows];
    for (int64_t r = 0; r < g.rows; ++r) {
      const float* scores = scores_ + (g.row + r) * kScoreStride;
      V max0 = hn::Set(d, maxima_[g.row + r]), max1 = max0;
      int64_t k = begin;
      for (; k + 2 * kLanes <= end; k += 2 * kLanes) {
        max0 = hn::Max(max0, hn::Load(d, scores + k));
        max1 = hn::Max(max1, hn::Load(d, scores + k + kLanes));
      }
      if (k < end) max0 = hn::Max(max0, hn::Load(d, scores + k));
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
        const V factor = hn::Set(D(), 1.0f / SumOfWeights(r));
        Scale(sums_ + r * t_.value_stride, factor, out + h * t_.out_head_stride);
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

  const AttentionTile& t_;
  const int64_t rows_;
  float* const scores_;   // [rows, kScoreStride]; weights after Softmax
  float* const q_;        // [rows, value_stride]
  float* const sums_;     // [rows, value_stride]
  float* const weights_;  // [rows, kMaxLanes]
  float* const maxima_;   // [rows]
  int64_t tile_begin_ = 0, tile_end_ = 0;
};

int64_t AttendTileT(const AttentionTile& tile) {
  TileRun(tile).Run();
  return HWY_TARGET;
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
