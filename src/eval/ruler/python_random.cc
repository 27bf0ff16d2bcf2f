#include "src/eval/ruler/python_random.h"

#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>

namespace ropewalk::internal {
namespace {

// Words of the seed, the lowest first, without zeros at the end but for one word.
Mt19937 Seeded(uint64_t seed) {
  const std::array<uint32_t, 2> words = {static_cast<uint32_t>(seed),
                                         static_cast<uint32_t>(seed >> 32)};
  return Mt19937(std::span(words).first(words[1] != 0 ? 2 : 1));
}

// Up to this population sample shuffles a list of it; beyond, it draws again what it had.
int64_t LargestPool(int64_t count) {
  if (count <= 5) return 21;
  const double power = std::ceil(std::log(3 * static_cast<double>(count)) / std::log(4.0));
  return 21 + (int64_t{1} << (2 * static_cast<int64_t>(power)));
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) : generator_(Seeded(seed)) {}

double PythonRandom::Random() {
  const uint32_t high = generator_.Next() >> 5, low = generator_.Next() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

uint32_t PythonRandom::Bits(int count) { return generator_.Next() >> (32 - count); }

int64_t PythonRandom::Below(int64_t n) {
  const int bits = std::bit_width(static_cast<uint64_t>(n));
  int64_t drawn = Bits(bits);
  while (drawn >= n) drawn = Bits(bits);
  return drawn;
}

std::string PythonRandom::Uuid4() {
  std::array<uint32_t, 4> words = {};  // the lowest first
  for (uint32_t& word : words) word = generator_.Next();
  words[1] = (words[1] & 0x3fffffffu) | 0x80000000u;  // variant
  words[2] = (words[2] & 0xffff0fffu) | 0x00004000u;  // version
  std::string text;
  for (int digit = 31; digit >= 0; --digit) {
    text += "0123456789abcdef"[(words[digit / 8] >> (4 * (digit % 8))) & 15];
    if (digit == 24 || digit == 20 || digit == 16 || digit == 12) text += '-';
  }
  return text;
}

std::string PythonRandom::Letters(char first, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += static_cast<char>(first + static_cast<int>(Random() * 26));
  return text;
}

std::vector<int64_t> PythonRandom::Sample(int64_t n, int64_t count) {
  if (count < 0 || count > n) throw PythonError("sample larger than population or negative");
  std::vector<int64_t> sample;
  sample.reserve(static_cast<size_t>(count));
  if (n <= LargestPool(count)) {
    std::vector<int64_t> pool(static_cast<size_t>(n));
    std::iota(pool.begin(), pool.end(), 0);
    for (int64_t i = 0; i < count; ++i) {
      int64_t& drawn = pool[static_cast<size_t>(Below(n - i))];
      sample.push_back(drawn);
      drawn = pool[static_cast<size_t>(n - i - 1)];
    }
    return sample;
  }
  std::unordered_set<int64_t> drawn;
  while (static_cast<int64_t>(sample.size()) < count) {
    const int64_t index = Below(n);
    if (drawn.insert(index).second) sample.push_back(index);
  }
  return sample;
}

int64_t NumpyRandom::Int(int64_t low, int64_t high) {
  const auto largest = static_cast<uint32_t>(high - low - 1);
  if (largest == 0) return low;
  const uint32_t mask = (uint64_t{1} << std::bit_width(largest)) - 1;
  uint32_t drawn = generator_.Next() & mask;
  while (drawn > largest) drawn = generator_.Next() & mask;
  return low + drawn;
}

}  // namespace ropewalk::internal
