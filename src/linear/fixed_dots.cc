#include "src/linear/fixed_dots.h"

#include <cstring>
#include <type_traits>

#include "src/linear/fixed_layout.h"
#include "src/linear/fixed_types.h"

namespace ropewalk::internal {

#if defined(ROPEWALK_VNNI)

namespace fixed {
namespace {

constexpr int64_t kAhead = 2048;  // bytes that are fetched ahead in each row

// Rows of large blocks are whole steps.
template <class Type>
constexpr bool kEnds = !std::is_same_v<Type, typename Type::Last>;

// One row's sums. Rests have a sign in common where those of codes have the other: they cancel in the
// end, so they are added up in double; of large blocks, whose every product in double would take an
// eighth of the time, a few steps in float before.
struct Sums {
  __m512 lanes;
  __m256 few;
  __m512d rests;
};
constexpr int64_t kFew = 4;
// Of each 16 elements they are added to the codes' sums at once: with two bits those would drift away.
template <class Type>
constexpr bool kRestsOf16 = requires(const Type& t) {
  t.RestsOf16(0);
};
template <class Type>
constexpr bool kInFew = (Type::kRests && Type::kElements == 256);

template <int kRows>
ROPEWALK_VNNI_INLINE void AddFew(Sums* sums) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    sums[r].rests = _mm512_add_pd(sums[r].rests, _mm512_cvtps_pd(sums[r].few));
    sums[r].few = _mm256_setzero_ps();
  }
}

// The plane for 2^16 first: every sum of four is one integer in the end, which may overflow on the
// way but not then.
ROPEWALK_VNNI_INLINE __m512 Multiply(__m512i codes, const __m512i (&x)[3], __m512i middles) {
  const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, x[0]);
  const __m512i two = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), codes, x[1]);
  const __m512i low = _mm512_dpbusd_epi32(middles, codes, x[2]);
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(two, 8), low));
}

// Into a register: compilers would rather read memory again for each row, and a vector a cycle is all
// that Zen 4 reads.
ROPEWALK_VNNI_INLINE __m512i LoadOnce(const std::byte* p) {
  __m512i v = _mm512_load_si512(p);
  asm("" : "+v"(v));
  return v;
}

// A step of kRows rows, so that x is loaded once for them.
template <class Type, int kRows>
ROPEWALK_VNNI_INLINE void Step(const uint8_t* const* at, const std::byte* x,
                               const double* sums_of_x, Sums* sums) {
  Type step[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) step[r].Load(at[r]);
#pragma GCC unroll 4
  for (int i = 0; i < Type::kElements / kChunk; ++i) {
    const std::byte* chunk = x + i * kChunkBytes;
    const __m512i planes[3] = {LoadOnce(chunk), LoadOnce(chunk + 64), LoadOnce(chunk + 128)};
    const __m512 scales = _mm512_castsi512_ps(LoadOnce(chunk + kScales));
    const __m512i middles = LoadOnce(chunk + kMiddles);
    const __m512 of_middles = _mm512_mul_ps(_mm512_cvtepi32_ps(middles), scales);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512 product = Multiply(step[r].Codes(i), planes, middles);
      const __m512 scale = _mm512_mul_ps(step[r].Scales(i), scales);
      if constexpr (kRestsOf16<Type>) {
        sums[r].lanes = _mm512_fmadd_ps(step[r].RestsOf16(i), of_middles, sums[r].lanes);
      }
      sums[r].lanes = _mm512_fmadd_ps(product, scale, sums[r].lanes);
    }
  }
  if (!Type::kRests) return;
  const __m512d of_x = _mm512_loadu_pd(sums_of_x);
  const __m256 in_float = _mm512_cvtpd_ps(of_x);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m256 rests = step[r].Rests();
    if (kInFew<Type>) {
      sums[r].few = _mm256_fmadd_ps(rests, in_float, sums[r].few);
    } else {
      sums[r].rests = _mm512_fmadd_pd(_mm512_cvtps_pd(rests), of_x, sums[r].rests);
    }
  }
}

