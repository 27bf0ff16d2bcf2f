#include "ropewalk/base/buffer.h"

#include <cstdint>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ropewalk::internal {
namespace {

// The sanitizer watches the heap alone, so with it everything stays there.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define ROPEWALK_MAPPED_BUFFERS 1
constexpr std::size_t kMappedFrom = std::size_t{4} << 20;
#endif

}  // namespace

void* AllocateAligned(std::size_t count, std::size_t item_bytes) {
  if (count == 0) return nullptr;
  if (count > (PTRDIFF_MAX - kAlignment) / item_bytes) throw std::bad_alloc();
  const std::size_t bytes = count * item_bytes;
#if defined(ROPEWALK_MAPPED_BUFFERS)
  if (bytes >= kMappedFrom) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    // Fewer faults and fewer TLB misses where the system has huge pages; advice, so no error.
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
  }
#endif
  void* p = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void FreeAligned(void* data, [[maybe_unused]] std::size_t bytes) noexcept {
  if (data == nullptr) return;
#if defined(ROPEWALK_MAPPED_BUFFERS)
  if (bytes >= kMappedFrom) {
    munmap(data, bytes);
    return;
  }
#endif
  std::free(data);
}

}  // namespace ropewalk::internal
