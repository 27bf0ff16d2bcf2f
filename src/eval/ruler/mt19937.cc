#include "src/eval/ruler/mt19937.h"

#include <algorithm>

namespace ropewalk::internal {

void Mt19937::Seed(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
  at_ = kWords;
}

Mt19937::Mt19937(std::span<const uint32_t> key) {
  Seed(19650218u);
  uint32_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  const auto mixed = [&](uint32_t factor) {
    return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor);
  };
  const uint32_t rounds = std::max<uint32_t>(kWords, static_cast<uint32_t>(key.size()));
  for (uint32_t k = 0; k < rounds; ++k) {
    const uint32_t j = k % static_cast<uint32_t>(key.size());
    state_[i] = mixed(1664525u) + key[j] + j;
    advance();
  }
  for (uint32_t k = 1; k < kWords; ++k) {
    state_[i] = mixed(1566083941u) - i;
    advance();
  }
  state_[0] = 0x80000000u;
}

void Mt19937::Refill() {
  for (int k = 0; k < kWords; ++k) {
    const uint32_t y = (state_[k] & 0x80000000u) | (state_[(k + 1) % kWords] & 0x7fffffffu);
    state_[k] = state_[(k + kMiddle) % kWords] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfu : 0);
  }
  at_ = 0;
}

uint32_t Mt19937::Next() {
  if (at_ == kWords) Refill();
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

}  // namespace ropewalk::internal
