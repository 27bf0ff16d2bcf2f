// The online softmax of a tile (Milakov & Gimelshein 2018, arXiv 1805.02867), and the sums of
// values under its weights. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "src/attention/kernel/views-inl.h"
#include "src/attention/terms/term-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// Score with the bias of its row, in place.
template <bool biased>
HWY_INLINE V Biased(float* scores, const RowBias& bias, int64_t k) {
  const D d;
  V x = hn::Load(d, scores + k);
  if constexpr (biased) {
    x = bias.AddTo(x, k);
    hn::Store(x, d, scores + k);
  }
  return x;
}

// score = cap tanh((score + bias) / cap) for keys begin .. end of a row, in units of log 2. `bias`
// may be null.
inline void CapRow(const Tile& tile, int64_t r, const RowBias* bias, int64_t begin, int64_t end) {
  const D d;
  float* scores = tile.scores + r * kScoreStride;
  const V cap = hn::Set(d, tile.t.soft_cap * kLog2E);
  const V inverse = hn::Set(d, 1.0f / (tile.t.soft_cap * kLog2E));
  const RowBias own = bias == nullptr ? RowBias() : *bias;
  for (int64_t k = begin; k < end; k += kLanes) {
    V x = hn::Load(d, scores + k);
    if (bias != nullptr) x = own.AddTo(x, k);
    hn::Store(hn::Mul(cap, Tanh(hn::Mul(x, inverse))), d, scores + k);
  }
}

class Softmax {
 public:
  Softmax(const Tile& tile, Scores& scores)
      : tile_(tile), scores_(scores), t_(tile.t), value_stride_(t_.value_stride) {}

  // Once per tile of queries.
  void Begin() {
    std::fill_n(tile_.maxima, tile_.rows, kNoScore);
    std::memset(tile_.sums, 0, sizeof(float) * tile_.rows * value_stride_);
    std::memset(tile_.weights, 0, sizeof(float) * tile_.rows * AttentionAccess::kMaxLanes);
    if (!t_.wants_entropy) return;
    std::memset(tile_.weighted_scores, 0, sizeof(float) * tile_.rows * AttentionAccess::kMaxLanes);
  }

  // Once per tile of keys: scores become weights, and sums += weights times values.
  template <class Term>
  void Run(Term& term) {
    if (t_.pair_tiles) return RunInTiles(term);
    WeightRows(term, 0, tile_.rows);
    for (int64_t i = 0; i < value_stride_; i += t_.panel_width) {
      const int64_t width = std::min(t_.panel_width, value_stride_ - i);
      for (int64_t slice = tile_.begin; slice < tile_.end; slice += KvScratch::kValueSlice) {
        const int64_t end = std::min(tile_.end, slice + KvScratch::kValueSlice);
        t_.bf16 ? AddPairs(i, width, slice, end) : AddSlice(i, width, slice, end);
      }
    }
  }

  void WriteOut() const {
    for (int64_t token = 0, r = 0; token < t_.tokens; ++token) {
      float* out = t_.out + token * t_.out_token_stride;
      const bool more = token + kTokensAhead < t_.tokens;
      for (int64_t h = 0; h < t_.group; ++h, ++r) {
        if (more) {
          PrefetchRow(out + kTokensAhead * t_.out_token_stride + h * t_.out_head_stride,
                      t_.value_dim);
        }
        const RowSums row = Sums(r);
        const float factor = FinishRow(t_, h, token, row);
        WriteEntropy(t_, h, token, row);
        Scale(t_.value_dim, tile_.sums + r * value_stride_, hn::Set(D(), factor),
              out + h * t_.out_head_stride);
      }
    }
  }

  // What Merge of attention.cc reads.
  void WritePartial() const {
    for (int64_t r = 0; r < tile_.rows; ++r) {
      float* to = t_.partial + r * (value_stride_ + kRowSums);
      std::memcpy(to, tile_.sums + r * value_stride_, sizeof(float) * value_stride_);
      const RowSums row = Sums(r);
      to[value_stride_] = row.max;
      to[value_stride_ + 1] = row.sum;
      to[value_stride_ + 2] = row.weighted_score;
    }
  }

