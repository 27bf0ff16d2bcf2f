// The gradient of positions that are sums of gates (RunningForm::Kind::kContextual); once a target.
#if defined(ROPEWALK_ATTENTION_TERMS_CONTEXTUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_CONTEXTUAL_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_CONTEXTUAL_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_CONTEXTUAL_INL_H_
#endif

#include <algorithm>
#include <numeric>

#include "src/attention/kernel/backward_tile.h"
#include "src/attention/kernel/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// position(j) = sum over l >= j of gate(l), so a gate's gradient is a sum over the keys beyond it.
// A first pass over the keys, from the nearest on, leaves each tile's sum of the nearer gates.
class TileContextual : public TileRun {
 protected:
  TileContextual(const AttentionTile& t, float* memory) : TileRun(t) {
    if (contextual_ == nullptr) return;
    all_gates_ = memory;
    d_products_ = all_gates_ + rows_ * kScoreStride;
    d_gates_ = reinterpret_cast<double*>(d_products_ + rows_ * columns_->PaddedColumns());
    nearer_ = d_gates_ + (rows_ + 7) / 8 * 8;
  }

  void BeginContextual(int64_t first_tile, int64_t end) {
    const int64_t tiles = end <= first_tile ? 0 : (end - first_tile + kTileKeys - 1) / kTileKeys;
    std::fill_n(d_products_, rows_ * columns_->PaddedColumns(), 0.0f);
    std::fill_n(d_gates_, rows_, 0.0);
    for (int64_t i = tiles - 1; i >= 0; --i) {
      tile_begin_ = first_tile + i * kTileKeys;
      tile_end_ = std::min(tile_begin_ + kTileKeys, end);
      std::copy_n(passed_, rows_, nearer_ + i * rows_);
      if (std::all_of(passed_, passed_ + rows_, [this](double x) { return AtLast(x); })) continue;
      Products(q_, t_.keys, scores_);
      AddContent();
    }
  }

  void BeginContextualTile(int64_t first_tile) {
    std::copy_n(nearer_ + (tile_begin_ - first_tile) / kTileKeys * rows_, rows_, passed_);
  }

  // Adds to d_scores [rows, kScoreStride] what comes by way of the gates, and the gradient of the
  // products of query and rows.
  void AddContextualGradients(int64_t first_tile, float* d_scores) {
    const int64_t stride = columns_->PaddedColumns();
    const auto most = static_cast<double>(columns_->columns - 1);
    double positions[kTileKeys];
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t first = std::max(tile_begin_, seen_begin_[Token(r)]) - tile_begin_;
      const int64_t last = std::min(tile_end_, t_.seen_end[Token(r)]) - tile_begin_;
      const float* gates = all_gates_ + r * kScoreStride;
      const float* products = products_ + r * stride;
      float* d_products = d_products_ + r * stride;
      float* line = d_scores + r * kScoreStride;
      double sum = nearer_[(tile_begin_ - first_tile) / kTileKeys * rows_ + r];
      if (AtLast(sum)) {
        if (first < last) d_products[columns_->columns - 1] += Sum(line + first, last - first);
        continue;
      }
      for (int64_t k = last - 1; k >= first; --k) positions[k] = sum += gates[k];
      for (int64_t k = first; k < last; ++k) {
        const double position = positions[k] < most ? positions[k] : most;
        const auto below = static_cast<int32_t>(position);
        const int32_t above = std::min(below + 1, static_cast<int32_t>(most));
        const auto part = static_cast<float>(position - below);
        d_products[below] += line[k] * (1 - part);
        d_products[above] += line[k] * part;
        if (positions[k] < most) {
          d_gates_[r] += double{line[k]} * (products[above] - products[below]) * kLn2;
        }
        line[k] += static_cast<float>(d_gates_[r]) * gates[k] * (1 - gates[k]);
      }
    }
  }

  float* d_products_ = nullptr;  // [rows, padded columns]

 private:
  static float Sum(const float* x, int64_t count) {
    const D d;
    V sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) sum = hn::Add(sum, hn::LoadU(d, x + i));
    return std::accumulate(x + i, x + count, hn::GetLane(hn::SumOfLanes(d, sum)));
  }

  double* d_gates_ = nullptr;  // [rows], of all keys so far
  double* nearer_ = nullptr;   // [tiles, rows]
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
