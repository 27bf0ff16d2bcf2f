// The general walk over tokens and heads (cpu.h), compiled once per SIMD target. Each token has one
// row of cos and sin, from the table or put together from several; what is done with it is what the
// plain walk does. A tensor that is normalised or changes its type goes through a buffer of the
// type that is computed in.
#if defined(ROPEWALK_ROTATE_GENERAL_CPU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ROTATE_GENERAL_CPU_INL_H_
#undef ROPEWALK_ROTATE_GENERAL_CPU_INL_H_
#else
#define ROPEWALK_ROTATE_GENERAL_CPU_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "hwy/highway.h"
#include "src/rotary/positions/cursor.h"
#include "src/rotary/rotate/cpu.h"
#include "src/rotary/rotate/heads-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline const float* TableRow(const RotateParams& p, int64_t position) {
  const int64_t row =
      p.row_positions == nullptr
          ? position - p.first_position
          : std::lower_bound(p.row_positions, p.row_positions + p.num_rows, position) -
                p.row_positions;
  return p.rows + row * 2 * p.pairs;
}

// out = of each pair, what the row of its axis has: cosines or sines.
inline void SelectByAxis(const float* const* rows, int64_t axes, const int32_t* axis_of,
                         int64_t pairs, float* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= pairs; i += step) {
    const auto mine = hn::LoadU(di, axis_of + i);
    auto v = hn::LoadU(d, rows[0] + i);
    for (int32_t a = 1; a < axes; ++a) {
      const auto here = hn::RebindMask(d, hn::Eq(mine, hn::Set(di, a)));
      v = hn::IfThenElse(here, hn::LoadU(d, rows[a] + i), v);
    }
    hn::StoreU(v, d, out + i);
  }
  for (; i < pairs; ++i) out[i] = rows[axis_of[i]][i];
}

// The row of the token at the cursor: that of the table if it has one position on all axes, else
// pair by pair from those of its axes.
inline const float* RowOf(const RotateParams& p, const PositionCursor& cursor,
                          const int32_t* axis_of, float* gathered) {
  const float* first = TableRow(p, cursor.position());
  if (p.axis == nullptr) return first;
  const float* rows[4] = {first, first, first, first};
  bool same = true;
  for (int64_t axis = 1; axis < p.axes; ++axis) {
    const int64_t position = cursor.position(axis);
    if (position == cursor.position()) continue;
    rows[axis] = TableRow(p, position);
    same = false;
  }
  if (same) return first;
  const int64_t pairs = p.pairs;
  SelectByAxis(rows, p.axes, axis_of, pairs, gathered);
  for (const float*& row : rows) row += pairs;
  SelectByAxis(rows, p.axes, axis_of, pairs, gathered + pairs);
  return gathered;
}

// The row times e^(decay log_decay_i (n - centre)).
inline const float* Decayed(const RotateParams& p, int decay, int64_t position, const float* row,
                            float* out) {
  const int64_t pairs = p.pairs;
  const double n = decay * p.decay_sign * (static_cast<double>(position) - p.decay_centre);
  for (int64_t i = 0; i < pairs; ++i) {
    const double factor = std::exp(p.log_decay[i] * n);
    out[i] = static_cast<float>(row[i] * factor);
    out[pairs + i] = static_cast<float>(row[pairs + i] * factor);
  }
  return out;
}

// out = x * weight / sqrt(mean(x^2) + eps), in the type that is computed in; out may be x.
template <class C>
HWY_INLINE void Normalise(const C* x, int64_t n, const float* weight, double eps, C* out) {
  const hn::ScalableTag<C> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + step);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  C sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) sum += x[i] * x[i];
  const C scale = 1 / std::sqrt(sum / static_cast<C>(n) + static_cast<C>(eps));
  i = 0;
  if constexpr (std::is_same_v<C, float>) {
    const auto s = hn::Set(d, scale);
    for (; i + step <= n; i += step) {
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), s), hn::LoadU(d, weight + i)), d, out + i);
    }
  }
  for (; i < n; ++i) out[i] = x[i] * scale * static_cast<C>(weight[i]);
}

template <class Codec, class C = typename Codec::Compute>
HWY_INLINE void LoadHead(const typename Codec::Element* in, int64_t n, C* out) {
  const hn::ScalableTag<C> d;
  const hn::CappedTag<C, 1> one;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(Codec::Load(d, in + i), d, out + i);
  for (; i < n; ++i) hn::StoreU(Codec::Load(one, in + i), one, out + i);
}

// Rounding to bf16 with integers would carry the payload of a NaN out of it, and those of other
// types can have any (Highway's own NaN too).
template <class Codec, class D>
HWY_INLINE hn::Vec<D> Storable(D d, hn::Vec<D> v) {
  if constexpr (std::is_same_v<Codec, BF16>) {
    const auto quiet = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), 0x7fc00000u));
    return hn::IfThenElse(hn::IsNaN(v), quiet, v);
  }
  return v;
}

