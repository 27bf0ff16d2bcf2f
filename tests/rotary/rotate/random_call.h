// Random calls of Rotate, of every kind that there is, in memory of the CPU: for tests that run one
// on a GPU's kernels and otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <vector>

#include "ropewalk/base/buffer.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk::random_call {

inline constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

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

inline double Element(DType t, const std::byte* at) {
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

inline void SetElement(DType t, double value, std::byte* at) {
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
inline constexpr Dims kDims[] = {{128, 128, 0}, {128, 64, 32}, {128, 64, 64}, {96, 24, 0},
                                 {64, 64, 0},   {80, 20, 0},   {40, 6, 3},    {256, 256, 0},
                                 {2, 2, 0},     {34, 30, 1},   {512, 512, 0}, {192, 64, 128}};

inline Positions RandomPositions(int64_t first, int64_t count, int64_t batch, int64_t tokens,
                                 int axes, Lists& lists, Random& random) {
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
inline void MakeCall(uint64_t seed, Call& call, Lists& lists) {
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
  const int64_t starts[] = {0, 255, 131060, 1048560, int64_t{2147483648} - 40};
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

}  // namespace ropewalk::random_call
