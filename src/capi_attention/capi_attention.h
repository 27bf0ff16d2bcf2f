// What the C functions of attention share.
#pragma once

#include "ropewalk/attention/attention.h"
#include "ropewalk/ropewalk_attention.h"
#include "src/capi/capi.h"

struct ropewalk_kv_cache {
  ropewalk::KvCache cache;
};
struct ropewalk_form {
  ropewalk::PreparedForm form;
};
struct ropewalk_load_rotation {
  ropewalk::LoadRotation rotation;
};

namespace ropewalk::capi {

// The product of sizes that a caller gives.
inline int64_t Count(const char* name, int64_t a, int64_t b, int64_t c = 1) {
  int64_t ab = 0, abc = 0;
  if (a < 0 || b < 0 || c < 0 || __builtin_mul_overflow(a, b, &ab) ||
      __builtin_mul_overflow(ab, c, &abc)) {
    Bad(std::string(name) + ": sizes " + std::to_string(a) + ", " + std::to_string(b) + ", " +
        std::to_string(c));
  }
  return abc;
}

// A copy of what may be NULL: nothing then.
template <class T>
std::vector<T> Copied(const char* name, const T* data, int64_t count) {
  if (data == nullptr) return {};
  const std::span<const T> list = List(data, count, name);
  return {list.begin(), list.end()};
}

// Of a form, up to what lowering and a KV cache take.
inline void CheckHeads(const std::string& of, int64_t heads, int64_t head_dim) {
  if (heads < 1 || heads > 1 << 16) {
    Bad(of + ".heads: expected 1 to 65536, got " + std::to_string(heads));
  }
  if (head_dim < 1 || head_dim > 1 << 15) {
    Bad(of + ".head_dim: expected 1 to 32768, got " + std::to_string(head_dim));
  }
}

}  // namespace ropewalk::capi
