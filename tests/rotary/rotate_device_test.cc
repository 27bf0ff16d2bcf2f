// The kernels of a GPU, run on the CPU over every branch: equal to the CPU's op bit for bit, but
// for norms and xPos, whose sums and exponentials are rounded elsewhere.
#include "src/rotary/rotate_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ropewalk/base/error.h"
#include "tests/rotary/rotate_device_host.h"

namespace ropewalk {
namespace {

using ::testing::HasSubstr;

constexpr int kMultiprocessors = 1;  // so that small calls take rows of several heads too
constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  float Value() { return normal_(bits_); }

 private:
  std::mt19937_64 bits_;
  std::normal_distribution<float> normal_;
};

double Element(DType t, const std::byte* at) {
  const auto as = [&](auto x) {
    std::memcpy(&x, at, sizeof(x));
    return x;
  };
  switch (t) {
    case DType::kF64:
      return as(double{});
    case DType::kF32:
      return static_cast<double>(as(float{}));
    case DType::kF16:
      return static_cast<double>(ToFloat(as(Float16{})));
    case DType::kBF16:
      return static_cast<double>(ToFloat(as(BFloat16{})));
    case DType::kF8E4M3:
      return static_cast<double>(ToFloat(as(Float8E4M3{})));
  }
  return 0;
}

void SetElement(DType t, double value, std::byte* at) {
  const auto set = [&](auto x) { std::memcpy(at, &x, sizeof(x)); };
  const auto x = static_cast<float>(value);
  switch (t) {
    case DType::kF64:
      return set(value);
    case DType::kF32:
      return set(x);
    case DType::kF16:
      return set(ToFloat16(x));
    case DType::kBF16:
      return set(ToBFloat16(x));
    case DType::kF8E4M3:
      return set(ToFloat8E4M3(x));
  }
}

// Memory all of which holds numbers, around a strided view.
struct Tensor {
  Tensor() = default;
  Tensor(DType dtype, std::vector<int64_t> shape, bool ragged, Random& random) {
    view.dtype = dtype;
    view.rank = 4;
    int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      view.shape[i] = shape[static_cast<std::size_t>(i)];
      view.strides[i] = stride;
      stride *= std::max<int64_t>(1, view.shape[i]);
      if (ragged) stride += i == 3 ? random.Below(3) : random.Below(40);
    }
    offset = ragged ? random.Below(5) : 0;
    const int64_t count = stride + offset + 16;
    memory = AlignedBuffer<std::byte>(static_cast<std::size_t>(count * SizeOf(dtype)));
    for (int64_t i = 0; i < count; ++i) {
      SetElement(dtype, static_cast<double>(random.Value()), memory.data() + i * SizeOf(dtype));
    }
    view.data = memory.data() + offset * SizeOf(dtype);
  }
  Tensor(const Tensor& other) { *this = other; }
  Tensor& operator=(const Tensor& other) {
    view = other.view;
    offset = other.offset;
    memory = AlignedBuffer<std::byte>(other.memory.size());
    if (memory.size() == 0) return *this;
    std::memcpy(memory.data(), other.memory.data(), memory.size());
    view.data = memory.data() + offset * SizeOf(view.dtype);
    return *this;
  }
  TensorView On(Device device) const {
    TensorView v = view;
    v.device = device;
    return v;
  }

  AlignedBuffer<std::byte> memory;
  TensorView view = {};
  int64_t offset = 0;
};

struct Call {
  Tensor q, k, v, q_out, k_out, v_out;  // rank 0: absent
  RotateArgs args = {.layout = PairLayout::kHalf, .positions = Positions::From(0), .q = {}};

  RotateArgs On(Device device) const {
    RotateArgs a = args;
    a.q = q.On(device), a.k = k.On(device), a.v = v.On(device);
    a.q_out = q_out.On(device), a.k_out = k_out.On(device), a.v_out = v_out.On(device);
    return a;
  }
};

struct Lists {  // what the arguments of a call point to
  Frequencies frequencies;
  CosSinTable table;
  std::vector<int32_t> positions32;
  std::vector<int64_t> positions, slots;
  std::vector<float> weight;
};

