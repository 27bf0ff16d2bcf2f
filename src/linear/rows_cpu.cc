#include "src/linear/rows_cpu.h"

#include <cstring>

#include "ropewalk/base/dtype.h"
#include "src/io/dequantize.h"
#include "src/io/four_bits.h"
#include "src/linear/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/linear/rows_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Blocks have parts of 16 elements with a scale of their own.
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
using Integers = hn::Vec<hn::RebindToSigned<D>>;

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

#undef ROPEWALK_ROWS_SCALAR_F16  // of the target before
// Highway 1.0.3 emulates f16 conversion where there is no instruction, and wrongly there.
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || \
    HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
#define ROPEWALK_ROWS_SCALAR_F16 1
#else
#define ROPEWALK_ROWS_SCALAR_F16 0
#endif

HWY_INLINE float Half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
#if ROPEWALK_ROWS_SCALAR_F16
  return ToFloat(Float16{bits});
#else
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  return hn::GetLane(hn::PromoteTo(d, hn::BitCast(dh, hn::Set(d16, bits))));
#endif
}

HWY_INLINE Integers LoadBytes(const uint8_t* p) {
  const hn::Rebind<uint8_t, D> d8;
  return hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(d8, p));
}
HWY_INLINE Integers Lower4(Integers q) { return hn::And(q, hn::Set(hn::RebindToSigned<D>(), 15)); }
HWY_INLINE V ToFloats(Integers q) { return hn::ConvertTo(D(), q); }
HWY_INLINE Integers Minus(Integers q, int32_t n) {
  return hn::Sub(q, hn::Set(hn::RebindToSigned<D>(), n));
}

// out[i] = factor * bytes[i]
template <std::size_t kCount, class Byte>
HWY_INLINE void MultiplyBytes(const void* bytes, float factor, float* out) {
  Byte loaded[kCount];
  std::memcpy(loaded, bytes, kCount);
  const hn::CappedTag<float, 8> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<Byte, decltype(d)> d8;
  const auto f = hn::Set(d, factor);
  for (std::size_t i = 0; i < kCount; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, loaded + i))), f), d,
               out + i);
  }
}

// 16 where bit first + lane of `bits` is set.
HWY_INLINE Integers FifthBits(uint32_t bits, int64_t first) {
  const hn::RebindToUnsigned<D> du;
  const auto at = hn::Iota(du, static_cast<uint32_t>(first));
  const auto fifth = hn::ShiftLeft<4>(hn::Shr(hn::Set(du, bits), at));
  return hn::BitCast(hn::RebindToSigned<D>(), hn::And(fifth, hn::Set(du, 16u)));
}

// out[j] = table[lower half of q[j]], out[j + 16] = table[upper half], for 16 bytes.
HWY_INLINE void LookUp(const int8_t* table, const uint8_t* q, int8_t* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int j = 0; j < 16; ++j) {
    out[j] = table[q[j] & 15];
    out[j + 16] = table[q[j] >> 4];
  }
#else
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<int8_t, 16> di8;
  const hn::FixedTag<uint16_t, 8> d16;
  const auto codes = hn::LoadU(di8, table);
  const auto bits = hn::LoadU(d8, q);
  const auto upper = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bits)));
  const auto four = hn::Set(d8, uint8_t{15});
  hn::StoreU(hn::TableLookupBytes(codes, hn::BitCast(di8, hn::And(bits, four))), di8, out);
  hn::StoreU(hn::TableLookupBytes(codes, hn::BitCast(di8, hn::And(upper, four))), di8, out + 16);
#endif
}

