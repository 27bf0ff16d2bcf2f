// The kernels of a GPU, run on the CPU over every branch: equal to the CPU's op bit for bit, but
// for norms and xPos, whose sums and exponentials are rounded elsewhere.
#include "src/rotary/rotate/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ropewalk/base/error.h"
#include "tests/rotary/rotate/device_host.h"
#include "tests/rotary/rotate/random_call.h"

namespace ropewalk {
namespace rotate_device_test {

using random_call::Call;
using random_call::Element;
using random_call::Lists;
using random_call::MakeCall;
using random_call::Tensor;
using ::testing::HasSubstr;

constexpr int kMultiprocessors = 1;  // so that small calls take rows of several heads too

// Of the targets that there are kernels for.
bool HasFma() {
  return (hwy::SupportedTargets() & HWY_TARGETS & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0;
}

// Elements, or bytes, of all the memory of a tensor that is computed from one of type `from`.
void ExpectSame(const Tensor& got, const Tensor& want, DType from, bool bits,
                const std::string& what) {
  ASSERT_EQ(got.memory.size(), want.memory.size());
  if (want.memory.size() == 0) return;
  if (bits) {
    ASSERT_EQ(std::memcmp(got.memory.data(), want.memory.data(), want.memory.size()), 0) << what;
    return;
  }
  const DType t = want.view.dtype;
  const double steps[] = {1e-14, 0x1p-22, 0x1p-10, 0x1p-7, 0x1p-3};
  for (int64_t i = 0; i < static_cast<int64_t>(want.memory.size()); i += SizeOf(t)) {
    const double g = Element(t, got.memory.data() + i), w = Element(t, want.memory.data() + i);
    // A unit in the last place of what is stored, and the rounding of what is added up.
    const double added = from == DType::kF64 ? 1e-14 : 2e-6;
    const double smallest = t == DType::kF8E4M3 ? 0x1p-9 : 0;
    ASSERT_NEAR(g, w, steps[static_cast<int>(t)] * std::abs(w) + added + smallest)
        << what << " byte " << i;
  }
}

TEST(RotateOnDevice, EqualsTheCpuForAnyCall) {
  std::map<std::tuple<DType, PairLayout, int, bool, bool, bool>, int> kernels;
  std::set<bool> rests, several;
  for (uint64_t seed = 1; seed <= 6000; ++seed) {
    Call cpu;
    Lists lists;
    MakeCall(seed, cpu, lists);
    Call gpu = cpu;
    const std::string what = "seed " + std::to_string(seed);
    ASSERT_NO_THROW(Rotate(cpu.On(Device::kCpu))) << what;
    internal::CudaFaults faults = {};
    internal::RotateLaunch launch;
    ASSERT_NO_THROW(launch = internal::PlanRotateLaunch(gpu.On(Device::kCuda),
                                                        lists.frequencies.log_decay.data(),
                                                        kMultiprocessors, &faults))
        << what;
    if (launch.blocks == 0) continue;
    if (launch.plain && seed % 3 == 0) launch.several_axes = true;  // one is among them
    internal::RunOnHost(launch);
    ++kernels[{launch.dtype, launch.layout, launch.width, launch.plain, launch.on_the_fly,
               launch.as_input}];
    rests.insert(launch.params.units > launch.params.rotated_units);
    several.insert(launch.params.heads_per_row > 4);
    const bool bits = lists.weight.empty() && lists.frequencies.log_decay.empty() && HasFma();
    ExpectSame(gpu.q, cpu.q, launch.dtype, bits, what + " q");
    ExpectSame(gpu.k, cpu.k, launch.dtype, bits, what + " k");
    ExpectSame(gpu.v, cpu.v, launch.dtype, true, what + " v");
    ExpectSame(gpu.q_out, cpu.q_out, launch.dtype, bits, what + " q_out");
    ExpectSame(gpu.k_out, cpu.k_out, launch.dtype, bits, what + " k_out");
    ExpectSame(gpu.v_out, cpu.v_out, launch.dtype, bits, what + " v_out");
    ASSERT_EQ(faults.count[0] + faults.count[1], 0) << what;
    if (testing::Test::HasFatalFailure()) return;
  }
  // Each kernel that there is has run: of 4 types and 2 layouts, plain ones in full vectors,
  // general ones of every width, those whose output is as the input in full ones, and those on the
  // fly of two.
  EXPECT_EQ(kernels.size(), 2 * (4 * 1 + (3 + 3 + 2 + 2) + 4 * 1 + 4 * 2));
  EXPECT_EQ(rests.size(), 2);
  EXPECT_EQ(several.size(), 2);
}

// A small call of one token and one head, for what is special.
struct Small {
  explicit Small(int64_t count = 8) : table(f, 0, count, AnglePrecision::kExact) {}

  RotateArgs Args(const Positions& positions) {
    return {.table = &table,
            .layout = PairLayout::kHalf,
            .positions = positions,
            .q = OnGpu(q.data(), {1, 1, 16})};
  }
  template <class T>
  static TensorView OnGpu(T* data, std::initializer_list<int64_t> shape) {
    TensorView view = TensorView::Of(data, shape);
    view.device = Device::kCuda;
    return view;
  }
  internal::RotateLaunch Plan(const RotateArgs& args) {
    return internal::PlanRotateLaunch(args, nullptr, 132, &faults);
  }
  std::string ErrorOf(const RotateArgs& args) {
    try {
      Plan(args);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  Frequencies f = Resolve(
      [] {
        RotarySpec spec(PairLayout::kHalf);
        spec.head_dim = spec.rotary_dim = 16;
        return spec;
      }(),
      1);
  CosSinTable table;
  std::vector<float> q = std::vector<float>(16, 1.0f);
  internal::CudaFaults faults = {};
};

// What the host cannot see: the token is NaN and said, the others are right.
TEST(RotateOnDevice, PositionsOutsideTheTableAreNaNAndSaid) {
  Small small;
  std::vector<float> q(3 * 16, 1.0f), want = q;
  for (const int64_t bad : {int64_t{8}, int64_t{-1}, int64_t{1} << 40}) {
    const int64_t positions[] = {3, bad, 7};
    std::fill(q.begin(), q.end(), 1.0f);
    RotateArgs args = small.Args(Positions::Each(positions));
    args.q = Small::OnGpu(q.data(), {3, 1, 16});
    small.faults = {};
    internal::RunOnHost(small.Plan(args));
    EXPECT_GT(small.faults.count[0], 0u);
    EXPECT_EQ(small.faults.first[0], bad);
    EXPECT_EQ(small.faults.count[1], 0u);
    const int64_t good[] = {3, 0, 7};
    std::fill(want.begin(), want.end(), 1.0f);
    args.positions = Positions::Each(good);
    args.q = TensorView::Of(want.data(), {3, 1, 16});
    Rotate(args);
    for (std::size_t i = 0; i < q.size(); ++i) {
      if (i / 16 == 1) {
        EXPECT_TRUE(std::isnan(q[i]));
      } else {
        EXPECT_EQ(q[i], want[i]);
      }
    }
  }
}

TEST(RotateOnDevice, SlotsOutsideTheCacheAreNotWrittenAndSaid) {
  Small small;
  std::vector<float> q(3 * 16, 1.0f), cache(4 * 16, 5.0f);
  const int64_t slots[] = {-1, 4, 2};
  RotateArgs args = small.Args(Positions::From(0));
  args.q = Small::OnGpu(q.data(), {3, 0, 16});
  args.k = Small::OnGpu(q.data(), {3, 1, 16});
  args.k_out = Small::OnGpu(cache.data(), {4, 1, 16});
  args.slots = slots;
  internal::RunOnHost(small.Plan(args));
  EXPECT_EQ(small.faults.count[0], 0u);
  EXPECT_GT(small.faults.count[1], 0u);
  EXPECT_EQ(small.faults.first[1], 4);
  for (std::size_t i = 0; i < cache.size(); ++i) EXPECT_EQ(cache[i] == 5.0f, i / 16 != 2) << i;
}

TEST(RotateOnDevice, TheGridFillsTheChip) {
  Small small(int64_t{1} << 21);
  for (const int64_t tokens : {1, 64, 4096, 1 << 20}) {
    alignas(16) static char memory[16];  // never touched
    RotateArgs args = small.Args(Positions::From(0));
    args.q = Small::OnGpu(reinterpret_cast<BFloat16*>(memory), {tokens, 32, 16});
    const internal::RotateLaunch launch = small.Plan(args);
    EXPECT_TRUE(launch.plain);
    const int64_t threads = launch.blocks * launch.rows_of_block * launch.lanes;
    EXPECT_GE(threads, std::min<int64_t>(tokens * 32, int64_t{132} * 1024)) << tokens;
    EXPECT_LE(launch.rows_of_block * launch.lanes, 256);
    EXPECT_EQ(launch.params.heads_per_row, tokens == 1 << 20 ? 8 : 1);
  }
}

// More than 2^31 rows, and offsets beyond 2^32 elements: by arithmetic alone, no memory is touched.
TEST(RotateOnDevice, IndicesBeyond32Bits) {
  Small small;
  const int64_t tokens = int64_t{3} << 30;
  char* const base = reinterpret_cast<char*>(int64_t{1} << 20);
  RotateArgs args = small.Args(Positions::Each(std::span<const int32_t>(
      reinterpret_cast<const int32_t*>(base), static_cast<std::size_t>(tokens))));
  args.q = Small::OnGpu(reinterpret_cast<BFloat16*>(base), {tokens, 1, 16});
  internal::RotateLaunch launch = small.Plan(args);
  EXPECT_GE(launch.blocks * launch.rows_of_block, tokens);
  EXPECT_LE(launch.blocks, INT32_MAX);
  launch.params.positions.kind = Positions::Kind::kStart;
  launch.params.positions.start = 7 - (tokens - 1);
  const internal::DeviceRow<BFloat16, internal::TableAngles, 1> last(launch.params, tokens - 1,
                                                                     true);
  EXPECT_EQ(reinterpret_cast<const char*>(last.in), base + (tokens - 1) * 32);
  EXPECT_EQ(last.out, (tokens - 1) * 16);
  EXPECT_EQ(last.position[0], 7);
  EXPECT_EQ(small.faults.count[0], 0u);
  // The largest row that is divided in 32 bits, and the next; and where 32 bits end. Three rows of a
  // token, of a head each.
  launch.params.rows_of_token = launch.params.operands[0].rows = 3;
  launch.params.by_rows = internal::Divisor(3);
  launch.params.heads_per_row = 1;
  launch.params.operands[0].heads = 3;
  launch.params.operands[0].out_strides[1] = 48;
  launch.params.operands[0].out_strides[2] = 16;
  for (const int64_t row :
       {int64_t{INT32_MAX}, int64_t{INT32_MAX} + 1, int64_t{UINT32_MAX}, int64_t{UINT32_MAX} + 1}) {
    launch.params.tokens = row / 3 + 1;
    const internal::DeviceRow<BFloat16, internal::TableAngles, 1> r(launch.params, row, false);
    EXPECT_EQ(r.out, row * 16);
    EXPECT_EQ(r.first_head, row % 3);
  }
}

TEST(RotateOnDevice, EmptyCallsLaunchNothing) {
  Small small;
  RotateArgs args = small.Args(Positions::From(0));
  args.q = Small::OnGpu(small.q.data(), {0, 1, 16});
  EXPECT_EQ(small.Plan(args).blocks, 0);
  args.q = Small::OnGpu(small.q.data(), {1, 0, 16});
  EXPECT_EQ(small.Plan(args).blocks, 0);
}

TEST(RotateOnDevice, Refusals) {
  Small small;
  RotateArgs args = small.Args(Positions::From(0));
  args.k = TensorView::Of(small.q.data(), {1, 1, 16});
  EXPECT_THAT(small.ErrorOf(args), HasSubstr("k: expected memory of the GPU"));
  args = small.Args(Positions::From(8));
  EXPECT_THAT(small.ErrorOf(args), HasSubstr("position 8"));
  args = small.Args(Positions::From(0));
  args.table = nullptr;
  args.frequencies = &small.f;
  args.precision = AnglePrecision::kFloat32;
  EXPECT_THAT(small.ErrorOf(args), HasSubstr("build a table"));
  args.precision = AnglePrecision::kExact;
  Frequencies many = small.f;
  many.inv_freq.resize(257);
  many.inv_freq_f32.resize(257);
  std::vector<float> wide(514);
  args.frequencies = &many;
  args.q = Small::OnGpu(wide.data(), {1, 1, 514});
  EXPECT_THAT(small.ErrorOf(args), HasSubstr("at most 256 pairs, got 257"));
  args = small.Args(Positions::Starts({}));
  EXPECT_THAT(small.ErrorOf(args), HasSubstr("positions"));
  args = small.Args(Positions::From(0));
  args.q_out = Small::OnGpu(reinterpret_cast<Float8E4M3*>(wide.data()), {1, 1, 16});
  EXPECT_THAT(small.ErrorOf(args), HasSubstr("f8_e4m3"));
  args = small.Args(Positions::From(0));
  args.k = Small::OnGpu(small.q.data(), {1, 1, 16});
  args.k_out = Small::OnGpu(reinterpret_cast<Float8E4M3*>(wide.data()), {1, 1, 16});
  args.k_scale = 0;
  EXPECT_THAT(small.ErrorOf(args), HasSubstr("k_scale: expected a number above 0"));
  // The op itself, where there is no GPU: the reason, nothing is touched.
  args = small.Args(Positions::From(0));
  EXPECT_THROW(Rotate(args), Error);
  EXPECT_EQ(small.q, std::vector<float>(16, 1.0f));
}

}  // namespace rotate_device_test
}  // namespace ropewalk
