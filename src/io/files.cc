#include "src/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {
namespace {

struct FileDescriptor {
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
};

// Reads from `in` and writes to `out` what is left of `in`; false with errno set: it failed.
bool ReadAndWrite(int in, int out) {
  std::vector<char> buffer(1 << 20);
  for (;;) {
    ssize_t bytes = ::read(in, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return bytes == 0;
    for (const char* data = buffer.data(); bytes > 0;) {
      const ssize_t written = ::write(out, data, static_cast<std::size_t>(bytes));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      data += written;
      bytes -= written;
    }
  }
}

}  // namespace

bool FileExists(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kIo, path + ": " + what);
  };
  if (status.type() == fs::file_type::not_found) {
    if (fs::is_symlink(path, error)) fail("a symbolic link to nothing; expected a file");
    return false;
  }
  if (error) fail("cannot read it: " + error.message());
  if (fs::is_directory(status)) fail("expected a file, it is a folder");
  if (!fs::is_regular_file(status)) fail("expected a file, it is a device, pipe or socket");
  return true;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  const auto fail = [&](int error) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: cannot read the folder: {}", folder, std::strerror(error)));
  };
  std::vector<std::string> names;
  struct Close {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (open == nullptr) {
    if (errno != ENOENT && errno != ENOTDIR) fail(errno);
    return names;
  }
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) fail(errno);
  std::sort(names.begin(), names.end());
  return names;
}

void CopyFile(const std::string& from, const std::string& to,
              const std::function<void()>& before_bytes) {
  const auto fail = [&](const std::string& what) {
    const int error = errno;
    throw Error(ErrorCode::kIo, fmt::format("{}: {}", what, std::strerror(error)));
  };
  FileDescriptor in, out;
  // O_NONBLOCK: a FIFO without a writer would hang the open itself.
  in.fd = ::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (in.fd < 0) fail(from + ": cannot open");
  struct stat info;
  if (::fstat(in.fd, &info) != 0) fail(from + ": cannot read its size");
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo, from + ": not a regular file, so it cannot be copied");
  }
  // Writable for its owner whatever the source is: the files of a cache are not, a copy is.
  out.fd =
      ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (info.st_mode & 0777) | S_IWUSR);
  if (out.fd < 0) fail(to + ": cannot write");
  if (::ioctl(out.fd, FICLONE, in.fd) != 0) {
    before_bytes();
    // Inside the kernel, where the server of a network can copy by itself; what it does not do, or
    // stops doing half way, is read and written.
    while (::copy_file_range(in.fd, nullptr, out.fd, nullptr, std::size_t{1} << 30, 0) > 0) {
    }
    if (!ReadAndWrite(in.fd, out.fd)) fail(fmt::format("{}: cannot copy {}", to, from));
  }
  const auto written = [&](bool ok) {
    if (!ok) fail(fmt::format("{}: cannot copy {}", to, from));
  };
  written(::fsync(out.fd) == 0 || errno == EINVAL);  // EINVAL: cannot sync
  const int fd = out.fd;
  out.fd = -1;
  written(::close(fd) == 0);
}

int64_t FreeBytes(const std::string& folder) {
  struct statvfs info;
  if (::statvfs(folder.c_str(), &info) != 0) return -1;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace ropewalk::internal
