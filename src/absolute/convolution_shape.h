// The shape of a position convolution, checked, and which tokens a token reads.
#pragma once

#include <cstdint>
#include <vector>

#include "ropewalk/absolute/convolutional.h"
#include "src/absolute/check.h"

namespace ropewalk::internal {

struct ConvolutionShape {
  explicit ConvolutionShape(const PositionConvolutionSpec& spec);

  struct Source {
    int64_t token, tap;
  };
  // What `token` of the grid reads; replaces the contents.
  void Sources(int64_t token, std::vector<Source>* out) const;

  int64_t size[3] = {1, 1, 1};
  int64_t kernel[3] = {1, 1, 1};
  int64_t tokens = 1, taps = 1;
  int64_t group_channels = 1;
  bool circular = false;
};

inline ConvolutionShape::ConvolutionShape(const PositionConvolutionSpec& spec)
    : circular(spec.border == ConvolutionBorder::kCircular) {
  const std::size_t axes = spec.sizes.size();
  CheckRange("PositionConvolution: axes of sizes", static_cast<int64_t>(axes), 1, 3);
  if (spec.kernel.size() != axes) {
    Refuse("PositionConvolution: kernel: expected " + std::to_string(axes) +
           " sizes as sizes has, got " + std::to_string(spec.kernel.size()));
  }
  for (std::size_t a = 0; a < axes; ++a) {
    CheckRange("PositionConvolution: sizes", spec.sizes[a], 1, int64_t{1} << 20);
    CheckRange("PositionConvolution: kernel", spec.kernel[a], 1, 1024);
    tokens *= size[a] = spec.sizes[a];
    taps *= kernel[a] = spec.kernel[a];
  }
  CheckRange("PositionConvolution: channels", spec.channels, 1, int64_t{1} << 20);
  CheckRange("PositionConvolution: prefix_rows", spec.prefix_rows, 0, int64_t{1} << 20);
  if (spec.groups < 1 || spec.channels % spec.groups != 0) {
    Refuse("PositionConvolution: groups: expected a divisor of " + std::to_string(spec.channels) +
           " channels, got " + std::to_string(spec.groups));
  }
  group_channels = spec.channels / spec.groups;
}

inline void ConvolutionShape::Sources(int64_t token, std::vector<Source>* out) const {
  out->clear();
  const int64_t at[] = {token / size[2] / size[1], token / size[2] % size[1], token % size[2]};
  // The place on axis a that tap t reads, or -1 beyond the border.
  const auto place = [&](int a, int64_t t) {
    const int64_t p = at[a] + t - kernel[a] / 2;
    if (circular) return (p % size[a] + size[a]) % size[a];
    return p < 0 || p >= size[a] ? int64_t{-1} : p;
  };
  for (int64_t i = 0; i < kernel[0]; ++i) {
    const int64_t x = place(0, i);
    for (int64_t j = 0; x >= 0 && j < kernel[1]; ++j) {
      const int64_t y = place(1, j);
      for (int64_t k = 0; y >= 0 && k < kernel[2]; ++k) {
        const int64_t z = place(2, k);
        if (z < 0) continue;
        out->push_back({(x * size[1] + y) * size[2] + z, (i * kernel[1] + j) * kernel[2] + k});
      }
    }
  }
}

}  // namespace ropewalk::internal
