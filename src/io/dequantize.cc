// The block layouts are ggml's (ggml-common.h); each struct below and in low_bit_blocks.h is one
// block as it lies in a file. Integer times scale is exact in float32 for every type (at most
// 11 + 8 + 6 bits with the signs, of which no type uses all), so each value is rounded at most once
// and fused multiply-add would change nothing.
#include "src/io/dequantize.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "ropewalk/base/dtype.h"
#include "ropewalk/base/error.h"
#include "src/io/bytes.h"
#include "src/io/four_bits.h"
#include "src/io/low_bit_blocks.h"

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
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t q[16];  // indices into kNonLinear
};
struct BlockQ2_K {
  uint8_t scales[16];  // of 16 elements each: scale in the low half, min in the high half
  uint8_t q[64];
  uint16_t d, dmin;
};
struct BlockQ3_K {
  uint8_t high[32];  // a set bit: the element is not lowered by 4
  uint8_t q[64];
  uint8_t scales[12];  // sixteen of 6 bits
  uint16_t d;
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
  uint8_t q[128];
  uint8_t high[64];
  int8_t scales[16];  // of 16 elements each
  uint16_t d;
};
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_high;   // eight of 2 bits
  uint8_t scales_low[4];  // eight of 4 bits
  uint8_t q[128];         // indices into kNonLinear, each 32 elements as in BlockIQ4_NL
};

struct BlockMXFP4 {
  uint8_t e;      // a power of two: E8M0 of the Open Compute Project's microscaling formats
  uint8_t q[16];  // E2M1, as in BlockQ4_0
};

// 32 elements of 4 bits: out[j] = value(j, its bits).
template <class F>
void Nibbles(const uint8_t* q, float* out, F&& value) {
  for (int j = 0; j < 16; ++j) {
    out[j] = value(j, q[j] & 15);
    out[j + 16] = value(j + 16, q[j] >> 4);
  }
}

void Decode(const BlockQ8_0& b, float* out) {
  const float d = Half(b.d);
  for (int j = 0; j < 32; ++j) out[j] = b.q[j] * d;
}

void Decode(const BlockQ4_0& b, float* out) {
  const float d = Half(b.d);
  Nibbles(b.q, out, [d](int, int bits) { return (bits - 8) * d; });
}

void Decode(const BlockQ4_1& b, float* out) {
  const float d = Half(b.d), m = Half(b.m);
  Nibbles(b.q, out, [d, m](int, int bits) { return bits * d + m; });
}

// 16 where the fifth bit of element j is set.
int FifthBit(uint32_t high, int j) { return static_cast<int>((high >> j) & 1u) << 4; }

void Decode(const BlockQ5_0& b, float* out) {
  const float d = Half(b.d);
  const uint32_t high = Load<uint32_t>(b.high);
  Nibbles(b.q, out, [&](int j, int bits) { return ((bits | FifthBit(high, j)) - 16) * d; });
}

void Decode(const BlockQ5_1& b, float* out) {
  const float d = Half(b.d), m = Half(b.m);
  const uint32_t high = Load<uint32_t>(b.high);
  Nibbles(b.q, out, [&](int j, int bits) { return (bits | FifthBit(high, j)) * d + m; });
}

void Decode(const BlockIQ4_NL& b, float* out) {
  const float d = Half(b.d);
  Nibbles(b.q, out, [d](int, int bits) { return d * kNonLinear[bits]; });
}

void Decode(const BlockIQ4_XS& b, float* out) {
  const float d = Half(b.d);
  for (int group = 0; group < 8; ++group) {
    const int low = (b.scales_low[group / 2] >> (group % 2 * 4)) & 15;
    const int high = (b.scales_high >> (group * 2)) & 3;
    const float scale = d * ((low | (high << 4)) - 32);
    Nibbles(b.q + group * 16, out + group * 32,
            [scale](int, int bits) { return scale * kNonLinear[bits]; });
  }
}

void Decode(const BlockMXFP4& b, float* out) {
  const float d = HalfE8M0(b.e);
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = d * kTwiceE2M1[i];
  Nibbles(b.q, out, [&](int, int bits) { return values[bits]; });
}

// 256 elements of 2 bits as 16 groups of 16: out = value(group, l, bits), where byte
// group / 8 * 32 + l of a plane of further bits belongs to the element.
template <class F>
void TwoBits(const uint8_t* q, float* out, F&& value) {
  for (int group = 0; group < 16; ++group) {
    const int shift = group % 8 / 2 * 2;
    const int part = group % 2 * 16;
    for (int l = part; l < part + 16; ++l) {
      *out++ = value(group, l, (q[group / 8 * 32 + l] >> shift) & 3);
    }
  }
}

