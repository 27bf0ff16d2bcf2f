// The position of a token, for kernels: what PositionCursor has, of any token. The lists may
// lie in device memory, where nobody has checked their values: whatever they hold, nothing outside
// them is read.
#pragma once

#include <cstdint>

#include "ropewalk/rotary/rotate.h"
#include "src/base/host_device.h"

namespace ropewalk::internal {

struct DevicePositions {
  Positions::Kind kind;
  const void* data;
  int64_t start;
  int64_t size;    // of the list, all axes together
  int64_t stride;  // between the axes of Each: its entries per axis; 0: all axes are alike
  int64_t tokens;  // of a sequence
  bool shared;     // Each: one list for all sequences of the batch
};

// `tokens` per sequence; CheckPositions has passed.
inline DevicePositions ForDevice(const Positions& positions, int64_t tokens) {
  const int64_t axis_size = positions.size() / positions.axes();
  return {.kind = positions.kind(),
          .data = positions.data(),
          .start = positions.start(),
          .size = positions.size(),
          .stride = positions.axes() == 1 ? 0 : axis_size,
          .tokens = tokens,
          .shared = axis_size == tokens};
}

// Of the sequence that holds token `index`: the last boundary that is not above it, but for the
// last of all.
ROPEWALK_HD inline int64_t PackedStart(const int64_t* boundaries, int64_t size, int64_t index) {
  int64_t low = 0, high = size - 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (boundaries[middle] <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return boundaries[low];
}

// Of token `token` of sequence `batch`, which is token `index` of batch * tokens.
ROPEWALK_HD inline int64_t PositionOf(const DevicePositions& p, int64_t batch, int64_t token,
                                      int64_t index, int64_t axis) {
  const int64_t at = axis * p.stride + (p.shared ? token : index);
  const auto* list = static_cast<const int64_t*>(p.data);
  switch (p.kind) {
    case Positions::Kind::kStart:
      return p.start + token;
    case Positions::Kind::kEach32:
      return static_cast<const int32_t*>(p.data)[at];
    case Positions::Kind::kEach64:
      return list[at];
    case Positions::Kind::kStarts:
      return list[batch] + token;
    case Positions::Kind::kLeftPadded:
      return token > list[batch] ? token - list[batch] : 0;
    case Positions::Kind::kPacked:
      return index - PackedStart(list, p.size, index);
  }
  return 0;
}

ROPEWALK_HD inline int64_t PositionOf(const DevicePositions& p, int64_t index, int64_t axis) {
  const int64_t batch = index / p.tokens;
  return PositionOf(p, batch, index - batch * p.tokens, index, axis);
}

}  // namespace ropewalk::internal
