// Memory of a thread that lasts from call to call; one buffer a purpose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ropewalk/base/buffer.h"

namespace ropewalk::internal {

// kBand: decoded rows of a packed weight, for all threads of a call; kRow: of one thread, a row or a
// tile of them, kTile: that tile in bf16; kOne: a row of x as its products take it.
enum class Purpose : uint8_t { kOneDnn, kX, kY, kBand, kRow, kTile, kOne };

AlignedBuffer<std::byte>& ScratchOf(Purpose purpose);

template <class T>
T* Scratch(Purpose purpose, std::size_t count) {
  AlignedBuffer<std::byte>& buffer = ScratchOf(purpose);
  if (buffer.size() < count * sizeof(T)) buffer = AlignedBuffer<std::byte>(count * sizeof(T));
  return reinterpret_cast<T*>(buffer.data());
}

}  // namespace ropewalk::internal
