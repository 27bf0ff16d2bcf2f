// The types that fixed_dots.cc multiplies: codes and scales of their blocks, a vector at a time.
#pragma once

#include <algorithm>
#include <cstring>

#include "src/io/four_bits.h"
#include "src/linear/fixed_layout.h"

#if defined(ROPEWALK_VNNI)

namespace ropewalk::internal::fixed {

ROPEWALK_VNNI_INLINE __m512i Lower4(__m512i q) { return _mm512_and_si512(q, _mm512_set1_epi8(15)); }
ROPEWALK_VNNI_INLINE __m512i Upper4(__m512i q) { return Lower4(_mm512_srli_epi16(q, 4)); }

ROPEWALK_VNNI_INLINE __m128i Load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
ROPEWALK_VNNI_INLINE __m256i Load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
ROPEWALK_VNNI_INLINE __m512i Join(__m256i a, __m256i b) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

// Shifts of the lower and the upper half, each by so many bits of its words of 64.
ROPEWALK_VNNI_INLINE __m512i Bits(int lower, int upper) {
  return _mm512_setr_epi64(lower, lower, lower, lower, upper, upper, upper, upper);
}
ROPEWALK_VNNI_INLINE __m512i Left(__m512i v, int lower, int upper) {
  return _mm512_sllv_epi64(v, Bits(lower, upper));
}
ROPEWALK_VNNI_INLINE __m512i Right(__m512i v, int lower, int upper) {
  return _mm512_srlv_epi64(v, Bits(lower, upper));
}
// The bits of `mask` in each byte of `high` beside those of `low`.
ROPEWALK_VNNI_INLINE __m512i Beside(__m512i low, __m512i high, char mask) {
  return _mm512_ternarylogic_epi32(high, _mm512_set1_epi8(mask), low, 0xea);  // a & b | c
}

ROPEWALK_VNNI_INLINE float Half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
}

// Halves at p, 16 of them; 64 bytes or kBytes are read.
template <int kBytes>
ROPEWALK_VNNI_INLINE __m512 Halves(const uint8_t* p, const Words& indices) {
  constexpr auto kRead = static_cast<__mmask32>((uint64_t{1} << std::min(kBytes / 2, 32)) - 1);
  const __m512i read = kBytes >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(kRead, p);
  const __m512i words = _mm512_permutexvar_epi16(_mm512_load_si512(indices.at), read);
  return _mm512_cvtph_ps(_mm512_castsi512_si256(words));
}

// A type: kElements of it in kBytes, and what single chunks of it at the end of a row are. Codes(i)
// and Scales(i) are those of chunk i, a scale for every four codes. Rests: what is added to (code -
// middle) * scale, for each 32 elements, up to eight; RestsOf16(i), of a type that has them for 16: the
// same over -middle, for every four codes of chunk i. The layouts are ggml's, as in
// src/io/dequantize.cc.
template <int kChunks>
struct Q8_0 {
  using Last = Q8_0<1>;
  static constexpr const Order& kOrder = kOrder8;
  static constexpr int64_t kElements = kChunks * kChunk, kBytes = kChunks * int64_t{68};
  static constexpr bool kRests = false;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) { blocks = p; }
  ROPEWALK_VNNI_INLINE __m512i Codes(int i) const {
    const uint8_t* p = blocks + static_cast<ptrdiff_t>(i) * 68;
    return _mm512_xor_si512(Join(Load32(p + 2), Load32(p + 36)), _mm512_set1_epi8(-128));
  }
  ROPEWALK_VNNI_INLINE __m512 Scales(int i) const {
    static constexpr Words kTwo(0, 17, 8);
    return Halves<68>(blocks + static_cast<ptrdiff_t>(i) * 68, kTwo);
  }
  ROPEWALK_VNNI_INLINE __m256 Rests() const { return _mm256_setzero_ps(); }
  const uint8_t* blocks;
};

