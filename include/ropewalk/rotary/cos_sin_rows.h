// Rows of CosSinTable for callers that ask for a few at a time, again and again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ropewalk/rotary/frequencies.h"

namespace ropewalk {

namespace internal {
struct ExactTurns;
}  // namespace internal

// The same exact bits. What depends on the frequencies alone, most of the work of a single row, is
// done once. Threads may share it.
class CosSinRows {
 public:
  explicit CosSinRows(const Frequencies& frequencies);
  // Of any list of positions; of positions first .. first + count - 1.
  void Fill(std::span<const int64_t> positions, float* out) const;
  void Fill(int64_t first, int64_t count, float* out) const;

 private:
  std::shared_ptr<const internal::ExactTurns> turns_;
};

}  // namespace ropewalk
