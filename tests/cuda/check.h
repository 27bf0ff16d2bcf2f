// Checks of what runs on a GPU, without a test framework: a line each, a summary as JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/cuda.h"

namespace ropewalk::gpu {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void Expect(bool ok, const std::string& what) {
  if (!ok) throw Failure(what);
}

struct Options {
  bool quick = false;   // for a sanitizer, under which everything takes many times as long
  double seconds = 40;  // of random calls
};

// A check returns what is worth saying of it, and throws if it fails.
struct Check {
  const char* name;
  std::function<std::string(const Options&)> run;
};

// In the order in which they run: the first captures a graph before anything else has loaded code.
std::vector<Check> RotateChecks();
std::vector<Check> StreamChecks();
std::vector<Check> OpChecks();
std::vector<Check> LargeChecks();

inline double Now() {  // seconds
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Memory of the GPU, one allocation each, so that a sanitizer sees what leaves it.
class Memory {
 public:
  void* Copy(const void* from, int64_t bytes, void* stream = nullptr) {
    if (bytes == 0) return nullptr;
    buffers_.emplace_back(bytes);
    internal::CopyToDevice(buffers_.back().data(), from, bytes, stream);
    return buffers_.back().data();
  }
  template <class T>
  T* Copy(const std::vector<T>& items) {
    return static_cast<T*>(Copy(items.data(), static_cast<int64_t>(items.size() * sizeof(T))));
  }

 private:
  std::vector<internal::DeviceBuffer> buffers_;
};

template <class T>
std::vector<T> Download(const void* from, std::size_t count) {
  std::vector<T> items(count);
  internal::CopyToHost(items.data(), from, static_cast<int64_t>(count * sizeof(T)), nullptr);
  return items;
}

}  // namespace ropewalk::gpu