// What 4 bits stand for, as codes without a sign: themselves, or 128 more than a step of IQ4_NL.
struct Equal {
  static constexpr const Order& kOrder = kHalvesOf32;
  static ROPEWALK_VNNI_INLINE __m512i Codes(__m512i q) { return q; }
};
struct NonLinear {
  static constexpr const Order& kOrder = kHalvesOf32By8;
  static ROPEWALK_VNNI_INLINE __m512i Codes(__m512i q) {
    const __m128i steps = _mm_load_si128(reinterpret_cast<const __m128i*>(kNonLinear));
    const __m128i codes = _mm_xor_si128(steps, _mm_set1_epi8(-128));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), q);
  }
};
// 16 more than twice E2M1.
struct TwiceE2M1 {
  static constexpr const Order& kOrder = kHalvesOf32By5;
  static ROPEWALK_VNNI_INLINE __m512i Codes(__m512i q) {
    const __m128i steps = _mm_load_si128(reinterpret_cast<const __m128i*>(kTwiceE2M1));
    const __m128i codes = _mm_add_epi8(steps, _mm_set1_epi8(16));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), q);
  }
};

// Scales 4 i to 4 i + 3 of 16, each for four lanes.
ROPEWALK_VNNI_INLINE __m512 EachForFour(__m512 scales, int i) {
  static constexpr Lanes kFour[4] = {{0, 1, 4}, {4, 1, 4}, {8, 1, 4}, {12, 1, 4}};
  return Spread(scales, kFour[i]);
}

// The scales of kCount blocks, each for four lanes.
template <int kCount, int kBlock, int kHead>
ROPEWALK_VNNI_INLINE __m512 ScalesOf(const uint8_t* p) {
  if constexpr (kHead == 1) {
    static constexpr Lanes kEach(0, 1, 4, kCount);
    const auto scale = [p](int i)
                           ROPEWALK_VNNI { return i < kCount ? HalfE8M0(p[i * kBlock]) : 0; };
    const __m128 four = _mm_setr_ps(scale(0), scale(1), scale(2), scale(3));
    return Spread(_mm512_castps128_ps512(four), kEach);
  } else {
    static constexpr Words kEach(0, kBlock / 2, 4, kCount);
    return Halves<kCount * kBlock>(p, kEach);
  }
}

// Blocks of 32 elements, 4 bits each: of kBlock bytes, of which `kHead` are a scale and maybe a min.
template <int kBlock, int kHead, class Steps>
struct Last4 {
  static constexpr int64_t kElements = 64, kBytes = int64_t{2} * kBlock;
  static constexpr bool kRests = kHead == 4;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) {
    static constexpr Words kMinWords(1, kBlock / 2, 1);
    const __m256i both = _mm256_set_m128i(Load16(p + kBlock + kHead), Load16(p + kHead));
    q = Lower4(Join(both, _mm256_srli_epi16(both, 4)));
    scales = ScalesOf<2, kBlock, kHead>(p);
    if (kRests) mins = _mm512_castps512_ps128(Halves<kBytes>(p, kMinWords));
  }
  ROPEWALK_VNNI_INLINE __m512i Codes(int) const { return Steps::Codes(q); }
  ROPEWALK_VNNI_INLINE __m512 Scales(int) const { return scales; }
  ROPEWALK_VNNI_INLINE __m256 Rests() const {
    static constexpr Lanes kTwo(0, 4, 1);
    const __m128 d = _mm512_castps512_ps128(Spread(scales, kTwo));
    return _mm256_zextps128_ps256(_mm_maskz_fmadd_ps(0x3, d, _mm_set1_ps(8.0f), mins));
  }
  __m512i q;
  __m512 scales;
  __m128 mins;
};

