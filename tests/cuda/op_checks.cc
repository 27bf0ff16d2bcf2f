// Tables, gradients and re-rotation: the bits of the host, and within rounding of the references.
#include <cmath>
#include <cstring>

#include "reference/rotary.h"
#include "ropewalk/base/cuda.h"
#include "ropewalk/rotary/gradient.h"
#include "ropewalk/rotary/rerotate.h"
#include "tests/cuda/check.h"
#include "tests/rotary/gradient/device_host.h"
#include "tests/rotary/rerotate/device_host.h"
#include "tests/rotary/rerotate/q8.h"
#include "tests/rotary/rotate/random_call.h"

namespace ropewalk::gpu {
namespace {

using random_call::Element;
using random_call::Random;
using random_call::Tensor;

constexpr int64_t kLimit = int64_t{1} << 31;

Frequencies FrequenciesOf(int64_t pairs, int axes, const Scaling& scaling) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 2 * pairs;
  spec.trained_length = 2048;
  spec.scaling = scaling;
  Frequencies f = Resolve(spec, 4096);
  f.axes = axes;
  for (int64_t i = 0; i < pairs && axes > 1; ++i) f.axis.push_back(static_cast<uint8_t>(i % axes));
  return f;
}

void ExpectTable(const Frequencies& f, int64_t first, int64_t count, AnglePrecision precision) {
  const std::string what =
      std::to_string(f.inv_freq.size()) + " pairs from " + std::to_string(first);
  CosSinTable here(f, first, count, precision);
  CosSinTable there(f, first, count / 2, precision, Device::kCuda);
  there.Grow(count);
  const auto size = static_cast<std::size_t>(count * 2 * here.pairs());
  const auto rows = Download<float>(there.Row(first), size);
  Expect(std::memcmp(rows.data(), here.Row(first), size * sizeof(float)) == 0, what + ": bits");
  if (precision != AnglePrecision::kExact) return;
  for (std::size_t i = 0; i < size; i += 5) {
    const auto pairs = f.inv_freq.size();
    const std::size_t pair = i % pairs;
    const double angle =
        reference::Angle(f.inv_freq[pair], first + static_cast<int64_t>(i / (2 * pairs)));
    const double want = f.amplitude * (i / pairs % 2 == 0 ? std::cos(angle) : std::sin(angle));
    Expect(std::abs(static_cast<double>(rows[i]) - want) <= 0x1p-24 * f.amplitude,
           what + ": element " + std::to_string(i));
  }
}

std::string Tables(const Options& options) {
  const int64_t count = options.quick ? 300 : 8192;
  int tables = 0;
  for (const int64_t pairs : {1, 13, 64, 128, 300}) {
    for (const Scaling& scaling : {Scaling(NoScaling{}), Scaling(YarnScaling{.factor = 8})}) {
      const Frequencies f = FrequenciesOf(pairs, 1, scaling);
      for (const int64_t first : {int64_t{0}, int64_t{131000}, int64_t{1048500}, kLimit - count}) {
        ExpectTable(f, first, count, AnglePrecision::kExact);
        ++tables;
      }
      ExpectTable(f, 77, 200, AnglePrecision::kFloat32);
    }
  }
  return std::to_string(tables) + " tables of " + std::to_string(count) +
         " rows, the bits of the CPU's, positions to 2147483647";
}

// A tensor of the GPU with a copy of the host's memory.
TensorView There(const Tensor& t, Memory& memory) {
  TensorView view = t.On(Device::kCuda);
  view.data =
      static_cast<std::byte*>(memory.Copy(t.memory.data(), static_cast<int64_t>(t.memory.size()))) +
      t.offset * SizeOf(t.view.dtype);
  return view;
}

double At(const TensorView& v, int64_t b, int64_t t, int64_t h, int64_t i) {
  const int64_t* s = v.strides;
  return Element(v.dtype, static_cast<const std::byte*>(v.data) +
                              (b * s[0] + t * s[1] + h * s[2] + i * s[3]) * SizeOf(v.dtype));
}

struct PairElements {
  int64_t x1, x2;
};
PairElements ElementsOf(PairLayout layout, int64_t first_dim, int64_t pairs, int64_t p) {
  if (layout == PairLayout::kInterleaved) return {first_dim + 2 * p, first_dim + 2 * p + 1};
  return {first_dim + p, first_dim + p + pairs};
}

// The sums as they are defined, and those of the magnitudes.
void GradientReference(const RotaryGradientArgs& a, const std::vector<int64_t>& positions,
                       std::vector<double>& sums, std::vector<double>& sizes) {
  const auto pairs = static_cast<int64_t>(a.frequencies->inv_freq.size());
  const int64_t tokens = a.value.shape[1];
  const auto add = [&](int64_t output, double x) {
    sums[static_cast<std::size_t>(output)] += x;
    sizes[static_cast<std::size_t>(output)] += std::abs(x);
  };
  for (int64_t b = 0; b < a.value.shape[0]; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      const auto n = static_cast<double>(positions[static_cast<std::size_t>(b * tokens + t)]);
      for (int64_t h = 0; h < a.value.shape[2]; ++h) {
        for (int64_t p = 0; p < pairs; ++p) {
          const PairElements e = ElementsOf(a.layout, a.first_dim, pairs, p);
          const double v1 = At(a.value, b, t, h, e.x1), v2 = At(a.value, b, t, h, e.x2);
          const double g1 = At(a.gradient, b, t, h, e.x1), g2 = At(a.gradient, b, t, h, e.x2);
          add(p, n * (g2 * v1 - g1 * v2));
          add(pairs, (g1 * v1 + g2 * v2) / a.frequencies->amplitude);
        }
      }
    }
  }
}

