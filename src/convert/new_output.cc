#include "ropewalk/convert/new_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/io/atomic_file.h"

namespace ropewalk {
namespace {

namespace fs = std::filesystem;

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

[[noreturn]] void FailExists(const std::string& path) {
  throw Error(ErrorCode::kIo,
              path + ": exists; choose another name with -o, nothing is overwritten");
}

}  // namespace

std::string NewOutput::TemporaryFolder(const std::string& path) {
  return fmt::format("{}.{}.part", WithoutSlashes(path), ::getpid());
}

NewOutput::NewOutput(std::string path) : path_(WithoutSlashes(std::move(path))) {
  const std::string name = fs::path(path_).filename().string();
  std::error_code error;
  if (name.empty() || name == "." || name == ".." || fs::exists(fs::symlink_status(path_, error))) {
    FailExists(path_);
  }
  const std::string temporary = TemporaryFolder(path_);
  if (!fs::create_directory(temporary, error)) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: cannot create the folder it is written in, {}: {}", path_,
                            temporary, error ? error.message() : std::strerror(EEXIST)));
  }
  temporary_ = temporary;
  written_ = temporary_ + "/" + name;
}

NewOutput::~NewOutput() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewOutput::Commit() {
  internal::SyncFolder(written_);  // of a file: nothing to do, its writer has synced it
  int failed = ::renameat2(AT_FDCWD, written_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
  if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) {  // not on this file system
    failed = ::access(path_.c_str(), F_OK) == 0 ? (errno = EEXIST, -1)
                                                : std::rename(written_.c_str(), path_.c_str());
  }
  if (failed != 0 && errno == EEXIST) FailExists(path_);
  if (failed != 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: cannot give it its name: {}", path_, std::strerror(errno)));
  }
  const std::string parent = fs::path(path_).parent_path().string();
  internal::SyncFolder(parent.empty() ? "." : parent);
}

}  // namespace ropewalk
