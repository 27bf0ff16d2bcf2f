// How a linear layer holds its weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/linear/linear.h"

namespace ropewalk::internal {

class LinearForm {
 public:
  LinearForm(int64_t out_features, int64_t in_features, const float* bias_of_all, ComputeType type)
      : out(out_features),
        in(in_features),
        compute(type),
        bias(bias_of_all == nullptr ? 0 : static_cast<std::size_t>(out_features)) {
    if (bias_of_all != nullptr) std::copy_n(bias_of_all, out_features, bias.data());
  }
  virtual ~LinearForm() = default;
  LinearForm(const LinearForm&) = delete;
  LinearForm& operator=(const LinearForm&) = delete;

  // The arguments are checked; at least one row.
  virtual void Apply(const float* x, int64_t rows, int64_t x_stride, float* y, int64_t y_stride,
                     bool accumulate) const = 0;
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t mapped_bytes() const = 0;

  const int64_t out, in;
  const ComputeType compute;
  AlignedBuffer<float> bias;  // [out] or empty
};

// In oneDNN's layout.
std::unique_ptr<const LinearForm> MakeUnpacked(int64_t out, int64_t in,
                                               const Linear::RowSource& source, const float* bias,
                                               ComputeType compute);
// As the rows are.
std::unique_ptr<const LinearForm> MakePacked(int64_t in, std::vector<FileRows> rows,
                                             const float* bias, ComputeType compute);

}  // namespace ropewalk::internal
