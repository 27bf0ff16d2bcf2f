// Element types, and the visitor that maps one to a template argument.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ropewalk/base/error.h"

namespace ropewalk {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kF8E4M3 };

// IEEE binary16 and bfloat16 as bits. Conversions round to nearest, ties to even, keep subnormals
// and infinities, and make every NaN a quiet NaN.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

float ToFloat(Float16 x);
Float16 ToFloat16(float x);
constexpr float ToFloat(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
constexpr BFloat16 ToBFloat16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// The OCP 8-bit float with 4 exponent bits: up to 448, NaN, no infinities. For KV caches that
// Rotate writes; nothing computes in it.
struct Float8E4M3 {
  uint8_t bits;
};

float ToFloat(Float8E4M3 x);
Float8E4M3 ToFloat8E4M3(float x);  // to nearest, ties to even; clamped to +-448

constexpr int64_t SizeOf(DType t) {
  constexpr int64_t kSizes[] = {8, 4, 2, 2, 1};
  return kSizes[static_cast<int>(t)];
}
constexpr const char* Name(DType t) {
  constexpr const char* kNames[] = {"f64", "f32", "f16", "bf16", "f8_e4m3"};
  return kNames[static_cast<int>(t)];
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kF64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kF32> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::kF16> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::kBF16> {};
template <>
struct DTypeOf<Float8E4M3> : std::integral_constant<DType, DType::kF8E4M3> {};

// Calls `f(std::type_identity<T>{})` with the C++ type of `t`, for types that are computed with.
// Ops call it once, at their boundary.
template <class F>
decltype(auto) VisitFloat(DType t, F&& f) {
  switch (t) {
    case DType::kF64:
      return std::forward<F>(f)(std::type_identity<double>{});
    case DType::kF32:
      return std::forward<F>(f)(std::type_identity<float>{});
    case DType::kF16:
      return std::forward<F>(f)(std::type_identity<Float16>{});
    case DType::kBF16:
      return std::forward<F>(f)(std::type_identity<BFloat16>{});
    case DType::kF8E4M3:
      throw Error(ErrorCode::kInvalidArgument, "dtype: nothing computes in f8_e4m3");
  }
  throw Error(ErrorCode::kInvalidArgument, "dtype: not a value of DType");
}

}  // namespace ropewalk
