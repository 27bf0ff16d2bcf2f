// CoPE: the key's position is a running sum of gates, sigmoids of its own scores (Golovneva et al.
// 2024, arXiv 2405.18719). Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_TERM_CONTEXTUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_TERM_CONTEXTUAL_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_TERM_CONTEXTUAL_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_TERM_CONTEXTUAL_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "src/attention/terms/columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

class ContextualTerm : public NoTerm {
 public:
  explicit ContextualTerm(Tile& tile)
      : tile_(tile),
        t_(tile.t),
        columns_(*t_.form->content),
        stride_(columns_.PaddedColumns()),
        relative_q_(tile.form_scratch),
        products_(relative_q_ + tile.rows * t_.key_stride),
        gates_line_(products_ + tile.rows * stride_),
        passed_(reinterpret_cast<double*>(gates_line_ + kScoreStride)) {}

  static constexpr bool kDescends = true;
  static constexpr bool kScaledRows = false;

  static int64_t ScratchFloats(const FormRun& form, int64_t rows, int64_t, int64_t head_dim) {
    return rows * (AttentionAccess::RowStride(head_dim) + form.content->PaddedColumns() + 16) +
           kScoreStride;
  }

  void Begin() {
    FillQueries(
        tile_, {}, [](int64_t) { return kLog2E; }, relative_q_);
    std::fill_n(passed_, tile_.rows, 0.0);
    if (const ContextualSums* sums = t_.form->contextual_sums;
        sums != nullptr && !sums->nearer.empty()) {
      for (int64_t r = 0; r < tile_.rows; ++r) passed_[r] = sums->nearer[Of(r)];
    }
    for (int64_t h = 0; h < t_.group; ++h) {
      for (int64_t token = 0; token < t_.tokens; token += kRows) {
        const int64_t row = token * t_.group + h;
        MultiplyColumns(t_.head_dim, std::min<int64_t>(kRows, t_.tokens - token),
                        relative_q_ + row * t_.key_stride, t_.group * t_.key_stride,
                        columns_.query_rows.data() + columns_.Table(t_.first_head + h, t_.head_dim),
                        0, stride_, products_ + row * stride_, t_.group * stride_);
      }
    }
  }

  void AddTo(float* scores) {
    for (int64_t r = 0; r < tile_.rows; ++r) AddToRow(r, scores + r * kScoreStride);
  }

  void End() {
    const ContextualSums* sums = t_.form->contextual_sums;
    if (sums == nullptr || sums->all.empty()) return;
    for (int64_t r = 0; r < tile_.rows; ++r) sums->all[Of(r)] = passed_[r];
  }

  // position(j) = sum over l >= j of gate(l), so a gate's gradient is a sum over the keys beyond
  // it. A first pass over the keys, from the nearest on, leaves each tile's sum of nearer gates.
  void BeginBackward(const Gradients& g, const Scores& scores, int64_t first, int64_t end) {
    const int64_t rows = tile_.rows;
    all_gates_ = g.b.contextual;
    d_products_ = all_gates_ + rows * kScoreStride;
    d_gates_ = reinterpret_cast<double*>(d_products_ + rows * stride_);
    nearer_ = d_gates_ + (rows + 7) / 8 * 8;
    const int64_t tiles = end <= first ? 0 : (end - first + kTileKeys - 1) / kTileKeys;
    std::fill_n(d_products_, rows * stride_, 0.0f);
    std::fill_n(d_gates_, rows, 0.0);
    for (int64_t i = tiles - 1; i >= 0; --i) {
      tile_.begin = first + i * kTileKeys;
      tile_.end = std::min(tile_.begin + kTileKeys, end);
      std::copy_n(passed_, rows, nearer_ + i * rows);
      if (std::all_of(passed_, passed_ + rows, [this](double x) { return AtLast(x); })) continue;
      scores.KeyProducts(tile_.scores);
      AddTo(tile_.scores);
    }
  }

  void BeginBackwardTile(int64_t first) {
    std::copy_n(nearer_ + (tile_.begin - first) / kTileKeys * tile_.rows, tile_.rows, passed_);
  }

  // Adds to d_scores what comes by way of the gates; gives the gradient of the products.
  void BackwardScores(const Gradients& g, int64_t first) {
    for (int64_t r = 0; r < tile_.rows; ++r) {
      BackwardRow(r, nearer_[(tile_.begin - first) / kTileKeys * tile_.rows + r],
                  g.d_scores + r * kScoreStride);
    }
  }

