// Element types and the visitor that turns one into a template argument.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ropewalk/base/error.h"

namespace ropewalk {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16 };

// IEEE binary16 and bfloat16 as bits. Conversions round to nearest, ties to even, keep subnormals
// and infinities, and turn every NaN into a quiet NaN.
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

constexpr int64_t SizeOf(DType t) { return t == DType::kF64 ? 8 : t == DType::kF32 ? 4 : 2; }
constexpr const char* Name(DType t) {
  constexpr const char* kNames[] = {"f64", "f32", "f16", "bf16"};
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

// Calls `f(std::type_identity<T>{})` with the C++ type of `t`; once, at an op's boundary.
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
  }
  throw Error(ErrorCode::kInvalidArgument, "dtype: not a value of DType");
}

}  // namespace ropewalk
