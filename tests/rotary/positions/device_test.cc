// Positions as kernels look them up, against the cursor that walks them in order.
#include "src/rotary/positions/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/rotary/positions/cursor.h"

namespace ropewalk {
namespace positions_device_test {

constexpr int64_t kFar[] = {0, 1, 255, 256, 257, 4095, 4096, 4097, 16384, 131071, 1048575};

void ExpectThoseOfTheCursor(const Positions& positions, int64_t batch, int64_t tokens) {
  const internal::DevicePositions device = internal::ForDevice(positions, tokens);
  internal::PositionCursor cursor(positions, tokens, 0);
  for (int64_t i = 0; i < batch * tokens; ++i) {
    if (i > 0) cursor.Next();
    for (int64_t axis = 0; axis < 3; ++axis) {
      const bool each = positions.axes() > 1;
      if (!each && axis > 0 &&
          (positions.kind() == Positions::Kind::kEach32 ||
           positions.kind() == Positions::Kind::kEach64)) {
        continue;
      }
      EXPECT_EQ(internal::PositionOf(device, i, axis), cursor.position(axis))
          << "token " << i << " axis " << axis;
      EXPECT_EQ(internal::PositionOf(device, i / tokens, i % tokens, i, axis),
                cursor.position(axis));
    }
  }
}

template <class I>
std::vector<I> Far(int64_t n) {
  std::vector<I> p;
  for (int64_t i = 0; i < n; ++i) {
    p.push_back(static_cast<I>(kFar[static_cast<std::size_t>(i * 7 % 11)] + i / 11));
  }
  return p;
}

TEST(PositionsDevice, AreThoseOfTheCursor) {
  for (const int64_t batch : {1, 3}) {
    for (const int64_t tokens : {1, 2, 7, 64}) {
      const int64_t all = batch * tokens;
      ExpectThoseOfTheCursor(Positions::From(0), batch, tokens);
      ExpectThoseOfTheCursor(Positions::From(1048575), batch, tokens);
      for (const int axes : {1, 3}) {
        const auto p32 = Far<int32_t>(axes * all);
        const auto p64 = Far<int64_t>(axes * all);
        ExpectThoseOfTheCursor(Positions::Each(std::span<const int32_t>(p32), axes), batch, tokens);
        ExpectThoseOfTheCursor(Positions::Each(std::span<const int64_t>(p64), axes), batch, tokens);
        const std::span<const int64_t> shared(p64.data(), static_cast<std::size_t>(axes * tokens));
        ExpectThoseOfTheCursor(Positions::Each(shared, axes), batch, tokens);
      }
      const auto starts = Far<int64_t>(batch);
      ExpectThoseOfTheCursor(Positions::Starts(starts), batch, tokens);
      std::vector<int64_t> pads;
      for (int64_t b = 0; b < batch; ++b) pads.push_back(b * tokens / 2);
      ExpectThoseOfTheCursor(Positions::LeftPadded(pads), batch, tokens);
    }
  }
}

TEST(PositionsDevice, FindPackedSequencesWithEmptyOnesAmongThem) {
  const std::vector<std::vector<int64_t>> packed = {
      {0, 12}, {0, 0, 12}, {0, 12, 12}, {0, 1, 2, 2, 2, 7, 12, 12, 12}, {0, 0, 0, 11, 12}};
  for (const std::vector<int64_t>& boundaries : packed) {
    ExpectThoseOfTheCursor(Positions::Packed(boundaries), 1, 12);
    ExpectThoseOfTheCursor(Positions::Packed(boundaries), 3, 4);
  }
  // Tokens far in: 2^40 of them in sequences of 2^30.
  std::vector<int64_t> boundaries;
  for (int64_t i = 0; i <= int64_t{1} << 10; ++i) boundaries.push_back(i << 30);
  const internal::DevicePositions p =
      internal::ForDevice(Positions::Packed(boundaries), int64_t{1} << 40);
  EXPECT_EQ(internal::PositionOf(p, (int64_t{1} << 40) - 1, 0), (int64_t{1} << 30) - 1);
  EXPECT_EQ(internal::PositionOf(p, int64_t{1} << 30, 0), 0);
  EXPECT_EQ(internal::PositionOf(p, (int64_t{1} << 30) - 1, 0), (int64_t{1} << 30) - 1);
}

// Nobody has checked a list of the device: no token may make the search leave it.
TEST(PositionsDevice, SearchStaysInsideAnyBoundaries) {
  const std::vector<std::vector<int64_t>> wrong = {{5, 3}, {9, 1, 7, 0, 2}, {1, 1, 1}, {-5, -9, 3}};
  for (const std::vector<int64_t>& b : wrong) {
    for (int64_t index = 0; index < 12; ++index) {
      const int64_t start = internal::PackedStart(b.data(), static_cast<int64_t>(b.size()), index);
      EXPECT_NE(std::find(b.begin(), b.end() - 1, start), b.end() - 1) << index;
    }
  }
}

}  // namespace positions_device_test
}  // namespace ropewalk
