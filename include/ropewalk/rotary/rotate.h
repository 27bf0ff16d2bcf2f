// The rotation of queries and keys (RoFormer, Su et al. 2021, arXiv 2104.09864, eq. 34).
#pragma once

#include <cstdint>
#include <span>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk {

// Where each token stands. Tokens of a batch are numbered batch-major.
class Positions {
 public:
  // Every sequence of the batch starts at `start`: position of token t is start + t.
  static Positions From(int64_t start) { return Positions(Kind::kStart, nullptr, 0, start); }
  // One position a token, any order: packed sequences, left padding. [batch * tokens] or [tokens]
  // (shared by the batch).
  static Positions Each(std::span<const int32_t> p) {
    return Positions(Kind::kEach32, p.data(), static_cast<int64_t>(p.size()), 0);
  }
  static Positions Each(std::span<const int64_t> p) {
    return Positions(Kind::kEach64, p.data(), static_cast<int64_t>(p.size()), 0);
  }
  // A start per sequence of the batch: position of token t of sequence b is starts[b] + t.
  static Positions Starts(std::span<const int64_t> starts) {
    return Positions(Kind::kStarts, starts.data(), static_cast<int64_t>(starts.size()), 0);
  }
  // Packed sequences: sequence s holds tokens boundaries[s] .. boundaries[s + 1] - 1 and starts at
  // position 0. [sequences + 1], first 0, last = batch * tokens, not decreasing.
  static Positions Packed(std::span<const int64_t> boundaries) {
    return Positions(Kind::kPacked, boundaries.data(), static_cast<int64_t>(boundaries.size()), 0);
  }

  enum class Kind : uint8_t { kStart, kEach32, kEach64, kStarts, kPacked };
  Kind kind() const { return kind_; }
  const void* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t start() const { return start_; }

 private:
  Positions(Kind kind, const void* data, int64_t size, int64_t start)
      : kind_(kind), data_(data), size_(size), start_(start) {}
  Kind kind_;
  const void* data_;
  int64_t size_;
  int64_t start_;
};

// With R the rotation by the angle and a the table's amplitude.
enum class Direction : uint8_t {
  kForward,  // a R x
  kAdjoint,  // a R^T x: the gradient with respect to x
  kInverse,  // R^T x / a: undoes kForward
};

struct RotateArgs {
  const CosSinTable* table = nullptr;  // rotary_dim = 2 * table->pairs()
  PairLayout layout;                   // required
  Positions positions;                 // required
  TensorView q;  // [tokens, heads, head_dim] or [batch, tokens, heads, head_dim], last stride 1
  TensorView k = {};  // optional; same batch and tokens, its own heads, same head_dim and dtype
  TensorView q_out =
      {};  // optional: where to write, same shape and dtype as q; in place when absent
  TensorView k_out = {};
  int64_t first_dim = 0;  // first rotated element of a head
  Direction direction = Direction::kForward;
};

// Arithmetic is float32 with one rounding at the end (float64 for f64 views). Elements outside
// [first_dim, first_dim + rotary_dim) are copied when out of place. Empty input is legal. Throws
// Error for shapes that do not fit, partial overlap of input and output, and for a position outside
// the table (naming it), before anything is written.
void Rotate(const RotateArgs& args);

}  // namespace ropewalk
