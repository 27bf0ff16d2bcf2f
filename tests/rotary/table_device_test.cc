// What threads of a GPU do to make a table, run here; and tables of a GPU where there is one.
#include "src/rotary/table_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace table_device_test {

using internal::TableElement;
using internal::TableParams;
using test::MessageOf;
using ::testing::HasSubstr;

constexpr int64_t kLast = (int64_t{1} << 31) - 1;

Frequencies FrequenciesOf(int64_t dim, const Scaling& scaling = NoScaling{}) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dim;
  spec.base = 500000;
  spec.trained_length = 4096;
  spec.scaling = scaling;
  return Resolve(spec, 4096);
}

std::vector<internal::Uint128> TurnsOf(const Frequencies& f) {
  std::vector<internal::Uint128> turns;
  for (const DoubleDouble& x : f.inv_freq) turns.push_back(internal::ToTurns(x));
  return turns;
}

// Every thread of a launch, one after another.
void RunLaunch(const TableParams& p, int64_t blocks, int64_t threads) {
  for (int64_t t = 0; t < blocks * threads; ++t) internal::FillTable(p, t, blocks * threads);
}

TEST(TableOnDevice, ThreadsMakeTheBitsOfTheCpu) {
  constexpr uint32_t kPoison = 0x7fc0dead;
  const struct { int64_t blocks, threads; } launches[] = {{1, 1}, {3, 7}, {1, 32}, {5, 256}};
  for (const int64_t dim : {2, 6, 74, 128}) {
    const Frequencies f = FrequenciesOf(dim, YarnScaling{4});
    const std::vector<internal::Uint128> turns = TurnsOf(f);
    for (const int64_t count : {1, 2, 63, 65, 131}) {
      for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{257},
                                  int64_t{131071}, int64_t{1048575}, kLast - count + 1}) {
        const CosSinTable table(f, first, count, AnglePrecision::kExact);
        const auto size = static_cast<std::size_t>(count * dim);
        for (const auto& launch : launches) {
          std::vector<float> rows(size + 64);
          for (float& x : rows) std::memcpy(&x, &kPoison, sizeof(x));
          const std::vector<float> poison(rows.begin() + static_cast<int64_t>(size), rows.end());
          RunLaunch({turns.data(), dim / 2, f.amplitude, first, count, rows.data()}, launch.blocks,
                    launch.threads);
          ASSERT_EQ(std::memcmp(rows.data(), table.Row(first), size * sizeof(float)), 0)
              << "dim " << dim << ", positions from " << first << ", " << count << " of them";
          ASSERT_EQ(std::memcmp(rows.data() + size, poison.data(), 64 * sizeof(float)), 0)
              << "behind the table";
        }
      }
    }
  }
}

TEST(TableOnDevice, EmptyTablesAreNotWritten) {
  const Frequencies f = FrequenciesOf(8);
  const std::vector<internal::Uint128> turns = TurnsOf(f);
  const TableParams none{turns.data(), 4, 1, 7, 0, nullptr};
  EXPECT_EQ(internal::TableBlocks(none, 132), 0);
  RunLaunch(none, 1, 256);  // writes to null if anything
  const TableParams no_pairs{nullptr, 0, 1, 7, 5, nullptr};
  EXPECT_EQ(internal::TableBlocks(no_pairs, 132), 0);
  RunLaunch(no_pairs, 1, 256);
}

// A table of all positions, 2^38 numbers, by arithmetic: every element is someone's, and where it
// belongs.
TEST(TableOnDevice, IndicesHoldMoreThan32Bits) {
  const int64_t pairs = 63;
  const TableParams p{nullptr, pairs, 1, 1, kLast, nullptr};
  for (const int64_t row : {int64_t{0}, int64_t{34087042}, int64_t{68174084}, kLast - 1}) {
    for (const int64_t pair : {int64_t{0}, int64_t{31}, pairs - 1}) {
      const TableElement e = internal::ElementOf(p, row * pairs + pair);
      EXPECT_EQ(e.position, 1 + row);
      EXPECT_EQ(e.pair, pair);
      EXPECT_EQ(e.cos, row * 2 * pairs + pair);
      EXPECT_EQ(e.sin, e.cos + pairs);
    }
  }
  EXPECT_EQ(internal::TableBlocks(p, 132), 132 * 32);
  EXPECT_EQ(internal::TableBlocks({nullptr, 64, 1, 0, 5, nullptr}, 132), 2);  // 320 elements
  EXPECT_EQ(internal::TableBlocks({nullptr, 64, 1, 0, 4, nullptr}, 132), 1);
  EXPECT_EQ(internal::TableBlocks({nullptr, 1, 1, 0, 1, nullptr}, 1), 1);
}