// What 4 bits stand for. Where a vector has 16 elements it is a table of all, and a value takes one
// permutation, not a conversion and a multiplication.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
struct Values {
  HWY_INLINE V operator()(Integers bits) const {
    return hn::TableLookupLanes(table, hn::IndicesFromVec(D(), bits));
  }
  V table;
};
// bits * scale + offset
HWY_INLINE Values Scaled(float scale, float offset) {
  return {hn::MulAdd(hn::Iota(D(), 0.0f), hn::Set(D(), scale), hn::Set(D(), offset))};
}
// (bits - 8) * scale
HWY_INLINE Values Centered(float scale) {
  return {hn::Mul(hn::Iota(D(), -8.0f), hn::Set(D(), scale))};
}
#else
struct ScaledValues {
  HWY_INLINE V operator()(Integers bits) const { return hn::MulAdd(ToFloats(bits), scale, offset); }
  V scale, offset;
};
struct CenteredValues {
  HWY_INLINE V operator()(Integers bits) const { return hn::Mul(ToFloats(Minus(bits, 8)), scale); }
  V scale;
};
HWY_INLINE ScaledValues Scaled(float scale, float offset) {
  return {hn::Set(D(), scale), hn::Set(D(), offset)};
}
HWY_INLINE CenteredValues Centered(float scale) { return {hn::Set(D(), scale)}; }
#endif

// f for 32 elements from `first` on, whose codes are bytes.
template <class F>
HWY_INLINE void VisitCodes(const int8_t* codes, float scale, int64_t first, F f) {
  const auto d = hn::Set(D(), scale);
  const auto at = [&](int64_t i) HWY_ATTR {
    const auto q = hn::LoadU(hn::Rebind<int8_t, D>(), codes + i);
    return hn::Mul(ToFloats(hn::PromoteTo(hn::RebindToSigned<D>(), q)), d);
  };
  for (int64_t i = 0; i < 32; i += 2 * Lanes()) {
    f(first + i, at(i), first + i + Lanes(), at(i + Lanes()));
  }
}

// A type: Visit calls f(i, v, j, w) for the elements of one block, where v are those from i on and
// w those from j on, until each was there once. The layouts are ggml's, as in src/io/dequantize.cc,
// where it says why fused multiply-add changes no bit; tests hold the two against each other.
struct Q8_0 {
  static int64_t Elements() { return 32; }
  static int64_t Bytes() { return 34; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    VisitCodes(reinterpret_cast<const int8_t*>(block + 2), Half(block), 0, f);
  }
};

// 32 elements of 4 bits: those of lower halves, then those of upper ones.
template <class Of, class F>
HWY_INLINE void VisitHalves(const uint8_t* q, Of values, F f) {
  for (int64_t i = 0; i < 16; i += Lanes()) {
    const auto bits = LoadBytes(q + i);
    f(i, values(Lower4(bits)), i + 16, values(hn::ShiftRight<4>(bits)));
  }
}

struct Q4_0 {
  static int64_t Elements() { return 32; }
  static int64_t Bytes() { return 18; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    VisitHalves(block + 2, Centered(Half(block)), f);
  }
};

struct Q4_1 {
  static int64_t Elements() { return 32; }
  static int64_t Bytes() { return 20; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    VisitHalves(block + 4, Scaled(Half(block), Half(block + 2)), f);
  }
};

