// The function that CUDA kernels share with the CPU gives the bits of the CPU's table.
#include "src/rotary/exact_angle.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "ropewalk/rotary/table.h"

namespace ropewalk {
namespace exact_angle_test {

TEST(ExactAngle, HasTheBitsOfTheTable) {
  std::vector<int64_t> positions{0,       1,          63,         64,        255,     256,
                                 257,     4095,       4096,       131071,    1048575, 1048576,
                                 1 << 30, 2147483583, 2147483584, 2147483647};
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) positions.push_back(static_cast<int64_t>(random() >> 33));
  for (const double base : {500.0, 1e4, 5e5, 1e7}) {
    for (const double factor : {1.0, 8.0}) {
      RotarySpec spec(PairLayout::kHalf);
      spec.head_dim = spec.rotary_dim = 128;
      spec.base = base;
      spec.trained_length = 4096;
      if (factor != 1) spec.scaling = YarnScaling{.factor = factor};
      const Frequencies f = Resolve(spec, 4096);
      const auto pairs = static_cast<int64_t>(f.inv_freq.size());
      std::vector<float> rows(positions.size() * 2 * f.inv_freq.size());
      FillCosSin(f, positions, AnglePrecision::kExact, rows.data());
      for (size_t t = 0; t < positions.size(); ++t) {
        for (int64_t p = 0; p < pairs; ++p) {
          float c = 0, s = 0;
          internal::ExactCosSin(internal::ToTurns(f.inv_freq[static_cast<size_t>(p)]), positions[t],
                                f.amplitude, &c, &s);
          const float* row = rows.data() + static_cast<int64_t>(t) * 2 * pairs;
          ASSERT_EQ(c, row[p]) << "position " << positions[t] << ", pair " << p;
          ASSERT_EQ(s, row[pairs + p]) << "position " << positions[t] << ", pair " << p;
        }
      }
    }
  }
}

}  // namespace exact_angle_test
}  // namespace ropewalk
