#include <cstring>

#include "hwy/cache_control.h"
#include "src/linear/word_dots.h"

// Sums are kept in arrays of vectors, which vectors of unknown size cannot be in.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/linear/word_dots_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "src/linear/block_scales-inl.h"

#ifndef ROPEWALK_WORD_DOTS_LAYOUT
#define ROPEWALK_WORD_DOTS_LAYOUT
namespace ropewalk::internal::words {

// x lies in groups of 32 elements, those of eight words of codes. A group is five times eight floats:
// x for the codes of a word's first byte, times the inverse of the power of two that these come with,
// of its second, third and fourth; and what takes the middle of the codes out of each word's sum.
// Behind the groups: the sum of x in each 32, in the order of the row.
inline constexpr int64_t kGroup = 32, kWords = 8, kGroupFloats = 5 * kWords;
// Elements at a time: eight words have two groups of 4 bits.
inline constexpr int64_t kPair = 2 * kGroup;

inline int64_t Groups(int64_t n) { return (n + kPair - 1) / kPair * 2; }

}  // namespace ropewalk::internal::words
#endif

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal::words {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 8>;
using V = hn::Vec<D>;
using DW = hn::RebindToUnsigned<D>;
using W = hn::Vec<DW>;

constexpr int64_t kLanes = HWY_MIN(8, HWY_LANES(float));
constexpr int kVectors = static_cast<int>(kWords / kLanes);  // for eight words
constexpr int64_t kAhead = 1024;  // bytes that are fetched ahead in each row

using internal::HWY_NAMESPACE::Half;
using internal::HWY_NAMESPACE::MultiplyBytes;
using internal::HWY_NAMESPACE::UnpackPairs;

HWY_INLINE W And(W w, uint32_t mask) { return hn::And(w, hn::Set(DW(), mask)); }
HWY_INLINE V ToFloats(W w) { return hn::ConvertTo(D(), hn::BitCast(hn::RebindToSigned<D>(), w)); }
HWY_INLINE V LoadX(const float* group, int part, int v) {
  return hn::Load(D(), group + part * kWords + v * kLanes);
}

// Vector v of eight words, four at p and four at q.
HWY_INLINE W LoadHalves(const uint8_t* p, const uint8_t* q, int v) {
#if HWY_TARGET == HWY_SCALAR
  uint32_t word;
  std::memcpy(&word, v < 4 ? p + 4 * v : q + 4 * (v - 4), 4);
  return hn::Set(DW(), word);
#elif HWY_MAX_BYTES >= 32
  const hn::CappedTag<uint8_t, 16> d;
  const hn::Repartition<uint8_t, DW> both;
  return hn::BitCast(DW(), hn::Combine(both, hn::LoadU(d, q), hn::LoadU(d, p)));
#else
  return hn::BitCast(DW(), hn::LoadU(hn::Repartition<uint8_t, DW>(), v == 0 ? p : q));
#endif
}
HWY_INLINE W LoadWords(const uint8_t* p, int v) {
#if HWY_TARGET == HWY_SCALAR
  return LoadHalves(p, p + 16, v);
#else
  return hn::BitCast(DW(), hn::LoadU(hn::Repartition<uint8_t, DW>(), p + 4 * v * kLanes));
#endif
}

// Vector v of two halves for four words each.
HWY_INLINE V SpreadHalves(const uint8_t* p, const uint8_t* q, int v) {
#if HWY_MAX_BYTES >= 32
  const hn::CappedTag<uint16_t, 8> d16;
  const hn::CappedTag<hwy::float16_t, 8> dh;
  uint16_t first, second;
  std::memcpy(&first, p, sizeof(first));
  std::memcpy(&second, q, sizeof(second));
  const auto bits = hn::ConcatLowerLower(d16, hn::Set(d16, second), hn::Set(d16, first));
  return hn::PromoteTo(D(), hn::BitCast(dh, bits));
#else
  return hn::Set(D(), Half(v * kLanes < 4 ? p : q));
#endif
}

// The sums of a row: a vector for each of eight words' vectors, and for groups of even and odd number,
// so that none waits for itself.
struct Sums {
  HWY_INLINE Sums() {
    for (int i = 0; i < 2 * kVectors; ++i) of[i] = hn::Zero(D());
    for (int i = 0; i < kVectors; ++i) rests[i] = lost[i] = hn::Zero(D());
  }
  // What is added for 32 elements at once are steps too large for a plain sum of float32: Kahan's.
  HWY_INLINE void AddRests(V rest, V x, int v) {
    const V step = hn::MulSub(rest, x, lost[v]);
    const V sum = hn::Add(rests[v], step);
    lost[v] = hn::Sub(hn::Sub(sum, rests[v]), step);
    rests[v] = sum;
  }
  HWY_INLINE float Total() const {
    V sum = of[0], rest = rests[0];
    for (int i = 1; i < 2 * kVectors; ++i) sum = hn::Add(sum, of[i]);
    for (int i = 1; i < kVectors; ++i) rest = hn::Add(rest, rests[i]);
    return hn::GetLane(hn::SumOfLanes(D(), hn::Add(sum, rest)));
  }
  V of[2 * kVectors];
  V rests[kVectors], lost[kVectors];
};

// Of words with eight codes of 4 bits each: in `low` the lower halves of bytes times x of the first
// group, in `high` the upper ones times that of the second, both less their middle.
HWY_INLINE void MultiplyHalves(W w, const float* x, int v, V& low, V& high) {
  const float* y = x + kGroupFloats;
  low = hn::MulAdd(ToFloats(And(w, 0x0000000fu)), LoadX(x, 0, v), LoadX(x, 4, v));
  high = hn::MulAdd(ToFloats(And(w, 0x000000f0u)), LoadX(y, 0, v), LoadX(y, 4, v));
  low = hn::MulAdd(ToFloats(And(w, 0x00000f00u)), LoadX(x, 1, v), low);
  high = hn::MulAdd(ToFloats(And(w, 0x0000f000u)), LoadX(y, 1, v), high);
  low = hn::MulAdd(ToFloats(And(w, 0x000f0000u)), LoadX(x, 2, v), low);
  high = hn::MulAdd(ToFloats(And(w, 0x00f00000u)), LoadX(y, 2, v), high);
  low = hn::MulAdd(ToFloats(And(w, 0x0f000000u)), LoadX(x, 3, v), low);
  high = hn::MulAdd(ToFloats(hn::ShiftRight<28>(w)), LoadX(y, 3, v), high);  // a sign otherwise
}

// A type: kElements of it in kBytes are added to the sums of a row with x at their first group. The
// layouts are ggml's, as in src/io/dequantize.cc.
template <int kBlock, int kHead>
struct Blocks4 {
  static constexpr int64_t kElements = kPair, kBytes = int64_t{2} * kBlock;
  static HWY_INLINE void Add(const uint8_t* p, const float* x, const float*, Sums& sums) {
    for (int v = 0; v < kVectors; ++v) {
      V low, high;
      const uint8_t* q = p + kBlock;
      MultiplyHalves(LoadHalves(p + kHead, q + kHead, v), x, v, low, high);
      const V scale = SpreadHalves(p, q, v);
      sums.of[2 * v] = hn::MulAdd(low, scale, sums.of[2 * v]);
      sums.of[2 * v + 1] = hn::MulAdd(high, scale, sums.of[2 * v + 1]);
      if (kHead == 4) {  // the min, and the middle times the scale; x has -8 times its sums
        const V rest =
            hn::NegMulAdd(SpreadHalves(p + 2, q + 2, v), hn::Set(D(), 0.125f), hn::Neg(scale));
        const V of_x = hn::Add(LoadX(x, 4, v), LoadX(x + kGroupFloats, 4, v));
        sums.AddRests(rest, of_x, v);
      }
    }
  }
};
using Q4_0 = Blocks4<18, 2>;
using Q4_1 = Blocks4<20, 4>;

// Of words with four codes of 8 bits each, less their middle.
HWY_INLINE V MultiplyBytesOf(W w, const float* x, int v) {
  V sum = hn::MulAdd(ToFloats(And(w, 0x000000ffu)), LoadX(x, 0, v), LoadX(x, 4, v));
  sum = hn::MulAdd(ToFloats(And(w, 0x0000ff00u)), LoadX(x, 1, v), sum);
  sum = hn::MulAdd(ToFloats(And(w, 0x00ff0000u)), LoadX(x, 2, v), sum);
  return hn::MulAdd(ToFloats(And(w, 0xff000000u)), LoadX(x, 3, v), sum);
}

// The scales and mins of Q4_K and Q5_K. What codes less `middle` lack is added to the sums.
struct ScalesOf256 {
  HWY_INLINE ScalesOf256(const uint8_t* p, float middle, const float* sums_of_x, Sums& sums) {
    HWY_ALIGN float mins[8];  // negated
    UnpackPairs(p, scales, mins);
    for (int v = 0; v < kVectors; ++v) {
      const V rest = hn::MulAdd(hn::Load(D(), scales + v * kLanes), hn::Set(D(), middle),
                                hn::Load(D(), mins + v * kLanes));
      sums.AddRests(rest, hn::LoadU(D(), sums_of_x + v * kLanes), v);
    }
    // From memory each takes a load alone; compilers would rather permute the vector.
    asm("" : : "r"(scales) : "memory");
  }
  HWY_ALIGN float scales[8];
};

struct Q4_K {
  static constexpr int64_t kElements = 256, kBytes = 144;
  static HWY_INLINE void Add(const uint8_t* p, const float* x, const float* sums_of_x, Sums& sums) {
    const ScalesOf256 of(p, 8, sums_of_x, sums);
    for (int pair = 0; pair < 4; ++pair, x += 2 * kGroupFloats) {
      const V low_scale = hn::Set(D(), of.scales[2 * pair]);
      const V high_scale = hn::Set(D(), of.scales[2 * pair + 1]);
      for (int v = 0; v < kVectors; ++v) {
        V low, high;
        MultiplyHalves(LoadWords(p + 16 + 32 * pair, v), x, v, low, high);
        sums.of[2 * v] = hn::MulAdd(low, low_scale, sums.of[2 * v]);
        sums.of[2 * v + 1] = hn::MulAdd(high, high_scale, sums.of[2 * v + 1]);
      }
    }
  }
};

struct Q5_K {
  static constexpr int64_t kElements = 256, kBytes = 176;
  static HWY_INLINE void Add(const uint8_t* p, const float* x, const float* sums_of_x, Sums& sums) {
    const ScalesOf256 of(p, 16, sums_of_x, sums);
    for (int v = 0; v < kVectors; ++v) {
      W fifths = LoadWords(p + 16, v);  // a bit of each byte for a group
      const float* group = x;
      for (int pair = 0; pair < 4; ++pair, group += 2 * kGroupFloats) {
        const W w = LoadWords(p + 48 + 32 * pair, v);
        const W low = hn::Or(And(w, 0x0f0f0f0fu), And(hn::ShiftLeft<4>(fifths), 0x10101010u));
        const W high = hn::Or(And(hn::ShiftRight<4>(w), 0x0f0f0f0fu),
                              And(hn::ShiftLeft<3>(fifths), 0x10101010u));
        fifths = hn::ShiftRight<2>(fifths);
        sums.of[2 * v] = hn::MulAdd(MultiplyBytesOf(low, group, v),
                                    hn::Set(D(), of.scales[2 * pair]), sums.of[2 * v]);
        sums.of[2 * v + 1] = hn::MulAdd(MultiplyBytesOf(high, group + kGroupFloats, v),
                                        hn::Set(D(), of.scales[2 * pair + 1]), sums.of[2 * v + 1]);
      }
    }
  }
};

// Vector v of scale 2 * quarter of eight for four words, and the next for four.
HWY_INLINE V SpreadTwo(const float* scales, int quarter, int v) {
  if constexpr (kLanes == 8) {
    HWY_ALIGN static constexpr int32_t kTwo[4][8] = {{0, 0, 0, 0, 1, 1, 1, 1},
                                                     {2, 2, 2, 2, 3, 3, 3, 3},
                                                     {4, 4, 4, 4, 5, 5, 5, 5},
                                                     {6, 6, 6, 6, 7, 7, 7, 7}};
    return hn::TableLookupLanes(hn::Load(D(), scales), hn::SetTableIndices(D(), kTwo[quarter]));
  } else {
    return hn::Set(D(), scales[2 * quarter + v * kLanes / 4]);
  }
}

struct Q6_K {
  static constexpr int64_t kElements = 256, kBytes = 210;
  static HWY_INLINE void Add(const uint8_t* p, const float* x, const float*, Sums& sums) {
    HWY_ALIGN float scales[16];
    MultiplyBytes<16, int8_t>(p + 192, Half(p + 208), scales);
    for (int half = 0; half < 2; ++half, x += 4 * kGroupFloats) {
      for (int v = 0; v < kVectors; ++v) {
        const W even = LoadWords(p + half * 64, v), odd = LoadWords(p + half * 64 + 32, v);
        const W two = LoadWords(p + 128 + half * 32, v);
        const auto add = [&](int quarter, W low, W high) HWY_ATTR {
          const W codes = hn::Or(And(low, 0x0f0f0f0fu), And(high, 0x30303030u));
          const V both = SpreadTwo(scales + half * 8, quarter, v);
          V& sum = sums.of[2 * v + quarter % 2];
          sum = hn::MulAdd(MultiplyBytesOf(codes, x + quarter * kGroupFloats, v), both, sum);
        };
        add(0, even, hn::ShiftLeft<4>(two));
        add(1, odd, hn::ShiftLeft<2>(two));
        add(2, hn::ShiftRight<4>(even), two);
        add(3, hn::ShiftRight<4>(odd), hn::ShiftRight<2>(two));
      }
    }
  }
};

template <class Type>
float DotRow(const uint8_t* row, int64_t n, const float* x) {
  Sums sums;
  const float* sums_of_x = x + Groups(n) * kGroupFloats;
  int64_t i = 0;
  for (; i + Type::kElements <= n; i += Type::kElements, row += Type::kBytes) {
    for (int64_t b = 0; b < Type::kBytes; b += 64) hwy::Prefetch(row + kAhead + b);
    Type::Add(row, x, sums_of_x, sums);
    x += Type::kElements / kGroup * kGroupFloats;
    sums_of_x += Type::kElements / kGroup;
  }
  if (i < n) {  // half a pair of blocks: what is behind the row may not be there
    uint8_t padded[Type::kBytes] = {};
    std::memcpy(padded, row, static_cast<std::size_t>(Type::kBytes / 2));
    Type::Add(padded, x, sums_of_x, sums);
  }
  return sums.Total();
}

// A row after the other: with two or three at a time from places that are far apart, as fixed_dots.cc
// has them, Q6_K was slower and the others no faster (Zen 3).
template <class Type>
void DotAll(const FixedRows& rows, int64_t n, const float* x, float* y) {
  const int64_t row_bytes = n * Type::kBytes / Type::kElements;
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t at = rows.order == nullptr ? rows.first + i : rows.order[rows.first + i];
    y[i] += DotRow<Type>(reinterpret_cast<const uint8_t*>(rows.data) + at * row_bytes, n, x);
  }
}

