// A bias that depends on the distance alone: the distances of a tile form a band of spread + keys
// numbers, of which each row reads its part. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_DISTANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_DISTANCE_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_DISTANCE_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_DISTANCE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "src/attention/terms/term-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// `Function` gives the bias of distances: Fill and Backward (SlopeFunction, TableFunction).
template <class Function>
class DistanceTerm : public NoTerm {
 public:
  explicit DistanceTerm(const Tile& tile)
      : tile_(tile), t_(tile.t), function_(*t_.form->form), bands_(tile.form_scratch) {
    const auto [low, high] = std::minmax_element(tile.base(), tile.base() + t_.tokens);
    base_high_ = *high;
    spread_ = *high - *low;
    in_bands_ = t_.form->ranges->consecutive && spread_ <= kBandSpread;
  }

  static constexpr bool kRowBias = true;

  static int64_t ScratchFloats(const FormRun&, int64_t, int64_t group, int64_t) {
    return std::max<int64_t>(group, kRows) * kBandStride;
  }

  void AddTo(float*) {
    if (!in_bands_) return;
    const int64_t count = spread_ + tile_.end - tile_.begin;
    for (int64_t h = 0; h < t_.group; ++h) {
      float* band = bands_ + h * kBandStride;
      function_.Fill(t_.first_head + h, base_high_ - tile_.begin, count, band);
      PadBand(band, count);
    }
  }

  RowBias Bias(int64_t row, int64_t begin, int64_t end) {
    const int64_t h = row % t_.group, token = tile_.Token(row);
    if (in_bands_) return {bands_ + h * kBandStride + base_high_ - tile_.base()[token], 0.0f, 1.0f};
    const int64_t last = std::min(end, tile_.end - tile_.begin);
    float* biases = bands_ + row % kRows * kBandStride;
    FillRow(h, token, begin, last, biases);
    PadBand(biases, last);
    return {biases, 0.0f, 1.0f};
  }

  void Backward(const Gradients& g) {
    if (g.b.sums == nullptr) return;
    const D d;
    float* band = bands_;  // the biases are used up
    for (int64_t h = 0; h < t_.group; ++h) {
      if (in_bands_) std::fill_n(band, kBandStride, 0.0f);
      for (int64_t token = 0; token < t_.tokens; ++token) {
        const float* line = g.d_scores + (token * t_.group + h) * kScoreStride;
        const auto [begin, end] = tile_.Seen(token, tile_.begin, tile_.end);
        if (!in_bands_) {
          BackwardLine(*g.b.sums, h, token, line, begin - tile_.begin, end - tile_.begin);
          continue;
        }
        float* to = band + base_high_ - tile_.base()[token];
        for (int64_t k = begin - tile_.begin; k < end - tile_.begin; k += kLanes) {
          hn::StoreU(hn::Add(hn::LoadU(d, to + k), hn::Load(d, line + k)), d, to + k);
        }
      }
      if (in_bands_) {
        function_.Backward(*g.b.sums, h, base_high_ - tile_.begin,
                           spread_ + tile_.end - tile_.begin, band);
      }
    }
  }

 private:
  // Softmax reads whole vectors.
  static void PadBand(float* band, int64_t from) {
    std::fill_n(band + from, AttentionAccess::kMaxLanes, 0.0f);
  }

  int64_t Distance(int64_t token, int64_t k) const {
    const QueryRanges& r = *t_.form->ranges;
    return r.consecutive
               ? tile_.base()[token] - tile_.begin - k
               : r.query_positions[t_.first_token + token] - r.key_positions[tile_.begin + k];
  }

  // One row, where positions have gaps or lie far apart.
  void FillRow(int64_t h, int64_t token, int64_t begin, int64_t end, float* out) const {
    const int64_t head = t_.first_head + h;
    if (t_.form->ranges->consecutive) {
      return function_.Fill(head, Distance(token, begin), end - begin, out + begin);
    }
    for (int64_t k = begin; k < end; ++k) function_.Fill(head, Distance(token, k), 1, out + k);
  }
  void BackwardLine(FormSums& sums, int64_t h, int64_t token, const float* line, int64_t begin,
                    int64_t end) const {
    for (int64_t k = begin; k < std::min(end, tile_.end - tile_.begin); ++k) {
      function_.Backward(sums, h, Distance(token, k), 1, line + k);
    }
  }

  const Tile& tile_;
  const AttentionTile& t_;
  const Function function_;
  // [group, kBandStride]; of tokens that fit no band, a line for each row of a group
  float* const bands_;
  int64_t base_high_ = 0, spread_ = 0;  // of the tokens' base
  bool in_bands_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