void Decode(const BlockQ2_K& b, float* out) {
  const float d = Half(b.d), dmin = Half(b.dmin);
  TwoBits(b.q, out, [&](int group, int, int bits) {
    const int pair = b.scales[group];
    return d * (pair & 15) * bits - dmin * (pair >> 4);
  });
}

void Decode(const BlockQ3_K& b, float* out) {
  const float d = Half(b.d);
  float scales[16];
  for (int group = 0; group < 16; ++group) {
    const int low = (b.scales[group % 8] >> (group / 8 * 4)) & 15;
    const int high = (b.scales[8 + group % 4] >> (group / 4 * 2)) & 3;
    scales[group] = d * ((low | (high << 4)) - 32);
  }
  TwoBits(b.q, out, [&](int group, int l, int bits) {
    const int raised = (b.high[l] >> (group / 2)) & 1;
    return scales[group] * (bits - (raised != 0 ? 0 : 4));
  });
}

void Decode(const BlockQ6_K& b, float* out) {
  const float d = Half(b.d);
  // The two high bits lie like the elements of Q2_K; the four low ones in 64 bytes a half.
  TwoBits(b.high, out, [&](int group, int l, int high) {
    const int quarter = group % 8 / 2;
    const int low = (b.q[group / 8 * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4)) & 15;
    return d * b.scales[group] * ((low | (high << 4)) - 32);
  });
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

// Q4_K and Q5_K: 8 groups of 32, fifth(group, l) being the fifth bit.
template <class Block, class F>
void DecodeGroups(const Block& b, float* out, F&& fifth) {
  const float d = Half(b.d), dmin = Half(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin pair = PairOf(b.scales, group);
    const float scale = d * pair.scale, min = dmin * pair.min;
    const uint8_t* q = b.q + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      out[group * 32 + l] = scale * (((q[l] >> shift) & 15) | fifth(group, l)) - min;
    }
  }
}

void Decode(const BlockQ4_K& b, float* out) {
  DecodeGroups(b, out, [](int, int) { return 0; });
}
void Decode(const BlockQ5_K& b, float* out) {
  DecodeGroups(b, out, [&](int group, int l) { return ((b.high[l] >> group) & 1) << 4; });
}

void Decode(double x, float* out) { *out = static_cast<float>(x); }
void Decode(float x, float* out) { *out = x; }
void Decode(Float16 x, float* out) { *out = ToFloat(x); }
void Decode(BFloat16 x, float* out) { *out = ToFloat(x); }

template <class Block>
auto Decode(const Block& b, float* out) -> decltype(Unpack(b, std::declval<LowBitCodes&>())) {
  LowBitCodes unpacked;
  Unpack(b, unpacked);
  for (int i = 0; i < 256; ++i) {
    out[i] = static_cast<float>(unpacked.codes[i]) * unpacked.scales[i / 16];
  }
}

template <class Block, int kElements>
void DecodeAll(const std::byte* in, const std::byte*, int64_t blocks, float* out) {
  for (int64_t i = 0; i < blocks; ++i) {
    Decode(Load<Block>(in + i * static_cast<int64_t>(sizeof(Block))), out + i * kElements);
  }
}

// The elements of BlockMXFP4 two by two, as Hugging Face has them, which keeps the sign of zero.
void DecodePairs(const std::byte* in, const std::byte* scales, int64_t blocks, float* out) {
  for (int64_t i = 0; i < blocks; ++i) {
    float values[16];
    const float d = HalfE8M0(static_cast<uint8_t>(scales[i]));
    for (int k = 0; k < 16; ++k) values[k] = d * kTwiceE2M1[k];
    values[8] = -0.0f;
    for (int j = 0; j < 16; ++j) {
      const auto two = static_cast<uint8_t>(in[i * 16 + j]);
      *out++ = values[two & 15];
      *out++ = values[two >> 4];
    }
  }
}

struct TypeRow {
  WeightType type;
  WeightTypeInfo info;
  void (*decode)(const std::byte* in, const std::byte* scales, int64_t blocks, float* out);
};
template <class Block, int kElements>
constexpr TypeRow Row(WeightType type, const char* name, uint32_t ggml_id) {
  return {type,
          {name, kElements, static_cast<int>(sizeof(Block)), ggml_id},
          &DecodeAll<Block, kElements>};
}

