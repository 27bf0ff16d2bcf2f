// The Mersenne Twister MT19937 (Matsumoto and Nishimura 1998, doi 10.1145/272991.272995) with both
// of its seedings. The seeding by an array, which CPython uses, is not that of std::seed_seq.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace ropewalk::internal {

class Mt19937 {
 public:
  // init_genrand of the authors' 2002 code, which numpy's legacy seed takes.
  explicit Mt19937(uint32_t seed) { Seed(seed); }
  // init_by_array of the same, with at least one word.
  explicit Mt19937(std::span<const uint32_t> key);

  uint32_t Next();

 private:
  static constexpr int kWords = 624, kMiddle = 397;

  void Seed(uint32_t seed);
  void Refill();

  std::array<uint32_t, kWords> state_ = {};
  int at_ = kWords;
};

}  // namespace ropewalk::internal
