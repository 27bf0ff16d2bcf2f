// The plain walk over tokens and heads (cpu.h), compiled once per SIMD target.
#if defined(ROPEWALK_ROTATE_PLAIN_CPU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ROTATE_PLAIN_CPU_INL_H_
#undef ROPEWALK_ROTATE_PLAIN_CPU_INL_H_
#else
#define ROPEWALK_ROTATE_PLAIN_CPU_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/rotary/positions/cursor.h"
#include "src/rotary/rotate/cpu.h"
#include "src/rotary/rotate/heads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal::HWY_NAMESPACE {

template <class Body>
void WalkPlain(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  using C = typename Body::C;
  using T = typename Body::T;
  HWY_ALIGN C stack[4 * kStackPairs];
  C* c = p.pairs <= kStackPairs ? stack : reinterpret_cast<C*>(scratch);
  const int64_t size = 2 * p.pairs;
  PositionCursor cursor(p.positions, p.tokens, begin);
  for (int64_t i = begin;;) {
    const float* table_row = p.rows + (cursor.position() - p.first_position) * size;
    const Row<C> row = Body::Prepare(p, table_row, c, c + size);
    // Most often the next token is at the next position.
    for (int64_t j = 0; j < size; j += 16) hwy::Prefetch(table_row + size + j);
    for (int k = 0; k < p.num_operands; ++k) {
      const RotateOperand& operand = p.operands[k];
      const T* in = static_cast<const T*>(operand.in) + cursor.batch() * operand.in_strides[0] +
                    cursor.token() * operand.in_strides[1];
      T* out = static_cast<T*>(operand.out) + cursor.batch() * operand.out_strides[0] +
               cursor.token() * operand.out_strides[1];
      if (in != out && size != p.head_dim) CopyRest(p, operand, in, out);
      RotateHeadsBest<Body>({in + p.first_dim, out + p.first_dim, operand.heads,
                             operand.in_strides[2], operand.out_strides[2], p.pairs, row.c, row.s,
                             p.prefetch_bytes});
    }
    if (++i == end) return;
    cursor.Next();
  }
}

template <class Codec>
void WalkPlainInOrder(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  if (p.layout == PairLayout::kHalf) {
    WalkPlain<HalfBody<Codec>>(p, begin, end, scratch);
  } else {
    WalkPlain<InterleavedBody<Codec>>(p, begin, end, scratch);
  }
}

#if ROPEWALK_AVX512
// Whether p was of a type that is converted in another way there, and is done.
inline bool WalkPlainZen(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  if (p.dtype == DType::kF16) return WalkPlainInOrder<F16Zen>(p, begin, end, scratch), true;
  if (p.dtype != DType::kBF16) return false;
  if (p.layout == PairLayout::kHalf) {
    return WalkPlain<HalfWordsZenBody>(p, begin, end, scratch), true;
  }
  return WalkPlain<InterleavedWordsZenBody>(p, begin, end, scratch), true;
}
#endif

inline void RotatePlainBody(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
#if ROPEWALK_AVX512
  if (p.tuning == Tuning::kZen && WalkPlainZen(p, begin, end, scratch)) return;
#endif
  switch (p.dtype) {
    case DType::kF64:
      return WalkPlainInOrder<F64>(p, begin, end, scratch);
    case DType::kF32:
      return WalkPlainInOrder<F32>(p, begin, end, scratch);
    case DType::kF16:
      return WalkPlainInOrder<F16>(p, begin, end, scratch);
    case DType::kBF16:
#if HWY_TARGET == HWY_SCALAR
      return WalkPlainInOrder<BF16>(p, begin, end, scratch);
#else
      if (p.layout == PairLayout::kHalf) {
        return WalkPlain<HalfWordsBody>(p, begin, end, scratch);
      }
      return WalkPlain<InterleavedWordsBody<>>(p, begin, end, scratch);
#endif
    case DType::kF8E4M3:
      return;  // refused before
  }
}

inline int64_t RotatePlainTargetBody() { return HWY_TARGET; }

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