// The one list of types, in the order of the enumeration; the numbers are those of ggml_type.
constexpr TypeRow kTypes[] = {
    Row<double, 1>(WeightType::kF64, "F64", 28),
    Row<float, 1>(WeightType::kF32, "F32", 0),
    Row<Float16, 1>(WeightType::kF16, "F16", 1),
    Row<BFloat16, 1>(WeightType::kBF16, "BF16", 30),
    Row<BlockQ8_0, 32>(WeightType::kQ8_0, "Q8_0", 8),
    Row<BlockQ4_0, 32>(WeightType::kQ4_0, "Q4_0", 2),
    Row<BlockQ4_1, 32>(WeightType::kQ4_1, "Q4_1", 3),
    Row<BlockQ5_0, 32>(WeightType::kQ5_0, "Q5_0", 6),
    Row<BlockQ5_1, 32>(WeightType::kQ5_1, "Q5_1", 7),
    Row<BlockIQ4_NL, 32>(WeightType::kIQ4_NL, "IQ4_NL", 20),
    Row<BlockQ2_K, 256>(WeightType::kQ2_K, "Q2_K", 10),
    Row<BlockQ3_K, 256>(WeightType::kQ3_K, "Q3_K", 11),
    Row<BlockQ4_K, 256>(WeightType::kQ4_K, "Q4_K", 12),
    Row<BlockQ5_K, 256>(WeightType::kQ5_K, "Q5_K", 13),
    Row<BlockQ6_K, 256>(WeightType::kQ6_K, "Q6_K", 14),
    Row<BlockIQ4_XS, 256>(WeightType::kIQ4_XS, "IQ4_XS", 23),
    Row<BlockIQ2_XXS, 256>(WeightType::kIQ2_XXS, "IQ2_XXS", 16),
    Row<BlockIQ2_XS, 256>(WeightType::kIQ2_XS, "IQ2_XS", 17),
    Row<BlockIQ2_S, 256>(WeightType::kIQ2_S, "IQ2_S", 22),
    Row<BlockIQ3_XXS, 256>(WeightType::kIQ3_XXS, "IQ3_XXS", 18),
    Row<BlockIQ3_S, 256>(WeightType::kIQ3_S, "IQ3_S", 21),
    Row<BlockIQ1_S, 256>(WeightType::kIQ1_S, "IQ1_S", 19),
    Row<BlockIQ1_M, 256>(WeightType::kIQ1_M, "IQ1_M", 29),
    Row<BlockTQ1_0, 256>(WeightType::kTQ1_0, "TQ1_0", 34),
    Row<BlockTQ2_0, 256>(WeightType::kTQ2_0, "TQ2_0", 35),
    Row<BlockMXFP4, 32>(WeightType::kMXFP4, "MXFP4", 39),
    {WeightType::kMXFP4Pair, {"MXFP4 pair", 32, 16, std::nullopt, 1}, &DecodePairs},
};
constexpr bool InOrder() {
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    if (static_cast<std::size_t>(kTypes[i].type) != i) return false;
  }
  return std::size(kTypes) == static_cast<std::size_t>(WeightType::kMXFP4Pair) + 1;
}
static_assert(InOrder());
// The sizes that ggml-common.h asserts.
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66);

const TypeRow& Row(WeightType type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

void Dequantize(WeightType type, const std::byte* in, int64_t blocks, float* out,
                const std::byte* scales) {
  if (blocks <= 0) return;
  const TypeRow& row = Row(type);
  if (row.info.scale_bytes != 0 && scales == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("Dequantize: blocks of ") + row.info.name + " without their scales");
  }
  row.decode(in, scales, blocks, out);
}

std::optional<WeightType> FindGgmlType(uint32_t ggml_id) {
  for (const TypeRow& row : kTypes) {
    if (row.info.ggml_id == ggml_id) return row.type;
  }
  return std::nullopt;
}

std::string GgmlTypeNames() {
  std::string names;
  for (const TypeRow& row : kTypes) {
    if (!row.info.ggml_id) continue;
    if (!names.empty()) names += ", ";
    names += row.info.name;
  }
  return names;
}

}  // namespace ropewalk::internal

namespace ropewalk {

const WeightTypeInfo& Info(WeightType type) { return internal::Row(type).info; }

}  // namespace ropewalk
