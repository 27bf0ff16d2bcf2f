// What the tests of Rotate share: specs, tolerances, the reference over a whole tensor.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "reference/rotary.h"
#include "tests/support/tolerances.h"
#include "tests/support/values.h"

namespace ropewalk {

inline constexpr PairLayout kLayouts[] = {PairLayout::kHalf, PairLayout::kInterleaved};
inline constexpr int64_t kFar[] = {0,    1,    255,  256,    257,     2047,      2048,
                                   2049, 8192, 9999, 131071, 1048575, 2000000000};
inline constexpr int64_t kTokens = std::size(kFar);

inline RotarySpec SpecOf(int64_t rotary_dim, const Scaling& scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = rotary_dim;
  spec.trained_length = 2048;
  spec.scaling = scaling;
  return spec;
}
inline Frequencies FrequenciesOf(int64_t rotary_dim, const Scaling& scaling = NoScaling{}) {
  return Resolve(SpecOf(rotary_dim, scaling), 2048);
}
inline Frequencies AxesOf(const std::vector<int64_t>& sections, AxisOrder order) {
  RotarySpec spec = SpecOf(0, YarnScaling{4});
  for (const int64_t n : sections) spec.rotary_dim += 2 * n;
  spec.head_dim = spec.rotary_dim;
  spec.axes.sections = sections;
  spec.axes.order = order;
  return Resolve(spec, 2048);
}

template <class T>
double Epsilon() {
  if (sizeof(T) >= 4) return tolerances::kRotateF32 * 0x1p-24;
  return tolerances::kRotate16 * (std::is_same_v<T, Float16> ? 0x1p-11 : 0x1p-8);
}

template <class T>
std::vector<double> Doubles(const std::vector<T>& v) {
  std::vector<double> out;
  for (const T x : v) out.push_back(ToDouble(x));
  return out;
}

// Every element of `got` within `epsilon` of the length of the head it is in (its largest pair).
template <class T>
void ExpectHeads(const std::vector<T>& got, const std::vector<double>& want, int64_t head_dim,
                 double epsilon, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t h = 0; h < want.size(); h += static_cast<std::size_t>(head_dim)) {
    double largest = 0;
    for (std::size_t i = h; i < h + static_cast<std::size_t>(head_dim); ++i) {
      largest = std::max(largest, std::abs(want[i]));
    }
    for (std::size_t i = h; i < h + static_cast<std::size_t>(head_dim); ++i) {
      EXPECT_NEAR(ToDouble(got[i]), want[i], epsilon * 1.5 * largest)
          << what << " " << Name(DTypeOf<T>::value) << " element " << i;
    }
  }
}

// Positions on `axes` axes that differ from each other, token by token.
inline std::vector<int64_t> FarPositions(int axes) {
  std::vector<int64_t> p;
  for (int axis = 0; axis < axes; ++axis) {
    for (int64_t t = 0; t < kTokens; ++t) {
      // The first token stands at one position on all axes, as text does.
      p.push_back(t == 0 ? 77 : kFar[static_cast<std::size_t>((t + 3 * axis) % kTokens)]);
    }
  }
  return p;
}

inline std::vector<double> Reference(std::vector<double> x, const Frequencies& f,
                                     const std::vector<int64_t>& positions, int64_t heads,
                                     int64_t head_dim, PairLayout layout, int64_t first_dim = 0,
                                     int sign = 1, int decay = 0) {
  const int64_t tokens = static_cast<int64_t>(positions.size()) / f.axes;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int64_t> at;
    for (int axis = 0; axis < f.axes; ++axis) {
      at.push_back(positions[static_cast<std::size_t>(axis * tokens + t)]);
    }
    for (int64_t h = 0; h < heads; ++h) {
      reference::RotateHead(x.data() + (t * heads + h) * head_dim, f, at,
                            layout == PairLayout::kInterleaved, first_dim, sign, decay);
    }
  }
  return x;
}

}  // namespace ropewalk