struct Dims {
  int64_t head_dim, rotary_dim, first_dim;
};
constexpr Dims kDims[] = {{128, 128, 0}, {128, 64, 32}, {128, 64, 64}, {96, 24, 0},
                          {64, 64, 0},   {80, 20, 0},   {40, 6, 3},    {256, 256, 0},
                          {2, 2, 0},     {34, 30, 1},   {512, 512, 0}, {192, 64, 128}};

Positions RandomPositions(int64_t first, int64_t count, int64_t batch, int64_t tokens, int axes,
                          Lists& lists, Random& random) {
  const auto any = [&] { return first + random.Below(count); };
  const int64_t entries = axes * tokens * (random.OneIn(3) ? 1 : batch);
  int64_t kind = axes > 1 ? 1 + random.Below(2) : random.Below(6);
  if (first > 0 && kind > 3) kind = 0;  // packed and padded ones start at 0
  switch (kind) {
    case 1:
      for (int64_t i = 0; i < entries; ++i) {
        lists.positions32.push_back(static_cast<int32_t>(any()));
      }
      return Positions::Each(std::span<const int32_t>(lists.positions32), axes);
    case 2:
      for (int64_t i = 0; i < entries; ++i) lists.positions.push_back(any());
      return Positions::Each(std::span<const int64_t>(lists.positions), axes);
    case 3:
      for (int64_t b = 0; b < batch; ++b) {
        lists.positions.push_back(first + random.Below(count - tokens));
      }
      return Positions::Starts(lists.positions);
    case 4:
      for (int64_t b = 0; b < batch; ++b) lists.positions.push_back(random.Below(tokens + 1));
      return Positions::LeftPadded(lists.positions);
    case 5:
      lists.positions = {0};
      while (lists.positions.back() < batch * tokens) {
        lists.positions.push_back(
            std::min(batch * tokens, lists.positions.back() + random.Below(6)));
      }
      return Positions::Packed(lists.positions);
    default:
      return Positions::From(first + random.Below(count - tokens));
  }
}

// A call of any kind that the op takes.
void MakeCall(uint64_t seed, Call& call, Lists& lists) {
  Random random(seed);
  const Dims dims = kDims[random.Below(std::size(kDims))];
  const int64_t pairs = dims.rotary_dim / 2;
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = dims.rotary_dim;
  spec.trained_length = 4096;
  if (random.OneIn(2)) spec.scaling = YarnScaling{.factor = 8};
  const bool axes = pairs >= 4 && random.OneIn(4);
  if (axes) {
    spec.axes.sections = {pairs - 2 * (pairs / 4), pairs / 4, pairs / 4};
    spec.axes.order = random.OneIn(2) ? AxisOrder::kChunked : AxisOrder::kInterleaved;
  }
  const bool xpos = !axes && random.OneIn(8);
  const int64_t starts[] = {0, 255, 131060, 1048560, 2147483600};
  const int64_t first = starts[random.Below(std::size(starts))], count = 40;
  if (xpos) spec.xpos = XposDecay{.centre = static_cast<double>(first)};
  lists.frequencies = Resolve(spec, 4096);
  const bool on_the_fly = random.OneIn(4);
  if (on_the_fly) {
    call.args.frequencies = &lists.frequencies;
  } else {
    lists.table = CosSinTable(lists.frequencies, first, count, AnglePrecision::kExact);
    call.args.table = &lists.table;
  }
  const int64_t batch = 1 + random.Below(3), tokens = 1 + random.Below(8);
  call.args.positions =
      RandomPositions(first, count, batch, tokens, axes && !random.OneIn(4) ? 3 : 1, lists, random);
  if (axes && call.args.positions.axes() == 1) call.args.positions = Positions::From(first);
  call.args.layout = random.OneIn(2) ? PairLayout::kHalf : PairLayout::kInterleaved;
  call.args.first_dim = dims.first_dim;
  call.args.direction = static_cast<Direction>(random.Below(3));

  const DType dtype = kTypes[random.Below(4)];
  const bool ragged = random.OneIn(3);
  const auto tensor = [&](DType t, int64_t heads) {
    return Tensor(t, {batch, tokens, heads, dims.head_dim}, ragged, random);
  };
  const int64_t heads = random.Below(11), kv_heads = 1 + random.Below(3);
  call.q = tensor(dtype, heads);
  if (random.OneIn(2))
    call.q_out = tensor(random.OneIn(3) ? kTypes[random.Below(4)] : dtype, heads);
  const bool has_k = random.OneIn(2), has_v = random.OneIn(3);
  if (has_k) call.k = tensor(dtype, kv_heads);
  if (has_v) call.v = tensor(dtype, kv_heads);
  const bool slots = (has_k || has_v) && random.OneIn(2);
  DType cache_type = random.OneIn(2) ? dtype : kTypes[random.Below(4)];
  if (random.OneIn(4)) cache_type = DType::kF8E4M3;
  const auto cache = [&] {
    return slots ? Tensor(cache_type, {8, 5, kv_heads, dims.head_dim}, ragged, random)
                 : tensor(cache_type, kv_heads);
  };
  if (has_k && (slots || random.OneIn(2))) call.k_out = cache();
  if (has_v) call.v_out = cache();
  if (slots) {
    std::vector<int64_t> all(40);
    for (int64_t i = 0; i < 40; ++i) all[static_cast<std::size_t>(i)] = i;
    for (int64_t i = 0; i < batch * tokens; ++i) {
      const auto at = static_cast<std::size_t>(random.Below(static_cast<int64_t>(all.size())));
      lists.slots.push_back(random.OneIn(6) ? -1 : all[at]);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
    }
    call.args.slots = lists.slots;
    call.args.k_scale = 0.5f;
    call.args.v_scale = 0.03f;
  }
  if (random.OneIn(2)) call.args.values = ValueRotation::kRotate;
  if (random.OneIn(5)) call.args.rotated_heads = 1;
  if (call.args.rotated_heads > heads && heads > 0) call.args.rotated_heads = 0;
  if (call.args.direction == Direction::kForward && random.OneIn(3)) {
    for (int64_t i = 0; i < dims.head_dim; ++i) lists.weight.push_back(random.Value());
    if (has_k) call.args.k_norm = {.weight = lists.weight};
    if (random.OneIn(2)) call.args.q_norm = {.weight = lists.weight};
  }
}