void Dot(WeightType type, const FixedRows& rows, int64_t n, const float* x, float* y) {
  switch (type) {
    case WeightType::kQ4_0:
      return DotAll<Q4_0>(rows, n, x, y);
    case WeightType::kQ4_1:
      return DotAll<Q4_1>(rows, n, x, y);
    case WeightType::kQ4_K:
      return DotAll<Q4_K>(rows, n, x, y);
    case WeightType::kQ5_K:
      return DotAll<Q5_K>(rows, n, x, y);
    default:
      return DotAll<Q6_K>(rows, n, x, y);
  }
}

// How codes lie in the words of a pair of groups.
struct Order {
  float inverse[2][4];  // of the power of two that codes of a group come with, by their byte
  int groups[4];        // of each 16 elements; the first of a group are its first four words
  float middle;         // of the codes
};
constexpr Order Bytes(float middle) {
  return {
      {{1, 0x1p-8f, 0x1p-16f, 0x1p-24f}, {1, 0x1p-8f, 0x1p-16f, 0x1p-24f}}, {0, 0, 1, 1}, middle};
}
constexpr Order kBytesOf5 = Bytes(16), kBytesOf6 = Bytes(32);
// First the lower halves of bytes, then the upper ones: in blocks of 64 elements, and of 32.
constexpr Order kHalvesOf64 = {
    {{1, 0x1p-8f, 0x1p-16f, 0x1p-24f}, {0x1p-4f, 0x1p-12f, 0x1p-20f, 1}}, {0, 0, 1, 1}, 8};