template <class Codec>
HWY_INLINE void StoreHead(const float* in, int64_t n, typename Codec::Element* out) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= n; i += step) {
    Codec::Store(d, Storable<Codec>(d, hn::LoadU(d, in + i)), out + i);
  }
  for (; i < n; ++i) Codec::Store(one, Storable<Codec>(one, hn::LoadU(one, in + i)), out + i);
}

inline void StoreHeadAs(DType dtype, float inverse_scale, float* in, int64_t n, void* out) {
  switch (dtype) {
    case DType::kF64:
      std::copy(in, in + n, static_cast<double*>(out));
      return;
    case DType::kF32:
      std::copy(in, in + n, static_cast<float*>(out));
      return;
    case DType::kF16:
      return StoreHead<F16>(in, n, static_cast<Float16*>(out));
    case DType::kBF16:
      return StoreHead<BF16>(in, n, static_cast<BFloat16*>(out));
    case DType::kF8E4M3:
      for (int64_t i = 0; i < n; ++i) {
        static_cast<Float8E4M3*>(out)[i] = ToFloat8E4M3(in[i] * inverse_scale);
      }
      return;
  }
}
// From double by way of float; the buffer is overwritten.
inline void StoreHeadAs(DType dtype, float inverse_scale, double* in, int64_t n, void* out) {
  if (dtype == DType::kF64) {
    std::copy(in, in + n, static_cast<double*>(out));
    return;
  }
  constexpr int64_t kChunk = 64;
  HWY_ALIGN float chunk[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t m = std::min(kChunk, n - i);
    for (int64_t j = 0; j < m; ++j) chunk[j] = static_cast<float>(in[i + j]);
    StoreHeadAs(dtype, inverse_scale, chunk, m, static_cast<char*>(out) + i * SizeOf(dtype));
  }
}

// The heads of one token that do not rotate.
template <class T>
HWY_INLINE void CopyHeads(const RotateParams& p, const RotateOperand& o, const T* in, T* out) {
  const int64_t dim = p.head_dim;
  const int64_t from = o.in_strides[2], to = o.out_strides[2];
  if (from == dim && to == dim) {
    std::copy(in + o.rotated_heads * dim, in + o.heads * dim, out + o.rotated_heads * dim);
    return;
  }
  for (int64_t h = o.rotated_heads; h < o.heads; ++h) {
    std::copy(in + h * from, in + h * from + dim, out + h * to);
  }
}

// One token of one operand. Direct: the body of the element type, from in to out.
template <class Body>
HWY_INLINE void RotateDirect(const RotateParams& p, const RotateOperand& o,
                             const Row<typename Body::C>& row, const typename Body::T* in,
                             typename Body::T* out) {
  if (in != out) {
    if (2 * p.pairs != p.head_dim) CopyRest(p, o, in, out);
    CopyHeads(p, o, in, out);
  }
  if (o.rotated_heads == 0) return;
  RotateHeadsBest<Body>({in + p.first_dim, out + p.first_dim, o.rotated_heads, o.in_strides[2],
                         o.out_strides[2], p.pairs, row.c, row.s, p.prefetch_bytes});
}

// Rotates heads in place, `stride` apart.
template <class Body>
HWY_INLINE void RotateInPlace(const RotateParams& p, const RotateOperand& o, const float* row,
                              typename Body::C* heads, int64_t stride, double* prepared) {
  using C = typename Body::C;
  if (o.rotated_heads == 0) return;
  C* c = reinterpret_cast<C*>(prepared);
  const Row<C> ready = Body::Prepare(p, row, c, c + 2 * p.pairs);
  C* first = heads + p.first_dim;
  RotateHeadsBest<Body>(
      {first, first, o.rotated_heads, stride, stride, p.pairs, ready.c, ready.s, 0});
}

// Norm before, another type after: where the result lies if it has the type that is computed in,
// else through a buffer.
template <class Codec, class Body>
HWY_INLINE void RotateThrough(const RotateParams& p, const RotateOperand& o, const float* row,
                              const typename Codec::Element* in, char* out, double* prepared,
                              double* buffer) {
  using C = typename Codec::Compute;
  const int64_t dim = p.head_dim;
  const int64_t in_stride = o.in_strides[2], out_stride = o.out_strides[2];
  if constexpr (std::is_same_v<typename Codec::Element, C>) {
    if (o.out_dtype == p.dtype) {  // so there is a norm
      C* heads = reinterpret_cast<C*>(out);
      for (int64_t h = 0; h < o.heads; ++h) {
        Normalise(in + h * in_stride, dim, o.norm_weight, o.norm_eps, heads + h * out_stride);
      }
      RotateInPlace<Body>(p, o, row, heads, out_stride, prepared);
      return;
    }
  }
  C* heads = reinterpret_cast<C*>(buffer);
  for (int64_t h = 0; h < o.heads; ++h) {
    C* head = heads + h * dim;
    LoadHead<Codec>(in + h * in_stride, dim, head);
    if (o.norm_weight != nullptr) Normalise(head, dim, o.norm_weight, o.norm_eps, head);
  }
  RotateInPlace<Body>(p, o, row, heads, dim, prepared);
  for (int64_t h = 0; h < o.heads; ++h) {
    StoreHeadAs(o.out_dtype, o.inverse_scale, heads + h * dim, dim,
                out + h * out_stride * SizeOf(o.out_dtype));
  }
}

