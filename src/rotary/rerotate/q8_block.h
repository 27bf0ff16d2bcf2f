// A block of ggml's Q8_0, element by element: what the CPU and kernels do alike.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/device_float.h"

namespace ropewalk::internal {

inline constexpr int kQ8Block = 32;  // elements
inline constexpr int kQ8Bytes = 34;  // f16 scale, 32 bytes

ROPEWALK_HD inline float Q8Decoded(Float16 scale, int8_t q) {
  return ToFloatHD(scale) * static_cast<float>(q);
}

struct Q8Scale {
  Float16 stored;
  float inverse;
};

// `largest`: magnitude of the block's elements. With the scale as it is stored, not as it was
// before its own rounding: each element is then off by at most half a step.
ROPEWALK_HD inline Q8Scale Q8ScaleFor(float largest) {
  constexpr float kMaxFloat16 = 65504;
  const float step = largest / 127;
  const Float16 stored = FromFloat<Float16>(step < kMaxFloat16 ? step : kMaxFloat16);
  const float d = ToFloatHD(stored);
  return {stored, d > 0 ? 1 / d : 0};
}

ROPEWALK_HD inline int8_t Q8Encoded(float x, float inverse) {
  const float q = x * inverse;
  const float clamped = q < -127.0f ? -127.0f : 127.0f < q ? 127.0f : q;
  return static_cast<int8_t>(::lrintf(clamped));
}

}  // namespace ropewalk::internal