template <int kBlock, int kHead, class Steps>
struct Blocks4 {
  using Last = Last4<kBlock, kHead, Steps>;
  static constexpr const Order& kOrder = Steps::kOrder;
  static constexpr int64_t kElements = 128, kBytes = int64_t{4} * kBlock;
  static constexpr bool kRests = kHead == 4;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) {
    static constexpr Words kMinWords(1, kBlock / 2, 1);
    q = _mm512_castsi128_si512(Load16(p + kHead));
    q = _mm512_mask_broadcast_i32x4(q, 0x00f0, Load16(p + kBlock + kHead));
    q = _mm512_mask_broadcast_i32x4(q, 0x0f00, Load16(p + 2 * kBlock + kHead));
    q = _mm512_mask_broadcast_i32x4(q, 0xf000, Load16(p + 3 * kBlock + kHead));
    scales = ScalesOf<4, kBlock, kHead>(p);
    if (kRests) mins = _mm512_castps512_ps128(Halves<kBytes>(p, kMinWords));
  }
  ROPEWALK_VNNI_INLINE __m512i Codes(int i) const {
    return Steps::Codes(i == 0 ? Lower4(q) : Upper4(q));
  }
  ROPEWALK_VNNI_INLINE __m512 Scales(int) const { return scales; }
  ROPEWALK_VNNI_INLINE __m256 Rests() const {
    static constexpr Lanes kFour(0, 4, 1);
    const __m128 d = _mm512_castps512_ps128(Spread(scales, kFour));
    return _mm256_zextps128_ps256(_mm_fmadd_ps(d, _mm_set1_ps(8.0f), mins));
  }
  __m512i q;
  __m512 scales;
  __m128 mins;
};
using Q4_0 = Blocks4<18, 2, Equal>;
using Q4_1 = Blocks4<20, 4, Equal>;
using IQ4_NL = Blocks4<18, 2, NonLinear>;
using MXFP4 = Blocks4<17, 1, TwiceE2M1>;

// Eight bytes in two words, as floats times a factor.
ROPEWALK_VNNI_INLINE __m256 Floats(uint32_t low, uint32_t high, __m256 factor) {
  const auto bytes = static_cast<int64_t>(low | static_cast<uint64_t>(high) << 32);
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(wide), factor);
}

struct IQ4_XS {
  using Last = IQ4_XS;
  static constexpr const Order& kOrder = kHalvesOf32By8;
  static constexpr int64_t kElements = 256, kBytes = 136;
  static constexpr bool kRests = false;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) {
    uint16_t two;   // bits of each scale, the upper ones
    uint32_t four;  // of each, the lower ones
    std::memcpy(&two, p + 2, sizeof(two));
    std::memcpy(&four, p + 4, sizeof(four));
    const __m128i low = _mm_cvtsi32_si128(static_cast<int>(four & 0x0f0f0f0fu));
    const __m128i high = _mm_cvtsi32_si128(static_cast<int>(four >> 4 & 0x0f0f0f0fu));
    __m256i upper = _mm256_set1_epi32(two);
    upper = _mm256_srlv_epi32(upper, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    upper = _mm256_slli_epi32(_mm256_and_si256(upper, _mm256_set1_epi32(3)), 4);
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_unpacklo_epi8(low, high));
    const __m256i integers = _mm256_sub_epi32(_mm256_or_si256(wide, upper), _mm256_set1_epi32(32));
    scales = _mm256_mul_ps(_mm256_cvtepi32_ps(integers), _mm256_set1_ps(Half(p)));
    for (int i = 0; i < 2; ++i) q[i] = _mm512_loadu_si512(p + 8 + static_cast<ptrdiff_t>(i) * 64);
  }
  ROPEWALK_VNNI_INLINE __m512i Codes(int i) const {
    return NonLinear::Codes(i % 2 == 0 ? Lower4(q[i / 2]) : Upper4(q[i / 2]));
  }
  ROPEWALK_VNNI_INLINE __m512 Scales(int i) const {
    return EachForFour(_mm512_castps256_ps512(scales), i / 2);
  }
  ROPEWALK_VNNI_INLINE __m256 Rests() const { return _mm256_setzero_ps(); }
  __m512i q[2];
  __m256 scales;
};