constexpr Order kHalvesOf32 = {
    {{1, 0x1p-8f, 0x1p-16f, 0x1p-24f}, {0x1p-4f, 0x1p-12f, 0x1p-20f, 1}}, {0, 1, 0, 1}, 8};

const Order& OrderOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_K:
      return kHalvesOf64;
    case WeightType::kQ5_K:
      return kBytesOf5;
    case WeightType::kQ6_K:
      return kBytesOf6;
    default:
      return kHalvesOf32;
  }
}

// Returns whether all of x can be written.
bool Write(WeightType type, const float* x, int64_t n, float* to) {
  const Order& order = OrderOf(type);
  const hn::CappedTag<float, 4> d;
  const hn::RebindToSigned<decltype(d)> di;
  float* sums = to + Groups(n) * kGroupFloats;
  auto most = hn::Zero(di);
  for (int64_t pair = 0; pair < n; pair += kPair, to += 2 * kGroupFloats, sums += 2) {
    HWY_ALIGN float padded[kPair] = {};
    const float* from = x + pair;
    if (pair + kPair > n) {
      from = padded;
      std::memcpy(padded, x + pair, static_cast<std::size_t>(n - pair) * sizeof(float));
    }
    sums[0] = sums[1] = 0;
    int filled[2] = {};
    for (int piece = 0; piece < 4; ++piece) {
      const int group = order.groups[piece];
      for (int64_t i = 0; i < 4; i += static_cast<int64_t>(hn::Lanes(d))) {
        hn::Vec<decltype(d)> v[4];
        hn::LoadInterleaved4(d, from + 16 * piece + 4 * i, v[0], v[1], v[2], v[3]);
        float* words = to + group * kGroupFloats + filled[group] + i;
        for (int part = 0; part < 4; ++part) {
          most = hn::Max(most, hn::BitCast(di, hn::Abs(v[part])));
          const auto scaled = hn::Mul(v[part], hn::Set(d, order.inverse[group][part]));
          hn::StoreU(scaled, d, words + part * kWords);
        }
        const auto sum = hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]));
        hn::StoreU(hn::Mul(sum, hn::Set(d, -order.middle)), d, words + 4 * kWords);
        sums[piece / 2] += hn::GetLane(hn::SumOfLanes(d, sum));
      }
      filled[group] += 4;
    }
  }
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(di, most));
  constexpr int32_t kSmall = (127 - 80) << 23, kLarge = (127 + 110) << 23;
  return bits == 0 || (bits < kLarge && bits >= kSmall);
}

