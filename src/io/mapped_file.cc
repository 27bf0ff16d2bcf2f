#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

}  // namespace

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
  ::madvise(data, mapped->size_, MADV_SEQUENTIAL);  // a hint: read ahead, once, front to back
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
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
