#include "src/attention/kv_type.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ropewalk/base/dtype.h"
#include "ropewalk/base/error.h"

namespace ropewalk {
namespace internal {
namespace {

constexpr int64_t kQ8Block = 32;

void RoundQ8Block(const float* x, float* out) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < kQ8Block; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  // ggml keeps some number then. What is broken shall look broken.
  if (!finite) {
    std::fill_n(out, kQ8Block, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const float d = largest / 127;
  const float kept = ToFloat(ToFloat16(d));
  if (kept == 0) {  // 1 / d may overflow
    std::fill_n(out, kQ8Block, 0.0f);
    return;
  }
  const float inverse = 1 / d;
  for (int64_t i = 0; i < kQ8Block; ++i) out[i] = std::round(x[i] * inverse) * kept;
}

}  // namespace

void RoundKv(KvType type, const float* row, int64_t head_dim, float* out) {
  switch (type) {
    case KvType::kF32:
      if (out != row) std::copy_n(row, head_dim, out);
      return;
    case KvType::kBf16:
      std::transform(row, row + head_dim, out, [](float x) { return ToFloat(ToBFloat16(x)); });
      return;
    case KvType::kQ8_0:
      for (int64_t i = 0; i < head_dim; i += kQ8Block) RoundQ8Block(row + i, out + i);
      return;
  }
}

}  // namespace internal

void CheckKvType(KvType type, int64_t head_dim) {
  if (type != KvType::kQ8_0 || head_dim % internal::kQ8Block == 0) return;
  throw Error(ErrorCode::kUnsupported,
              "a KV cache of q8_0 holds blocks of 32 elements, and a head of this model has " +
                  std::to_string(head_dim) + ", no multiple of 32; bf16 and f32 hold any head_dim");
}

}  // namespace ropewalk