// Q4_K and Q5_K, which has a fifth bit of each code in 32 bytes more: bit j of them is that of the
// j-th 32 codes.
template <int kBits>
struct BlocksOf256 {
  using Last = BlocksOf256;
  static constexpr const Order& kOrder = kBits == 5 ? kHalvesOf64By5 : kHalvesOf64;
  static constexpr int64_t kElements = 256, kBytes = kBits == 5 ? 176 : 144;
  static constexpr bool kRests = true;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) {
    // Eight pairs of 6 bits in 12 bytes, four bytes at a time.
    uint32_t words[3];
    std::memcpy(words, p + 4, sizeof(words));
    const uint32_t s = (words[2] & 0x0f0f0f0fu) | ((words[0] >> 6 & 0x03030303u) << 4);
    const uint32_t m = (words[2] >> 4 & 0x0f0f0f0fu) | ((words[1] >> 6 & 0x03030303u) << 4);
    int32_t halves;  // of scales and of mins
    std::memcpy(&halves, p, sizeof(halves));
    const __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128(halves));
    scales = Floats(words[0] & 0x3f3f3f3fu, s, _mm256_broadcastss_ps(both));
    rests = Floats(words[1] & 0x3f3f3f3fu, m, _mm256_broadcastss_ps(_mm_movehdup_ps(both)));
    rests = _mm256_fmsub_ps(scales, _mm256_set1_ps(kBits == 5 ? 16.0f : 8.0f), rests);
    if (kBits == 5) fifths = _mm512_broadcast_i64x4(Load32(p + 16));
    const uint8_t* codes = p + kBytes - 128;
    for (int i = 0; i < 2; ++i) q[i] = _mm512_loadu_si512(codes + static_cast<ptrdiff_t>(i) * 64);
  }
  ROPEWALK_VNNI_INLINE __m512i Codes(int i) const {
    const __m512i low = i % 2 == 0 ? Lower4(q[i / 2]) : Upper4(q[i / 2]);
    if (kBits == 4) return low;
    // To bit 4 from bit i % 2 and, in the upper half, the next but one; from four higher in the last two.
    const __m512i high = i < 2 ? Left(fifths, 4 - i, 2 - i) : Right(fifths, i - 2, i);
    return Beside(low, high, 0x10);
  }
  ROPEWALK_VNNI_INLINE __m512 Scales(int i) const {
    static constexpr Lanes kTwo[4] = {{0, 2, 8}, {1, 2, 8}, {4, 2, 8}, {5, 2, 8}};
    return Spread(_mm512_castps256_ps512(scales), kTwo[i]);
  }
  ROPEWALK_VNNI_INLINE __m256 Rests() const { return rests; }
  __m512i q[2], fifths;
  __m256 scales, rests;
};
using Q4_K = BlocksOf256<4>;
using Q5_K = BlocksOf256<5>;

// Bits 0 and 1 of 32 bytes are those of codes 0 to 31, then 2 and 3, 4 and 5, 6 and 7: chunk i of four,
// of two vectors of such bytes, each twice.
ROPEWALK_VNNI_INLINE __m512i TwoBits(const __m512i (&bytes)[2], int i) {
  const __m512i two = Right(bytes[i / 2], i % 2 * 4, i % 2 * 4 + 2);
  return _mm512_and_si512(two, _mm512_set1_epi8(3));
}
ROPEWALK_VNNI_INLINE void LoadTwoBits(const uint8_t* p, __m512i (&bytes)[2]) {
  for (int i = 0; i < 2; ++i) {
    bytes[i] = _mm512_broadcast_i64x4(Load32(p + static_cast<ptrdiff_t>(i) * 32));
  }
}

struct Q2_K {
  using Last = Q2_K;
  static constexpr const Order& kOrder = kOrder2;
  static constexpr int64_t kElements = 256, kBytes = 84;
  static constexpr bool kRests = false;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) {
    const __m128i pairs = Load16(p), four = _mm_set1_epi8(15);
    const __m128i upper = _mm_and_si128(_mm_srli_epi16(pairs, 4), four);
    scales = Times(_mm_and_si128(pairs, four), Half(p + 80));
    rests = _mm512_fmsub_ps(Times(upper, Half(p + 82)), _mm512_set1_ps(0.5f), scales);
    LoadTwoBits(p + 16, twos);
  }
  static ROPEWALK_VNNI_INLINE __m512 Times(__m128i bytes, float factor) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), _mm512_set1_ps(factor));
  }
  ROPEWALK_VNNI_INLINE __m512i Codes(int i) const { return TwoBits(twos, i); }
  ROPEWALK_VNNI_INLINE __m512 Scales(int i) const { return EachForFour(scales, i); }
  ROPEWALK_VNNI_INLINE __m512 RestsOf16(int i) const { return EachForFour(rests, i); }
  ROPEWALK_VNNI_INLINE __m256 Rests() const { return _mm256_setzero_ps(); }
  __m512i twos[2];
  __m512 scales, rests;
};

