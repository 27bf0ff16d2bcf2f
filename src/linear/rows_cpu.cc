#include "src/linear/rows_cpu.h"

#include "src/io/dequantize.h"
#include "src/linear/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/linear/rows_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "src/linear/low_bit_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// Calls visit(block, first element) for the whole blocks of a row; returns the elements in them.
template <class Type, class F>
HWY_INLINE int64_t EachBlock(const std::byte* row, int64_t n, F visit) {
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  int64_t first = 0;
  for (; first + Type::Elements() <= n; first += Type::Elements(), block += Type::Bytes()) {
    visit(block, first);
  }
  return first;
}

constexpr int64_t kMostTail = 32;  // elements behind the last whole block of a plain type

template <class Type>
void Decode(const std::byte* row, int64_t n, float* out, WeightType type) {
  const D d;
  const int64_t done = EachBlock<Type>(row, n, [&](const uint8_t* block, int64_t first) HWY_ATTR {
    float* to = out + first;
    Type::Visit(block, [&](int64_t i, V v, int64_t j, V w) HWY_ATTR {
      hn::StoreU(v, d, to + i);
      hn::StoreU(w, d, to + j);
    });
  });
  if (done == n) return;
  Dequantize(type, row + done * Info(type).block_bytes, n - done, out + done);
}

// Four sums, taken in turn, so that none waits for itself.
struct Sums {
  HWY_INLINE Sums() : a(hn::Zero(D())), b(a), c(a), d(a) {}
  HWY_INLINE void Add(V v, V x, V w, V y) {
    const V next = hn::MulAdd(v, x, c), other = hn::MulAdd(w, y, d);
    c = a;
    d = b;
    a = next;
    b = other;
  }
  HWY_INLINE float Total() const {
    return hn::GetLane(hn::SumOfLanes(D(), hn::Add(hn::Add(a, b), hn::Add(c, d))));
  }

  V a, b, c, d;
};

template <class Type>
float Dot(const std::byte* row, int64_t n, const float* x, WeightType type) {
  const D d;
  Sums sums;
  const int64_t done = EachBlock<Type>(row, n, [&](const uint8_t* block, int64_t first) HWY_ATTR {
    const float* in = x + first;
    Type::Visit(block, [&](int64_t i, V v, int64_t j, V w) HWY_ATTR {
      sums.Add(v, hn::LoadU(d, in + i), w, hn::LoadU(d, in + j));
    });
  });
  float total = sums.Total();
  if (done < n) {
    float tail[kMostTail];
    Dequantize(type, row + done * Info(type).block_bytes, n - done, tail);
    for (int64_t i = done; i < n; ++i) total += tail[i - done] * x[i];
  }
  return total;
}

// visit.template operator()<Type>() for a type that has a struct here; else false.
template <class F>
HWY_INLINE bool VisitType(WeightType type, F visit) {
  switch (type) {
    case WeightType::kF32:
      return visit(F32()), true;
    case WeightType::kF16:
      return visit(F16()), true;
    case WeightType::kBF16:
      return visit(BF16()), true;
    case WeightType::kQ8_0:
      return visit(Q8_0()), true;
    case WeightType::kQ4_0:
      return visit(Q4_0()), true;
    case WeightType::kQ4_1:
      return visit(Q4_1()), true;
    case WeightType::kQ5_0:
      return visit(Q5_0()), true;
    case WeightType::kQ5_1:
      return visit(Q5_1()), true;
    case WeightType::kIQ4_NL:
      return visit(IQ4_NL()), true;
    case WeightType::kIQ4_XS:
      return visit(IQ4_XS()), true;
    case WeightType::kMXFP4:
      return visit(MXFP4()), true;
    case WeightType::kQ2_K:
      return visit(Q2_K()), true;
    case WeightType::kQ3_K:
      return visit(Q3_K()), true;
    case WeightType::kQ4_K:
      return visit(Q4_K()), true;
    case WeightType::kQ5_K:
      return visit(Q5_K()), true;
    case WeightType::kQ6_K:
      return visit(Q6_K()), true;
    case WeightType::kIQ2_XXS:
      return visit(LowBit<BlockIQ2_XXS>()), true;
    case WeightType::kIQ2_XS:
      return visit(LowBit<BlockIQ2_XS>()), true;
    case WeightType::kIQ2_S:
      return visit(LowBit<BlockIQ2_S>()), true;
    case WeightType::kIQ3_XXS:
      return visit(LowBit<BlockIQ3_XXS>()), true;
    case WeightType::kIQ3_S:
      return visit(LowBit<BlockIQ3_S>()), true;
    case WeightType::kIQ1_S:
      return visit(LowBit<BlockIQ1_S>()), true;
    case WeightType::kIQ1_M:
      return visit(LowBit<BlockIQ1_M>()), true;
    case WeightType::kTQ1_0:
      return visit(LowBit<BlockTQ1_0>()), true;
    case WeightType::kTQ2_0:
      return visit(TQ2_0()), true;
    default:
      return false;
  }
}

