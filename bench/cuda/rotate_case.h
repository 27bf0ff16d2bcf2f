// A case of the benchmark of Rotate on a GPU: its tensors, its arguments, and whether it is right.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "bench/cuda/timing.h"
#include "ropewalk/rotary/rotate.h"
#include "tests/cuda/device_reference.h"

namespace ropewalk::bench {

using gpu::ContiguousShape;
using gpu::Expected;
using gpu::Memory;
using gpu::Shape;
using internal::DeviceBuffer;

inline constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128, kPairs = kHeadDim / 2;

enum class Form { kInPlace, kOutOfPlace, kCache };
enum class Places { kStart, kPacked, kAxes };

struct Case {
  const char* name;
  int64_t tokens;
  double target;  // share of the copy's speed; 0: none is set
  DType dtype = DType::kBF16;
  PairLayout layout = PairLayout::kHalf;
  Form form = Form::kInPlace;
  Places places = Places::kStart;
  bool norm = false;
  bool on_the_fly = false;
  int64_t start = 0;
};

// Tensors of one call; as many sets as it takes to go past the cache.
struct Set {
  DeviceBuffer q, k, q_out, k_out;
};

// Everything of a case but its tensors, and the references to it.
class Setup {
 public:
  explicit Setup(const Case& c)
      : c_(c),
        q_(ContiguousShape(1, c.tokens, kHeads, kPairs)),
        k_(ContiguousShape(1, c.tokens, kKvHeads, kPairs)) {
    RotarySpec spec(c.layout);
    spec.head_dim = spec.rotary_dim = kHeadDim;
    if (c.places == Places::kAxes) spec.axes.sections = {16, 24, 24};
    frequencies_ = Resolve(spec, c.start + c.tokens);
    if (!c.on_the_fly) {
      table_ = CosSinTable(frequencies_, c.start, c.tokens, AnglePrecision::kExact, Device::kCuda);
    }
    std::vector<double> inv_freq;
    for (const DoubleDouble& f : frequencies_.inv_freq) inv_freq.push_back(f.hi);
    expected_ = {.inv_freq = memory_.Copy(inv_freq),
                 .interleaved = c.layout == PairLayout::kInterleaved,
                 .start = c.start};
    MakePlaces();
    if (c.norm) {
      std::vector<float> weight;
      for (int64_t i = 0; i < kHeadDim; ++i) weight.push_back(i % 2 == 0 ? 1.0078125f : 0.9921875f);
      weight_ = memory_.Copy(weight);
      expected_.norm_weight = weight_;
      expected_.every = std::max<int64_t>(1, c.tokens / 128);
    }
    if (c.form == Form::kCache) MakeSlots();
  }

  RotateArgs Args(const Set& set, cudaStream_t stream) const {
    RotateArgs args = {.table = c_.on_the_fly ? nullptr : &table_,
                       .layout = c_.layout,
                       .positions = *positions_,
                       .q = ViewOf(q_, set.q.data(), c_.dtype)};
    args.frequencies = c_.on_the_fly ? &frequencies_ : nullptr;
    args.k = ViewOf(k_, set.k.data(), c_.dtype);
    if (c_.form == Form::kOutOfPlace) {
      args.q_out = ViewOf(q_, set.q_out.data(), c_.dtype);
      args.k_out = ViewOf(k_, set.k_out.data(), c_.dtype);
    }
    if (c_.form == Form::kCache) {
      args.k_out = TensorView::Contiguous(
          set.k_out.data(), c_.dtype, {c_.tokens / kBlockSlots, kBlockSlots, kKvHeads, kHeadDim});
      args.k_out.device = Device::kCuda;
      args.slots = {slots_, static_cast<std::size_t>(c_.tokens)};
    }
    if (c_.norm) {
      args.q_norm.weight = args.k_norm.weight = {weight_, static_cast<std::size_t>(kHeadDim)};
    }
    args.stream = stream;
    return args;
  }

  Set MakeSet() const {
    Set set = {DeviceBuffer(QBytes()), DeviceBuffer(KBytes()), DeviceBuffer(), DeviceBuffer()};
    if (c_.form == Form::kOutOfPlace) set.q_out = DeviceBuffer(QBytes());
    if (c_.form != Form::kInPlace) set.k_out = DeviceBuffer(KBytes());
    for (const DeviceBuffer* out : {&set.q_out, &set.k_out}) {  // poisoned
      if (out->bytes() > 0)
        Ok(cudaMemset(out->data(), 255, static_cast<std::size_t>(out->bytes())), "cudaMemset");
    }
    Visit([&]<class T>() {
      gpu::FillTensor<T>(q_, set.q.data());
      gpu::FillTensor<T>(k_, set.k.data());
    });
    Ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return set;
  }

