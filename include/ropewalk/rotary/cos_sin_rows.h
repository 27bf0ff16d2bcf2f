// Rows of CosSinTable without the table, for repeated calls of a few rows each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

namespace internal {
struct ExactTurns;
}  // namespace internal

// The same bits as kExact rows of CosSinTable. The part that depends on the frequencies alone (most
// of the cost of a single row) is computed once, at construction. Several threads may share it.
class CosSinRows {
 public:
  explicit CosSinRows(const Frequencies& frequencies);
  // out [positions.size(), 2, pairs]; any positions, or first .. first + count - 1.
  void Fill(std::span<const int64_t> positions, float* out) const;
  void Fill(int64_t first, int64_t count, float* out) const;

 private:
  std::shared_ptr<const internal::ExactTurns> turns_;
};

}  // namespace ropewalk
