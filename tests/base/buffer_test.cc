#include "ropewalk/base/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "tests/support/sanitizer.h"

namespace ropewalk {
namespace {

TEST(AlignedBuffer, AlignedAndWritableWhateverTheSize) {
  for (const std::size_t size : {1u, 63u, 64u, 65u, 262143u, 262144u, 262145u, 5000000u}) {
    AlignedBuffer<float> buffer(size);
    ASSERT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kAlignment, 0u) << size;
    std::memset(buffer.data(), 0x5a, size * sizeof(float));
    EXPECT_EQ(buffer[0], buffer[size - 1]);
  }
  EXPECT_EQ(AlignedBuffer<float>(0).data(), nullptr);
  EXPECT_EQ(AlignedBuffer<float>(3, 2.5f)[2], 2.5f);
}

TEST(AlignedBuffer, Moves) {
  AlignedBuffer<float> a(1 << 20, 1.0f);
  const float* data = a.data();
  AlignedBuffer<float> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  b = AlignedBuffer<float>(4, 7.0f);
  EXPECT_EQ(b[3], 7.0f);
}

#if defined(__linux__)
TEST(AlignedBuffer, AbsurdSizesAreBadAlloc) {
  if (UnderAddressSanitizer()) GTEST_SKIP() << "the address sanitizer ends the program there";
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX / 4, SIZE_MAX / 8, std::size_t{1} << 59}) {
    EXPECT_THROW(AlignedBuffer<double>{size}, std::bad_alloc) << size;
  }
}

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

// Caches of longer and longer sequences, a small block kept after each: the holes go back.
TEST(AlignedBuffer, FreedMemoryGoesBackToTheSystem) {
  if (UnderAddressSanitizer()) GTEST_SKIP() << "the address sanitizer keeps what is freed";
  const int64_t before = ResidentBytes();
  std::vector<AlignedBuffer<float>> kept;
  for (std::size_t megabytes = 2; megabytes <= 16; megabytes += 2) {
    std::vector<AlignedBuffer<float>> layers;
    for (int layer = 0; layer < 8; ++layer) {
      layers.emplace_back(megabytes << 18, 1.0f);
      kept.emplace_back(1 << 10, 1.0f);
    }
  }
  EXPECT_LT(ResidentBytes() - before, 8 << 20);
}
#endif

}  // namespace
}  // namespace ropewalk