bool Pay() { return HWY_MAX_BYTES == 32; }
int64_t Target() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal::words
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ropewalk::internal {
namespace words {
namespace {
HWY_EXPORT(Write);
HWY_EXPORT(Dot);
HWY_EXPORT(Pay);
HWY_EXPORT(Target);
}  // namespace
}  // namespace words

bool HasWordDots(WeightType type) {
  return type == WeightType::kQ4_0 || type == WeightType::kQ4_1 || type == WeightType::kQ4_K ||
         type == WeightType::kQ5_K || type == WeightType::kQ6_K;
}

bool WordDotsPay() {
  using namespace words;
  return HWY_DYNAMIC_DISPATCH(Pay)();
}

// Whole vectors, so that another row may lie behind.
int64_t WordBytes(int64_t n) {
  const int64_t floats = words::Groups(n) * (words::kGroupFloats + 1);
  return (floats * 4 + 63) / 64 * 64;
}

bool WriteWords(WeightType type, const float* x, int64_t n, std::byte* out) {
  using namespace words;
  return HWY_DYNAMIC_DISPATCH(Write)(type, x, n, reinterpret_cast<float*>(out));
}

void DotWords(WeightType type, const FixedRows& rows, int64_t n, const std::byte* written,
              float* y) {
  using namespace words;
  HWY_DYNAMIC_DISPATCH(Dot)(type, rows, n, reinterpret_cast<const float*>(written), y);
}

int64_t WordsTarget() {
  using namespace words;
  return HWY_DYNAMIC_DISPATCH(Target)();
}

}  // namespace ropewalk::internal
#endif  // HWY_ONCE
