// Rotate on a GPU against a copy of as many bytes there, in turns, over buffers that together are
// larger than the L2 cache. Every result is compared with cos and sin in double before it is timed.
//   rotate_cuda_bench [--quick] [--json FILE] [--only TEXT]
// --only: the cases whose name has TEXT in it.
// Exit code 0: measured, whatever the numbers are; 1: a result was wrong; 77: there is no GPU.
#include <cuda_runtime.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/cuda/rotate_case.h"
#include "ropewalk/base/cuda.h"
#include "ropewalk/rotary/gradient.h"
#include "ropewalk/rotary/rerotate.h"
#include "src/rotary/table_device.h"

namespace ropewalk::bench {
namespace {

class Output {
 public:
  explicit Output(const std::string& json) {
    if (!json.empty()) file_.open(json, std::ios::app);
  }
  void Add(const std::string& line) {
    if (file_.is_open()) file_ << line << std::endl;
  }

 private:
  std::ofstream file_;
};

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", x);
  return text;
}

struct Gpu {
  int64_t l2 = 0;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
  int rounds = 21;
  bool quick = false;
};

struct Measured {
  double us, copy_us, worst;
  bool copy_by_kernel;
};

Measured Measure(const Case& c, const Gpu& gpu) {
  const Setup setup(c);
  const int64_t bytes = setup.QBytes() + setup.KBytes();
  // Past the cache four times, and long enough that the clock does not matter.
  const auto sets_needed = std::clamp<int64_t>((4 * gpu.l2 + bytes - 1) / bytes, 2, 64);
  std::vector<Set> sets;
  for (int64_t i = 0; i < sets_needed; ++i) sets.push_back(setup.MakeSet());
  std::vector<RotateArgs> args;
  for (const Set& set : sets) args.push_back(setup.Args(set, gpu.stream));
  Measured m = {};
  Rotate(args[0]);
  CudaSynchronize(gpu.stream);
  m.worst = setup.WorstError(sets[0]);
  const int calls = static_cast<int>(
      std::max<int64_t>(sets_needed, std::min<int64_t>(200, (int64_t{1} << 30) / bytes)));
  Captured op(gpu.stream, calls,
              [&](int i) { Rotate(args[static_cast<std::size_t>(i) % args.size()]); });
  // The copies, of the same numbers.
  std::vector<DeviceBuffer> from, to;
  for (int64_t i = 0; i < sets_needed; ++i) {
    from.emplace_back(bytes);
    to.emplace_back(bytes);
    char* const copied = static_cast<char*>(from.back().data());
    internal::CopyOnDevice(copied, sets[0].q.data(), setup.QBytes(), gpu.stream);
    internal::CopyOnDevice(copied + setup.QBytes(), sets[0].k.data(), setup.KBytes(), gpu.stream);
  }
  const auto at = [&](int i) { return static_cast<std::size_t>(i) % from.size(); };
  Captured driver(gpu.stream, calls, [&](int i) {
    internal::CopyOnDevice(to[at(i)].data(), from[at(i)].data(), bytes, gpu.stream);
  });
  Captured kernel(gpu.stream, calls, [&](int i) {
    CopyByKernel(to[at(i)].data(), from[at(i)].data(), bytes, gpu.stream);
  });
  const std::vector<double> times = InTurns({&op, &driver, &kernel}, gpu.rounds);
  CudaSynchronize(gpu.stream);
  m.us = times[0];
  m.copy_us = std::min(times[1], times[2]);
  m.copy_by_kernel = times[2] < times[1];
  return m;
}

void RunCase(const Case& c, const Gpu& gpu, Output& out) {
  const Measured m = Measure(c, gpu);
  const double share = m.copy_us / m.us;
  const int64_t bytes = 2 * c.tokens * (kHeads + kKvHeads) * kHeadDim * SizeOf(c.dtype);
  const char* verdict = c.target == 0 ? "" : share >= c.target ? "met" : "MISS";
  const char* layout = c.layout == PairLayout::kHalf ? "half" : "interleaved";
  std::printf("%-22s %-5s %-11s %8lld  %10.2f us  copy %10.2f us  %6.0f GB/s  share %.3f  ", c.name,
              Name(c.dtype), layout, static_cast<long long>(c.tokens), m.us, m.copy_us,
              static_cast<double>(bytes) / m.us / 1000, share);
  if (c.target > 0) std::printf("target %.2f %s", c.target, verdict);
  // 1 before the rounding of the result, which adds at most 0.5 in float32.
  if (c.dtype == DType::kF32) {
    std::printf(" worst error %.3f x 2^-23 hypot, target 1.5 %s", m.worst,
                m.worst <= 1.5 ? "met" : "MISS");
  }
  std::printf("\n");
  std::fflush(stdout);
  out.Add("{\"bench\": \"rotate_cuda\", \"case\": \"" + std::string(c.name) + "\", \"dtype\": \"" +
          Name(c.dtype) + "\", \"layout\": \"" + layout + "\", \"tokens\": " +
          std::to_string(c.tokens) + ", \"first_position\": " + std::to_string(c.start) +
          ", \"us\": " + Number(m.us) + ", \"copy_us\": " + Number(m.copy_us) + ", \"copy\": \"" +
          (m.copy_by_kernel ? "kernel" : "cudaMemcpyAsync") +
          "\", \"share_of_copy\": " + Number(share) + ", \"target\": " + Number(c.target) +
          ", \"met\": " + (share >= c.target ? "true" : "false") +
          ", \"worst_error\": " + Number(m.worst) + "}");
}

// A few tokens: against an empty kernel and the time that copies take for the bytes.
void RunSmall(int64_t tokens, bool on_the_fly, double copy_gb_per_s, const Gpu& gpu, Output& out) {
  const Case c = {on_the_fly ? "few, on the fly" : "few",
                  tokens,
                  0,
                  DType::kBF16,
                  PairLayout::kHalf,
                  Form::kInPlace,
                  Places::kStart,
                  false,
                  on_the_fly,
                  on_the_fly ? 1048575 : 0};
  const Setup setup(c);
  const int64_t bytes = setup.QBytes() + setup.KBytes();
  constexpr int kCalls = 200;
  std::vector<Set> sets;
  std::vector<RotateArgs> args;
  for (int i = 0; i < 64; ++i) sets.push_back(setup.MakeSet());
  for (const Set& set : sets) args.push_back(setup.Args(set, gpu.stream));
  Rotate(args[0]);
  CudaSynchronize(gpu.stream);
  setup.WorstError(sets[0]);
  Captured op(gpu.stream, kCalls, [&](int i) { Rotate(args[static_cast<std::size_t>(i % 64)]); });
  Captured empty(gpu.stream, kCalls, [&](int) { EmptyKernel<<<1, 32, 0, gpu.stream>>>(); });
  const std::vector<double> times = InTurns({&op, &empty}, gpu.rounds);
  const double limit =
      std::min(3.0, 1.1 * (times[1] + 2 * static_cast<double>(bytes) / copy_gb_per_s / 1000));
  std::printf("%-22s %-5s %-11s %8lld  %10.3f us  empty kernel %6.3f us  limit %6.3f us %s\n",
              c.name, "bf16", "half", static_cast<long long>(tokens), times[0], times[1], limit,
              times[0] <= limit ? "met" : "MISS");
  std::fflush(stdout);
  out.Add("{\"bench\": \"rotate_cuda_small\", \"case\": \"" + std::string(c.name) +
          "\", \"dtype\": \"bf16\", \"tokens\": " + std::to_string(tokens) +
          ", \"us\": " + Number(times[0]) + ", \"empty_kernel_us\": " + Number(times[1]) +
          ", \"limit_us\": " + Number(limit) +
          ", \"met\": " + (times[0] <= limit ? "true" : "false") + "}");
}

// A table by itself: the kernel, and all of the constructor.
void RunTable(int64_t count, const Gpu& gpu, Output& out) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kHeadDim;
  const Frequencies f = Resolve(spec, count);
  std::vector<double> whole;
  for (int i = 0; i < 5; ++i) {
    const double start = gpu::Now();
    const CosSinTable table(f, 0, count, AnglePrecision::kExact, Device::kCuda);
    whole.push_back((gpu::Now() - start) * 1e6);
  }
  std::vector<internal::Uint128> turns;
  for (const DoubleDouble& x : f.inv_freq) turns.push_back(internal::ToTurns(x));
  Memory memory;
  const DeviceBuffer rows(count * 2 * kPairs * 4);
  const internal::TableParams p = {.turns = memory.Copy(turns),
                                   .pairs = kPairs,
                                   .amplitude = 1,
                                   .first = 0,
                                   .count = count,
                                   .rows = static_cast<float*>(rows.data())};
  Captured kernel(gpu.stream, 4, [&](int) { internal::LaunchFillTable(p, gpu.stream); });
  const double us = InTurns({&kernel}, gpu.rounds)[0];
  const double elements = static_cast<double>(count * 2 * kPairs);
  std::printf(
      "table of %lld rows of 64 pairs: kernel %.1f us, %.4f ns an element; constructor %.1f us\n",
      static_cast<long long>(count), us, us * 1000 / elements, Median(whole));
  out.Add("{\"bench\": \"table_cuda\", \"rows\": " + std::to_string(count) +
          ", \"pairs\": 64, \"us\": " + Number(us) + ", \"ns_per_element\": " +
          Number(us * 1000 / elements) + ", \"constructor_us\": " + Number(Median(whole)) + "}");
}