// The fifth bits of 32 elements of 4 bits lie in the four bytes in front of these.
HWY_INLINE uint32_t LoadFifths(const uint8_t* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

struct Q5_0 {
  static int64_t Elements() { return 32; }
  static int64_t Bytes() { return 22; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    const auto d = hn::Set(D(), Half(block));
    const uint32_t high = LoadFifths(block + 2);
    for (int64_t i = 0; i < 16; i += Lanes()) {
      const auto bits = LoadBytes(block + 6 + i);
      const auto low = hn::Or(Lower4(bits), FifthBits(high, i));
      const auto upper = hn::Or(hn::ShiftRight<4>(bits), FifthBits(high, i + 16));
      f(i, hn::Mul(ToFloats(Minus(low, 16)), d), i + 16, hn::Mul(ToFloats(Minus(upper, 16)), d));
    }
  }
};

struct Q5_1 {
  static int64_t Elements() { return 32; }
  static int64_t Bytes() { return 24; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    const auto d = hn::Set(D(), Half(block)), m = hn::Set(D(), Half(block + 2));
    const uint32_t high = LoadFifths(block + 4);
    for (int64_t i = 0; i < 16; i += Lanes()) {
      const auto bits = LoadBytes(block + 8 + i);
      const auto low = hn::Or(Lower4(bits), FifthBits(high, i));
      const auto upper = hn::Or(hn::ShiftRight<4>(bits), FifthBits(high, i + 16));
      f(i, hn::MulAdd(ToFloats(low), d, m), i + 16, hn::MulAdd(ToFloats(upper), d, m));
    }
  }
};

struct IQ4_NL {
  static int64_t Elements() { return 32; }
  static int64_t Bytes() { return 18; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    HWY_ALIGN int8_t codes[32];
    LookUp(kNonLinear, block + 2, codes);
    VisitCodes(codes, Half(block), 0, f);
  }
};

struct IQ4_XS {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 136; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    HWY_ALIGN int8_t codes[32];
    const float d = Half(block);
    for (int64_t group = 0; group < 8; ++group) {
      const int low = (block[4 + group / 2] >> (group % 2 * 4)) & 15;
      const int high = (block[2 + group / 4] >> (group % 4 * 2)) & 3;
      LookUp(kNonLinear, block + 8 + group * 16, codes);
      VisitCodes(codes, d * static_cast<float>((low | high << 4) - 32), group * 32, f);
    }
  }
};

struct MXFP4 {
  static int64_t Elements() { return 32; }
  static int64_t Bytes() { return 17; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    HWY_ALIGN int8_t codes[32];
    LookUp(kTwiceE2M1, block + 1, codes);
    VisitCodes(codes, HalfE8M0(block[0]), 0, f);
  }
};

// 256 elements of two bits, 32 bytes for 128 of them: value(bits, number of their 16 elements, what
// further(half, first byte) gives for their bytes, shifted by as many as 32 elements went before).
template <class Further, class Value, class F>
HWY_INLINE void VisitTwoBits(const uint8_t* q, Further further, Value value, F f) {
  const auto three = hn::Set(hn::RebindToSigned<D>(), 3);
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t i = 0; i < 32; i += Lanes()) {
      const auto four = LoadBytes(q + half * 32 + i), more = further(half, i);
      const auto at = [&](Integers bits, Integers with, int64_t quarter) HWY_ATTR {
        return value(hn::And(bits, three), half * 8 + quarter * 2 + i / 16, with);
      };
      const int64_t first = half * 128 + i;
      f(first, at(four, more, 0), first + 32,
        at(hn::ShiftRight<2>(four), hn::ShiftRight<1>(more), 1));
      f(first + 64, at(hn::ShiftRight<4>(four), hn::ShiftRight<2>(more), 2), first + 96,
        at(hn::ShiftRight<6>(four), hn::ShiftRight<3>(more), 3));
    }
  }
}

struct Q2_K {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 84; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    uint64_t pairs[2], lower[2], upper[2];  // bytes of a scale and a min
    std::memcpy(pairs, block, sizeof(pairs));
    for (int i = 0; i < 2; ++i) {
      lower[i] = pairs[i] & 0x0f0f0f0f0f0f0f0fu;
      upper[i] = pairs[i] >> 4 & 0x0f0f0f0f0f0f0f0fu;
    }
    HWY_ALIGN float scales[16];
    HWY_ALIGN float mins[16];
    MultiplyBytes<16, uint8_t>(lower, Half(block + 80), scales);
    MultiplyBytes<16, uint8_t>(upper, -Half(block + 82), mins);
    const auto nothing = [](int64_t, int64_t)
                             HWY_ATTR { return hn::Zero(hn::RebindToSigned<D>()); };
    const auto value = [&](Integers bits, int64_t group, Integers) HWY_ATTR {
      return hn::MulAdd(ToFloats(bits), hn::Set(D(), scales[group]), hn::Set(D(), mins[group]));
    };
    VisitTwoBits(block + 16, nothing, value, f);
  }
};

