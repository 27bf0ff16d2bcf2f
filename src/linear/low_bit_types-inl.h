// The types of 1.6 to 3.4 bits, as those of block_types-inl.h. Compiled once per SIMD target.
#if defined(ROPEWALK_LINEAR_LOW_BIT_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_LINEAR_LOW_BIT_TYPES_INL_H_
#undef ROPEWALK_LINEAR_LOW_BIT_TYPES_INL_H_
#else
#define ROPEWALK_LINEAR_LOW_BIT_TYPES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "src/io/low_bit_blocks.h"
#include "src/linear/block_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

// All codes of a block first: points of a grid come 8 or 4 bytes at a time, and a vector that is read
// while its parts are still being written waits.
template <class Block>
struct LowBit {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return sizeof(Block); }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    Block b;
    std::memcpy(&b, block, sizeof(b));
    LowBitCodes unpacked;
    Unpack(b, unpacked);
    const auto at = [&](int64_t i) HWY_ATTR {
      const auto q = hn::LoadU(hn::Rebind<int8_t, D>(), unpacked.codes + i);
      return hn::Mul(ToFloats(hn::PromoteTo(hn::RebindToSigned<D>(), q)),
                     hn::Set(D(), unpacked.scales[i / 16]));
    };
    for (int64_t i = 0; i < Elements(); i += 2 * Lanes()) f(i, at(i), i + Lanes(), at(i + Lanes()));
  }
};

// Bits as in Q2_K.
struct TQ2_0 {
  static int64_t Elements() { return 256; }
  static int64_t Bytes() { return 66; }
  template <class F>
  static HWY_INLINE void Visit(const uint8_t* block, F f) {
    const auto d = hn::Set(D(), Half(block + 64));
    const auto nothing = [](int64_t, int64_t)
                             HWY_ATTR { return hn::Zero(hn::RebindToSigned<D>()); };
    const auto value = [&](Integers bits, int64_t, Integers)
                           HWY_ATTR { return hn::Mul(ToFloats(Minus(bits, 1)), d); };
    VisitTwoBits(block, nothing, value, f);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
