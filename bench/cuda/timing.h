// Times of what runs on a GPU: work is captured in graphs, so that what the host takes to launch it
// is not counted, and whatever is compared is replayed in turns.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/cuda.h"

namespace ropewalk::bench {

inline void Ok(cudaError_t status, const char* what) { internal::CheckCuda(status, what); }

inline double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// `calls` of one kind, captured, replayed as one.
class Captured {
 public:
  Captured(cudaStream_t stream, int calls, const std::function<void(int)>& call)
      : stream_(stream), calls_(calls) {
    Ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) call(i);
    cudaGraph_t graph = nullptr;
    Ok(cudaStreamEndCapture(stream, &graph), "capture");
    Ok(cudaGraphInstantiate(&exec_, graph, 0), "cudaGraphInstantiate");
    Ok(cudaGraphDestroy(graph), "cudaGraphDestroy");
    Ok(cudaEventCreate(&begin_), "cudaEventCreate");
    Ok(cudaEventCreate(&end_), "cudaEventCreate");
    Replay();
  }
  ~Captured() {
    cudaGraphExecDestroy(exec_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  // Microseconds a call.
  double Replay() {
    Ok(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    Ok(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch");
    Ok(cudaEventRecord(end_, stream_), "cudaEventRecord");
    Ok(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float ms = 0;
    Ok(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return static_cast<double>(ms) * 1000 / calls_;
  }

 private:
  cudaStream_t stream_;
  int calls_;
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Medians of rounds in which each takes its turn.
inline std::vector<double> InTurns(const std::vector<Captured*>& all, int rounds) {
  std::vector<std::vector<double>> times(all.size());
  for (int r = 0; r < rounds; ++r) {
    for (std::size_t i = 0; i < all.size(); ++i) times[i].push_back(all[i]->Replay());
  }
  std::vector<double> medians;
  for (auto& t : times) medians.push_back(Median(std::move(t)));
  return medians;
}

#ifdef __CUDACC__
static __global__ void EmptyKernel() {}

// Each thread four loads of 16 bytes, then their stores.
static __global__ void CopyKernel(const uint4* from, uint4* to, int64_t count) {
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x * 4 + threadIdx.x;
  uint4 x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t i = begin + int64_t{k} * blockDim.x;
    if (i < count) x[k] = from[i];
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t i = begin + int64_t{k} * blockDim.x;
    if (i < count) to[i] = x[k];
  }
}
inline void CopyByKernel(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  const int64_t count = bytes / 16;
  CopyKernel<<<static_cast<unsigned>((count + 1023) / 1024), 256, 0, stream>>>(
      static_cast<const uint4*>(from), static_cast<uint4*>(to), count);
  Ok(cudaGetLastError(), "CopyKernel");
}
#endif

}  // namespace ropewalk::bench