struct Q3_K {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 110; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    // Sixteen of 6 bits in 12 bytes, four bytes at a time; less 32 they are signed bytes.
    uint32_t words[3], sixes[4];
    std::memcpy(words, block + 96, sizeof(words));
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = words[i % 2] >> (i / 2 * 4) & 0x0f0f0f0fu;
      const uint32_t six = (low | (words[2] >> (2 * i) & 0x03030303u) << 4) ^ 0x20202020u;
      const uint32_t sign = six & 0x20202020u;
      sixes[i] = six | sign << 1 | sign << 2;
    }
    HWY_ALIGN float scales[16];
    MultiplyBytes<16, int8_t>(sixes, Half(block + 108), scales);
    const auto thirds = [&](int64_t half, int64_t i) HWY_ATTR {
      return hn::ShiftRightSame(hn::ShiftLeft<2>(LoadBytes(block + i)), static_cast<int>(4 * half));
    };
    const auto value = [&](Integers bits, int64_t group, Integers third) HWY_ATTR {
      const auto raised = hn::And(third, hn::Set(hn::RebindToSigned<D>(), 4));
      return hn::Mul(ToFloats(Minus(hn::Or(bits, raised), 4)), hn::Set(D(), scales[group]));
    };
    VisitTwoBits(block + 32, thirds, value, f);
  }
};

struct Q4_K {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 144; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    HWY_ALIGN float scales[8];
    HWY_ALIGN float mins[8];
    Unpack(block, scales, mins);
    for (int64_t pair = 0; pair < 4; ++pair) {  // 32 elements in low halves, 32 in high ones
      const uint8_t* q = block + 16 + pair * 32;
      const auto low = Scaled(scales[2 * pair], mins[2 * pair]);
      const auto high = Scaled(scales[2 * pair + 1], mins[2 * pair + 1]);
      for (int64_t i = 0; i < 32; i += Lanes()) {
        const auto bits = LoadBytes(q + i);
        f(pair * 64 + i, low(Lower4(bits)), pair * 64 + 32 + i, high(hn::ShiftRight<4>(bits)));
      }
    }
  }
  // Eight pairs of 6 bits in 12 bytes, four bytes at a time; the second of each negated.
  static HWY_INLINE void Unpack(const uint8_t* block, float* scales, float* mins) {
    uint32_t words[3];
    std::memcpy(words, block + 4, sizeof(words));
    const uint32_t s[2] = {words[0] & 0x3f3f3f3fu,
                           (words[2] & 0x0f0f0f0fu) | ((words[0] >> 6 & 0x03030303u) << 4)};
    const uint32_t m[2] = {words[1] & 0x3f3f3f3fu,
                           (words[2] >> 4 & 0x0f0f0f0fu) | ((words[1] >> 6 & 0x03030303u) << 4)};
    MultiplyBytes<8, uint8_t>(s, Half(block), scales);
    MultiplyBytes<8, uint8_t>(m, -Half(block + 2), mins);
  }
};

struct Q5_K {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 176; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    HWY_ALIGN float scales[8];
    HWY_ALIGN float mins[8];
    Q4_K::Unpack(block, scales, mins);
    for (int64_t pair = 0; pair < 4; ++pair) {
      const uint8_t* q = block + 48 + pair * 32;
      const auto value = [&](Integers four, Integers fifths, int64_t group) HWY_ATTR {
        const auto bits = hn::Or(four, hn::And(fifths, hn::Set(hn::RebindToSigned<D>(), 16)));
        return hn::MulAdd(ToFloats(bits), hn::Set(D(), scales[group]), hn::Set(D(), mins[group]));
      };
      for (int64_t i = 0; i < 32; i += Lanes()) {
        const auto bits = LoadBytes(q + i);
        const auto fifths = hn::ShiftRightSame(hn::ShiftLeft<4>(LoadBytes(block + 16 + i)),
                                               static_cast<int>(2 * pair));
        f(pair * 64 + i, value(Lower4(bits), fifths, 2 * pair), pair * 64 + 32 + i,
          value(hn::ShiftRight<4>(bits), hn::ShiftRight<1>(fifths), 2 * pair + 1));
      }
    }
  }
};

