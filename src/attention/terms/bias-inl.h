// What a tile of attention adds to its scores without a product: slopes, distance tables, gates and
// functions of the pair; once a target.
#if defined(ROPEWALK_ATTENTION_TERMS_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_BIAS_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_BIAS_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_BIAS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "src/attention/kernel/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// The rows of one micro-kernel call and the keys that any of them sees.
struct RowGroup {
  int64_t row, rows;
  int64_t begin, end;  // keys within the current tile; empty: begin >= end
};

// A tile's memory and where it stands among the keys.
class TileBase {
 protected:
  static constexpr int64_t kLanes = hn::MaxLanes(D());
  static constexpr double kLog2EDouble = 1.4426950408889634;

  explicit TileBase(const AttentionTile& t)
      : t_(t),
        rows_(t.tokens * t.group),
        seen_begin_(t.seen_begin),
        scores_(t.scratch),
        q_(scores_ + rows_ * kScoreStride),
        sums_(q_ + rows_ * t.value_stride),
        weights_(sums_ + rows_ * t.value_stride),
        maxima_(weights_ + rows_ * AttentionAccess::kMaxLanes) {}

  int64_t Token(int64_t row) const { return row / t_.group; }

  // Ranges rise from token to token.
  RowGroup Group(int64_t row) const {
    RowGroup g{row, std::min<int64_t>(kRows, rows_ - row), 0, 0};
    g.begin = std::max(tile_begin_, seen_begin_[Token(row)]);
    g.end = std::min(tile_end_, t_.seen_end[Token(row + g.rows - 1)]);
    return g;
  }

  // The scale of a token's scores in units of log 2: exp(x) = 2^(x log2 e).
  float Scale2(int64_t token) const {
    const double factor = t_.temperatures == nullptr ? 1.0 : double{t_.temperatures[token]};
    return static_cast<float>(t_.scale * factor * kLog2EDouble);
  }

  const AttentionTile& t_;
  const int64_t rows_;
  const int64_t* seen_begin_;  // [tokens], of the keys of the tile
  float* const scores_;        // [rows, kScoreStride]; weights after Softmax
  float* const q_;             // [rows, value_stride]
  float* const sums_;          // [rows, value_stride]
  float* const weights_;       // [rows, kMaxLanes]
  float* const maxima_;        // [rows]
  int64_t tile_begin_ = 0, tile_end_ = 0;
};

// The bias of key tile_begin + k is factor * (values[k] + constant), in units of log 2.
struct RowBias {
  const float* values = nullptr;
  float constant = 0, factor = 1;

  HWY_INLINE V AddTo(V score, int64_t k) const {
    const D d;
    const V bias = hn::Add(hn::LoadU(d, values + k), hn::Set(d, constant));
    return hn::MulAdd(bias, hn::Set(d, factor), score);
  }
};

class TileBias : public TileBase {
 protected:
  explicit TileBias(const AttentionTile& t) : TileBase(t) {
    if (t.form == nullptr) return;
    const ScoreForm& form = *t.form->form;
    slope_ = std::get_if<SlopeForm>(&form);
    table_ = std::get_if<DistanceForm>(&form);
    if (const auto* pair = std::get_if<PairForm>(&form)) pair_ = pair->function.get();
    const auto* running = std::get_if<RunningForm>(&form);
    gates_ = running != nullptr && running->kind == RunningForm::Kind::kGates;
    bands_ = t.scratch + ScratchFloats(rows_, t.head_dim);
    const auto [low, high] = std::minmax_element(base(), base() + t.tokens);
    base_high_ = *high;
    spread_ = *high - *low;
  }

  // Whether Bias() says anything.
  bool HasBias() const { return slope_ != nullptr || table_ != nullptr || gates_ || pair_; }

  const int64_t* base() const { return t_.form->ranges->base.data() + t_.first_token; }

  // Once a tile of keys, before Bias().
  void BeginBias() {
    if (pair_ != nullptr) return EvaluatePairs();
    const int64_t count = tile_end_ - tile_begin_;
    if (gates_) {
      for (int64_t h = 0; h < t_.group; ++h) {
        const double* sums = GateSums(h);
        float* band = bands_ + h * kBandStride;
        const double from = sums[t_.form->first_index + t_.first_token + 1];
        for (int64_t k = 0; k < count; ++k) {
          band[k] = static_cast<float>((from - sums[tile_begin_ + k + 1]) * kLog2EDouble);
        }
        PadBand(band, count);
      }
    } else if (HasBias() && InBands()) {
      for (int64_t h = 0; h < t_.group; ++h) {
        float* band = bands_ + h * kBandStride;
        FillBias(h, base_high_ - tile_begin_, spread_ + count, band);
        PadBand(band, spread_ + count);
      }
    }
  }

