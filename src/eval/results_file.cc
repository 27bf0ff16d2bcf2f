#include "src/eval/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "ropewalk/base/error.h"
#include "src/io/atomic_file.h"

namespace ropewalk::internal {
namespace {

[[noreturn]] void Fail(const std::string& what, int error) {
  throw Error(ErrorCode::kIo, what + ": " + std::strerror(error));
}

// 0, or why not. Another process may look for a moment whether the file is locked.
int Lock(int fd) {
  constexpr int kAttempts = 20;
  constexpr std::chrono::milliseconds kPause(10);
  for (int attempt = 0;; ++attempt) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK || attempt == kAttempts) return errno;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

bool IsLocked(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

ResultsFile::ResultsFile(const std::string& folder, const std::string& name)
    : path_(folder + "/" + name) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ErrorCode::kIo, "cannot create the folder " + folder + ": " + error.message() +
                                    "; choose another with -o");
  }
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    Fail("cannot write " + path_ + " (choose another folder with -o)", errno);
  }
  if (const int reason = Lock(fd_); reason != 0) {
    ::close(fd_);
    if (reason == EWOULDBLOCK) {
      throw Error(ErrorCode::kMismatch, "another ropewalk is writing to " + path_ +
                                            "; wait for it, or choose another folder with -o");
    }
    Fail("cannot lock " + path_, reason);
  }
  SyncFolder(folder);
}

ResultsFile::~ResultsFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::string ResultsFile::Read() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) Fail("cannot read " + path_, errno);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        ::pread(fd_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("cannot read " + path_, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

void ResultsFile::Truncate(int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0) Fail("cannot shorten " + path_, errno);
  ::fsync(fd_);
}

void ResultsFile::Append(std::string_view line) {
  struct stat before {};
  if (::fstat(fd_, &before) != 0) Fail("cannot write " + path_, errno);
  const std::string text = std::string(line) + "\n";
  size_t done = 0;
  int reason = 0;
  while (done < text.size() && reason == 0) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      reason = errno;
    }
  }
  // EINVAL: something that cannot be synced, such as a pipe.
  if (reason == 0 && ::fsync(fd_) != 0 && errno != EINVAL) reason = errno;
  if (reason == 0) return;
  // A line that is not whole goes; should this fail too, the next run drops it.
  [[maybe_unused]] const int cut = ::ftruncate(fd_, before.st_size);
  Fail("cannot write " + path_ +
           " (the rows before are whole; make room and give the same command to go on)",
       reason);
}

}  // namespace ropewalk::internal
