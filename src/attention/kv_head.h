// How a KvCache lays out the keys and values of one head, by its type.
#pragma once

#include <cstdint>

#include "ropewalk/attention/attention.h"

namespace ropewalk::internal {

inline constexpr int64_t kQ8Block = 32;  // elements that share a scale

// Two bf16 in a word: the even one of a pair below the odd one, as vdpbf16ps and tdpbf16ps read them.
//
//            keys, in blocks of 64 tokens          values
//   kF32     float [blocks, head_dim, 64]          float [panels][capacity, width]
//   kBf16    word [blocks, head_dim / 2, 64],      word [panels][capacity / 2, width],
//            of two elements (the last of an       of two tokens (where the last is alone, with 0)
//            odd head_dim is 0)
//   kQ8_0    int8 [blocks, head_dim, 64]           int8 [capacity, value_dim]
//            float16 [blocks, scales, 64]          float16 [capacity, scales]
//
// A panel is up to 64 dims wide, and values are padded with zeros to whole vectors (value_stride;
// the heads of kQ8_0 are whole blocks). Scales of kQ8_0 are those of a key and those of a value.
// Beyond the last token its block of keys holds zeros.
struct KvHead {
  KvType type = KvType::kF32;
  int64_t head_dim = 0, value_dim = 0, value_stride = 0, panel_width = 0, capacity = 0;
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  uint16_t* key_scales = nullptr;
  uint16_t* value_scales = nullptr;

  template <class T>
  T* Keys() const {
    return reinterpret_cast<T*>(keys);
  }
  template <class T>
  T* Values() const {
    return reinterpret_cast<T*>(values);
  }
  int64_t pairs() const { return (head_dim + 1) / 2; }
  int64_t key_blocks() const { return head_dim / kQ8Block; }  // of kQ8_0: scales of a key
  int64_t value_blocks() const { return value_dim / kQ8Block; }
};

// Tokens of one block of 64 keys to store, with their keys and values as they came.
struct KvRows {
  int64_t begin, end;  // tokens
  const float* k;      // [end - begin, head_dim]
  const float* v;      // [end - begin, value_dim]
  int64_t k_stride, v_stride;
};
void StoreRows(const KvHead& head, const KvRows& rows);
// The key of a token, as stored; [head_dim].
void LoadKey(const KvHead& head, int64_t token, float* out);
// Gives the last token, of an even index, 0 as its partner.
void ClearPartner(const KvHead& head, int64_t token);

}  // namespace ropewalk::internal
