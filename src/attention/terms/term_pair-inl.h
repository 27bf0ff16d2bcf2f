// A function of the pair of positions (FIRE, Swin, TUPE), evaluated for a tile at a time. Compiled
// once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_TERM_PAIR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_TERM_PAIR_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_TERM_PAIR_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_TERM_PAIR_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <span>

#include "src/attention/terms/term-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

class PairTerm : public NoTerm {
 public:
  explicit PairTerm(const Tile& tile)
      : tile_(tile),
        t_(tile.t),
        function_(*std::get<PairForm>(*t_.form->form).function),
        biases_(tile.form_scratch) {}

  static constexpr bool kRowBias = true;

  static int64_t ScratchFloats(const FormRun&, int64_t rows, int64_t, int64_t) {
    return rows * kScoreStride;
  }

  void AddTo(float*) {
    ForPairs([this](int64_t h, std::span<const int64_t> queries, std::span<const int64_t> keys,
                    int64_t row, int64_t key) {
      function_.Evaluate(t_.first_head + h, queries, keys, biases_ + row * kScoreStride + key,
                         t_.group * kScoreStride);
    });
  }

  // Pairs that may not be seen were not evaluated: they become numbers.
  RowBias Bias(int64_t row, int64_t begin, int64_t end) {
    const int64_t token = tile_.Token(row);
    float* values = biases_ + row * kScoreStride;
    const int64_t first = tile_.seen_begin[token] - tile_.begin;
    const int64_t last = t_.seen_end[token] - tile_.begin;
    for (int64_t k = begin; k < std::min(end, first); ++k) values[k] = 0;
    for (int64_t k = std::max(begin, last); k < end; ++k) values[k] = 0;
    return {values, 0.0f, kLog2E};
  }

  void Backward(const Gradients& g) {
    if (g.b.sums == nullptr) return;
    ForPairs([&](int64_t h, std::span<const int64_t> queries, std::span<const int64_t> keys,
                 int64_t row, int64_t key) {
      function_.Backward(t_.first_head + h, queries, keys, g.d_scores + row * kScoreStride + key,
                         t_.group * kScoreStride, g.b.sums->pair.span());
    });
  }

 private:
  // Calls work(head, queries, keys, first row, first key of the tile) for the pairs that may be
  // seen: a tile at once where every token sees all of it, else a block at a time.
  template <class F>
  void ForPairs(const F& work) const {
    const QueryRanges& r = *t_.form->ranges;
    const bool all = tile_.seen_begin[t_.tokens - 1] <= tile_.begin && t_.seen_end[0] >= tile_.end;
    const int64_t step = all ? kTileKeys : AttentionAccess::kBlock;
    for (int64_t at = tile_.begin; at < tile_.end; at += step) {
      const int64_t keys = std::min(step, tile_.end - at);
      const auto [first, last] = tile_.TokensThatSee(at, at + keys);
      if (first == last) continue;
      for (int64_t h = 0; h < t_.group; ++h) {
        work(h,
             std::span(r.query_positions.data() + t_.first_token + first,
                       static_cast<size_t>(last - first)),
             std::span(r.key_positions.data() + at, static_cast<size_t>(keys)),
             first * t_.group + h, at - tile_.begin);
      }
    }
  }

  const Tile& tile_;
  const AttentionTile& t_;
  const PairFunction& function_;
  float* const biases_;  // [rows, kScoreStride]
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
