// The fuzzer's bytes as a file that can be mapped, without a disk.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "ropewalk/io/weights.h"

namespace ropewalk::fuzz {

// Path of the one file, which now holds `size` bytes of `data`.
inline std::string MemoryFile(const uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("ropewalk", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0 ||
      ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  return "/proc/self/fd/" + std::to_string(file);
}

// Every byte that an accepted file calls a tensor must be readable.
inline void ReadAll(const std::map<std::string, Weight>& tensors) {
  for (const auto& [name, weight] : tensors) {
    std::vector<float> out(static_cast<std::size_t>(weight.rows() * weight.cols()));
    weight.ReadRows(0, weight.rows(), out.data());
  }
  ContentHash(tensors);
}

}  // namespace ropewalk::fuzz
