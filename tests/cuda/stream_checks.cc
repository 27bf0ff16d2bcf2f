// Streams, graphs and what kernels report.
#include <cuda_runtime.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "ropewalk/base/cuda.h"
#include "ropewalk/base/error.h"
#include "tests/cuda/rotate_call.h"
#include "tests/rotary/rotate/device_host.h"

namespace ropewalk::gpu {
namespace {

using random_call::Call;
using random_call::Lists;
using random_call::Tensor;

void Ok(cudaError_t status, const char* what) {
  if (status != cudaSuccess) cudaGetLastError();
  Expect(status == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(status));
}

class Stream {
 public:
  Stream() { Ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// What `calls` puts on a stream, captured; in the mode that forbids most.
class Graph {
 public:
  template <class F>
  Graph(const Stream& stream, const F& calls) {
    Ok(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "begin of the capture");
    std::string thrown;
    try {
      calls();
    } catch (const std::exception& e) {
      thrown = e.what();
    }
    const cudaError_t status = cudaStreamEndCapture(stream.get(), &graph_);
    Expect(thrown.empty(), "in the capture: " + thrown);
    Ok(status, "end of the capture");
    Ok(cudaGraphInstantiate(&exec_, graph_, 0), "cudaGraphInstantiate");
  }
  ~Graph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void Launch(const Stream& stream) const {
    Ok(cudaGraphLaunch(exec_, stream.get()), "cudaGraphLaunch");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

constexpr int64_t kTableRows = 4096;

// q and k in bf16, in place, each token at a place of its own.
void MakePlain(Call& call, Lists& lists, bool on_the_fly) {
  random_call::Random random(7);
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = 64;
  lists.frequencies = Resolve(spec, kTableRows);
  lists.positions = {5, 0, 1000, 255, 4095, 17};
  call.args.positions = Positions::Each(std::span<const int64_t>(lists.positions));
  if (on_the_fly) {
    call.args.frequencies = &lists.frequencies;
  } else {
    lists.table = CosSinTable(lists.frequencies, 0, kTableRows, AnglePrecision::kExact);
    call.args.table = &lists.table;
  }
  const auto tokens = static_cast<int64_t>(lists.positions.size());
  call.q = Tensor(DType::kBF16, {1, tokens, 4, 64}, false, random);
  call.k = Tensor(DType::kBF16, {1, tokens, 2, 64}, false, random);
}

void RunOnHost(Call& call, const Lists& lists) {
  internal::CudaFaults faults = {};
  const internal::RotateLaunch launch = internal::PlanRotateLaunch(
      call.On(Device::kCuda), lists.frequencies.log_decay.data(), 1, &faults);
  if (launch.blocks > 0) internal::RunOnHost(launch);
}

void ExpectSame(const Call& got, const Call& want, const std::string& what) {
  for (const Sides& side : kSides) {
    const auto& g = (got.*side.tensor).memory;
    const auto& w = (want.*side.tensor).memory;
    Expect(w.size() == 0 || std::memcmp(g.data(), w.data(), w.size()) == 0,
           what + ": bits differ from those of the host");
  }
}

std::string MessageOfSynchronize(void* stream = nullptr) {
  try {
    CudaSynchronize(stream);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void ExpectMessage(const std::string& part, void* stream = nullptr) {
  const std::string message = MessageOfSynchronize(stream);
  Expect(message.find(part) != std::string::npos,
         "CudaSynchronize: expected \"" + part + "\", got \"" + message + "\"");
  const std::string again = MessageOfSynchronize(stream);
  Expect(again.empty(), "CudaSynchronize: reported twice: " + again);
}

// Nothing but FindCuda ran before: are kernels loaded while a stream captures?
std::string CaptureFirst(const Options&) {
  Call call;
  Lists lists;
  MakePlain(call, lists, true);
  CallOnGpu there(call, lists);
  const Stream stream;
  there.args.stream = stream.get();
  const Graph graph(stream, [&] { Rotate(there.args); });
  graph.Launch(stream);
  CudaSynchronize(stream.get());
  Call after = call;
  there.Download(after);
  RunOnHost(call, lists);
  ExpectSame(after, call, "replay");
  return "a kernel that was never launched can be captured";
}

std::string Replays(const Options&) {
  Call call;
  Lists lists;
  MakePlain(call, lists, false);
  CallOnGpu there(call, lists);
  const Stream stream;
  there.args.stream = stream.get();
  const Graph graph(stream, [&] {
    Rotate(there.args);
    Rotate(there.args);
  });
  auto* const positions = const_cast<void*>(there.args.positions.data());
  const auto bytes = static_cast<int64_t>(lists.positions.size() * sizeof(int64_t));
  for (int64_t step = 0; step < 5; ++step) {
    for (int64_t& p : lists.positions) p = (p + step) % kTableRows;
    internal::CopyToDevice(positions, lists.positions.data(), bytes, stream.get());
    graph.Launch(stream);
    CudaSynchronize(stream.get());
    RunOnHost(call, lists);
    RunOnHost(call, lists);
    Call after = call;
    there.Download(after);
    ExpectSame(after, call, "replay " + std::to_string(step));
  }
  lists.positions[2] = 123456;
  internal::CopyToDevice(positions, lists.positions.data(), bytes, stream.get());
  graph.Launch(stream);
  ExpectMessage("position 123456 ", stream.get());
  Call after = call;
  there.Download(after);
  const auto* q = reinterpret_cast<const BFloat16*>(after.q.memory.data());
  for (int64_t i = 0; i < 6 * 4 * 64; ++i) {
    Expect(std::isnan(ToFloat(q[i])) == (i / 256 == 2), "element " + std::to_string(i));
  }
  lists.positions[2] = 1;
  internal::CopyToDevice(positions, lists.positions.data(), bytes, stream.get());
  graph.Launch(stream);
  CudaSynchronize(stream.get());
  return "6 replays of two calls, new positions each, one outside the table";
}

// What the host cannot see in positions and slots.
std::string Faults(const Options&) {
  for (const bool on_the_fly : {false, true}) {
    for (const int64_t bad : {int64_t{-1}, int64_t{kTableRows}, int64_t{1} << 31, INT64_MIN}) {
      Call call;
      Lists lists;
      MakePlain(call, lists, on_the_fly);
      if (on_the_fly && bad == kTableRows) continue;
      lists.positions[4] = bad;
      CallOnGpu there(call, lists);
      Rotate(there.args);
      ExpectMessage("position " + std::to_string(bad) + " ");
      Call after = call;
      there.Download(after);
      RunOnHost(call, lists);
      const auto* q = reinterpret_cast<const BFloat16*>(after.q.memory.data());
      const auto* want = reinterpret_cast<const BFloat16*>(call.q.memory.data());
      for (int64_t i = 0; i < 6 * 256; ++i) {
        const bool nan = i / 256 == 4;
        Expect(nan ? std::isnan(ToFloat(q[i])) : q[i].bits == want[i].bits,
               "position " + std::to_string(bad) + ", element " + std::to_string(i));
      }
    }
  }
  Call call;
  Lists lists;
  MakePlain(call, lists, false);
  random_call::Random random(8);
  call.k_out = Tensor(DType::kF8E4M3, {2, 4, 2, 64}, false, random);
  lists.slots = {7, 8, -1, 0, -5, 3};
  call.args.slots = lists.slots;
  Poison(call);
  const CallOnGpu there(call, lists);
  Rotate(there.args);
  const std::string message = MessageOfSynchronize();
  Expect(
      message.find("slot 8 ") != std::string::npos || message.find("slot -5 ") != std::string::npos,
      "CudaSynchronize said: " + message);
  Call after = call;
  there.Download(after);
  RunOnHost(call, lists);
  ExpectSame(after, call, "cache");
  return "positions and slots outside are NaN or not written, and said once";
}

std::string Concurrent(const Options& options) {
  constexpr int kStreams = 8;
  const int calls = options.quick ? 16 : 256;
  std::vector<Stream> streams(kStreams);
  std::vector<Call> before(static_cast<std::size_t>(calls));
  std::vector<Lists> lists(before.size());
  std::vector<std::unique_ptr<CallOnGpu>> there;
  for (std::size_t i = 0; i < before.size(); ++i) {
    random_call::MakeCall(100000 + i, before[i], lists[i]);
    Poison(before[i]);
    there.push_back(std::make_unique<CallOnGpu>(before[i], lists[i]));
    there.back()->args.stream = streams[i % kStreams].get();
  }
  std::vector<std::thread> threads;
  std::atomic<int> thrown = 0;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < there.size(); i += 4) {
        try {
          Rotate(there[i]->args);
        } catch (const std::exception&) {
          ++thrown;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Expect(thrown == 0, std::to_string(thrown) + " calls threw");
  for (const Stream& stream : streams) CudaSynchronize(stream.get());
  int compared = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (!HasBits(lists[i])) continue;
    Call after = before[i];
    there[i]->Download(after);
    RunOnHost(before[i], lists[i]);
    ExpectSame(after, before[i], "call " + std::to_string(i));
    ++compared;
  }
  return std::to_string(compared) + " calls of 4 threads on 8 streams";
}

std::string NoAllocation(const Options& options) {
  if (options.quick) throw Skipped("a sanitizer takes memory itself");
  Call call;
  Lists lists;
  MakePlain(call, lists, false);
  const CallOnGpu with_table(call, lists);
  Call other;
  Lists other_lists;
  MakePlain(other, other_lists, true);
  const CallOnGpu on_the_fly(other, other_lists);
  const auto both = [&] {
    Rotate(with_table.args);
    Rotate(on_the_fly.args);
  };
  both();
  CudaSynchronize();
  std::size_t before = 0, after = 0, all = 0;
  Ok(cudaMemGetInfo(&before, &all), "cudaMemGetInfo");
  for (int i = 0; i < 500; ++i) both();
  Ok(cudaMemGetInfo(&after, &all), "cudaMemGetInfo");
  CudaSynchronize();
  Expect(before == after,
         std::to_string(before) + " bytes were free, then " + std::to_string(after));
  return "1000 calls, " + std::to_string(before >> 20) + " MiB free before and after";
}

// A call that throws leaves nothing behind for the next one.
std::string Refusals(const Options&) {
  Call call;
  Lists lists;
  MakePlain(call, lists, false);
  CallOnGpu there(call, lists);
  RotateArgs bad = there.args;
  bad.table = &lists.table;  // of the CPU
  bool refused = false;
  try {
    Rotate(bad);
  } catch (const Error&) {
    refused = true;
  }
  Expect(refused, "a table of the CPU was taken");
  Expect(cudaPeekAtLastError() == cudaSuccess, "an error stays behind");
  Rotate(there.args);
  CudaSynchronize();
  return "";
}

}  // namespace

std::vector<Check> StreamChecks() {
  return {{"graph, captured before anything ran", CaptureFirst},
          {"graph, replays and faults", Replays},
          {"faults", Faults},
          {"refusals", Refusals},
          {"streams and threads", Concurrent},
          {"no allocation", NoAllocation}};
}

}  // namespace ropewalk::gpu
