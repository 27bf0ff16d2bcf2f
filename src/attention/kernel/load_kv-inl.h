// Keys and values as products read them: decoded to float32 from what the cache stores, and rounded
// to pairs of bf16. Compiled once per SIMD target.
#if defined(ROPEWALK_ATTENTION_KERNEL_LOAD_KV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_ATTENTION_KERNEL_LOAD_KV_INL_H_
#undef ROPEWALK_ATTENTION_KERNEL_LOAD_KV_INL_H_
#else
#define ROPEWALK_ATTENTION_KERNEL_LOAD_KV_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "ropewalk/base/dtype.h"
#include "src/attention/kernel/pairs.h"
#include "src/attention/kernel/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk::internal {
namespace HWY_NAMESPACE {

using DU = hn::RebindToUnsigned<D>;
using VU = hn::Vec<DU>;
// Widths of products in pairs, whichever target the rest is compiled for.
constexpr int64_t kPairLanes = AttentionAccess::kMaxLanes;

// Two rows of `count` floats, a multiple of the lanes, from words of their pairs; `odd` may be null.
HWY_INLINE void SplitPairs(const uint32_t* HWY_RESTRICT pairs, int64_t count,
                           float* HWY_RESTRICT even, float* HWY_RESTRICT odd) {
  const D d;
  const DU du;
  for (int64_t x = 0; x < count; x += kLanes) {
    const VU words = hn::Load(du, pairs + x);
    hn::Store(hn::BitCast(d, hn::ShiftLeft<16>(words)), d, even + x);
    if (odd == nullptr) continue;
    hn::Store(hn::BitCast(d, hn::And(words, hn::Set(du, 0xffff0000u))), d, odd + x);
  }
}

HWY_INLINE V Codes(const int8_t* codes) {
  const D d;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int8_t, D> d8;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, codes)));
}

// A block of 64 keys from q8_0, to [head_dim, 64].
HWY_NOINLINE void DecodeKeys(const KvHead& kv, int64_t block, float* HWY_RESTRICT to) {
  constexpr int64_t kBlock = AttentionAccess::kBlock;
  const D d;
  const int8_t* codes = kv.Keys<int8_t>() + block * kv.head_dim;
  const uint16_t* scales = kv.key_scales + block * kv.key_blocks();
  HWY_ALIGN float scale[kBlock];
  for (int64_t i = 0; i < kv.head_dim; ++i) {
    if (i % kQ8Block == 0) {
      const uint16_t* from = scales + i / kQ8Block * kBlock;
      for (int64_t k = 0; k < kBlock; ++k) scale[k] = ToFloat(Float16{from[k]});
    }
    for (int64_t k = 0; k < kBlock; k += kLanes) {
      hn::Store(hn::Mul(Codes(codes + i * kBlock + k), hn::Load(d, scale + k)), d,
                to + i * kBlock + k);
    }
  }
}

// Values of tokens begin .. end, elements `first` .. first + width, from q8_0 to [tokens, width].
HWY_NOINLINE void DecodeValues(const KvHead& kv, int64_t begin, int64_t end, int64_t first,
                               int64_t width, float* HWY_RESTRICT to) {
  const D d;
  for (int64_t t = begin; t < end; ++t, to += width) {
    const int8_t* codes = kv.Values<int8_t>() + t * kv.value_dim + first;
    const uint16_t* scales = kv.value_scales + t * kv.value_blocks();
    // Panels are multiples of 16, half a block.
    for (int64_t x = 0; x < width; x += kQ8Block / 2) {
      const V scale = hn::Set(d, ToFloat(Float16{scales[(first + x) / kQ8Block]}));
      for (int64_t i = x; i < x + kQ8Block / 2; i += kLanes) {
        hn::Store(hn::Mul(Codes(codes + i), scale), d, to + i);
      }
    }
  }
}

// What a tile of queries reads of its key head; `scratch` has what KvScratch says.
class KeyValues {
 public:
  explicit KeyValues(const Tile& tile)
      : kv_(tile.t.kv),
        key_end_(tile.t.key_end),
        value_stride_(tile.t.value_stride),
        sizes_(kv_.type, tile.t.bf16, tile.views(), tile.rows, tile.t.dims),
        key_block_(tile.t.kv_scratch),
        key_pairs_(reinterpret_cast<uint32_t*>(key_block_ + sizes_.key_block)),
        values_(key_block_ + sizes_.key_block + sizes_.key_pairs),
        value_pairs_(reinterpret_cast<uint32_t*>(values_ + sizes_.values)) {}

