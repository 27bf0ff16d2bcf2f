// Any call of Rotate, by the thousand: against the reference, and bit for bit against the same
// bodies run by the host.
#include <cstring>
#include <map>
#include <tuple>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "tests/cuda/expected.h"
#include "tests/cuda/rotate_call.h"
#include "tests/rotary/rotate/device_host.h"

namespace ropewalk::gpu {

using random_call::Call;
using random_call::Lists;
using random_call::Tensor;

void Poison(Call& call) {
  for (const Sides& side : kSides) {
    Tensor& t = call.*side.tensor;
    if (side.is_output && t.memory.size() > 0) std::memset(t.memory.data(), 255, t.memory.size());
  }
}

CallOnGpu::CallOnGpu(const Call& call, const Lists& lists) : args(call.On(Device::kCuda)) {
  for (int i = 0; i < 6; ++i) {
    const Tensor& t = call.*kSides[i].tensor;
    if (t.memory.size() == 0) continue;
    of_side_[i] = memory_.Copy(t.memory.data(), static_cast<int64_t>(t.memory.size()));
    (args.*kSides[i].view).data =
        static_cast<std::byte*>(const_cast<void*>(of_side_[i])) + t.offset * SizeOf(t.view.dtype);
  }
  const Positions p = args.positions;
  const std::span<const int64_t> list(memory_.Copy(lists.positions), lists.positions.size());
  const std::span<const int32_t> list32(memory_.Copy(lists.positions32), lists.positions32.size());
  if (p.kind() == Positions::Kind::kEach32) args.positions = Positions::Each(list32, p.axes());
  if (p.kind() == Positions::Kind::kEach64) args.positions = Positions::Each(list, p.axes());
  if (p.kind() == Positions::Kind::kStarts) args.positions = Positions::Starts(list);
  if (p.kind() == Positions::Kind::kLeftPadded) args.positions = Positions::LeftPadded(list);
  if (p.kind() == Positions::Kind::kPacked) args.positions = Positions::Packed(list);
  if (!lists.slots.empty()) args.slots = {memory_.Copy(lists.slots), lists.slots.size()};
  if (!lists.weight.empty()) {
    const std::span<const float> weight(memory_.Copy(lists.weight), lists.weight.size());
    if (!args.q_norm.weight.empty()) args.q_norm.weight = weight;
    if (!args.k_norm.weight.empty()) args.k_norm.weight = weight;
  }
  if (lists.table.count() > 0) {
    table_ = CosSinTable(lists.frequencies, lists.table.first(), lists.table.count(),
                         AnglePrecision::kExact, Device::kCuda);
    args.table = &table_;
  }
}

void CallOnGpu::Download(Call& to) const {
  for (int i = 0; i < 6; ++i) {
    Tensor& t = to.*kSides[i].tensor;
    if (t.memory.size() == 0) continue;
    internal::CopyToHost(t.memory.data(), of_side_[i], static_cast<int64_t>(t.memory.size()),
                         nullptr);
  }
}

namespace {

constexpr std::size_t kKernels = 2 * (4 * 1 + (3 + 3 + 2 + 2) + 4 * 2);  // that Rotate has

// Calls of every kind until the time is over.
std::string RandomCalls(const Options& options) {
  std::map<std::tuple<DType, PairLayout, int, bool, bool>, int> kernels;
  const double start = Now();
  double worst = 0;
  uint64_t seed = 0;
  const uint64_t least = options.quick ? 40 : 1500;
  while (seed < least || (Now() - start < options.seconds && !options.quick)) {
    ++seed;
    Call before;
    Lists lists;
    random_call::MakeCall(seed, before, lists);
    Poison(before);
    const std::string what = "seed " + std::to_string(seed);
    Call emulated = before;
    internal::CudaFaults faults = {};
    const internal::RotateLaunch launch = internal::PlanRotateLaunch(
        emulated.On(Device::kCuda), lists.frequencies.log_decay.data(), 1, &faults);
    if (launch.blocks > 0) {
      internal::RunOnHost(launch);
      ++kernels[{launch.dtype, launch.layout, launch.width, launch.plain, launch.on_the_fly}];
    }
    Call after = before;
    {
      const CallOnGpu there(before, lists);
      Rotate(there.args);
      CudaSynchronize();
      there.Download(after);
    }
    worst = std::max(worst, ExpectRotated(before, after, lists, what));
    if (!HasBits(lists)) continue;
    for (const Sides& side : kSides) {
      const Tensor& a = after.*side.tensor;
      const Tensor& e = emulated.*side.tensor;
      Expect(a.memory.size() == 0 ||
                 std::memcmp(a.memory.data(), e.memory.data(), a.memory.size()) == 0,
             what + ": bits differ from those of the host");
    }
  }
  Expect(options.quick || kernels.size() == kKernels,
         "ran " + std::to_string(kernels.size()) + " kernels of " + std::to_string(kKernels));
  return std::to_string(seed) + " calls, " + std::to_string(kernels.size()) +
         " kernels, worst error " + std::to_string(worst) + " x 2^-23 hypot";
}

}  // namespace

std::vector<Check> RotateChecks() { return {{"rotate, random calls", RandomCalls}}; }

}  // namespace ropewalk::gpu