// Other ops on keys of 8 heads of 128 in bf16: the share of the copy's speed, for as many bytes.
void RunOthers(int64_t tokens, const Gpu& gpu, Output& out) {
  const Shape shape = ContiguousShape(1, tokens, kKvHeads, kPairs);
  const int64_t bytes = NumElements(shape) * 2;
  const DeviceBuffer a(bytes), b(bytes);
  gpu::FillTensor<BFloat16>(shape, a.data());
  gpu::FillTensor<BFloat16>(shape, b.data());
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kHeadDim;
  const Frequencies f = Resolve(spec, tokens);
  const RerotateArgs move = {.frequencies = &f,
                             .layout = PairLayout::kHalf,
                             .moves = Moves::All(-1000),
                             .keys = ViewOf(shape, a.data(), DType::kBF16),
                             .stream = gpu.stream};
  Q8KeysView blocks = Q8KeysView::Contiguous(b.data(), 1, tokens, kKvHeads, kHeadDim);
  blocks.device = Device::kCuda;
  const RerotateArgs move_q8 = {.frequencies = &f,
                                .layout = PairLayout::kHalf,
                                .moves = Moves::All(-1000),
                                .q8_keys = blocks,
                                .stream = gpu.stream};
  const RotaryGradientArgs sums = {.frequencies = &f,
                                   .layout = PairLayout::kHalf,
                                   .positions = Positions::From(0),
                                   .value = ViewOf(shape, a.data(), DType::kBF16),
                                   .gradient = ViewOf(shape, b.data(), DType::kBF16)};
  const DeviceBuffer workspace(FrequencyGradientWorkspace(sums)), result((kPairs + 1) * 8);
  Ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const auto once = [&](const std::function<void()>& call) {
    return std::make_unique<Captured>(gpu.stream, 4, [&](int) { call(); });
  };
  const auto copy = once([&] { CopyByKernel(b.data(), a.data(), bytes, gpu.stream); });
  const auto moved = once([&] { Rerotate(move); });
  const auto moved_q8 = once([&] { Rerotate(move_q8); });
  const auto summed = once([&] {
    FrequencyGradientOnDevice(sums, workspace.data(), static_cast<double*>(result.data()), {},
                              gpu.stream);
  });
  const auto times = InTurns({copy.get(), moved.get(), moved_q8.get(), summed.get()}, gpu.rounds);
  CudaSynchronize(gpu.stream);
  const char* names[] = {"copy", "rerotate", "rerotate Q8_0", "gradient of frequencies"};
  for (std::size_t i = 1; i < times.size(); ++i) {
    const double size = i == 2 ? 34.0 / 64 : 1;  // of what is moved
    const double share = times[0] * size / times[i];
    std::printf("%-24s %8lld tokens of 8 heads  %10.2f us  share of a copy's speed %.3f\n",
                names[i], static_cast<long long>(tokens), times[i], share);
    out.Add("{\"bench\": \"others_cuda\", \"case\": \"" + std::string(names[i]) +
            "\", \"dtype\": \"bf16\", \"tokens\": " + std::to_string(tokens) +
            ", \"us\": " + Number(times[i]) + ", \"share_of_copy\": " + Number(share) + "}");
  }
}