bool HasFma() { return (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0; }

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
  std::map<std::tuple<DType, PairLayout, int, bool, bool>, int> kernels;
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
    ASSERT_NO_THROW(launch = internal::PlanRotate(gpu.On(Device::kCuda),
                                                  lists.frequencies.log_decay.data(),
                                                  kMultiprocessors, &faults))
        << what;
    if (launch.blocks == 0) continue;
    if (launch.plain && seed % 3 == 0) launch.wide = true;
    internal::RunOnHost(launch);
    ++kernels[{launch.dtype, launch.layout, launch.width, launch.plain, launch.on_the_fly}];
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
  // general ones of every width, and those on the fly of two.
  EXPECT_EQ(kernels.size(), 2 * (4 * 1 + (3 + 3 + 2 + 2) + 4 * 2));
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
    return internal::PlanRotate(args, nullptr, 132, &faults);
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
  EXPECT_TRUE(launch.wide);
  EXPECT_GE(launch.blocks * launch.rows_of_block, tokens);
  EXPECT_LE(launch.blocks, INT32_MAX);
  launch.params.positions.kind = Positions::Kind::kStart;
  launch.params.positions.start = 7 - (tokens - 1);
  const internal::DeviceRow<BFloat16, internal::TableAngles, uint64_t> last(launch.params,
                                                                            tokens - 1, true);
  EXPECT_EQ(reinterpret_cast<const char*>(last.in), base + (tokens - 1) * 32);
  EXPECT_EQ(last.out, (tokens - 1) * 16);
  EXPECT_EQ(last.position[0], 7);
  EXPECT_EQ(small.faults.count[0], 0u);
  // The largest call with 32-bit indices.
  args.q = Small::OnGpu(reinterpret_cast<BFloat16*>(base), {INT32_MAX, 1, 16});
  args.positions = Positions::Each(std::span<const int32_t>(reinterpret_cast<const int32_t*>(base),
                                                            static_cast<std::size_t>(INT32_MAX)));
  launch = small.Plan(args);
  EXPECT_FALSE(launch.wide);
  launch.params.positions.kind = Positions::Kind::kStart;
  const internal::DeviceRow<BFloat16, internal::TableAngles, uint32_t> narrow(launch.params,
                                                                              INT32_MAX - 1, false);
  EXPECT_EQ(narrow.out, (int64_t{INT32_MAX} - 1) * 16);
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

}  // namespace
}  // namespace ropewalk
