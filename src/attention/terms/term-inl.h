// What a form adds to the scores of a tile: one class per form, `Term`, with the members of NoTerm.
// The loops of kernel/ are compiled for each, so a form costs nothing where it does nothing.
// Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_TERMS_TERM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_TERMS_TERM_INL_H_
#undef ROPEWALK_ATTENTION_TERMS_TERM_INL_H_
#else
#define ROPEWALK_ATTENTION_TERMS_TERM_INL_H_
#endif

#include <cstdint>

#include "src/attention/kernel/backward_tile.h"
#include "src/attention/kernel/views-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// The bias of key tile.begin + k is factor * (values[k] + constant), in units of log 2.
struct RowBias {
  const float* values = nullptr;
  float constant = 0, factor = 1;

  HWY_INLINE V AddTo(V score, int64_t k) const {
    const D d;
    const V bias = hn::Add(hn::LoadU(d, values + k), hn::Set(d, constant));
    return hn::MulAdd(bias, hn::Set(d, factor), score);
  }
};

// A tile of the backward pass: gradients of the loss, which the terms read and add to.
struct Gradients {
  Gradients(const BackwardTile& tile, int64_t rows, int64_t views)
      : b(tile),
        d_scores(b.scratch),
        d_out(d_scores + rows * kScoreStride),
        d_q(d_out + rows * b.forward.value_stride),
        d_relative(d_q + views * rows * b.forward.key_stride),
        d_view(d_relative + rows * b.forward.key_stride),
        delta(d_view + (views > 1 ? rows * kScoreStride : 0)) {}

  const BackwardTile& b;
  float* const d_scores;    // [rows, kScoreStride], of weights at first
  float* const d_out;       // [rows, value_stride]
  float* const d_q;         // [views, rows, key_stride], by way of the keys, before the scale
  float* const d_relative;  // [rows, key_stride], by way of rows of a table
  float* const d_view;      // [rows, kScoreStride], d_scores of one of several views
  float* const delta;       // [rows], d_out . out
};

// No bias, and the members that a term may leave as they are.
class NoTerm {
 public:
  NoTerm() = default;
  explicit NoTerm(const Tile&) {}

  // Whether Bias(row, begin, end) gives the bias of a row for keys begin .. end of the tile (whole
  // vectors), which the softmax then adds as it reads the scores. Those of kRows rows last.
  static constexpr bool kRowBias = false;
  // Whether AddValueRows() reads the weights.
  static constexpr bool kReadsWeights = false;
  // Whether tiles of keys are visited from the nearest to the farthest.
  static constexpr bool kDescends = false;
  // Whether the gradient of the rows' products with q is to be scaled as q is.
  static constexpr bool kScaledRows = true;

  static int64_t ScratchFloats(const FormRun&, int64_t /*rows*/, int64_t /*group*/,
                               int64_t /*head_dim*/) {
    return 0;
  }

  void Begin() {}                   // once per tile of queries, when these are scaled
  void AddTo(float* /*scores*/) {}  // once per tile of keys, after QK^T: adds, or prepares Bias()
  void AddValueRows() {}            // after the softmax, to the sums of values
  void End() {}                     // behind the last tile of keys

  // The backward pass, in the order of the calls; `first` and `end` are those of all keys.
  void BeginBackward(const Gradients&, const Scores&, int64_t /*first*/, int64_t /*end*/) {}
  void BeginBackwardTile(int64_t /*first*/) {}
  void AddToWeightGradients(const Gradients&) {}               // what value rows add to d_out V^T
  void BackwardScores(const Gradients&, int64_t /*first*/) {}  // before d_scores meets q and k
  void Backward(const Gradients&) {}                           // parameter gradients from d_scores
  void EndBackward(const Gradients&) {}                        // after the last tile of keys
  void AddQueryGradient(const Gradients&, int64_t /*group_head*/, float /*scale*/,
                        const float* /*d_q*/, const float* /*d_relative*/) {}
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