// The call with all that it points to on the GPU.
std::vector<double> GradientThere(RotaryGradientArgs args, const Tensor& value,
                                  const Tensor& gradient, const std::vector<int64_t>& positions,
                                  const std::vector<double>& derivative) {
  Memory memory;
  args.positions =
      Positions::Each(std::span<const int64_t>(memory.Copy(positions), positions.size()));
  args.value = There(value, memory);
  args.gradient = There(gradient, memory);
  const std::vector<double> poison(derivative.size() + 2, std::nan(""));
  const int64_t bytes = FrequencyGradientWorkspace(args);
  const std::vector<double> workspace(static_cast<std::size_t>(bytes) / 8, std::nan(""));
  double* const out = memory.Copy(poison);
  FrequencyGradientOnDevice(args, memory.Copy(workspace), out, derivative);
  CudaSynchronize();
  return Download<double>(out, poison.size());
}

void ExpectGradient(uint64_t seed) {
  Random random(seed);
  const int64_t pairs = 1 + random.Below(70), first_dim = random.OneIn(2) ? 0 : random.Below(9);
  const Frequencies f = FrequenciesOf(pairs, 1, YarnScaling{.factor = 4});
  const int64_t batch = 1 + random.Below(3), tokens = 1 + random.Below(400);
  const DType type = random_call::kTypes[random.Below(4)];
  const std::vector<int64_t> shape = {batch, tokens, 1 + random.Below(20),
                                      first_dim + 2 * pairs + random.Below(3)};
  const bool ragged = random.OneIn(2);
  const Tensor value(type, shape, ragged, random), gradient(type, shape, ragged, random);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < batch * tokens; ++i) positions.push_back(random.Below(kLimit));
  std::vector<double> derivative;
  for (int64_t i = 0; i < pairs; ++i) derivative.push_back(static_cast<double>(random.Value()));
  RotaryGradientArgs args = {
      .frequencies = &f,
      .layout = random.OneIn(2) ? PairLayout::kHalf : PairLayout::kInterleaved,
      .positions = Positions::Each(std::span<const int64_t>(positions)),
      .value = value.On(Device::kCuda),
      .gradient = gradient.On(Device::kCuda),
      .first_dim = first_dim};
  const std::vector<double> here = internal::RunOnHost(internal::PlanGradient(args, derivative));
  std::vector<double> want(static_cast<std::size_t>(pairs) + 1), sizes(want.size());
  GradientReference(args, positions, want, sizes);
  const std::vector<double> got = GradientThere(args, value, gradient, positions, derivative);
  const std::string what = "seed " + std::to_string(seed);
  Expect(std::memcmp(got.data(), here.data(), got.size() * 8) == 0, what + ": bits");
  for (std::size_t i = 0; i < want.size(); ++i) {
    Expect(std::abs(got[i] - want[i]) <= 1e-12 * sizes[i], what + ": output " + std::to_string(i));
  }
}

