// y = x W^T + b in float32 through oneDNN, the weights packed once into the layout it prefers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ropewalk {

class Linear {
 public:
  Linear();
  // Fills rows [first, first + rows) of the [out, in] weight; called with a few rows at a time so
  // that no second float32 copy of the whole weight exists.
  using RowSource = std::function<void(int64_t first, int64_t rows, float* out)>;
  Linear(int64_t out_features, int64_t in_features, const RowSource& weight, const float* bias);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;

  int64_t out_features() const;
  int64_t in_features() const;
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
