// The rotation of queries and keys (RoFormer, Su et al. 2021, arXiv 2104.09864, eq. 34).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk {

// The position of each token. Tokens of a batch are numbered batch-major. On several axes (M-RoPE,
// 2-D, 3-D) all kinds but Each give a token one position on every axis, as text has.
class Positions {
 public:
  // Every sequence of the batch starts at `start`: position of token t is start + t.
  static Positions From(int64_t start) { return Positions(Kind::kStart, nullptr, 0, start); }
  // A position per token, in any order. [axes, batch * tokens], or [axes, tokens] shared by the
  // batch.
  static Positions Each(std::span<const int32_t> p, int axes = 1) {
    return Positions(Kind::kEach32, p.data(), static_cast<int64_t>(p.size()), 0, axes);
  }
  static Positions Each(std::span<const int64_t> p, int axes = 1) {
    return Positions(Kind::kEach64, p.data(), static_cast<int64_t>(p.size()), 0, axes);
  }
  // A start per sequence of the batch: position of token t of sequence b is starts[b] + t.
  static Positions Starts(std::span<const int64_t> starts) {
    return Positions(Kind::kStarts, starts.data(), static_cast<int64_t>(starts.size()), 0);
  }
  // The first pads[b] tokens of sequence b are padding: position of token t is t - pads[b], that of
  // padding is 0.
  static Positions LeftPadded(std::span<const int64_t> pads) {
    return Positions(Kind::kLeftPadded, pads.data(), static_cast<int64_t>(pads.size()), 0);
  }
  // Packed sequences: sequence s holds tokens boundaries[s] .. boundaries[s + 1] - 1 and starts at
  // position 0. [sequences + 1], first 0, last = batch * tokens, not decreasing.
  static Positions Packed(std::span<const int64_t> boundaries) {
    return Positions(Kind::kPacked, boundaries.data(), static_cast<int64_t>(boundaries.size()), 0);
  }

  enum class Kind : uint8_t { kStart, kEach32, kEach64, kStarts, kPacked, kLeftPadded };
  Kind kind() const { return kind_; }
  const void* data() const { return data_; }
  int64_t size() const { return size_; }  // of all axes together
  int64_t start() const { return start_; }
  int axes() const { return axes_; }

 private:
  Positions(Kind kind, const void* data, int64_t size, int64_t start, int axes = 1)
      : kind_(kind), data_(data), size_(size), start_(start), axes_(axes) {}
  Kind kind_;
  const void* data_;
  int64_t size_;
  int64_t start_;
  int axes_;
};

// R is the rotation by the angles, a the amplitude (YaRN's attention factor) of the table.
enum class Direction : uint8_t {
  kForward,  // a R x
  kAdjoint,  // a R^T x: the gradient with respect to x
  kInverse,  // R^T x / a: undoes kForward
};

// RMSNorm of each head before the rotation: x weight / sqrt(mean(x^2) + eps) over head_dim.
struct HeadNorm {
  std::span<const float> weight = {};  // [head_dim]; empty: no norm
  double eps = 1e-6;
};

// What happens to v. kRotate: v is rotated as k, without xPos, so values carry absolute positions;
// they become relative when the output of attention is rotated back by the position of its query
// (a call with empty q, v = output, kRotate and Direction::kInverse): kexue.fm/archives/8265.
enum class ValueRotation : uint8_t { kCopy, kRotate };

struct RotateArgs {
  const CosSinTable* table = nullptr;  // rotary_dim = 2 * table->pairs()
  PairLayout layout;                   // required
  Positions positions;                 // required
  TensorView q;  // [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], last stride 1
  TensorView k = {};  // optional; same batch and tokens, its own heads, same head_dim and dtype
  // Outputs of the shapes of q and k, any float dtype; absent: in place.
  TensorView q_out = {};
  TensorView k_out = {};
  int64_t first_dim = 0;  // first rotated element of a head
  Direction direction = Direction::kForward;

  // Instead of a table: angles are computed in this call, with the same bits. For positions that
  // are used once.
  const Frequencies* frequencies = nullptr;
  AnglePrecision precision = AnglePrecision::kExact;  // with `frequencies`

  TensorView v = {};      // optional, as k
  TensorView v_out = {};  // required with ValueRotation::kCopy
  ValueRotation values = ValueRotation::kCopy;

  int64_t rotated_heads = 0;  // only the first n heads of q, k and v are rotated; 0: all
  HeadNorm q_norm = {};       // with Direction::kForward only
  HeadNorm k_norm = {};

  // Writes into a KV cache: k_out and v_out are [slots, kv_heads, head_dim] or, paged, [blocks,
  // block_slots, kv_heads, head_dim] with slot = block * block_slots + offset. slots[i] is the slot
  // of token i (of batch * tokens), or -1: not written (padding). No slot twice. BlockTableSlots
  // and RingSlots compute them.
  std::span<const int64_t> slots = {};
  // k_out and v_out of kF8E4M3 hold value / scale, clamped to +-448.
  float k_scale = 1;
  float v_scale = 1;

  void* stream = nullptr;  // a cudaStream_t, for tensors of a GPU
};

// Rotates q, k and v. Arithmetic is float32 with one rounding at the end (float64 for f64 input).
// Elements outside [first_dim, first_dim + rotary_dim) are copied when out of place. Empty tensors
// and heads = 0 are allowed. With several axes, a pair is rotated by the position on its own axis.
// With xPos, a position so far from the centre that its factor exceeds 2^64 (2^8 for f16 output) is
// an error: choose a nearer XposDecay::centre.
//
// Throws Error for shapes that do not fit, partial overlap of input and output, slots outside the
// cache, and for a position outside the table (naming it), before anything is written.
//
// On a GPU (Device::kCuda for all tensors), everything pointed to is in its memory: lists of
// positions, slots, norm weights and the table. The call is queued on `stream` and returns. It
// neither allocates nor waits, so a CUDA graph can capture it, and the host reads neither positions
// nor slots: a token at a position outside the table becomes NaN, a token whose slot is outside the
// cache is not written, and the next CudaSynchronize (base/cuda.h) throws. `frequencies` instead of
// a table need kExact and at most 256 pairs; so do frequencies on several axes. xPos factors are
// not checked: too far from the centre they are infinite.
void Rotate(const RotateArgs& args);

// Slots of tokens in a paged cache: token t of sequence b has index n = first[b] + t in its
// sequence and lies in block table[b, n / block_slots]. table: [batch, blocks_per_sequence].
// Returns [batch * tokens].
std::vector<int64_t> BlockTableSlots(std::span<const int32_t> table, int64_t blocks_per_sequence,
                                     int64_t block_slots, std::span<const int64_t> first,
                                     int64_t tokens);

// Slots in a ring buffer of `capacity` slots per sequence: token n of sequence b has slot
// b * capacity + n mod capacity. Of more than `capacity` tokens in a call only the last `capacity`
// get a slot, the others -1. Returns [batch * tokens].
std::vector<int64_t> RingSlots(int64_t capacity, std::span<const int64_t> first, int64_t tokens);

}  // namespace ropewalk