struct Q3_K {
  using Last = Q3_K;
  static constexpr const Order& kOrder = kOrder3;
  static constexpr int64_t kElements = 256, kBytes = 110;
  static constexpr bool kRests = false;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) {
    uint32_t words[3];  // four lower bits of eight and eight scales, and two upper ones of each
    std::memcpy(words, p + 96, sizeof(words));
    const __m128i upper =
        _mm_srlv_epi32(_mm_set1_epi32(static_cast<int>(words[2])), _mm_setr_epi32(0, 2, 4, 6));
    const __m128i lower =
        _mm_setr_epi32(static_cast<int>(words[0]), static_cast<int>(words[1]),
                       static_cast<int>(words[0] >> 4), static_cast<int>(words[1] >> 4));
    const __m128i bytes = _mm_or_si128(_mm_and_si128(lower, _mm_set1_epi8(15)),
                                       _mm_slli_epi16(_mm_and_si128(upper, _mm_set1_epi8(3)), 4));
    const __m512i integers = _mm512_cvtepi8_epi32(_mm_sub_epi8(bytes, _mm_set1_epi8(32)));
    scales = _mm512_mul_ps(_mm512_cvtepi32_ps(integers), _mm512_set1_ps(Half(p + 108)));
    thirds = _mm512_broadcast_i64x4(Load32(p));
    LoadTwoBits(p + 32, twos);
  }
  ROPEWALK_VNNI_INLINE __m512i Codes(int i) const {
    // Bit 2 i of 32 bytes is the third of 32 codes, bit 2 i + 1 that of the next: to bit 2.
    const __m512i high = i == 0 ? Left(thirds, 2, 1) : Right(thirds, 2 * i - 2, 2 * i - 1);
    return Beside(TwoBits(twos, i), high, 4);
  }
  ROPEWALK_VNNI_INLINE __m512 Scales(int i) const { return EachForFour(scales, i); }
  ROPEWALK_VNNI_INLINE __m256 Rests() const { return _mm256_setzero_ps(); }
  __m512i twos[2], thirds;
  __m512 scales;
};

struct Q6_K {
  using Last = Q6_K;
  static constexpr const Order& kOrder = kOrder6;
  static constexpr int64_t kElements = 256, kBytes = 210;
  static constexpr bool kRests = false;
  ROPEWALK_VNNI_INLINE void Load(const uint8_t* p) {
    block = p;
    const __m512 integers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load16(p + 192)));
    scales = _mm512_mul_ps(integers, _mm512_set1_ps(Half(p + 208)));
  }
  ROPEWALK_VNNI_INLINE __m512i Codes(int i) const {
    const __m512i q = _mm512_loadu_si512(block + static_cast<ptrdiff_t>(i / 2) * 64);
    // Bits 0 and 1 of 32 bytes, then 2 and 3, are the upper ones of codes 0 to 63; then 4 and 5, 6 and 7.
    const __m512i two =
        _mm512_broadcast_i64x4(Load32(block + 128 + static_cast<ptrdiff_t>(i / 2) * 32));
    const __m512i high = i % 2 == 0 ? Left(two, 4, 2) : Right(two, 0, 2);
    return Beside(i % 2 == 0 ? Lower4(q) : Upper4(q), high, 0x30);
  }
  ROPEWALK_VNNI_INLINE __m512 Scales(int i) const { return EachForFour(scales, i); }
  ROPEWALK_VNNI_INLINE __m256 Rests() const { return _mm256_setzero_ps(); }
  const uint8_t* block;
  __m512 scales;
};

}  // namespace ropewalk::internal::fixed

#endif
