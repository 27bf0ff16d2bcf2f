// Stands for the vector kernels of the CPU where there is no Highway: those of tables one number at
// a time, with the same bits. The CPU's rotations are left out: kernels are held against
// reference/rotary.h and against their own bodies, run by the host.
#include <cstdlib>

#include "src/rotary/exact_angle.h"
#include "src/rotary/rotate/cpu.h"
#include "src/rotary/table_cpu.h"

namespace ropewalk::internal {

void SinCosRow(const ReducedAngles& angles, std::size_t padded, double* out) {
  for (std::size_t i = 0; i < padded; ++i) {
    const CosSin a = CosSinOf({angles.hi[i], angles.lo[i], static_cast<int>(angles.quadrant[i])});
    out[i] = a.cos;
    out[padded + i] = a.sin;
  }
}

void CombineRows(const double* coarse, const double* fine, std::size_t padded, std::size_t pairs,
                 double amplitude, std::size_t rows, float* out) {
  for (std::size_t r = 0; r < rows; ++r, fine += 2 * padded, out += 2 * pairs) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const double c = coarse[i], s = coarse[padded + i];
      const double fc = fine[i], fs = fine[padded + i];
      out[i] = static_cast<float>((c * fc - s * fs) * amplitude);
      out[pairs + i] = static_cast<float>((s * fc + c * fs) * amplitude);
    }
  }
}

void RotatePlain(const RotateParams&, int64_t, int64_t, double*) noexcept { std::abort(); }
void RotateGeneral(const RotateParams&, int64_t, int64_t, double*) noexcept { std::abort(); }

}  // namespace ropewalk::internal