// Where the heads of a token go, or null.
inline char* OutOf(const RotateParams& p, const RotateOperand& o, const PositionCursor& cursor,
                   int64_t index) {
  int64_t block = cursor.batch(), token = cursor.token();
  if (o.to_slots) {
    const int64_t slot = p.slots[index];
    if (slot < 0) return nullptr;
    block = slot / p.block_slots;
    token = slot % p.block_slots;
  }
  return static_cast<char*>(o.out) +
         (block * o.out_strides[0] + token * o.out_strides[1]) * SizeOf(o.out_dtype);
}

template <class Codec, class DirectBody, class BufferBody>
void WalkGeneral(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  using T = typename Codec::Element;
  using C = typename Codec::Compute;
  const GeneralScratch at(p);
  int32_t* axis_of = reinterpret_cast<int32_t*>(scratch + at.axis);
  if (p.axis != nullptr) std::copy(p.axis, p.axis + p.pairs, axis_of);
  PositionCursor cursor(p.positions, p.tokens, begin);
  for (int64_t i = begin;;) {
    const float* row = RowOf(p, cursor, axis_of, reinterpret_cast<float*>(scratch + at.gathered));
    const float* prepared = nullptr;  // the row that `ready` was made of
    Row<C> ready = {nullptr, nullptr};
    for (int k = 0; k < p.num_operands; ++k) {
      const RotateOperand& o = p.operands[k];
      char* out = OutOf(p, o, cursor, i);
      if (out == nullptr) continue;
      const T* in = static_cast<const T*>(o.in) + cursor.batch() * o.in_strides[0] +
                    cursor.token() * o.in_strides[1];
      const bool decays = p.log_decay != nullptr && o.decay != 0;
      const float* its_row = row;
      if (decays) {
        its_row = Decayed(p, o.decay, cursor.position(), row,
                          reinterpret_cast<float*>(scratch + at.decayed));
      }
      if (o.norm_weight != nullptr || o.out_dtype != p.dtype) {
        RotateThrough<Codec, BufferBody>(p, o, its_row, in, out, scratch + at.prepared,
                                         scratch + at.heads);
        prepared = nullptr;
        continue;
      }
      if (o.rotated_heads > 0 && (prepared != row || decays)) {
        C* c = reinterpret_cast<C*>(scratch + at.prepared);
        ready = DirectBody::Prepare(p, its_row, c, c + 2 * p.pairs);
        prepared = its_row;
      }
      RotateDirect<DirectBody>(p, o, ready, in, reinterpret_cast<T*>(out));
    }
    if (++i == end) return;
    cursor.Next();
  }
}

// The codec of the type that a codec computes in.
template <class Codec>
using Plain = std::conditional_t<std::is_same_v<typename Codec::Compute, double>, F64, F32>;

template <class Codec>
void WalkGeneralInOrder(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  if (p.layout == PairLayout::kHalf) {
    WalkGeneral<Codec, HalfBody<Codec>, HalfBody<Plain<Codec>>>(p, begin, end, scratch);
  } else {
    WalkGeneral<Codec, InterleavedBody<Codec>, InterleavedBody<Plain<Codec>>>(p, begin, end,
                                                                              scratch);
  }
}

inline void RotateGeneralBody(const RotateParams& p, int64_t begin, int64_t end, double* scratch) {
  switch (p.dtype) {
    case DType::kF64:
      return WalkGeneralInOrder<F64>(p, begin, end, scratch);
    case DType::kF32:
      return WalkGeneralInOrder<F32>(p, begin, end, scratch);
    case DType::kF16:
      return WalkGeneralInOrder<F16>(p, begin, end, scratch);
    case DType::kBF16:
#if HWY_TARGET == HWY_SCALAR
      return WalkGeneralInOrder<BF16>(p, begin, end, scratch);
#else
      if (p.layout == PairLayout::kHalf) {
        return WalkGeneral<BF16, HalfWordsBody, HalfBody<F32>>(p, begin, end, scratch);
      }
      return WalkGeneral<BF16, InterleavedWordsBody<>, InterleavedBody<F32>>(p, begin, end,
                                                                             scratch);
#endif
    case DType::kF8E4M3:
      return;  // refused before
  }
}

inline int64_t RotateGeneralTargetBody() { return HWY_TARGET; }

}  // namespace ropewalk::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
