// y = x W^T + b through oneDNN, the weights packed once into the layout it prefers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ropewalk {

// The arithmetic of a product. kBFloat16 rounds weights (once) and x (in every call) to bf16, to
// nearest, ties to even; products are summed, and b added, in float32.
enum class ComputeType : uint8_t { kFloat32, kBFloat16 };
constexpr const char* Name(ComputeType type) {
  return type == ComputeType::kFloat32 ? "float32" : "bf16";
}

// What multiplies bf16 on this CPU, as far as oneDNN uses it. kEmulated: AVX-512 without bf16
// instructions, right but slower than float32; kNone: nothing, kBFloat16 is refused.
enum class Bf16Unit : uint8_t { kNone, kEmulated, kAvx512, kAmx };
constexpr const char* Name(Bf16Unit unit) {
  constexpr const char* kNames[] = {"none", "emulated", "avx512_bf16", "amx_bf16"};
  return kNames[static_cast<int>(unit)];
}
Bf16Unit FindBf16Unit();

class Linear {
 public:
  Linear();
  // Fills rows [first, first + rows) of the [out, in] weight; called with a few rows at a time so
  // that no second float32 copy of the whole weight exists.
  using RowSource = std::function<void(int64_t first, int64_t rows, float* out)>;
  Linear(int64_t out_features, int64_t in_features, const RowSource& weight, const float* bias,
         ComputeType compute = ComputeType::kFloat32);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;

  int64_t out_features() const;
  int64_t in_features() const;
  ComputeType compute() const;
  int64_t bytes() const;

  // x [rows, in] with row stride x_stride (elements), y [rows, out] with row stride y_stride.
  // With `accumulate`, y += instead of y =. Rows without gaps are faster: others are copied.
  void Apply(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
             bool accumulate = false) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk
