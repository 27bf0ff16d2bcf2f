// Rerotate on a GPU: what the launches are told, and the bodies of their threads, which CPU tests
// run too.
//
// A row is a token's group of heads, or such rows of several tokens. Of keys in floats each lane of
// a row has a unit (unit_device.h): it computes the unit's cosines and sines, once for as many
// tokens as move alike, and goes through the heads. Warps rotate keys in Q8_0: they decode a
// few heads into shared memory, rotate them there and encode them.
#pragma once

#include <cmath>
#include <cstdint>

#include "ropewalk/rotary/rerotate.h"
#include "src/base/host_device.h"
#include "src/rotary/exact_angle.h"
#include "src/rotary/rerotate/moves.h"
#include "src/rotary/rerotate/q8_block.h"
#include "src/rotary/rotate/unit_device.h"

namespace ropewalk::internal {

inline constexpr int kMostRerotatePairs = 256;  // they travel with the launch
inline constexpr int kWarp = 32;

struct RerotateDeviceParams {
  void* keys;
  int64_t strides[3];  // batch, token, head; in elements, of Q8_0 in bytes
  int64_t all;         // tokens of the batch
  int64_t tokens;      // of a sequence
  int64_t heads;
  int64_t groups;  // of heads, per token
  int64_t pairs;
  int64_t first_dim;
  MoveLists moves;
  double amplitude;
  int32_t axes;
  bool interleaved;
  bool changes_method;
  int32_t heads_of_row;
  int32_t tokens_of_row;
  int32_t lanes;           // of a row
  int32_t rows;            // of a block
  int32_t blocks_of_head;  // Q8_0: those that have a rotated element,
  int32_t first_block;     // from this one on
  int32_t heads_at_once;
  uint8_t axis[kMostRerotatePairs];
  Uint128 to[kMostRerotatePairs];  // turns; of the method before the call
  Uint128 from[kMostRerotatePairs];
};

// The token of a row in its k-th turn, and its first head. Rows of a block take turns at its
// tokens, so that neighbours read what lies side by side. Groups of heads are outermost.
ROPEWALK_HD inline int64_t TokenOf(const RerotateDeviceParams& p, int64_t block, int row, int k) {
  const int64_t chunk = block / p.groups;
  return (chunk * p.tokens_of_row + k) * p.rows + row;
}

struct HeadRange {
  int64_t begin, end;
};
ROPEWALK_HD inline HeadRange HeadsOf(const RerotateDeviceParams& p, int64_t block) {
  const int64_t begin = block % p.groups * p.heads_of_row;
  const int64_t end = begin + p.heads_of_row;
  return {begin, end < p.heads ? end : p.heads};
}

// Of head 0 of token `index` of batch * tokens.
ROPEWALK_HD inline int64_t TokenOffset(const RerotateDeviceParams& p, int64_t index) {
  const int64_t batch = index / p.tokens;
  return batch * p.strides[0] + (index - batch * p.tokens) * p.strides[1];
}

ROPEWALK_HD inline bool KeyStays(const RerotateDeviceParams& p, int64_t index) {
  return !p.changes_method && Stays(p.moves, p.axes, index);
}

// cos and sin of the rotation of one pair, as RowsOf (rerotate.cc) has them.
ROPEWALK_HD inline void MovedCosSin(const RerotateDeviceParams& p, int64_t index, int64_t pair,
                                    float* c, float* s) {
  const Move move = MoveOf(p.moves, index, p.axes == 1 ? 0 : p.axis[pair]);
  const Uint128 turns =
      p.changes_method
          ? p.to[pair] * static_cast<Uint128>(static_cast<Int128>(move.after)) -
                p.from[pair] * static_cast<Uint128>(static_cast<Int128>(move.before))
          : p.to[pair] * static_cast<Uint128>(static_cast<Int128>(move.after) - move.before);
  const CosSin exact = CosSinOf(Reduce(turns));
  *c = static_cast<float>(exact.cos * p.amplitude);
  *s = static_cast<float>(exact.sin * p.amplitude);
}

template <class T, PairLayout kLayout, int V>
struct RerotateLane {
  using Shape = UnitShape<T, kLayout, V>;
  using Unit = LoadedUnit<T, kLayout, V>;
  using Factors = PairFactors<typename Shape::Compute, Shape::kPairs>;
  static constexpr int kInFlight = Shape::kOneVector ? 4 : 2;  // heads whose loads are under way