std::string Gradients(const Options& options) {
  const uint64_t calls = options.quick ? 10 : 150;
  for (uint64_t seed = 1; seed <= calls; ++seed) ExpectGradient(seed);
  return std::to_string(calls) + " calls, the bits of the host";
}

struct MoveLists {
  std::vector<int64_t> to, from;
};
// The i-th kind of move, of `count` tokens of `batch` sequences, the lists in `memory` if there is
// one.
Moves MovesOf(int64_t kind, const MoveLists& lists, int64_t batch, Memory* memory) {
  const auto span = [&](const std::vector<int64_t>& list, std::size_t size) {
    return std::span<const int64_t>(memory != nullptr ? memory->Copy(list) : list.data(), size);
  };
  if (kind == 1) return Moves::Sequences(span(lists.to, static_cast<std::size_t>(batch)));
  if (kind == 2) return Moves::Tokens(span(lists.to, lists.to.size()));
  if (kind == 3) {
    return Moves::FromTo(span(lists.from, lists.from.size()), span(lists.to, lists.to.size()));
  }
  return Moves::All(lists.to[0]);
}
int64_t DeltaOf(int64_t kind, const MoveLists& lists, int64_t tokens, int64_t index) {
  const auto at = static_cast<std::size_t>(kind == 0 ? 0 : kind == 1 ? index / tokens : index);
  return lists.to[at] - (kind == 3 ? lists.from[at] : 0);
}

MoveLists RandomMoves(int64_t count, Random& random) {
  MoveLists lists;
  for (int64_t i = 0; i < count; ++i) {
    lists.to.push_back(random.OneIn(4) ? 0 : random.Below(kLimit));
    lists.from.push_back(random.OneIn(4) ? lists.to.back() : random.Below(kLimit));
  }
  return lists;
}

void ExpectMoved(uint64_t seed) {
  Random random(seed);
  const int64_t pairs = 1 + random.Below(70), first_dim = random.OneIn(2) ? 0 : random.Below(9);
  Frequencies f = FrequenciesOf(pairs, 1, YarnScaling{.factor = 4});
  const int64_t batch = 1 + random.Below(3), tokens = 1 + random.Below(100),
                heads = 1 + random.Below(20);
  const DType type = random_call::kTypes[random.Below(4)];
  const Tensor before(type, {batch, tokens, heads, first_dim + 2 * pairs + random.Below(3)},
                      random.OneIn(2), random);
  const MoveLists lists = RandomMoves(batch * tokens, random);
  const int64_t kind = random.Below(4);
  Tensor here = before, after = before;
  RerotateArgs args = {.frequencies = &f,
                       .layout = random.OneIn(2) ? PairLayout::kHalf : PairLayout::kInterleaved,
                       .moves = MovesOf(kind, lists, batch, nullptr),
                       .keys = here.On(Device::kCuda),
                       .first_dim = first_dim};
  const internal::RerotateLaunch launch = internal::PlanRerotate(args, 1);
  if (launch.blocks > 0) internal::RunOnHost(launch);
  Memory memory;
  args.keys = There(before, memory);
  args.moves = MovesOf(kind, lists, batch, &memory);
  Rerotate(args);
  CudaSynchronize();
  internal::CopyToHost(after.memory.data(),
                       static_cast<std::byte*>(args.keys.data) - before.offset * SizeOf(type),
                       static_cast<int64_t>(after.memory.size()), nullptr);
  const std::string what = "seed " + std::to_string(seed);
  Expect(std::memcmp(after.memory.data(), here.memory.data(), here.memory.size()) == 0,
         what + ": bits");
  f.amplitude = 1;
  constexpr double kRounding[] = {0, 0, 0x1p-11, 0x1p-8};
  for (int64_t i = 0; i < batch * tokens * heads; ++i) {
    const int64_t b = i / heads / tokens, t = i / heads % tokens, h = i % heads;
    std::vector<double> x;
    for (int64_t e = 0; e < before.view.shape[3]; ++e) x.push_back(At(before.view, b, t, h, e));
    reference::RotateHead(x.data(), f, DeltaOf(kind, lists, tokens, b * tokens + t),
                          args.layout == PairLayout::kInterleaved, first_dim);
    for (int64_t e = 0; e < before.view.shape[3]; ++e) {
      const double want = x[static_cast<std::size_t>(e)];
      const double limit = kRounding[static_cast<int>(type)] * (std::abs(want) + 1e-3) + 5e-6;
      Expect(std::abs(At(after.view, b, t, h, e) - want) <= limit, what + ": reference");
    }
  }
}