  // Of the block that begins with this token: [head_dim, 64].
  const float* Keys(int64_t block) const {
    if (kv_.type == KvType::kF32) return kv_.Keys<float>() + block * kv_.head_dim;
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    if (kv_.type == KvType::kQ8_0) {
      DecodeKeys(kv_, block, key_block_);
      return key_block_;
    }
    const uint32_t* pairs = kv_.Keys<uint32_t>() + block * kv_.pairs();
    for (int64_t i = 0; i < kv_.head_dim; i += 2) {
      float* even = key_block_ + i * kBlock;
      SplitPairs(pairs + i / 2 * kBlock, kBlock, even,
                 i + 1 < kv_.head_dim ? even + kBlock : nullptr);
    }
    return key_block_;
  }

  // The same in pairs, [head_dim / 2, 64]; `rotated`: of these keys in their place, or null.
  const uint32_t* KeyPairs(int64_t block, const float* rotated) const {
    constexpr int64_t kBlock = AttentionAccess::kBlock;
    if (rotated == nullptr) {
      if (kv_.type == KvType::kBf16) return kv_.Keys<uint32_t>() + block * kv_.pairs();
      rotated = Keys(block);
    }
    RoundPairs(rotated, kv_.head_dim, kBlock, key_pairs_);
    return key_pairs_;
  }

  // Values of tokens begin .. end (at most a slice) and elements first .. first + width, which is a
  // panel: [tokens, width].
  const float* Values(int64_t begin, int64_t end, int64_t first, int64_t width) const {
    if (kv_.type == KvType::kF32) {
      return kv_.Values<float>() + first * kv_.capacity + begin * width;
    }
    if (kv_.type == KvType::kQ8_0) {
      DecodeValues(kv_, begin, end, first, width, values_);
      return values_;
    }
    for (int64_t t = begin; t < end; t += 2) {
      float* even = values_ + (t - begin) * width;
      SplitPairs(StoredPairs(t, first, width), width, even, t + 1 < end ? even + width : nullptr);
    }
    return values_;
  }

  // The same in pairs of tokens, from an even `begin` on: [tokens / 2, width].
  const uint32_t* ValuePairs(int64_t begin, int64_t end, int64_t first, int64_t width) const {
    if (kv_.type == KvType::kBf16) return StoredPairs(begin, first, width);
    end = std::min(end + end % 2, key_end_);
    RoundPairs(Values(begin, end, first, width), end - begin, width, value_pairs_);
    return value_pairs_;
  }

  // The pairs of a tile of keys for AMX's tiles, up to whole ones, with zeros beyond the last key.
  void LoadValuePairs(int64_t begin, int64_t end) {
    constexpr int64_t kStep = 2 * kPairTileRows;
    const int64_t whole = (end + kStep - 1) / kStep * kStep;
    end = std::min(whole, key_end_);
    loaded_begin_ = begin;
    loaded_ = kv_.type != KvType::kBf16 || end != whole;
    if (!loaded_) return;
    for (int64_t first = 0; first < value_stride_; first += kv_.panel_width) {
      const int64_t width = std::min(kv_.panel_width, value_stride_ - first);
      uint32_t* to = value_pairs_ + first * (kTileKeys / 2);
      for (int64_t slice = begin; slice < end; slice += KvScratch::kValueSlice) {
        const int64_t slice_end = std::min(end, slice + KvScratch::kValueSlice);
        const int64_t words = (slice_end - slice + 1) / 2 * width;
        if (kv_.type == KvType::kBf16) {
          std::copy_n(StoredPairs(slice, first, width), words, to);
        } else {
          RoundPairs(Values(slice, slice_end, first, width), slice_end - slice, width, to);
        }
        to += words;
      }
      std::fill(to, to + (whole - end) / 2 * width, 0u);
    }
  }
  // Of the panel that begins with this element: [tokens / 2, width].
  const uint32_t* PanelPairs(int64_t first) const {
    if (loaded_) return value_pairs_ + first * (kTileKeys / 2);
    return StoredPairs(loaded_begin_, first, std::min(kv_.panel_width, value_stride_ - first));
  }

 private:
  const uint32_t* StoredPairs(int64_t token, int64_t first, int64_t width) const {
    return kv_.Values<uint32_t>() + first * ((kv_.capacity + 1) / 2) + token / 2 * width;
  }

  const KvHead& kv_;
  const int64_t key_end_;
  const int64_t value_stride_;
  const KvScratch sizes_;
  float* const key_block_;
  uint32_t* const key_pairs_;
  float* const values_;
  uint32_t* const value_pairs_;
  int64_t loaded_begin_ = 0;
  bool loaded_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace ropewalk::internal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
