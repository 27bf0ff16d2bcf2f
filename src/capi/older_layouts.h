// Structs as headers published earlier had them, told by their size. A struct that grows gets a row
// here: the size it had, and where its fields lie now if they moved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ropewalk/ropewalk.h"
#include "ropewalk/ropewalk_attention.h"

namespace ropewalk::capi {

// Fields that the older layout lacks stay 0, which means their default.
template <class T>
bool ReadOlder(const void* /*given*/, std::size_t /*size*/, T& /*out*/) {
  return false;  // never had another size
}

template <class T>
bool ReadFirstBytes(const void* given, std::size_t size, std::size_t older, T& out) {
  if (size != older) return false;
  std::memcpy(&out, given, size);
  return true;
}

// Before GPUs: without device.
inline bool ReadOlder(const void* given, std::size_t size, ropewalk_tensor& out) {
  struct First {
    std::size_t size;
    void* data;
    int32_t dtype;
    int32_t rank;
    int64_t shape[5];
    int64_t strides[5];
  } first;
  if (!ReadFirstBytes(given, size, sizeof(first), first)) return false;
  out.size = first.size;
  out.data = first.data;
  out.dtype = first.dtype;
  out.rank = first.rank;
  std::copy_n(first.shape, 5, out.shape);
  std::copy_n(first.strides, 5, out.strides);
  return true;
}
inline bool ReadOlder(const void* given, std::size_t size, ropewalk_q8_keys& out) {
  struct First {
    std::size_t size;
    void* data;
    int64_t batch, tokens, heads, head_dim;
    int64_t strides_bytes[3];
  } first;
  if (!ReadFirstBytes(given, size, sizeof(first), first)) return false;
  out.size = first.size;
  out.data = first.data;
  out.batch = first.batch;
  out.tokens = first.tokens;
  out.heads = first.heads;
  out.head_dim = first.head_dim;
  std::copy_n(first.strides_bytes, 3, out.strides_bytes);
  return true;
}
// Before 8-bit caches and GPUs: up to num_slots.
inline bool ReadOlder(const void* given, std::size_t size, ropewalk_rotate_args& out) {
  return ReadFirstBytes(given, size, offsetof(ropewalk_rotate_args, k_scale), out);
}
// Before GPUs: up to first_dim.
inline bool ReadOlder(const void* given, std::size_t size, ropewalk_rerotate_args& out) {
  return ReadFirstBytes(given, size, offsetof(ropewalk_rerotate_args, stream), out);
}
// Before values of another width: up to bytes.
inline bool ReadOlder(const void* given, std::size_t size, ropewalk_kv_cache_info& out) {
  return ReadFirstBytes(given, size, offsetof(ropewalk_kv_cache_info, value_dim), out);
}
// Before its rows' entropy: up to log_sum_exp.
inline bool ReadOlder(const void* given, std::size_t size, ropewalk_attention_args& out) {
  return ReadFirstBytes(given, size, offsetof(ropewalk_attention_args, entropy), out);
}

}  // namespace ropewalk::capi