void ExpectMovedQ8(uint64_t seed) {
  Random random(seed);
  const int64_t head_dim = 32 * (1 + random.Below(8));
  const int64_t pairs = 1 + random.Below(head_dim / 2);
  const int64_t first_dim = random.Below(head_dim - 2 * pairs + 1);
  Frequencies f = FrequenciesOf(pairs, 1, NoScaling{});
  const int64_t batch = 1 + random.Below(3), tokens = 1 + random.Below(50),
                heads = 1 + random.Below(12);
  std::vector<double> values(static_cast<std::size_t>(batch * tokens * heads * head_dim));
  for (double& x : values) x = static_cast<double>(random.Value());
  const std::vector<q8::Block> before = q8::Quantised(values);
  std::vector<q8::Block> here = before;
  const MoveLists lists = RandomMoves(batch * tokens, random);
  const int64_t kind = random.Below(4);
  const auto view = [&](void* data) {
    Q8KeysView keys = Q8KeysView::Contiguous(data, batch, tokens, heads, head_dim);
    keys.device = Device::kCuda;
    return keys;
  };
  RerotateArgs args = {.frequencies = &f,
                       .layout = random.OneIn(2) ? PairLayout::kHalf : PairLayout::kInterleaved,
                       .moves = MovesOf(kind, lists, batch, nullptr),
                       .q8_keys = view(here.data()),
                       .first_dim = first_dim};
  const internal::RerotateLaunch launch = internal::PlanRerotate(args, 1);
  if (launch.blocks > 0) internal::RunOnHost(launch);
  Memory memory;
  args.q8_keys = view(memory.Copy(before));
  args.moves = MovesOf(kind, lists, batch, &memory);
  Rerotate(args);
  CudaSynchronize();
  const auto after = Download<q8::Block>(args.q8_keys.data, before.size());
  const std::string what = "Q8_0, seed " + std::to_string(seed);
  Expect(std::memcmp(after.data(), here.data(), here.size() * sizeof(here[0])) == 0,
         what + ": bits");
  std::vector<double> want = q8::Values(before);
  const std::vector<double> got = q8::Values(after);
  for (int64_t i = 0; i < batch * tokens * heads; ++i) {
    reference::RotateHead(want.data() + i * head_dim, f, DeltaOf(kind, lists, tokens, i / heads),
                          args.layout == PairLayout::kInterleaved, first_dim);
  }
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double step = static_cast<double>(ToFloat(Float16{after[i / 32].scale}));
    Expect(std::abs(got[i] - want[i]) <= 0.501 * step + 5e-6 + 0.07 * step, what + ": reference");
  }
}

std::string Rerotations(const Options& options) {
  const uint64_t calls = options.quick ? 10 : 200;
  for (uint64_t seed = 1; seed <= calls; ++seed) {
    ExpectMoved(seed);
    ExpectMovedQ8(seed);
  }
  return std::to_string(2 * calls) + " calls, half of them Q8_0, the bits of the host";
}

}  // namespace

std::vector<Check> OpChecks() {
  return {{"tables", Tables}, {"gradients", Gradients}, {"rerotate", Rerotations}};
}

}  // namespace ropewalk::gpu
