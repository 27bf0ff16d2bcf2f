// Elements to and from the type that is computed in (f64 in double, all others in float), for
// functions that kernels and the CPU share: a GPU's conversion instructions there, the library's
// own functions on the CPU. The same bits, but for NaN: a GPU may give another NaN.
#pragma once

#include <type_traits>

#include "ropewalk/base/dtype.h"
#include "src/base/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace ropewalk::internal {

template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

ROPEWALK_HD inline double ToFloatHD(double x) { return x; }
ROPEWALK_HD inline float ToFloatHD(float x) { return x; }

ROPEWALK_HD inline float ToFloatHD(Float16 x) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(x.bits));
#else
  return ToFloat(x);
#endif
}

ROPEWALK_HD inline float ToFloatHD(BFloat16 x) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
#else
  return ToFloat(x);
#endif
}

ROPEWALK_HD inline float ToFloatHD(Float8E4M3 x) {
#ifdef __CUDA_ARCH__
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
#else
  return ToFloat(x);
#endif
}

// Nearest, ties to even; f8_e4m3 saturates at 448.
template <class T>
ROPEWALK_HD inline T FromFloat(ComputeOf<T> x) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return x;
  } else if constexpr (std::is_same_v<T, Float16>) {
#ifdef __CUDA_ARCH__
    return {__half_as_ushort(__float2half_rn(x))};
#else
    return ToFloat16(x);
#endif
  } else if constexpr (std::is_same_v<T, BFloat16>) {
#ifdef __CUDA_ARCH__
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
    return ToBFloat16(x);
#endif
  } else {
    static_assert(std::is_same_v<T, Float8E4M3>);
#ifdef __CUDA_ARCH__
    return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
#else
    return ToFloat8E4M3(x);
#endif
  }
}

// `count` elements; of 16 bits a GPU makes two at a time.
template <int count, class T>
ROPEWALK_HD inline void FromFloats(const ComputeOf<T>* from, T* to) {
#ifdef __CUDA_ARCH__
  constexpr int kStep = sizeof(T) == 2 && count % 2 == 0 ? 2 : 1;
#else
  constexpr int kStep = 1;
#endif
  ROPEWALK_UNROLL
  for (int i = 0; i < count; i += kStep) {
    if constexpr (kStep == 1) {
      to[i] = FromFloat<T>(from[i]);
    } else {
#ifdef __CUDA_ARCH__
      if constexpr (std::is_same_v<T, BFloat16>) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(from[i], from[i + 1]);
        to[i].bits = __bfloat16_as_ushort(two.x);
        to[i + 1].bits = __bfloat16_as_ushort(two.y);
      } else {
        const __half2 two = __floats2half2_rn(from[i], from[i + 1]);
        to[i].bits = __half_as_ushort(two.x);
        to[i + 1].bits = __half_as_ushort(two.y);
      }
#endif
    }
  }
}

}  // namespace ropewalk::internal
