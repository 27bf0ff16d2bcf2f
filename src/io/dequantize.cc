// The block layouts are ggml's (ggml-common.h); each struct below is one block as it lies in a
// file. Integer times scale is exact in float32 for every type (at most 11 + 8 + 6 bits), so each
// value is rounded at most once and fused multiply-add would change nothing.
#include "src/io/dequantize.h"

#include "ropewalk/base/dtype.h"
#include "src/io/bytes.h"

namespace ropewalk::internal {
namespace {

float Half(uint16_t bits) { return ToFloat(Float16{bits}); }

struct BlockQ8_0 {
  uint16_t d;
  int8_t q[32];
};
struct BlockQ4_0 {
  uint16_t d;
  uint8_t q[16];  // element j in the low half of byte j, element j + 16 in the high half
};
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t q[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t high[4];  // bit j is the fifth bit of element j
  uint8_t q[16];
};
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t high[4];
  uint8_t q[16];
};
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];  // eight pairs of 6 bits: scale and min of 32 elements each
  uint8_t q[128];
};
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t q[128];
};
struct BlockQ6_K {
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];  // of 16 elements each
  uint16_t d;
};
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

void Decode(const BlockQ8_0& b, float* out) {
  const float d = Half(b.d);
  for (int j = 0; j < 32; ++j) out[j] = b.q[j] * d;
}

void Decode(const BlockQ4_0& b, float* out) {
  const float d = Half(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = ((b.q[j] & 15) - 8) * d;
    out[j + 16] = ((b.q[j] >> 4) - 8) * d;
  }
}

void Decode(const BlockQ4_1& b, float* out) {
  const float d = Half(b.d), m = Half(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = (b.q[j] & 15) * d + m;
    out[j + 16] = (b.q[j] >> 4) * d + m;
  }
}

int FiveBits(unsigned low, uint32_t high, int j) {
  return static_cast<int>(low | (((high >> j) & 1u) << 4));
}

void Decode(const BlockQ5_0& b, float* out) {
  const float d = Half(b.d);
  const uint32_t high = Load<uint32_t>(b.high);
  for (int j = 0; j < 16; ++j) {
    out[j] = (FiveBits(b.q[j] & 15u, high, j) - 16) * d;
    out[j + 16] = (FiveBits(b.q[j] >> 4, high, j + 16) - 16) * d;
  }
}

void Decode(const BlockQ5_1& b, float* out) {
  const float d = Half(b.d), m = Half(b.m);
  const uint32_t high = Load<uint32_t>(b.high);
  for (int j = 0; j < 16; ++j) {
    out[j] = FiveBits(b.q[j] & 15u, high, j) * d + m;
    out[j + 16] = FiveBits(b.q[j] >> 4, high, j + 16) * d + m;
  }
}

// The j-th (scale, min) pair of eight, packed in 12 bytes: the first four pairs in the low 6 bits
// of bytes 0..3 and 4..7, the others in the halves of bytes 8..11 and the top 2 bits of the first
// eight.
struct ScaleMin {
  int scale, min;
};
ScaleMin PairOf(const uint8_t* p, int j) {
  if (j < 4) return {p[j] & 63, p[j + 4] & 63};
  return {(p[j + 4] & 15) | ((p[j - 4] >> 6) << 4), (p[j + 4] >> 4) | ((p[j] >> 6) << 4)};
}

void Decode(const BlockQ4_K& b, float* out) {
  const float d = Half(b.d), dmin = Half(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin pair = PairOf(b.scales, group);
    const float scale = d * pair.scale, min = dmin * pair.min;
    const uint8_t* q = b.q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int l = 0; l < 32; ++l) out[group * 32 + l] = scale * ((q[l] >> shift) & 15) - min;
  }
}

void Decode(const BlockQ5_K& b, float* out) {
  const float d = Half(b.d), dmin = Half(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin pair = PairOf(b.scales, group);
    const float scale = d * pair.scale, min = dmin * pair.min;
    const uint8_t* q = b.q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int value = ((q[l] >> shift) & 15) | (((b.high[l] >> group) & 1) << 4);
      out[group * 32 + l] = scale * value - min;
    }
  }
}

void Decode(const BlockQ6_K& b, float* out) {
  const float d = Half(b.d);
  for (int half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8_t* low = b.low + half * 64 + quarter % 2 * 32;
      const uint8_t* high = b.high + half * 32;
      for (int l = 0; l < 32; ++l) {
        const int value =
            ((low[l] >> (quarter / 2 * 4)) & 15) | (((high[l] >> (quarter * 2)) & 3) << 4);
        const int part = l / 16;
        const float scale = d * b.scales[half * 8 + quarter * 2 + part];
        out[half * 128 + quarter * 32 + l] = scale * (value - 32);
      }
    }
  }
}

void Decode(double x, float* out) { *out = static_cast<float>(x); }
void Decode(Float16 x, float* out) { *out = ToFloat(x); }
void Decode(BFloat16 x, float* out) { *out = ToFloat(x); }

template <class Block, int kElements>
void DecodeAll(const std::byte* in, int64_t blocks, float* out) {
  for (int64_t i = 0; i < blocks; ++i) {
    Decode(Load<Block>(in + i * static_cast<int64_t>(sizeof(Block))), out + i * kElements);
  }
}

}  // namespace

void Dequantize(WeightType type, const std::byte* in, int64_t blocks, float* out) {
  if (blocks == 0) return;
  switch (type) {
    case WeightType::kF64:
      return DecodeAll<double, 1>(in, blocks, out);
    case WeightType::kF32:
      std::memcpy(out, in, static_cast<std::size_t>(blocks) * sizeof(float));
      return;
    case WeightType::kF16:
      return DecodeAll<Float16, 1>(in, blocks, out);
    case WeightType::kBF16:
      return DecodeAll<BFloat16, 1>(in, blocks, out);
    case WeightType::kQ8_0:
      return DecodeAll<BlockQ8_0, 32>(in, blocks, out);
    case WeightType::kQ4_0:
      return DecodeAll<BlockQ4_0, 32>(in, blocks, out);
    case WeightType::kQ4_1:
      return DecodeAll<BlockQ4_1, 32>(in, blocks, out);
    case WeightType::kQ5_0:
      return DecodeAll<BlockQ5_0, 32>(in, blocks, out);
    case WeightType::kQ5_1:
      return DecodeAll<BlockQ5_1, 32>(in, blocks, out);
    case WeightType::kQ4_K:
      return DecodeAll<BlockQ4_K, 256>(in, blocks, out);
    case WeightType::kQ5_K:
      return DecodeAll<BlockQ5_K, 256>(in, blocks, out);
    case WeightType::kQ6_K:
      return DecodeAll<BlockQ6_K, 256>(in, blocks, out);
  }
}

}  // namespace ropewalk::internal