  // For keys begin .. end of the tile (whole vectors); those that the row does not see are numbers.
  RowBias Bias(int64_t row, int64_t begin, int64_t end) {
    const int64_t h = row % t_.group, token = Token(row);
    if (pair_ != nullptr) {
      float* values = PairRow(row);
      const int64_t first = seen_begin_[token] - tile_begin_;
      const int64_t last = t_.seen_end[token] - tile_begin_;
      for (int64_t k = begin; k < std::min(end, first); ++k) values[k] = 0;
      for (int64_t k = std::max(begin, last); k < end; ++k) values[k] = 0;
      return {values, 0.0f, kLog2E};
    }
    const float* band = bands_ + h * kBandStride;
    if (gates_) {
      const double* at = GateSums(h) + t_.form->first_index + t_.first_token + 1;
      return {band, static_cast<float>((at[token] - at[0]) * kLog2EDouble), 1.0f};
    }
    if (InBands()) return {band + base_high_ - base()[token], 0.0f, 1.0f};
    const int64_t last = std::min(end, tile_end_ - tile_begin_);
    FillRow(h, token, begin, last);
    PadBand(bands_, last);
    return {bands_, 0.0f, 1.0f};
  }

  float* bands_ =
      nullptr;  // the form's memory: [group, kBandStride], or of pairs [rows, kScoreStride]

  bool InBands() const { return t_.form->ranges->consecutive && spread_ <= kBandSpread; }
  float* PairRow(int64_t row) const { return bands_ + row * kScoreStride; }
  const double* GateSums(int64_t h) const {
    return t_.form->gate_sums.data() + (t_.first_head + h) * t_.form->gate_stride;
  }

  static void PadBand(float* band, int64_t from) {
    std::fill_n(band + from, AttentionAccess::kMaxLanes, 0.0f);
  }

  // out[x] = bias of distance `first` - x.
  void FillBias(int64_t h, int64_t first, int64_t count, float* out) const {
    const auto head = static_cast<size_t>(t_.first_head + h);
    if (slope_ != nullptr) {
      const double behind = -kLog2EDouble * slope_->behind[head];
      const double ahead = slope_->ahead.empty() ? 0 : kLog2EDouble * slope_->ahead[head];
      const int64_t split = std::clamp<int64_t>(first + 1, 0, count);
      for (int64_t x = 0; x < split; ++x) {
        out[x] = static_cast<float>(behind * static_cast<double>(first - x));
      }
      for (int64_t x = split; x < count; ++x) {
        out[x] = static_cast<float>(ahead * static_cast<double>(first - x));
      }
      return;
    }
    const float* values = table_->values.data() + static_cast<int64_t>(head) * table_->columns;
    const int64_t last = table_->columns - 1, top = first - table_->first;  // column of out[0]
    const int64_t beyond = std::clamp<int64_t>(top - last, 0, count);
    const int64_t inside = std::clamp<int64_t>(top + 1, beyond, count);
    std::fill_n(out, beyond, values[last] * kLog2E);
    for (int64_t x = beyond; x < inside; ++x) out[x] = values[top - x] * kLog2E;
    std::fill_n(out + inside, count - inside, values[0] * kLog2E);
  }

  void FillRow(int64_t h, int64_t token, int64_t begin, int64_t end) const {
    const QueryRanges& r = *t_.form->ranges;
    if (r.consecutive) {
      return FillBias(h, base()[token] - tile_begin_ - begin, end - begin, bands_ + begin);
    }
    const int64_t position = r.query_positions[t_.first_token + token];
    for (int64_t k = begin; k < end; ++k) {
      FillBias(h, position - r.key_positions[tile_begin_ + k], 1, bands_ + k);
    }
  }

  // Tokens first .. last see some of the keys begin .. end.
  std::pair<int64_t, int64_t> TokensThatSee(int64_t begin, int64_t end) const {
    int64_t first = 0, last = t_.tokens;
    while (first < last && t_.seen_end[first] <= begin) ++first;
    while (last > first && seen_begin_[last - 1] >= end) --last;
    return {first, last};
  }

  // Calls work(head, queries, keys, first row, first key of the tile) for the pairs that may be
  // seen: a tile at once where every token sees all of it, else a block at a time.
  template <class F>
  void ForPairs(const F& work) const {
    const QueryRanges& r = *t_.form->ranges;
    const bool all = seen_begin_[t_.tokens - 1] <= tile_begin_ && t_.seen_end[0] >= tile_end_;
    const int64_t step = all ? kTileKeys : AttentionAccess::kBlock;
    for (int64_t at = tile_begin_; at < tile_end_; at += step) {
      const int64_t keys = std::min(step, tile_end_ - at);
      const auto [first, last] = TokensThatSee(at, at + keys);
      if (first == last) continue;
      for (int64_t h = 0; h < t_.group; ++h) {
        work(h,
             std::span(r.query_positions.data() + t_.first_token + first,
                       static_cast<size_t>(last - first)),
             std::span(r.key_positions.data() + at, static_cast<size_t>(keys)),
             first * t_.group + h, at - tile_begin_);
      }
    }
  }

  void EvaluatePairs() {
    ForPairs([this](int64_t h, std::span<const int64_t> queries, std::span<const int64_t> keys,
                    int64_t row, int64_t key) {
      pair_->Evaluate(t_.first_head + h, queries, keys, PairRow(row) + key,
                      t_.group * kScoreStride);
    });
  }

  const SlopeForm* slope_ = nullptr;
  const DistanceForm* table_ = nullptr;
  const PairFunction* pair_ = nullptr;
  bool gates_ = false;
  int64_t base_high_ = 0, spread_ = 0;  // of the tokens' base
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