 private:
  // Of the rows first .. last.
  template <class Term>
  void WeightRows(Term& term, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row += kRows) {
      const RowGroup g = tile_.Group(row, std::min<int64_t>(kRows, last - row));
      if (g.begin >= g.end) continue;
      const int64_t begin = Tile::Down(g.begin) - tile_.begin;
      const int64_t end = Tile::Up(g.end) - tile_.begin;
      if constexpr (Term::kRowBias) {
        RowBias biases[kRows];
        for (int64_t r = 0; r < g.rows; ++r) biases[r] = term.Bias(row + r, begin, end);
        RunGroup<Term::kReadsWeights>(g, biases, begin, end);
      } else {
        RunGroup<Term::kReadsWeights>(g, nullptr, begin, end);
      }
    }
  }

  // In AMX's tiles, a group of rows after the other: what they multiply is still in the first level
  // of the cache. Rows of a group see different keys, of which those that a row does not see have
  // weights of 0, up to whole tiles.
  template <class Term>
  void RunInTiles(Term& term) {
    constexpr int64_t kStep = 2 * kPairTileRows;
    if (tile_.key_words != 0 && tile_.key_words != kPairTileRows) ConfigurePairTiles(kPairTileRows);
    scores_.kv().LoadValuePairs(tile_.begin, tile_.end);
    for (int64_t row = 0; row < tile_.rows; row += kPairTileGroup) {
      const RowGroup g = tile_.Group(row, kPairTileGroup);
      if (g.begin >= g.end) continue;
      WeightRows(term, row, row + g.rows);
      const int64_t begin = g.begin / kStep * kStep, end = (g.end + kStep - 1) / kStep * kStep;
      PadWeights(g, begin, end);
      const uint16_t* weights = tile_.rounded_weights + row * kPairStride + begin - tile_.begin;
      for (int64_t i = 0; i < value_stride_; i += t_.panel_width) {
        const int64_t width = std::min(t_.panel_width, value_stride_ - i);
        const uint32_t* values = scores_.kv().PanelPairs(i) + (begin - tile_.begin) / 2 * width;
        MultiplyPairTiles(g.rows, width, weights, kPairStride, values, width, kPairTileRows,
                          (end - begin) / 2, kAccumulatePairs, tile_.sums + row * value_stride_ + i,
                          value_stride_);
      }
    }
  }

  // Of the rows of a group, up to the keys begin .. end.
  void PadWeights(const RowGroup& g, int64_t begin, int64_t end) const {
    for (int64_t row = g.row; row < g.row + g.rows; row += kRows) {
      const RowGroup own = tile_.Group(row, std::min<int64_t>(kRows, g.row + g.rows - row));
      const bool none = own.begin >= own.end;
      const int64_t first = none ? end : Tile::Down(own.begin);
      const int64_t last = none ? end : std::min(end, Tile::Up(own.end));
      if (first == begin && last == end) continue;
      for (int64_t r = row; r < row + own.rows; ++r) {
        uint16_t* weights = tile_.rounded_weights + r * kPairStride + begin - tile_.begin;
        std::fill(weights, weights + first - begin, uint16_t{0});
        std::fill(weights + last - begin, weights + end - begin, uint16_t{0});
      }
    }
  }

  // Of a panel and the tokens of a slice.
  void AddSlice(int64_t first, int64_t width, int64_t slice, int64_t slice_end) const {
    const float* values = nullptr;
    const int64_t groups = (tile_.rows + kRows - 1) / kRows;
    const int64_t after = std::min(KvScratch::kValueSlice, t_.key_end - slice_end);
    const bool more = groups >= kGroupsThatPrefetch && t_.kv.type == KvType::kF32;
    for (int64_t row = 0; row < tile_.rows; row += kRows) {
      const RowGroup g = tile_.Group(row);
      const int64_t begin = std::max(g.begin, slice), end = std::min(g.end, slice_end);
      if (begin >= end) continue;
      if (values == nullptr) values = scores_.kv().Values(slice, slice_end, first, width);
      if (more) {
        PrefetchPart(values + (slice_end - slice) * width, after * width, row / kRows, groups);
      }
      Multiply(g.rows, width, tile_.scores + row * kScoreStride + begin - tile_.begin, kScoreStride,
               values + (begin - slice) * width, width, end - begin, /*accumulate=*/true,
               tile_.sums + row * value_stride_ + first, value_stride_);
    }
  }

  // The same in bf16, from an even token to an even one: what a row does not see has a weight of 0.
  void AddPairs(int64_t first, int64_t width, int64_t slice, int64_t slice_end) const {
    const uint32_t* values = nullptr;
    for (int64_t row = 0; row < tile_.rows; row += kRows) {
      const RowGroup g = tile_.Group(row);
      const int64_t begin = std::max(g.begin, slice) / 2,
                    end = (std::min(g.end, slice_end) + 1) / 2;
      if (begin >= end) continue;
      if (values == nullptr) values = scores_.kv().ValuePairs(slice, slice_end, first, width);
      MultiplyPairs(g.rows, width,
                    tile_.rounded_weights + row * kPairStride + 2 * begin - tile_.begin,
                    kPairStride, values + (begin - slice / 2) * width, width, end - begin,
                    kAccumulatePairs, tile_.sums + row * value_stride_ + first, value_stride_);
    }
  }

  // `biases`, of each row, may be null.
  template <bool kept>
  HWY_NOINLINE void RunGroup(const RowGroup& g, const RowBias* biases, int64_t begin,
                             int64_t end) const {
    if (t_.soft_cap != 0) {
      for (int64_t r = 0; r < g.rows; ++r) {
        CapRow(tile_, g.row + r, biases == nullptr ? nullptr : biases + r, begin, end);
      }
      biases = nullptr;
    }
    for (int64_t r = 0; r < g.rows; ++r) scores_.Mask(g.row + r, begin, end);
    if (biases != nullptr) {
      WeightGroup<true, kept>(g, biases, begin, end);
    } else {
      WeightGroup<false, kept>(g, biases, begin, end);
    }
  }

  // Maxima of all rows first: their reductions over lanes have long latencies that overlap.
  template <bool biased, bool kept>
  HWY_INLINE void WeightGroup(const RowGroup& g, const RowBias* biases, int64_t begin,
                              int64_t end) const {
    const D d;
    float maxima[kRows];
    for (int64_t r = 0; r < g.rows; ++r) {
      float* scores = tile_.scores + (g.row + r) * kScoreStride;
      RowBias bias;
      if constexpr (biased) bias = biases[r];
      V max0 = hn::Set(d, kNoScore), max1 = max0;
      int64_t k = begin;
      for (; k + 2 * kLanes <= end; k += 2 * kLanes) {
        max0 = hn::Max(max0, Biased<biased>(scores, bias, k));
        max1 = hn::Max(max1, Biased<biased>(scores, bias, k + kLanes));
      }
      if (k < end) max0 = hn::Max(max0, Biased<biased>(scores, bias, k));
      const float here = hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
      maxima[r] = std::max(tile_.maxima[g.row + r], here * tile_.unit);
    }
    if (t_.wants_entropy) {
      for (int64_t r = 0; r < g.rows; ++r) AddToEntropy(g.row + r, maxima[r], begin, end);
    }
    for (int64_t r = 0; r < g.rows; ++r) {
      t_.bf16 ? WeightRow<true, kept>(g.row + r, maxima[r], begin, end)
              : WeightRow<false, true>(g.row + r, maxima[r], begin, end);
    }
  }

  // weighted_scores += 2^x x, x = score - max: a pass of its own, before the scores become weights,
  // so that who does not ask pays nothing.
  HWY_NOINLINE void AddToEntropy(int64_t r, float new_max, int64_t begin, int64_t end) const {
    const D d;
    const float* scores = tile_.scores + r * kScoreStride;
    float* by_lane = tile_.weighted_scores + r * AttentionAccess::kMaxLanes;
    // Weights below 2^-90 are 0; x of masked keys, and of the first maximum, becomes a number.
    const V max = hn::Set(d, new_max), least = hn::Set(d, -128.0f), unit = hn::Set(d, tile_.unit);
    V sum = hn::Load(d, by_lane);
    if (new_max != tile_.maxima[r]) {
      const V x = hn::Max(hn::Sub(hn::Set(d, tile_.maxima[r]), max), least);
      const V weights = hn::Load(d, tile_.weights + r * AttentionAccess::kMaxLanes);
      V factor = x;
      Exp2<1>(&factor);
      sum = hn::Mul(factor, hn::MulAdd(x, weights, sum));
    }
    V here = hn::Zero(d);
    for (int64_t k = begin; k < end; k += kLanes) {
      const V x = hn::Max(hn::MulSub(hn::Load(d, scores + k), unit, max), least);
      V weight = x;
      Exp2<1>(&weight);
      here = hn::MulAdd(weight, x, here);
    }
    hn::Store(hn::Add(sum, here), d, by_lane);
  }

  // Scores to weights in place; gives sum + weights. Rounded, weights are bf16 in `to` as well: what
  // is summed is what multiplies values, so that they are still averaged. They are kept where a term
  // reads them.
  template <int count, bool rounded, bool kept>
  static HWY_INLINE V WeightVectors(float* HWY_RESTRICT scores, V unit, V max, V sum,
                                    uint16_t* HWY_RESTRICT to) {
    const D d;
    V w[count];
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i) {
      const V score = hn::Load(d, scores + i * kLanes);
      w[i] = rounded ? hn::MulSub(score, unit, max) : hn::Sub(score, max);
    }
    Exp2<count>(w);
    HWY_UNROLL(4)
    for (int i = 0; i < count; ++i) {
      if constexpr (rounded) {
        w[i] = RoundWeight(w[i]);
        StoreRounded(w[i], to + i * kLanes);
      }
      sum = hn::Add(sum, w[i]);
      if constexpr (kept) hn::Store(w[i], d, scores + i * kLanes);
    }
    return sum;
  }

  // The nearest bf16 of 0 or 2^-90 to 1 (Veltkamp 1968's splitting); NaN stays NaN. A tie goes either
  // way.
  static HWY_INLINE V RoundWeight(V w) {
    const V apart = hn::Mul(w, hn::Set(D(), 65537.0f));
    return hn::Sub(apart, hn::Sub(apart, w));
  }

  static HWY_INLINE void StoreRounded(V w, uint16_t* HWY_RESTRICT to) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<uint16_t, D> d16;
    const auto upper = hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(DU(), w)));
    hn::StoreU(hn::DemoteTo(d16, upper), d16, to);
  }

  template <bool rounded, bool kept>
  HWY_INLINE void WeightRow(int64_t r, float new_max, int64_t begin, int64_t end) const {
    const D d;
    float* HWY_RESTRICT scores = tile_.scores + r * kScoreStride;
    float* HWY_RESTRICT weights = tile_.weights + r * AttentionAccess::kMaxLanes;
    const V unit = hn::Set(d, tile_.unit), max = hn::Set(d, new_max);
    V sum = hn::Load(d, weights);
    if (new_max != tile_.maxima[r]) {
      V factor = hn::Sub(hn::Set(d, tile_.maxima[r]), max);
      Exp2<1>(&factor);
      sum = hn::Mul(sum, factor);
      float* out = tile_.sums + r * value_stride_;
      for (int64_t i = 0; i < value_stride_; i += kLanes) {
        hn::Store(hn::Mul(hn::Load(d, out + i), factor), d, out + i);
      }
      tile_.maxima[r] = new_max;
    }
    V here = hn::Zero(d);  // the tile's: a sum of all keys one by one would lose the small ones
    uint16_t* const to = rounded ? tile_.rounded_weights + r * kPairStride : nullptr;
    int64_t k = begin;
    if constexpr (rounded && !kept && kLanes == kPairLanes) {
      HWY_ALIGN float of_tile[AttentionAccess::kMaxLanes];
      WeighRounded(scores + begin, end - begin, tile_.unit, new_max, to + begin, of_tile);
      here = hn::Load(d, of_tile);
      k = end;
    }
    for (; k + 4 * kLanes <= end; k += 4 * kLanes) {
      here = WeightVectors<4, rounded, kept>(scores + k, unit, max, here, to + k);
    }
    for (; k < end; k += kLanes) {
      here = WeightVectors<1, rounded, kept>(scores + k, unit, max, here, to + k);
    }
    hn::Store(hn::Add(sum, here), d, weights);
    if constexpr (rounded && kLanes == 1) {  // AddPairs reads whole pairs
      if (begin % 2 == 1) to[begin - 1] = 0;
      if (end % 2 == 1) to[end] = 0;
    }
  }

  RowSums Sums(int64_t r) const {
    const D d;
    const int64_t at = r * AttentionAccess::kMaxLanes;
    RowSums row{tile_.maxima[r], hn::GetLane(hn::SumOfLanes(d, hn::Load(d, tile_.weights + at)))};
    if (t_.wants_entropy) {
      row.weighted_score = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, tile_.weighted_scores + at)));
    }
    return row;
  }

  const Tile& tile_;
  Scores& scores_;
  const AttentionTile& t_;
  const int64_t value_stride_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