TEST(TableOnDevice, ACallOnAGpuRefusesATableOfTheCpu) {
  const CosSinTable table(FrequenciesOf(8), 0, 4, AnglePrecision::kExact);
  EXPECT_EQ(table.device(), Device::kCpu);
  EXPECT_THAT(
      MessageOf(ErrorCode::kInvalidArgument, [&] { internal::DeviceLogDecay(table); }),
      HasSubstr("memory of the CPU, and the tensors on a GPU; build it with Device::kCuda"));
}

AlignedBuffer<float> GivenRows() {
  AlignedBuffer<float> rows(12);
  for (int i = 0; i < 12; ++i) rows[static_cast<std::size_t>(i)] = static_cast<float>(i);
  return rows;
}

TEST(TableOnDevice, WithoutAGpuSaysWhy) {
  const CudaInfo info = FindCuda();
  if (!info.devices.empty()) GTEST_SKIP() << "there is a GPU";
  const Frequencies f = FrequenciesOf(8);
  const CosSinTable table(f, 0, 4, AnglePrecision::kExact);
  const CosSinTable given = CosSinTable::FromRows(GivenRows(), 2);
  const auto refused = [&](const auto& call) {
    EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, call), HasSubstr(info.why_none));
  };
  for (const int64_t count : {0, 4}) {
    for (const AnglePrecision precision : {AnglePrecision::kExact, AnglePrecision::kFloat32}) {
      refused([&] { CosSinTable(f, 0, count, precision, Device::kCuda); });
    }
  }
  refused([&] { table.OnDevice(); });
  refused([&] { given.OnDevice(); });
  // What is wrong by itself is said first.
  MessageOf(ErrorCode::kInvalidArgument,
            [&] { CosSinTable(f, -1, 4, AnglePrecision::kExact, Device::kCuda); });
}

std::vector<float> RowsOf(const CosSinTable& table) {
  std::vector<float> rows(static_cast<std::size_t>(table.count() * 2 * table.pairs()));
  const auto bytes = static_cast<int64_t>(rows.size() * sizeof(float));
  if (table.device() == Device::kCuda) {
    internal::CopyToHost(rows.data(), table.Row(table.first()), bytes, nullptr);
  } else {
    std::memcpy(rows.data(), table.Row(table.first()), rows.size() * sizeof(float));
  }
  return rows;
}

void ExpectSameBits(const CosSinTable& a, const CosSinTable& b, const std::string& what) {
  const std::vector<float> x = RowsOf(a), y = RowsOf(b);
  ASSERT_EQ(x.size(), y.size()) << what;
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0) << what;
}

TEST(TableOnDevice, OnAGpuHasTheBitsOfTheCpu) {
  if (FindCuda().devices.empty()) GTEST_SKIP() << FindCuda().why_none;
  const Frequencies f = FrequenciesOf(74, YarnScaling{4});
  for (const AnglePrecision precision : {AnglePrecision::kExact, AnglePrecision::kFloat32}) {
    for (const int64_t first : {int64_t{0}, int64_t{1048575}, kLast - 9999}) {
      const CosSinTable cpu(f, first, 10000, precision);
      CosSinTable gpu(f, first, 3, precision, Device::kCuda);
      EXPECT_EQ(gpu.device(), Device::kCuda);
      for (const int64_t count : {3, 4, 67, 10000}) gpu.Grow(count);
      ExpectSameBits(cpu, gpu, "from " + std::to_string(first));
      ExpectSameBits(cpu, cpu.OnDevice(), "copied, from " + std::to_string(first));
    }
  }
  const CosSinTable given = CosSinTable::FromRows(GivenRows(), 2);
  CosSinTable there = given.OnDevice();
  ExpectSameBits(given, there, "given");
  EXPECT_THROW(there.Grow(100), Error);
  EXPECT_EQ(internal::DeviceLogDecay(there), nullptr);

  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 16;
  spec.xpos.emplace();
  const Frequencies xpos = Resolve(spec, 4096);
  const CosSinTable decays(xpos, 0, 4, AnglePrecision::kExact, Device::kCuda);
  std::vector<double> log_decay(8);
  internal::CopyToHost(log_decay.data(), internal::DeviceLogDecay(decays), 8 * sizeof(double),
                       nullptr);
  EXPECT_EQ(log_decay, xpos.log_decay);

  float q[74] = {};
  const CosSinTable gpu(f, 0, 1, AnglePrecision::kExact, Device::kCuda);
  const auto rotate = [&] {
    Rotate({.table = &gpu,
            .layout = PairLayout::kHalf,
            .positions = Positions::From(0),
            .q = TensorView::Of(q, {1, 1, 74})});
  };
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, rotate), HasSubstr("it lies on a GPU"));
}

}  // namespace table_device_test
}  // namespace ropewalk