  static ROPEWALK_HD void Run(const RerotateDeviceParams& p, int64_t block, int thread) {
    const int row = thread / p.lanes;
    const int unit = thread - row * p.lanes;
    const HeadRange heads = HeadsOf(p, block);
    Factors f;
    int64_t last = -1;  // whose factors they are
    for (int k = 0; k < p.tokens_of_row; ++k) {
      const int64_t index = TokenOf(p, block, row, k);
      if (index >= p.all) return;
      if (KeyStays(p, index)) continue;
      if (last < 0 || !SameMove(p.moves, p.axes, last, index)) f = FactorsOf(p, index, unit);
      last = index;
      T* const keys =
          static_cast<T*>(p.keys) + TokenOffset(p, index) + p.first_dim + Shape::First(unit);
      int64_t h = heads.begin;
      for (; h + kInFlight <= heads.end; h += kInFlight) {
        Heads<kInFlight>(p, keys + h * p.strides[2], f);
      }
      for (; h < heads.end; ++h) Heads<1>(p, keys + h * p.strides[2], f);
    }
  }

 private:
  static ROPEWALK_HD Factors FactorsOf(const RerotateDeviceParams& p, int64_t index, int unit) {
    Factors f;
    for (int j = 0; j < Shape::kPairs; ++j) {
      float c, s;
      MovedCosSin(p, index, unit * Shape::kPairs + j, &c, &s);
      f.c[j] = c;
      f.s[j] = s;
    }
    return f;
  }

  template <int kHeads>
  static ROPEWALK_HD void Heads(const RerotateDeviceParams& p, T* keys, const Factors& f) {
    const int64_t second = Shape::Second(p.pairs);
    Unit unit[kHeads];
    for (int i = 0; i < kHeads; ++i) unit[i].Load(keys + i * p.strides[2], second);
    for (int i = 0; i < kHeads; ++i) {
      unit[i].Rotate(f);
      unit[i].Store(keys + i * p.strides[2], second);
    }
  }
};

// Of a warp, for Q8_0 keys.
ROPEWALK_HD inline int64_t SharedFloats(const RerotateDeviceParams& p) {
  return 2 * p.pairs + int64_t{p.heads_at_once} * p.blocks_of_head * kQ8Block;
}

// A warp of Q8_0 keys. Its shared memory: cos [pairs], sin [pairs], then heads_at_once heads of
// the elements of their blocks. Each step is one of all lanes, and the next begins when all are
// done: Lanes calls f(lane) for each lane, and then waits for them. lanes.Largest(block, lane) is
// the largest magnitude among the 32 elements of a block, called by all lanes at once.
template <class Lanes>
class Q8Warp {
 public:
  ROPEWALK_HD Q8Warp(const RerotateDeviceParams& p, const Lanes& lanes, float* shared)
      : p_(p), lanes_(lanes), cos_(shared), x_(shared + 2 * p.pairs) {}