std::string DescribeGpu(const CudaInfo& info) {
  int clock = 0, memory_clock = 0;
  cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0);
  cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, 0);
  return "{\"bench\": \"gpu\", \"gpu\": \"" + info.devices[0].name + "\", \"driver_cuda\": \"" +
         info.driver + "\", \"toolkit\": \"" + info.toolkit + "\", \"targets\": \"" + info.targets +
         "\", \"clock_mhz\": " + std::to_string(clock / 1000) +
         ", \"memory_clock_mhz\": " + std::to_string(memory_clock / 1000) + "}";
}

// Of a copy that is large enough, reading and writing counted.
double CopySpeed(const Gpu& gpu) {
  const int64_t bytes = int64_t{1} << 31;
  const DeviceBuffer from(bytes), to(bytes);
  Ok(cudaMemset(from.data(), 77, static_cast<std::size_t>(bytes)), "cudaMemset");
  Ok(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  Captured kernel(gpu.stream, 2,
                  [&](int) { CopyByKernel(to.data(), from.data(), bytes, gpu.stream); });
  Captured driver(gpu.stream, 2,
                  [&](int) { internal::CopyOnDevice(to.data(), from.data(), bytes, gpu.stream); });
  const std::vector<double> us = InTurns({&kernel, &driver}, gpu.rounds);
  return 2 * static_cast<double>(bytes) / std::min(us[0], us[1]) / 1000;
}

// One that cannot be measured must not take the others with it.
int Guarded(const std::function<void()>& run, const char* what) {
  try {
    run();
    return 0;
  } catch (const std::exception& e) {
    std::printf("%-22s FAILED: %s\n", what, e.what());
    return 1;
  }
}

int Main(int argc, char** argv) {
  Gpu gpu;
  std::string json, only;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      gpu.quick = true;
    } else if (word == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (word == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else {
      std::fprintf(stderr, "usage: rotate_cuda_bench [--quick] [--json FILE] [--only TEXT]\n");
      return 2;
    }
  }
  const std::vector<Case> cases = Cases(gpu.quick);
  const CudaInfo info = FindCuda();
  if (info.devices.empty()) {
    std::printf(
        "no GPU: %s\nwould have measured %zu cases of Rotate, few tokens, tables, other ops\n",
        info.why_none.c_str(), cases.size());
    return 77;
  }
  int l2 = 0;
  Ok(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0), "cudaDevAttrL2CacheSize");
  Ok(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  gpu.l2 = l2;
  if (gpu.quick) gpu.rounds = 5;
  Output out(json);
  out.Add(DescribeGpu(info));
  std::printf("%s\n", DescribeGpu(info).c_str());
  const double speed = CopySpeed(gpu);
  std::printf("copies: %.0f GB/s, reading and writing counted; L2 %d MiB\n", speed, l2 >> 20);
  out.Add("{\"bench\": \"copy_cuda\", \"gb_per_s\": " + Number(speed) + "}");
  int failed = 0;
  const auto wanted = [&](const char* name) {
    return std::string(name).find(only) != std::string::npos;
  };
  for (const Case& c : cases) {
    if (wanted(c.name)) failed += Guarded([&] { RunCase(c, gpu, out); }, c.name);
  }
  for (const bool on_the_fly : {false, true}) {
    if (!wanted(on_the_fly ? "few, on the fly" : "few")) continue;
    for (const int64_t tokens : {1, 2, 4, 8, 16, 32, 64}) {
      failed += Guarded([&] { RunSmall(tokens, on_the_fly, speed, gpu, out); }, "few");
    }
  }
  for (const int64_t rows : {4096, 131072}) {
    if (wanted("table")) failed += Guarded([&] { RunTable(rows, gpu, out); }, "table");
  }
  if (wanted("other ops")) failed += Guarded([&] { RunOthers(262144, gpu, out); }, "other ops");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ropewalk::bench

int main(int argc, char** argv) { return ropewalk::bench::Main(argc, argv); }
