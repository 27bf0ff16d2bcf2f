// What multiplies the codes of quantized blocks: halves, and bytes times a half. Compiled once per SIMD
// target.
#if defined(ROPEWALK_LINEAR_BLOCK_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_LINEAR_BLOCK_SCALES_INL_H_
#undef ROPEWALK_LINEAR_BLOCK_SCALES_INL_H_
#else
#define ROPEWALK_LINEAR_BLOCK_SCALES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "ropewalk/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef ROPEWALK_SCALAR_F16  // of the target before
// Highway 1.0.3 emulates f16 conversion where there is no instruction, and wrongly there.
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || \
    HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
#define ROPEWALK_SCALAR_F16 1
#else
#define ROPEWALK_SCALAR_F16 0
#endif

HWY_INLINE float Half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
#if ROPEWALK_SCALAR_F16
  return ToFloat(Float16{bits});
#else
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  return hn::GetLane(hn::PromoteTo(d, hn::BitCast(dh, hn::Set(d16, bits))));
#endif
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

// The scales and mins of Q4_K and Q5_K, mins negated: eight pairs of 6 bits in 12 bytes, four bytes at a
// time.
HWY_INLINE void UnpackPairs(const uint8_t* block, float* scales, float* mins) {
  uint32_t words[3];
  std::memcpy(words, block + 4, sizeof(words));
  const uint32_t s[2] = {words[0] & 0x3f3f3f3fu,
                         (words[2] & 0x0f0f0f0fu) | ((words[0] >> 6 & 0x03030303u) << 4)};
  const uint32_t m[2] = {words[1] & 0x3f3f3f3fu,
                         (words[2] >> 4 & 0x0f0f0f0fu) | ((words[1] >> 6 & 0x03030303u) << 4)};
  MultiplyBytes<8, uint8_t>(s, Half(block), scales);
  MultiplyBytes<8, uint8_t>(m, -Half(block + 2), mins);
}

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
