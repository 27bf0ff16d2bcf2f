// A row of float32 as fixed-point numbers.
#include "src/linear/fixed_layout.h"

namespace ropewalk::internal {

// Whole vectors, so that another row may lie behind.
int64_t FixedBytes(int64_t n) {
  return fixed::Chunks(n) * fixed::kChunkBytes + (fixed::Chunks(n) / 4 + 3) * 64;
}

#if defined(ROPEWALK_VNNI)

namespace fixed {
namespace {

// Below 127.5 * 2^16, or the first plane would be no byte.
constexpr float kMost = 8355000.0f;

// Sums, and the largest, of each four lanes, in all of them.
ROPEWALK_VNNI_INLINE __m512 SumOfFour(__m512 v) {
  const __m512 two = _mm512_add_ps(v, _mm512_permute_ps(v, 0xb1));
  return _mm512_add_ps(two, _mm512_permute_ps(two, 0x4e));
}
ROPEWALK_VNNI_INLINE __m512 MostOfFour(__m512 v) {
  const __m512 two = _mm512_max_ps(v, _mm512_permute_ps(v, 0xb1));
  return _mm512_max_ps(two, _mm512_permute_ps(two, 0x4e));
}
ROPEWALK_VNNI_INLINE __m512i SumOfFour(__m512i v) {
  const __m512i two = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
  return _mm512_add_epi32(two, _mm512_shuffle_epi32(two, _MM_PERM_BADC));
}
ROPEWALK_VNNI_INLINE __m512i LowByte(__m512i v) {
  return _mm512_srai_epi32(_mm512_slli_epi32(v, 24), 24);
}
// The first of each four lanes.
ROPEWALK_VNNI_INLINE __m128 OneOfFour(__m512 v) {
  static constexpr Lanes kFirst(0, 4, 1);
  return _mm512_castps512_ps128(Spread(v, kFirst));
}

ROPEWALK_VNNI_INLINE void Store(std::byte* to, __m128i v) {
  _mm_store_si128(reinterpret_cast<__m128i*>(to), v);
}

// 16 elements into their quarter of a chunk; returns the sum of x as it is written.
ROPEWALK_VNNI_INLINE double WritePiece(__m512 x, const Order& order, std::byte* chunk,
                                       int64_t quarter) {
  const __m512 size = _mm512_abs_ps(x);
  const __m512 by_most = _mm512_mul_ps(MostOfFour(size), _mm512_set1_ps(1.0f / kMost));
  const __m512 by_sum = SumOfFour(_mm512_mul_ps(size, _mm512_set1_ps(1.0f / order.most_of_four)));
  // Of zeros too: what is below 2^-124 beside numbers above 2^-80 becomes zero.
  const __m512 unit = _mm512_max_ps(_mm512_max_ps(by_most, by_sum), _mm512_set1_ps(0x1p-123f));
  const __m512i fixed = _mm512_cvtps_epi32(_mm512_div_ps(x, unit));
  const __m512i low = LowByte(fixed);
  const __m512i rest = _mm512_srai_epi32(_mm512_sub_epi32(fixed, low), 8);
  const __m512i middle = LowByte(rest);
  const __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(rest, middle), 8);
  std::byte* to = chunk + quarter * kPiece;
  Store(to, _mm512_cvtepi32_epi8(high));
  Store(to + 64, _mm512_cvtepi32_epi8(middle));
  Store(to + 128, _mm512_cvtepi32_epi8(low));
  const __m512i sum = SumOfFour(fixed);
  const __m128 units = OneOfFour(unit);
  Store(to + kScales, _mm_castps_si128(units));
  const __m512i shift = _mm512_slli_epi32(sum, static_cast<unsigned>(order.middle));
  const __m512i middles = _mm512_sub_epi32(_mm512_setzero_si512(), shift);
  Store(to + kMiddles, _mm_castps_si128(OneOfFour(_mm512_castsi512_ps(middles))));
  const __m128i sums = _mm_castps_si128(OneOfFour(_mm512_castsi512_ps(sum)));
  const __m256d four = _mm256_mul_pd(_mm256_cvtepi32_pd(sums), _mm256_cvtps_pd(units));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

}  // namespace

ROPEWALK_VNNI bool WriteInOrder(const Order& order, const float* x, int64_t n, std::byte* out) {
  auto* sums = reinterpret_cast<double*>(out + Chunks(n) * kChunkBytes);
  __m512i most = _mm512_setzero_si512();
  for (int64_t piece = 0; piece < Chunks(n) * kChunk / kPiece; ++piece) {
    const bool here = piece * kPiece < n;
    const __m512 v = here ? _mm512_loadu_ps(x + piece * kPiece) : _mm512_setzero_ps();
    most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_abs_ps(v)));
    const bool whole = piece / kPieces < n / kStep;
    const int64_t slot = whole ? piece / kPieces * kPieces + order.slots[piece % kPieces]
                               : piece / kQuarters * kQuarters + order.last[piece % kQuarters];
    const double sum = WritePiece(v, order, out + slot / 4 * kChunkBytes, slot % 4);
    sums[piece / 2] = piece % 2 == 0 ? sum : sums[piece / 2] + sum;
  }
  for (int64_t i = 0; i < 8; ++i) sums[Chunks(n) * 2 + i] = 0;  // steps read eight
  const uint32_t bits = _mm512_reduce_max_epu32(most);
  constexpr uint32_t kInfinity = 0x7f800000u, kSmall = (127u - 80u) << 23;
  return bits == 0 || (bits < kInfinity && bits >= kSmall);
}

}  // namespace fixed

#endif

}  // namespace ropewalk::internal
