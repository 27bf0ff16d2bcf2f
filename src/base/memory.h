// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace ropewalk::internal {

// Where Linux says it; tests have files of their own.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string own_groups = "/proc/self/cgroup";
  std::string groups = "/sys/fs/cgroup";
};

// Bytes that can be allocated without swapping: what the machine has available, but no more than
// any control group (version 1 or 2) around the process leaves, whose file pages count as free.
// INT64_MAX where nothing says so.
int64_t AvailableMemory(const MemoryFiles& files = {});

}  // namespace ropewalk::internal