  // Gradients of the rows, and of queries by way of them.
  void EndBackward(const Gradients& g) {
    const int64_t columns = columns_.columns;
    const bool shared = columns_.table_heads == 1;
    for (int64_t h = 0; h < t_.group; ++h) {
      const float* rows = g.b.tables->query_rows.data() +
                          (shared ? 0 : t_.first_head + h) * columns * t_.key_stride;
      for (int64_t token = 0; token < t_.tokens; token += kRows) {
        const int64_t row = token * t_.group + h,
                      count = std::min<int64_t>(kRows, t_.tokens - token);
        Multiply(count, t_.key_stride, d_products_ + row * stride_, t_.group * stride_, rows,
                 t_.key_stride, columns, /*accumulate=*/true, g.d_relative + row * t_.key_stride,
                 t_.group * t_.key_stride);
        MultiplyTransposed(d_products_ + row * stride_, t_.group * stride_, columns,
                           relative_q_ + row * t_.key_stride, count, t_.group * t_.key_stride,
                           t_.key_stride,
                           g.b.sums->query_rows.data() + (shared ? 0 : h) * columns * t_.key_stride,
                           t_.key_stride);
      }
    }
  }

 private:
  // Of a row in ContextualSums, all heads of which are the form's.
  size_t Of(int64_t r) const {
    const int64_t heads = t_.log_sum_exp_stride;
    return static_cast<size_t>((t_.first_token + tile_.Token(r)) * heads + t_.first_head +
                               r % t_.group);
  }

  // The gates of keys begin .. end of the tile, sigmoids of their scores.
  static void FillGates(const float* scores, int64_t begin, int64_t end, float* gates) {
    const D d;
    const V one = hn::Set(d, 1.0f);
    for (int64_t k = begin; k < end; k += kLanes) {
      const V x = hn::Load(d, scores + k);
      V e = hn::Neg(hn::Abs(x));
      Exp2<1>(&e);
      const V small = hn::Div(e, hn::Add(one, e));
      hn::Store(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, hn::Sub(one, small)), d, gates + k);
    }
  }

  // Whether all keys beyond a sum of gates have the last position: NaN does as well.
  bool AtLast(double sum) const { return !(sum < static_cast<double>(columns_.columns - 1)); }

  // Positions are sums of gates from the query back to the key. Keys beyond the last position need
  // no gates.
  void AddToRow(int64_t row, float* scores) {
    const int64_t token = tile_.Token(row);
    const auto [begin, end] = tile_.Seen(token, tile_.begin, tile_.end);
    if (begin == end) return;
    float* gates = all_gates_ == nullptr ? gates_line_ : all_gates_ + row * kScoreStride;
    const float* products = products_ + row * stride_;
    const auto last = static_cast<int32_t>(columns_.columns - 1);
    double sum = passed_[row];
    if (!AtLast(sum)) FillGates(scores, begin - tile_.begin, end - tile_.begin, gates);
    const int64_t first = std::max(tile_.begin, tile_.seen_begin[token]) - tile_.begin;
    int64_t k = std::min(tile_.end, t_.seen_end[token]) - tile_.begin - 1;
    for (; k >= first && !AtLast(sum); --k) {
      sum += gates[k];
      const double position = AtLast(sum) ? last : sum;
      const auto below = static_cast<int32_t>(position);
      const int32_t above = std::min(below + 1, last);
      const auto part = static_cast<float>(position - below);
      scores[k] += products[below] + part * (products[above] - products[below]);
    }
    for (int64_t beyond = first; beyond <= k; ++beyond) scores[beyond] += products[last];
    passed_[row] = sum;
  }

  void BackwardRow(int64_t r, double sum, float* line) {
    const auto most = static_cast<double>(columns_.columns - 1);
    const int64_t token = tile_.Token(r);
    const int64_t first = std::max(tile_.begin, tile_.seen_begin[token]) - tile_.begin;
    const int64_t last = std::min(tile_.end, t_.seen_end[token]) - tile_.begin;
    const float* gates = all_gates_ + r * kScoreStride;
    const float* products = products_ + r * stride_;
    float* d_products = d_products_ + r * stride_;
    if (AtLast(sum)) {
      if (first < last) d_products[columns_.columns - 1] += Sum(line + first, last - first);
      return;
    }
    double positions[kTileKeys];
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

  static float Sum(const float* x, int64_t count) {
    const D d;
    V sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) sum = hn::Add(sum, hn::LoadU(d, x + i));
    return std::accumulate(x + i, x + count, hn::GetLane(hn::SumOfLanes(d, sum)));
  }

  Tile& tile_;
  const AttentionTile& t_;
  const ContentColumns& columns_;
  const int64_t stride_;     // padded columns
  float* const relative_q_;  // [rows, key_stride], times log2 e
  float* const products_;    // [rows, padded columns], of queries and rows
  float* const gates_line_;  // [kScoreStride]
  double* const passed_;     // [rows], sums of the gates of nearer tiles
  // The backward pass.
  float* all_gates_ = nullptr;   // [rows, kScoreStride]
  float* d_products_ = nullptr;  // [rows, padded columns]
  double* d_gates_ = nullptr;    // [rows], of all keys so far
  double* nearer_ = nullptr;     // [tiles, rows]
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
