#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ropewalk/base/error.h"
#include "ropewalk/io/weights.h"
#include "src/io/bytes.h"

namespace ropewalk {
namespace {

struct FileDescriptor {
  explicit FileDescriptor(int value) : fd(value) {}
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int fd;
};

[[noreturn]] void ThrowErrno(const std::string& path, const char* what) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

// A mapping that a signal handler may look up: `path` is set last and taken away first.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<const std::byte*> data{nullptr};
  std::atomic<std::size_t> size{0};
  std::atomic<const char*> path{nullptr};
};
std::array<Slot, 1024> g_slots;

void Enter(const std::byte* data, std::size_t size, const char* path) {
  for (Slot& slot : g_slots) {
    if (slot.taken.exchange(true)) continue;
    slot.data = data;
    slot.size = size;
    slot.path = path;
    return;
  }
}

void Leave(const std::byte* data) {
  for (Slot& slot : g_slots) {
    if (slot.data != data || slot.path == nullptr) continue;
    slot.path = nullptr;
    slot.data = nullptr;
    slot.taken = false;
    return;
  }
}

}  // namespace

const char* MappedFile::PathAt(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Slot& slot : g_slots) {
    const auto begin = reinterpret_cast<std::uintptr_t>(slot.data.load());
    const char* path = slot.path;
    if (path != nullptr && begin <= at && at - begin < slot.size) return path;
  }
  return nullptr;
}

std::shared_ptr<const MappedFile> MappedFile::Open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, internal::Quote(path) + ": a path holds no NUL");
  }
  // O_NONBLOCK: a FIFO without a writer would hang the open itself.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) ThrowErrno(path, "cannot open");
  struct stat info;
  if (::fstat(file.fd, &info) != 0) ThrowErrno(path, "cannot read its size");
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo, path + ": not a regular file, so it cannot be mapped");
  }
  std::shared_ptr<MappedFile> mapped(new MappedFile());
  mapped->path_ = path;
  mapped->size_ = static_cast<std::size_t>(info.st_size);
  if (mapped->size_ == 0) return mapped;
  void* data = ::mmap(nullptr, mapped->size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    mapped->size_ = 0;
    ThrowErrno(path, "cannot map");
  }
  mapped->data_ = static_cast<const std::byte*>(data);
  Enter(mapped->data_, mapped->size_, mapped->path_.c_str());
  ::madvise(data, mapped->size_, MADV_SEQUENTIAL);  // a hint: read ahead, once, front to back
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  Leave(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

namespace internal {

void ReleasePages(const void* data, std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t past = reinterpret_cast<std::uintptr_t>(data) % page;
  const std::size_t front = past == 0 ? 0 : page - past;  // of a page that others may still read
  if (bytes < front + page) return;
  ::madvise(const_cast<char*>(static_cast<const char*>(data)) + front,
            (bytes - front) / page * page, MADV_DONTNEED);
}

void ExpectReuse(const void* data, std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t past = reinterpret_cast<std::uintptr_t>(data) % page;
  ::madvise(const_cast<char*>(static_cast<const char*>(data)) - past, bytes + past, MADV_NORMAL);
}

}  // namespace internal
}  // namespace ropewalk