  ROPEWALK_HD void Run(int64_t block, int warp) {
    const HeadRange heads = HeadsOf(p_, block);
    int64_t last = -1;  // whose cosines and sines they are
    for (int k = 0; k < p_.tokens_of_row; ++k) {
      const int64_t index = TokenOf(p_, block, warp, k);
      if (index >= p_.all) return;
      if (KeyStays(p_, index)) continue;
      if (last < 0 || !SameMove(p_.moves, p_.axes, last, index)) {
        lanes_([&](int lane) { Angles(index, lane); });
      }
      last = index;
      char* const keys =
          static_cast<char*>(p_.keys) + TokenOffset(p_, index) + int64_t{p_.first_block} * kQ8Bytes;
      for (int64_t h = heads.begin; h < heads.end; h += p_.heads_at_once) {
        const int64_t left = heads.end - h;
        const int count = static_cast<int>(left < p_.heads_at_once ? left : p_.heads_at_once);
        char* const first = keys + h * p_.strides[2];
        lanes_([&](int lane) { Decode(first, count, lane); });
        lanes_([&](int lane) { Rotate(count, lane); });
        lanes_([&](int lane) { Encode(first, count, lane); });
      }
    }
  }

 private:
  ROPEWALK_HD void Angles(int64_t index, int lane) {
    for (int64_t pair = lane; pair < p_.pairs; pair += kWarp) {
      MovedCosSin(p_, index, pair, &cos_[pair], &cos_[p_.pairs + pair]);
    }
  }

  // Lane i has element i of each block. Blocks have any alignment.
  ROPEWALK_HD void Decode(const char* keys, int count, int lane) {
    for (int h = 0; h < count; ++h) {
      for (int b = 0; b < p_.blocks_of_head; ++b) {
        const auto* block =
            reinterpret_cast<const uint8_t*>(keys + h * p_.strides[2] + b * kQ8Bytes);
        const Float16 scale{static_cast<uint16_t>(block[0] | block[1] << 8)};
        Values(h, b)[lane] = Q8Decoded(scale, static_cast<int8_t>(block[2 + lane]));
      }
    }
  }

  ROPEWALK_HD void Rotate(int count, int lane) {
    const int64_t begin = p_.first_dim - p_.first_block * kQ8Block;
    const int64_t step = p_.interleaved ? 2 : 1, second = p_.interleaved ? 1 : p_.pairs;
    for (int h = 0; h < count; ++h) {
      float* const x = Values(h, 0) + begin;
      for (int64_t pair = lane; pair < p_.pairs; pair += kWarp) {
        float* const x1 = x + pair * step;
        float* const x2 = x1 + second;
        RotatePair(*x1, *x2, cos_[pair], cos_[p_.pairs + pair], x1, x2);
      }
    }
  }

  ROPEWALK_HD void Encode(char* keys, int count, int lane) {
    for (int h = 0; h < count; ++h) {
      for (int b = 0; b < p_.blocks_of_head; ++b) {
        const float* values = Values(h, b);
        const Q8Scale scale = Q8ScaleFor(lanes_.Largest(values, lane));
        auto* const block = reinterpret_cast<uint8_t*>(keys + h * p_.strides[2] + b * kQ8Bytes);
        if (lane < 2) block[lane] = static_cast<uint8_t>(scale.stored.bits >> (8 * lane));
        block[2 + lane] = static_cast<uint8_t>(Q8Encoded(values[lane], scale.inverse));
      }
    }
  }

  ROPEWALK_HD float* Values(int head, int block) const {
    return x_ + (int64_t{head} * p_.blocks_of_head + block) * kQ8Block;
  }

  const RerotateDeviceParams& p_;
  const Lanes& lanes_;
  float* const cos_;
  float* const x_;
};

struct RerotateLaunch {
  bool q8 = false;
  DType dtype = DType::kF32;
  PairLayout layout = PairLayout::kHalf;
  int width = 1;             // V
  int64_t blocks = 0;        // 0: nothing to do
  int64_t shared_bytes = 0;  // of a block
  RerotateDeviceParams params;
};

// Checks the arguments, whose keys lie on a GPU, and plans the launch.
RerotateLaunch PlanRerotate(const RerotateArgs& args, int multiprocessors);

// Puts it on the stream; Error (kUnsupported) where there is no CUDA.
void LaunchRerotate(const RerotateLaunch& launch, void* stream);

// Rerotate for keys of a GPU.
void RerotateOnDevice(const RerotateArgs& args);

}  // namespace ropewalk::internal
