// Sums of logarithms of gates between key and query (Forgetting Transformer). Compiled once per
// SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_TERM_GATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_TERM_GATE_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_TERM_GATE_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_TERM_GATE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "src/attention/terms/term-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// bias(i, j) = G(i) - G(j), G the running sum of log-gates: over a tile of keys a line per head,
// less a constant per row.
class GateTerm : public NoTerm {
 public:
  explicit GateTerm(const Tile& tile)
      : tile_(tile),
        t_(tile.t),
        first_(t_.form->first_index + t_.first_token + 1),
        in_parts_(!t_.form->query_gate_sums.empty()),
        lines_(tile.form_scratch) {}

  static constexpr bool kRowBias = true;

  static int64_t ScratchFloats(const FormRun&, int64_t, int64_t group, int64_t) {
    return group * kBandStride;
  }

  void AddTo(float*) {
    const int64_t count = tile_.end - tile_.begin;
    for (int64_t h = 0; h < t_.group; ++h) {
      const double* sums = Sums(h);
      float* line = lines_ + h * kBandStride;
      const double from = *QuerySums(h);
      for (int64_t k = 0; k < count; ++k) {
        line[k] = static_cast<float>((from - sums[tile_.begin + k + 1]) * kLog2EDouble);
      }
      std::fill_n(line + count, AttentionAccess::kMaxLanes, 0.0f);
    }
  }

  RowBias Bias(int64_t row, int64_t, int64_t) const {
    const int64_t h = row % t_.group;
    const double* at = QuerySums(h);
    return {lines_ + h * kBandStride,
            static_cast<float>((at[tile_.Token(row)] - at[0]) * kLog2EDouble), 1.0f};
  }

  // A row's sum goes to the query's G, a column's leaves the key's.
  void Backward(const Gradients& g) {
    if (g.b.sums == nullptr) return;
    const D d;
    float* by_key = lines_;  // the biases are used up
    for (int64_t h = 0; h < t_.group; ++h) {
      double* sums = g.b.sums->gates.data() + h * t_.form->gate_stride;
      std::fill_n(by_key, kTileKeys, 0.0f);
      for (int64_t token = 0; token < t_.tokens; ++token) {
        const float* line = g.d_scores + (token * t_.group + h) * kScoreStride;
        const auto [begin, end] = tile_.Seen(token, tile_.begin, tile_.end);
        V sum = hn::Zero(d);
        for (int64_t k = begin - tile_.begin; k < end - tile_.begin; k += kLanes) {
          const V x = hn::Load(d, line + k);
          sum = hn::Add(sum, x);
          hn::Store(hn::Add(hn::Load(d, by_key + k), x), d, by_key + k);
        }
        sums[first_ + token] += hn::GetLane(hn::SumOfLanes(d, sum));
      }
      for (int64_t k = 0; k < tile_.end - tile_.begin; ++k) sums[tile_.begin + k + 1] -= by_key[k];
    }
  }

 private:
  // [keys + 1], the sum before each key
  const double* Sums(int64_t h) const {
    return t_.form->gate_sums.data() + (t_.first_head + h) * t_.form->gate_stride;
  }

  // [tokens], with each query's own gate
  const double* QuerySums(int64_t h) const {
    if (!in_parts_) return Sums(h) + first_;
    const auto queries = static_cast<int64_t>(t_.form->ranges->end.size());
    return t_.form->query_gate_sums.data() + (t_.first_head + h) * queries + t_.first_token;
  }

  const Tile& tile_;
  const AttentionTile& t_;
  const int64_t first_;  // of the first query, in Sums, where all keys are there
  const bool in_parts_;
  float* const lines_;  // [group, kBandStride]
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
