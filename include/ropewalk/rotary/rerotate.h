// Moving keys that are cached rotated: context shift, chunk reuse, change of method.
//
// A key rotated for position m is R_m k. To stand at n it needs R_(n-m) R_m k: a pure rotation by
// the difference of positions. The amplitude of a method (YaRN, LongRoPE) is in the key already and
// must not be multiplied in once more at every move. plan/rerotation.h says whether the keys of a
// model can be moved at all, and which layers have none that turn.
#pragma once

#include <cstdint>
#include <span>

#include "ropewalk/base/tensor_view.h"
#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

// How far keys move, in positions, new minus old, any sign. The spans must outlive the call. With
// several axes (M-RoPE) each list has one row an axis: [axes, n].
class Moves {
 public:
  enum class Kind : uint8_t { kAll, kSequences, kTokens, kFromTo };

  // All keys alike, on every axis.
  static Moves All(int64_t delta) { return Moves(Kind::kAll, delta, {}, {}); }
  // [axes, batch]: all keys of a sequence alike.
  static Moves Sequences(std::span<const int64_t> deltas) {
    return Moves(Kind::kSequences, 0, deltas, {});
  }
  // [axes, batch * tokens].
  static Moves Tokens(std::span<const int64_t> deltas) {
    return Moves(Kind::kTokens, 0, deltas, {});
  }
  // Positions before and after, each [axes, batch * tokens]; what a change of method needs.
  static Moves FromTo(std::span<const int64_t> from, std::span<const int64_t> to) {
    return Moves(Kind::kFromTo, 0, to, from);
  }

  Kind kind() const { return kind_; }
  int64_t delta() const { return delta_; }
  std::span<const int64_t> to() const { return to_; }  // or the deltas
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

// What a change of method does with the amplitudes of both.
enum class AmplitudeChange : uint8_t {
  kKeep,  // nothing: keys keep the amplitude that they were written with
  kRatio  // keys are multiplied by the new amplitude over the old one
};

struct RerotateArgs {
  const Frequencies* frequencies = nullptr;  // of the keys' method (after the call)
  PairLayout layout;                         // required
  Moves moves;                               // required
  TensorView keys = {};               // [tokens, kv_heads, head_dim] or [batch, ...], in place; or
  Q8KeysView q8_keys = {};            // these
  int64_t first_dim = 0;              // first rotated element of a head
  const Frequencies* from = nullptr;  // the method before the call, if another: needs FromTo
  AmplitudeChange amplitude = AmplitudeChange::kKeep;
  void* stream = nullptr;  // a cudaStream_t, for keys of a GPU
};

// Angles are exact (differences of positions are integers and are never added up in floating
// point), cos and sin float32 as in a table. Keys rotated with AnglePrecision::kFloat32 keep the
// angle error of the position they were rotated for.
//
// Error after N moves one on top of the other, root mean square over that of the keys (tests hold
// these at N = 1000, head_dim 128, normal elements; measured there in parentheses):
//   f64, f32   at most N * 2.5 * 2^-24, 1.5e-4 (1.2e-6; 2.0e-5 if all are by 1)
//   f16        moves of random size: at most sqrt(N) * 2^-12, 7.8e-3 (6.7e-3)
//   bf16       the same: sqrt(N) * 2^-9, 6.2e-2 (5.2e-2)
//   Q8_0       the same: sqrt(N) * 2^-7, 0.25 (0.17)
// In the last three the rounding of the stored key is what accumulates, and a turn smaller than it
// is lost: a pair of frequency f does not feel moves of fewer than about 2^-9 / f positions in
// bf16. A thousand moves by 1 leave an error of 0.45 there, one move by 1000 of 1.7e-3. So an
// engine that moves keys often keeps them unrotated, or in float32, or keeps the first rotated copy
// and moves that by the sum of the differences (an integer): one rounding, however many moves. A
// move by 0 changes no bit of a Q8_0 block.
//
// Going to another method (`from`) turns each key from old position x old frequencies to new
// position x new frequencies. It repairs phases alone: the keys of all layers but the first came
// from activations that the old method shaped.
//
// Throws Error before anything is written: lists of the wrong size, shapes that do not fit, xPos
// (its keys also shrink with position), frequencies of different pairs or axes.
//
// On a GPU (Device::kCuda) the lists of Moves lie in its memory; at most 256 pairs. The call is put
// on `stream` and returns; it allocates nothing and waits for nothing, so that a graph can capture
// it. Finite keys get the bits that a CPU with fused multiply-add gives them; a key that does not
// move keeps its own (there 0 may come of -0).
void Rerotate(const RerotateArgs& args);

}  // namespace ropewalk