struct Q6_K {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 210; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    HWY_ALIGN float scales[16];
    MultiplyBytes<16, int8_t>(block + 192, Half(block + 208), scales);
    // Six bits are put together in bytes, of which a vector is a quarter as wide.
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<int8_t, D> di8;
    const auto low4 = hn::Set(d8, uint8_t{15}), high2 = hn::Set(d8, uint8_t{0x30});
    const auto middle = hn::Set(di8, int8_t{32});
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t i = 0; i < 32; i += Lanes()) {
        const auto even = hn::LoadU(d8, block + half * 64 + i);
        const auto odd = hn::LoadU(d8, block + half * 64 + 32 + i);
        const auto high = hn::LoadU(d8, block + 128 + half * 32 + i);
        const float* scale = scales + half * 8 + i / 16;
        const auto value = [&](hn::Vec<decltype(d8)> low, hn::Vec<decltype(d8)> two,
                               int quarter) HWY_ATTR {
          const auto q = hn::BitCast(di8, hn::Or(low, hn::And(two, high2)));
          const auto wide = hn::PromoteTo(hn::RebindToSigned<D>(), hn::Sub(q, middle));
          return hn::Mul(ToFloats(wide), hn::Set(D(), scale[2 * quarter]));
        };
        const int64_t at = half * 128 + i;
        f(at, value(hn::And(even, low4), hn::ShiftLeft<4>(high), 0), at + 32,
          value(hn::And(odd, low4), hn::ShiftLeft<2>(high), 1));
        f(at + 64, value(hn::ShiftRight<4>(even), high, 2), at + 96,
          value(hn::ShiftRight<4>(odd), hn::ShiftRight<2>(high), 3));
      }
    }
  }
};

// Of any alignment: vectors of bytes have none.
template <class To>
HWY_INLINE hn::Vec<To> LoadAny(To d, const uint8_t* p) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<To> value;
  std::memcpy(&value, p, sizeof(value));
  return hn::Set(d, value);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, To>(), p));
#endif
}

// Plain types: two vectors are a block.
struct F32 {
  static int64_t Elements() { return 2 * Lanes(); }
  static int64_t Bytes() { return 8 * Lanes(); }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    f(0, LoadAny(D(), block), Lanes(), LoadAny(D(), block + 4 * Lanes()));
  }
};

struct BF16 {
  static int64_t Elements() { return 2 * Lanes(); }
  static int64_t Bytes() { return 4 * Lanes(); }
  static HWY_INLINE V Load(const uint8_t* p) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(D(),
                       hn::ShiftLeft<16>(hn::PromoteTo(du, LoadAny(hn::Rebind<uint16_t, D>(), p))));
  }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    f(0, Load(block), Lanes(), Load(block + 2 * Lanes()));
  }
};

struct F16 {
  static int64_t Elements() { return 2 * Lanes(); }
  static int64_t Bytes() { return 4 * Lanes(); }
  static HWY_INLINE V Load(const uint8_t* p) {
#if ROPEWALK_ROWS_SCALAR_F16
    HWY_ALIGN float lanes[16];
    for (int64_t i = 0; i < Lanes(); ++i) lanes[i] = Half(p + 2 * i);
    return hn::Load(D(), lanes);
#else
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(D(), hn::BitCast(dh, LoadAny(hn::Rebind<uint16_t, D>(), p)));
#endif
  }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    f(0, Load(block), Lanes(), Load(block + 2 * Lanes()));
  }
};

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
