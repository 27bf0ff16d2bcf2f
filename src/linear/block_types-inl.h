// The types of weights whose rows are decoded, or multiplied, in registers. Compiled once per SIMD
// target.
#if defined(ROPEWALK_LINEAR_BLOCK_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_LINEAR_BLOCK_TYPES_INL_H_
#undef ROPEWALK_LINEAR_BLOCK_TYPES_INL_H_
#else
#define ROPEWALK_LINEAR_BLOCK_TYPES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "src/io/four_bits.h"
#include "src/linear/block_scales-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// Blocks have parts of 16 elements with a scale of their own.
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
using Integers = hn::Vec<hn::RebindToSigned<D>>;

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

HWY_INLINE Integers LoadBytes(const uint8_t* p) {
  const hn::Rebind<uint8_t, D> d8;
  return hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(d8, p));
}
HWY_INLINE Integers Lower4(Integers q) { return hn::And(q, hn::Set(hn::RebindToSigned<D>(), 15)); }
HWY_INLINE V ToFloats(Integers q) { return hn::ConvertTo(D(), q); }
HWY_INLINE Integers Minus(Integers q, int32_t n) {
  return hn::Sub(q, hn::Set(hn::RebindToSigned<D>(), n));
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
    UnpackPairs(block, scales, mins);
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
};

struct Q5_K {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 176; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    HWY_ALIGN float scales[8];
    HWY_ALIGN float mins[8];
    UnpackPairs(block, scales, mins);
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
#if ROPEWALK_SCALAR_F16
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

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
