#include "src/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/io/bytes.h"

namespace ropewalk::internal {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;  // metadata is written in small pieces

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (path_.empty() || path_.find('\0') != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, Quote(path_) + ": not a path that can be written");
  }
  struct stat info;
  if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo, path_ + ": cannot write: it is there and not a regular file");
  }
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = fmt::format("{}.{}-{}.part", path_, ::getpid(), counter++);
    // 0666: the permissions that the user's umask gives to any other file.
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0 || errno != EEXIST) break;
  }
  if (fd_ < 0) Fail("cannot write here", errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::Fail(const char* what, int error) const {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}: {}", path_, what, std::strerror(error)));
}

void AtomicFile::Flush() {
  const char* data = buffer_.data();
  for (std::size_t left = buffer_.size(); left > 0;) {
    const ssize_t written = ::write(fd_, data, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail("cannot write", errno);
    data += written;
    left -= static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void AtomicFile::Write(const void* data, std::size_t bytes) {
  buffer_.append(static_cast<const char*>(data), bytes);
  if (buffer_.size() >= kBufferBytes) Flush();
}

void AtomicFile::Commit() {
  Flush();
  if (::fsync(fd_) != 0 && errno != EINVAL) Fail("cannot write", errno);  // EINVAL: cannot sync
  const int closed = ::close(fd_);
  const int reason = errno;
  fd_ = -1;
  if (closed != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = closed != 0 ? reason : errno;
    ::unlink(temporary_.c_str());
    Fail("cannot write", error);
  }
  SyncFolder(FolderOf(path_));
}

void WriteFileAtomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

void SyncFolder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace ropewalk::internal
