// y = x W^T + b, with the weights either converted once into the layout that oneDNN prefers, or left
// as their file has them and decoded in each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ropewalk/base/compute_type.h"
#include "ropewalk/io/weights.h"

namespace ropewalk {

// The bf16 instructions of this CPU that oneDNN uses. kEmulated: AVX-512 without bf16 instructions,
// correct but slower than float32. kNone: kBFloat16 is refused.
enum class Bf16Unit : uint8_t { kNone, kEmulated, kAvx512, kAmx };
constexpr const char* Name(Bf16Unit unit) {
  constexpr const char* kNames[] = {"none", "emulated", "avx512_bf16", "amx_bf16"};
  return kNames[static_cast<int>(unit)];
}
Bf16Unit FindBf16Unit();

// Rows of a weight that stay as a file has them: blocks of `type`, row after row from `data` on, of
// any alignment.
struct FileRows {
  WeightType type = WeightType::kF32;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  std::vector<int64_t> order = {};         // row wanted -> row from `data` on; empty: the same
  std::shared_ptr<const void> owner = {};  // of `data`, kept as long as the layer
  bool mapped = true;                      // `data` is in a mapped file, not in memory
  // Where the type has scales in a tensor of their own: these, block by block.
  const std::byte* scales = nullptr;
  std::shared_ptr<const void> scales_owner = {};
};

namespace internal {
class LinearForm;
}  // namespace internal

class Linear {
 public:
  Linear();
  // Writes rows [first, first + rows) of the [out, in] weight to out; called for a few rows at a
  // time, so that there is no second float32 copy of the weight.
  using RowSource = std::function<void(int64_t first, int64_t rows, float* out)>;
  Linear(int64_t out_features, int64_t in_features, const RowSource& weight, const float* bias,
         ComputeType compute = ComputeType::kFloat32);
  // Weights that stay in the file: the rows of all of `weight`, one after the other, are those of
  // the product. What is multiplied is the same numbers: many rows of x are multiplied as
  // `compute` says with a band of decoded rows at a time, a few in float32 with the blocks as they
  // are.
  Linear(int64_t in_features, std::vector<FileRows> weight, const float* bias,
         ComputeType compute = ComputeType::kFloat32);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;

  int64_t out_features() const;
  int64_t in_features() const;
  ComputeType compute() const;
  int64_t bytes() const;         // of memory; a mapped file is none
  int64_t mapped_bytes() const;  // of the file, where weights stay there

  // x [rows, in] with row stride x_stride (elements), y [rows, out] with row stride y_stride.
  // With `accumulate`, y += instead of y =. Rows of x with gaps are copied first.
  void Apply(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
             bool accumulate = false) const;

 private:
  std::unique_ptr<const internal::LinearForm> form_;
};

}  // namespace ropewalk
