// One row of exact cosines and sines from angles in turns; what tables and re-rotation share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/base/buffer.h"
#include "src/rotary/reduction.h"
#include "src/rotary/table_cpu.h"

namespace ropewalk::internal {

inline std::size_t PaddedPairs(std::size_t pairs) {
  return (pairs + kRowPadding - 1) / kRowPadding * kRowPadding;
}

// The reduced angles of a row; one per thread.
class AngleScratch {
 public:
  explicit AngleScratch(std::size_t padded) : hi_(padded), lo_(padded), quadrant_(padded) {}

  // turns_of(i): angle of pair i as a fraction of a turn in units of 2^-128, for all padded pairs.
  // row: cos [padded], then sin [padded], 64-byte aligned, each within 0.8 ULP.
  template <class TurnsOf>
  void SinCos(const TurnsOf& turns_of, double* row) {
    const std::size_t padded = hi_.size();
    for (std::size_t i = 0; i < padded; ++i) {
      const ReducedAngle angle = Reduce(turns_of(i));
      hi_[i] = angle.hi;
      lo_[i] = angle.lo;
      quadrant_[i] = angle.quadrant;
    }
    SinCosRow({hi_.data(), lo_.data(), quadrant_.data()}, padded, row);
  }

 private:
  AlignedBuffer<double> hi_, lo_;
  AlignedBuffer<int64_t> quadrant_;
};

}  // namespace ropewalk::internal
