#include "src/io/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ropewalk/base/dtype.h"
#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

constexpr int kBlock = 32;

void BlockQ8_0(const float* in, std::byte* out) {
  float largest = 0;
  for (int j = 0; j < kBlock; ++j) largest = std::max(largest, std::abs(in[j]));
  const float d = largest / 127;
  const float inverse = d != 0 ? 1 / d : 0;
  const uint16_t half = ToFloat16(d).bits;
  std::memcpy(out, &half, 2);
  for (int j = 0; j < kBlock; ++j) {
    // Beyond 127 only where 1 / d overflows: every element is then below what a half can hold.
    const float q = std::clamp(std::round(in[j] * inverse), -127.0f, 127.0f);
    out[2 + j] = static_cast<std::byte>(static_cast<int8_t>(q));
  }
}

template <class T, class F>
void Each(const float* in, int64_t count, std::byte* out, F&& convert) {
  for (int64_t i = 0; i < count; ++i) {
    const T value = convert(in[i]);
    std::memcpy(out + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

}  // namespace

bool CanQuantize(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16 ||
         type == WeightType::kQ8_0;
}

void Quantize(WeightType type, const float* in, int64_t blocks, std::byte* out) {
  switch (type) {
    case WeightType::kF32:
      return Each<float>(in, blocks, out, [](float x) { return x; });
    case WeightType::kF16:
      return Each<Float16>(in, blocks, out, [](float x) { return ToFloat16(x); });
    case WeightType::kBF16:
      return Each<BFloat16>(in, blocks, out, [](float x) { return ToBFloat16(x); });
    case WeightType::kQ8_0:
      for (int64_t i = 0; i < blocks; ++i) {
        for (int j = 0; j < kBlock; ++j) {
          if (!std::isfinite(in[i * kBlock + j])) {
            throw Error(ErrorCode::kInvalidFile, "Q8_0 cannot hold NaN or infinity");
          }
        }
        BlockQ8_0(in + i * kBlock, out + i * 34);
      }
      return;
    default:
      throw Error(ErrorCode::kUnsupported, std::string("weights are not written as ") +
                                               Info(type).name + "; F32, F16, BF16 and Q8_0 are");
  }
}

}  // namespace ropewalk::internal
