#include "src/attention/kv_head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ropewalk/base/dtype.h"
#include "src/attention/kernel/tile.h"

namespace ropewalk::internal {
namespace {

uint32_t Pair(float even, float odd) {
  return ToBFloat16(even).bits | uint32_t{ToBFloat16(odd).bits} << 16;
}

// The codes of a block of q8_0, of which the float16 scale is given: ggml's quantize_row_q8_0_ref.
uint16_t Quantize(const float* x, int8_t* codes) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < kQ8Block; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const float d = largest / 127;
  const uint16_t scale = ToFloat16(d).bits;
  if (!finite || !std::isfinite(ToFloat(Float16{scale}))) {
    std::fill_n(codes, kQ8Block, int8_t{1});
    return ToFloat16(std::numeric_limits<float>::quiet_NaN()).bits;
  }
  const float inverse = d != 0 ? 1 / d : 0;
  for (int64_t i = 0; i < kQ8Block; ++i) {
    // Beyond 127 only where 1 / d overflows: every element is then below what a half can hold.
    codes[i] = static_cast<int8_t>(std::clamp(std::round(x[i] * inverse), -127.0f, 127.0f));
  }
  return scale;
}

// For each panel of values: its first element, its width and how much of it the head has.
template <class F>
void ForPanels(const KvHead& head, const F& work) {
  for (int64_t i = 0; i < head.value_stride; i += head.panel_width) {
    const int64_t width = std::min(head.panel_width, head.value_stride - i);
    work(i, width, std::min(width, head.value_dim - i));
  }
}

void StoreF32(const KvHead& head, const KvRows& rows, int64_t block) {
  // Rows of one head are far apart, mostly by a power of 2 whose lines share a set of the cache: each
  // line is read once, whole.
  constexpr int64_t kLine = 16;
  float* keys = head.Keys<float>() + block * head.head_dim - block;
  for (int64_t line = 0; line < head.head_dim; line += kLine) {
    const int64_t end = std::min(head.head_dim, line + kLine);
    const float* from = rows.k;
    for (int64_t t = rows.begin; t < rows.end; ++t, from += rows.k_stride) {
      for (int64_t i = line; i < end; ++i) keys[i * kKeyBlock + t] = from[i];
    }
  }
  ForPanels(head, [&](int64_t i, int64_t width, int64_t filled) {
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      float* to = head.Values<float>() + i * head.capacity + t * width;
      std::copy_n(rows.v + (t - rows.begin) * rows.v_stride + i, filled, to);
      std::fill(to + filled, to + width, 0.0f);
    }
  });
}

void StoreBf16(const KvHead& head, const KvRows& rows, int64_t block) {
  uint32_t* keys = head.Keys<uint32_t>() + block * head.pairs();
  for (int64_t p = 0; p < head.pairs(); ++p) {
    uint32_t* to = keys + p * kKeyBlock - block;
    const float* from = rows.k + 2 * p;
    const bool alone = 2 * p + 1 == head.head_dim;
    for (int64_t t = rows.begin; t < rows.end; ++t, from += rows.k_stride) {
      to[t] = Pair(from[0], alone ? 0.0f : from[1]);
    }
  }
  const int64_t words = (head.capacity + 1) / 2;
  ForPanels(head, [&](int64_t i, int64_t width, int64_t filled) {
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      uint32_t* to = head.Values<uint32_t>() + i * words + t / 2 * width;
      const float* from = rows.v + (t - rows.begin) * rows.v_stride + i;
      if (t % 2 == 0) {
        for (int64_t x = 0; x < filled; ++x) to[x] = ToBFloat16(from[x]).bits;
        std::fill(to + filled, to + width, 0u);
      } else {
        for (int64_t x = 0; x < filled; ++x) {
          to[x] = (to[x] & 0xffffu) | uint32_t{ToBFloat16(from[x]).bits} << 16;
        }
      }
    }
  });
}

void StoreQ8(const KvHead& head, const KvRows& rows, int64_t block) {
  const int64_t key_blocks = head.key_blocks(), value_blocks = head.value_blocks();
  int8_t* keys = head.Keys<int8_t>() + block * head.head_dim;
  uint16_t* key_scales = head.key_scales + block * key_blocks;
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const float* k = rows.k + (t - rows.begin) * rows.k_stride;
    const float* v = rows.v + (t - rows.begin) * rows.v_stride;
    int8_t* values = head.Values<int8_t>() + t * head.value_dim;
    for (int64_t s = 0; s < key_blocks; ++s) {
      const int64_t first = s * kQ8Block;
      int8_t codes[kQ8Block];
      key_scales[s * kKeyBlock + t - block] = Quantize(k + first, codes);
      for (int64_t i = 0; i < kQ8Block; ++i) keys[(first + i) * kKeyBlock + t - block] = codes[i];
    }
    for (int64_t s = 0; s < value_blocks; ++s) {
      head.value_scales[t * value_blocks + s] = Quantize(v + s * kQ8Block, values + s * kQ8Block);
    }
  }
}

}  // namespace

void StoreRows(const KvHead& head, const KvRows& rows) {
  const int64_t block = rows.begin / kKeyBlock * kKeyBlock;
  // The kernel reads whole vectors: what no token fills yet must be numbers.
  if (rows.begin == block && rows.end < block + kKeyBlock) {
    const int64_t bytes = AttentionAccess::KeyBytes(head.type, head.head_dim);
    std::fill_n(head.keys + block * bytes, kKeyBlock * bytes, std::byte{0});
    if (head.type == KvType::kQ8_0) {
      const int64_t scales = head.key_blocks();
      std::fill_n(head.key_scales + block * scales, kKeyBlock * scales, uint16_t{0});
    }
  }
  if (head.type == KvType::kF32) return StoreF32(head, rows, block);
  if (head.type == KvType::kBf16) return StoreBf16(head, rows, block);
  StoreQ8(head, rows, block);
}

void LoadKey(const KvHead& head, int64_t token, float* out) {
  const int64_t block = token / kKeyBlock * kKeyBlock, at = token % kKeyBlock;
  for (int64_t i = 0; i < head.head_dim; ++i) {
    const int64_t element = block * head.head_dim + i * kKeyBlock + at;
    if (head.type == KvType::kF32) {
      out[i] = head.Keys<float>()[element];
    } else if (head.type == KvType::kBf16) {
      const uint32_t word = head.Keys<uint32_t>()[block * head.pairs() + i / 2 * kKeyBlock + at];
      out[i] = ToFloat(BFloat16{static_cast<uint16_t>(word >> i % 2 * 16)});
    } else {
      const int64_t scale = block * head.key_blocks() + i / kQ8Block * kKeyBlock + at;
      out[i] = ToFloat(Float16{head.key_scales[scale]}) * head.Keys<int8_t>()[element];
    }
  }
}

void ClearPartner(const KvHead& head, int64_t token) {
  if (head.type != KvType::kBf16) return;
  const int64_t words = (head.capacity + 1) / 2;
  ForPanels(head, [&](int64_t i, int64_t width, int64_t) {
    uint32_t* to = head.Values<uint32_t>() + i * words + token / 2 * width;
    for (int64_t x = 0; x < width; ++x) to[x] &= 0xffffu;
  });
}

}  // namespace ropewalk::internal