template <class Type, int kRows>
ROPEWALK_VNNI void DotRows(const std::byte* const* rows, int64_t n, const std::byte* fixed,
                           float* const* y) {
  const uint8_t* at[kRows];
  Sums sums[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    at[r] = reinterpret_cast<const uint8_t*>(rows[r]);
    sums[r] = {_mm512_setzero_ps(), _mm256_setzero_ps(), _mm512_setzero_pd()};
  }
  const auto* sums_of_x = reinterpret_cast<const double*>(fixed + Chunks(n) * kChunkBytes);
  int64_t i = 0;
  for (; i + Type::kElements <= n; i += Type::kElements) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int64_t b = 0; b < Type::kBytes; b += 64) __builtin_prefetch(at[r] + kAhead + b);
    }
    Step<Type, kRows>(at, fixed, sums_of_x, sums);
    fixed += Type::kElements / kChunk * kChunkBytes;
    sums_of_x += Type::kElements / 32;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) at[r] += Type::kBytes;
    if (kInFew<Type> && i % (kFew * Type::kElements) == 0) AddFew<kRows>(sums);
  }
  using Last = typename Type::Last;
  for (; kEnds<Type> && i < n; i += Last::kElements) {
    uint8_t padded[kRows][Last::kBytes];
    if (i + Last::kElements > n) {  // what is behind the row may not be there: blocks of zeros
      std::memset(padded, 0, sizeof(padded));
      const int64_t bytes = (n - i) * Last::kBytes / Last::kElements;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        std::memcpy(padded[r], at[r], static_cast<std::size_t>(bytes));
        at[r] = padded[r];
      }
    }
    Step<Last, kRows>(at, fixed, sums_of_x, sums);
    fixed += kChunkBytes;
    sums_of_x += kChunk / 32;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) at[r] += Last::kBytes;
  }
  if (kInFew<Type>) AddFew<kRows>(sums);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const double rests = Type::kRests ? _mm512_reduce_add_pd(sums[r].rests) : 0;
    *y[r] += static_cast<float>(_mm512_reduce_add_ps(sums[r].lanes) + rests);
  }
}

// Three rows at a time from as many places that are far apart, each of them read from one end to the
// other: of rows side by side the processor would fetch too little ahead.
template <class Type>
void DotAll(const FixedRows& rows, int64_t n, const std::byte* fixed, float* y) {
  constexpr int kAtATime = 3;  // of four Q6_K was slower, of two Q4_K (Zen 4)
  const int64_t row_bytes =
      n / Type::kElements * Type::kBytes + n % Type::kElements * Type::kBytes / Type::kElements;
  const auto row = [&](int64_t i) {
    const int64_t at = rows.first + i;
    return rows.data + (rows.order == nullptr ? at : rows.order[at]) * row_bytes;
  };
  const int64_t apart = rows.count / kAtATime;
  for (int64_t r = 0; r < apart; ++r) {
    const std::byte* from[kAtATime];
    float* to[kAtATime];
    for (int k = 0; k < kAtATime; ++k) {
      from[k] = row(r + k * apart);
      to[k] = y + r + k * apart;
    }
    DotRows<Type, kAtATime>(from, n, fixed, to);
  }
  for (int64_t r = kAtATime * apart; r < rows.count; ++r) {
    const std::byte* from = row(r);
    float* to = y + r;
    DotRows<Type, 1>(&from, n, fixed, &to);
  }
}

struct TypeRow {
  WeightType type;
  const Order& order;
  void (*dot)(const FixedRows& rows, int64_t n, const std::byte* fixed, float* y);
};
template <class Type>
constexpr TypeRow Row(WeightType type) {
  return {type, Type::kOrder, &DotAll<Type>};
}
constexpr TypeRow kTypes[] = {Row<Q8_0<2>>(WeightType::kQ8_0),  Row<Q4_0>(WeightType::kQ4_0),
                              Row<Q4_1>(WeightType::kQ4_1),     Row<Q2_K>(WeightType::kQ2_K),
                              Row<Q3_K>(WeightType::kQ3_K),     Row<Q4_K>(WeightType::kQ4_K),
                              Row<Q5_K>(WeightType::kQ5_K),     Row<Q6_K>(WeightType::kQ6_K),
                              Row<IQ4_NL>(WeightType::kIQ4_NL), Row<IQ4_XS>(WeightType::kIQ4_XS),
                              Row<MXFP4>(WeightType::kMXFP4)};
const TypeRow* Find(WeightType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

// What has these has f16c too, which compilers cannot ask for.
bool HasInstructions() {
  static const bool has =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx2") != 0 &&
      __builtin_cpu_supports("fma") != 0;
  return has;
}

}  // namespace
}  // namespace fixed

bool HasFixedDots(WeightType type) {
  return fixed::HasInstructions() && fixed::Find(type) != nullptr;
}

bool WriteFixed(WeightType type, const float* x, int64_t n, std::byte* out) {
  return fixed::WriteInOrder(fixed::Find(type)->order, x, n, out);
}

void DotFixed(WeightType type, const FixedRows& rows, int64_t n, const std::byte* fixed, float* y) {
  fixed::Find(type)->dot(rows, n, fixed, y);
}

#else

bool HasFixedDots(WeightType) { return false; }
bool WriteFixed(WeightType, const float*, int64_t, std::byte*) { return false; }
// Never called.
void DotFixed(WeightType, const FixedRows&, int64_t, const std::byte*, float*) {}

#endif

}  // namespace ropewalk::internal
