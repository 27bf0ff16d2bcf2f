// Draws as CPython's `random` and numpy's legacy `np.random` make them, of which RULER's prompts
// are made: the same calls in the same order give the same values (tested with CPython 3.11 and
// numpy 2.4, whose legacy functions do not change).
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/eval/ruler/mt19937.h"

namespace ropewalk::internal {

// What would be an exception in the generator in Python: its loops catch it and try again.
struct PythonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// random.Random(seed).
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  double Random();           // [0, 1), 53 bits
  uint32_t Bits(int count);  // getrandbits(1 .. 32)
  int64_t Below(int64_t n);  // _randbelow, n from 1 to 2^32 - 1
  int64_t Int(int64_t low, int64_t high) { return low + Below(high - low + 1); }  // randint
  std::string Uuid4();  // str(uuid.UUID(int=getrandbits(128), version=4))
  std::string Letters(char first, int64_t count);  // ''.join(choices(26 letters, k=count))

  // sample(range(n), count): distinct indices. Throws PythonError for count > n or < 0.
  std::vector<int64_t> Sample(int64_t n, int64_t count);

  template <class T>
  const T& Choice(std::span<const T> items) {
    return items[static_cast<size_t>(Below(static_cast<int64_t>(items.size())))];
  }
  template <class T>
  void Shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(Below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  Mt19937 generator_;
};

// np.random after np.random.seed(seed).
class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : generator_(seed) {}
  // np.random.randint(low, high): [low, high), by rejection under a mask; at most 2^32 values.
  int64_t Int(int64_t low, int64_t high);

 private:
  Mt19937 generator_;
};

}  // namespace ropewalk::internal
