// Moving cached rotated keys to other positions: context shift, chunk reuse, change of method.
//
// A key at position m is cached as R_m k. At position n it is R_n k = R_(n-m) R_m k: moving it is a
// rotation by the difference of positions. The amplitude (YaRN's attention factor) is in the cached
// key already and must not be multiplied in again at every move. plan/rerotation.h tells whether
// and in which layers cached keys of a model can be moved.
#pragma once

#include <cstdint>
#include <span>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

// By how many positions keys move: new minus old, any sign. The spans must outlive the call. With
// several axes (M-RoPE) each list has one row per axis: [axes, n].
class Moves {
 public:
  enum class Kind : uint8_t { kAll, kSequences, kTokens, kFromTo };

  // All keys by the same difference, on every axis.
  static Moves All(int64_t delta) { return Moves(Kind::kAll, delta, {}, {}); }
  // [axes, batch]: a difference per sequence.
  static Moves Sequences(std::span<const int64_t> deltas) {
    return Moves(Kind::kSequences, 0, deltas, {});
  }
  // [axes, batch * tokens]: a difference per token.
  static Moves Tokens(std::span<const int64_t> deltas) {
    return Moves(Kind::kTokens, 0, deltas, {});
  }
  // Old and new positions, each [axes, batch * tokens]; required for a change of method.
  static Moves FromTo(std::span<const int64_t> from, std::span<const int64_t> to) {
    return Moves(Kind::kFromTo, 0, to, from);
  }

  Kind kind() const { return kind_; }
  int64_t delta() const { return delta_; }
  std::span<const int64_t> to() const { return to_; }  // new positions, or the differences
  std::span<const int64_t> from() const { return from_; }

 private:
  Moves(Kind kind, int64_t delta, std::span<const int64_t> to, std::span<const int64_t> from)
      : kind_(kind), delta_(delta), to_(to), from_(from) {}
  Kind kind_;
  int64_t delta_;
  std::span<const int64_t> to_, from_;
};

// Keys in ggml's Q8_0: a head is head_dim / 32 blocks in a row, a block is a scale in f16 and 32
// signed bytes (34 bytes, any alignment).
struct Q8KeysView {
  void* data = nullptr;
  int64_t batch = 0, tokens = 0, heads = 0;
  int64_t head_dim = 0;           // a multiple of 32
  int64_t strides_bytes[3] = {};  // batch, token, head
  Device device = Device::kCpu;
  static Q8KeysView Contiguous(void* data, int64_t batch, int64_t tokens, int64_t heads,
                               int64_t head_dim);
};

// What a change of method does about the amplitude.
enum class AmplitudeChange : uint8_t {
  kKeep,  // keys keep the amplitude that they were cached with
  kRatio  // keys are multiplied by the new amplitude over the old one
};

struct RerotateArgs {
  const Frequencies* frequencies = nullptr;  // of the method (after the call)
  PairLayout layout;                         // required
  Moves moves;                               // required
  // Either of the two, changed in place: [tokens, kv_heads, head_dim] or [batch, ...].
  TensorView keys = {};
  Q8KeysView q8_keys = {};
  int64_t first_dim = 0;              // first rotated element of a head
  const Frequencies* from = nullptr;  // of another method before the call; needs Moves::FromTo
  AmplitudeChange amplitude = AmplitudeChange::kKeep;
  void* stream = nullptr;  // a cudaStream_t, for keys of a GPU
};

// Angles are exact (differences of positions are integers), cos and sin float32 as in a table. Keys
// that were rotated with AnglePrecision::kFloat32 keep the angle error of that position.
//
// Error after N successive moves, root mean square relative to that of the keys (bounds, tested at
// N = 1000 with head_dim 128 and normally distributed elements; measured values in parentheses):
//   f64, f32   at most N * 2.5 * 2^-24, 1.5e-4 (1.2e-6; 2.0e-5 if all are by 1)
//   f16        moves of random size: at most sqrt(N) * 2^-12, 7.8e-3 (6.7e-3)
//   bf16       the same: sqrt(N) * 2^-9, 6.2e-2 (5.2e-2)
//   Q8_0       the same: sqrt(N) * 2^-7, 0.25 (0.17)
// In the last three the rounding of the stored keys accumulates, and a rotation smaller than the
// rounding is lost: in bf16 a pair of frequency f does not change in moves by fewer than about
// 2^-9 / f positions. There a thousand moves by 1 leave an error of 0.45, one move by 1000 of
// 1.7e-3. An engine that moves keys often should keep them unrotated, or in float32, or keep the
// first rotated copy and move that by the sum of all differences, which rounds once. A move by 0
// changes no bit of a Q8_0 block.
//
// With `from`, each key is rotated from the angles of its old position and the old frequencies to
// those of its new position and the new frequencies. This corrects the rotation alone: keys of all
// layers but the first were computed from activations under the old method.
//
// Throws Error before anything is written: for lists of the wrong size, shapes that do not fit,
// xPos (whose keys also decay with position), and frequencies that differ in pairs or axes.
//
// On a GPU (Device::kCuda) the lists of Moves are in its memory; at most 256 pairs. The call is
// queued on `stream` and returns; it neither allocates nor waits, so a CUDA graph can capture it.
// Finite keys get the bits of a CPU with fused multiply-add, except that a key that does not move
// keeps its bits (on a CPU -0 may become 0).
void Rerotate(const RerotateArgs& args);

}  // namespace ropewalk
