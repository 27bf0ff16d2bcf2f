// The move of a token by Moves, for the CPU and for kernels.
#pragma once

#include <cstdint>

#include "ropewalk/rotary/rerotate.h"
#include "src/base/host_device.h"

namespace ropewalk::internal {

// Positions on one axis; a difference counts from 0.
struct Move {
  int64_t before, after;
};

struct MoveLists {
  Moves::Kind kind;
  int64_t delta;
  const int64_t* to;
  const int64_t* from;
  int64_t stride;  // between axes: entries of one
  int64_t tokens;  // of a sequence
};

inline MoveLists ListsOf(const Moves& moves, int64_t batch, int64_t tokens) {
  return {.kind = moves.kind(),
          .delta = moves.delta(),
          .to = moves.to().data(),
          .from = moves.from().data(),
          .stride = moves.kind() == Moves::Kind::kSequences ? batch : batch * tokens,
          .tokens = tokens};
}

// Of token `index` of batch * tokens.
ROPEWALK_HD inline Move MoveOf(const MoveLists& m, int64_t index, int64_t axis) {
  switch (m.kind) {
    case Moves::Kind::kAll:
      return {0, m.delta};
    case Moves::Kind::kSequences:
      return {0, m.to[axis * m.stride + index / m.tokens]};
    case Moves::Kind::kTokens:
      return {0, m.to[axis * m.stride + index]};
    case Moves::Kind::kFromTo:
      break;
  }
  return {m.from[axis * m.stride + index], m.to[axis * m.stride + index]};
}

ROPEWALK_HD inline bool SameMove(const MoveLists& m, int64_t axes, int64_t a, int64_t b) {
  for (int64_t axis = 0; axis < axes; ++axis) {
    const Move x = MoveOf(m, a, axis), y = MoveOf(m, b, axis);
    if (x.before != y.before || x.after != y.after) return false;
  }
  return true;
}

ROPEWALK_HD inline bool Stays(const MoveLists& m, int64_t axes, int64_t index) {
  for (int64_t axis = 0; axis < axes; ++axis) {
    const Move move = MoveOf(m, index, axis);
    if (move.before != move.after) return false;
  }
  return true;
}

}  // namespace ropewalk::internal