  // After one call. In units of 2^-23 hypot(pair).
  double WorstError(const Set& set) const {
    const void* q = c_.form == Form::kOutOfPlace ? set.q_out.data() : set.q.data();
    const void* k = c_.form == Form::kInPlace ? set.k.data() : set.k_out.data();
    Expected of_q = expected_;
    of_q.slots = nullptr;
    double worst = 0;
    Visit([&]<class T>() {
      worst = std::max(gpu::ExpectTensor<T>(q_, q, of_q, "q"),
                       gpu::ExpectTensor<T>(k_, k, expected_, "k"));
    });
    return worst;
  }

  int64_t QBytes() const { return NumElements(q_) * SizeOf(c_.dtype); }
  int64_t KBytes() const { return NumElements(k_) * SizeOf(c_.dtype); }

 private:
  static constexpr int64_t kBlockSlots = 16;

  template <class F>
  void Visit(F&& f) const {
    VisitFloat(c_.dtype,
               [&](auto type) { f.template operator()<typename decltype(type)::type>(); });
  }

  // Packed: sequences of 1000 tokens. Axes: images of 32 x 32 tokens.
  void MakePlaces() {
    std::vector<int64_t> boundaries;
    std::vector<int32_t> places(static_cast<std::size_t>(3 * c_.tokens));
    for (int64_t t = 0; t < c_.tokens; ++t) {
      if (t % 1000 == 0) boundaries.push_back(t);
      const auto i = static_cast<std::size_t>(t), n = static_cast<std::size_t>(c_.tokens);
      const bool axes = c_.places == Places::kAxes;
      places[i] = static_cast<int32_t>(axes ? t / 1024 : t % 1000);
      places[n + i] = static_cast<int32_t>(t / 32 % 32);
      places[2 * n + i] = static_cast<int32_t>(t % 32);
    }
    boundaries.push_back(c_.tokens);
    positions_ = Positions::From(c_.start);
    if (c_.places == Places::kStart) return;
    const int32_t* const there = memory_.Copy(places);
    expected_.positions = there;
    if (c_.places == Places::kPacked) {
      positions_ =
          Positions::Packed(std::span<const int64_t>(memory_.Copy(boundaries), boundaries.size()));
    } else {
      positions_ = Positions::Each(std::span<const int32_t>(there, places.size()), 3);
      expected_.axis = memory_.Copy(frequencies_.axis);
    }
  }

  // Blocks of a paged cache in another order.
  void MakeSlots() {
    const int64_t blocks = c_.tokens / kBlockSlots;
    std::vector<int64_t> slots;
    for (int64_t t = 0; t < c_.tokens; ++t) {
      const int64_t block = (t / kBlockSlots * 7919) % blocks;  // 7919 is prime
      slots.push_back(block * kBlockSlots + t % kBlockSlots);
    }
    slots_ = memory_.Copy(slots);
    expected_.slots = slots_;
  }

  const Case c_;
  const Shape q_, k_;
  Frequencies frequencies_;
  CosSinTable table_;
  Memory memory_;
  std::optional<Positions> positions_;
  float* weight_ = nullptr;
  int64_t* slots_ = nullptr;
  Expected expected_;
};

// All that are measured, and what they have to reach.
inline std::vector<Case> Cases(bool quick) {
  using enum DType;
  constexpr PairLayout kHalf = PairLayout::kHalf, kInterleaved = PairLayout::kInterleaved;
  constexpr int64_t kK = 1024;
  std::vector<Case> cases;
  for (const int64_t n : {4 * kK, 16 * kK, 64 * kK, 256 * kK, kK * kK}) {
    cases.push_back({"in place", n, 0.92});
  }
  for (const int64_t n : {4 * kK, 64 * kK, kK * kK}) {
    cases.push_back({"in place", n, 0.90, kBF16, kInterleaved});
    cases.push_back({"M-RoPE", n, 0.90, kBF16, kHalf, Form::kInPlace, Places::kAxes});
    cases.push_back({"packed", n, 0.90, kBF16, kHalf, Form::kInPlace, Places::kPacked});
    cases.push_back({"k into a paged cache", n, 0.85, kBF16, kHalf, Form::kCache});
    cases.push_back({"q/k norm", n, 0.88, kBF16, kHalf, Form::kInPlace, Places::kStart, true});
    cases.push_back({"out of place", n, 0, kBF16, kHalf, Form::kOutOfPlace});
  }
  cases.push_back(
      {"q/k norm", 64 * kK, 0, kBF16, kInterleaved, Form::kInPlace, Places::kStart, true});
  for (const DType type : {kF16, kF32, kF64}) cases.push_back({"in place", 64 * kK, 0, type});
  for (const int64_t n : {4 * kK, 64 * kK}) {
    cases.push_back(
        {"on the fly", n, 0, kBF16, kHalf, Form::kInPlace, Places::kStart, false, true});
  }
  cases.push_back({"at position 1M", 4 * kK, 0, kF32, kHalf, Form::kInPlace, Places::kStart, false,
                   false, kK * kK - 2 * kK});
  if (quick) cases.resize(2);
  return cases;
}

}  // namespace ropewalk::bench