void DecodeRowOf(WeightType type, const std::byte* row, int64_t n, float* out) {
  const bool here = VisitType(type, [&](auto t) { Decode<decltype(t)>(row, n, out, type); });
  if (!here) Dequantize(type, row, n / Info(type).block_elements, out);
}

float DotRowOf(WeightType type, const std::byte* row, int64_t n, const float* x) {
  float sum = 0;
  if (VisitType(type, [&](auto t) { sum = Dot<decltype(t)>(row, n, x, type); })) return sum;
  auto* decoded = Scratch<float>(Purpose::kRow, static_cast<std::size_t>(n));
  Dequantize(type, row, n / Info(type).block_elements, decoded);
  return Dot<F32>(reinterpret_cast<const std::byte*>(decoded), n, x, WeightType::kF32);
}

// Four rows of x, so that w is loaded once for them.
HWY_INLINE void DotFour(const float* w, int64_t n, const float* x, int64_t stride, float* y,
                        int64_t y_stride) {
  const D d;
  const float *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
  V a = hn::Zero(d), b = a, e = a, f = a, a2 = a, b2 = a, e2 = a, f2 = a;
  int64_t i = 0;
  for (; i + 2 * Lanes() <= n; i += 2 * Lanes()) {
    const int64_t j = i + Lanes();
    const auto v = hn::LoadU(d, w + i), v2 = hn::LoadU(d, w + j);
    a = hn::MulAdd(v, hn::LoadU(d, x + i), a);
    b = hn::MulAdd(v, hn::LoadU(d, x1 + i), b);
    e = hn::MulAdd(v, hn::LoadU(d, x2 + i), e);
    f = hn::MulAdd(v, hn::LoadU(d, x3 + i), f);
    a2 = hn::MulAdd(v2, hn::LoadU(d, x + j), a2);
    b2 = hn::MulAdd(v2, hn::LoadU(d, x1 + j), b2);
    e2 = hn::MulAdd(v2, hn::LoadU(d, x2 + j), e2);
    f2 = hn::MulAdd(v2, hn::LoadU(d, x3 + j), f2);
  }
  const auto finish = [&](V one, V two, const float* row) HWY_ATTR {
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(one, two)));
    for (int64_t k = i; k < n; ++k) sum += w[k] * row[k];
    return sum;
  };
  y[0] += finish(a, a2, x);
  y[y_stride] += finish(b, b2, x1);
  y[2 * y_stride] += finish(e, e2, x2);
  y[3 * y_stride] += finish(f, f2, x3);
}

void DotFloatsOf(const float* w, int64_t n, const float* x, int64_t rows, int64_t stride, float* y,
                 int64_t y_stride) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) DotFour(w, n, x + r * stride, stride, y + r * y_stride, y_stride);
  for (; r < rows; ++r) {
    y[r * y_stride] +=
        Dot<F32>(reinterpret_cast<const std::byte*>(w), n, x + r * stride, WeightType::kF32);
  }
}

int64_t TargetOfRows() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
HWY_EXPORT(DecodeRowOf);
HWY_EXPORT(DotRowOf);
HWY_EXPORT(DotFloatsOf);
HWY_EXPORT(TargetOfRows);

void DecodeRow(WeightType type, const std::byte* row, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeRowOf)(type, row, n, out);
}

float DotRow(WeightType type, const std::byte* row, int64_t n, const float* x) {
  return HWY_DYNAMIC_DISPATCH(DotRowOf)(type, row, n, x);
}

void DotFloats(const float* w, int64_t n, const float* x, int64_t rows, int64_t x_stride, float* y,
               int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(DotFloatsOf)(w, n, x, rows, x_stride, y, y_stride);
}

int64_t RowsTarget() { return HWY_DYNAMIC_DISPATCH(TargetOfRows)(); }

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
