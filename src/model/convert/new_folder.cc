#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "ropewalk/base/error.h"
#include "src/io/atomic_file.h"
#include "src/model/convert/convert.h"

namespace ropewalk::internal {

namespace fs = std::filesystem;

NewFolder::NewFolder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  std::error_code error;
  if (path_.empty() || fs::exists(fs::symlink_status(path_, error))) {
    throw Error(
        ErrorCode::kIo,
        fmt::format("{}: exists; choose a folder that does not, nothing is overwritten", path_));
  }
  temporary_ = fmt::format("{}.{}.part", path_, ::getpid());
  if (!fs::create_directory(temporary_, error)) {
    const std::string why = error ? error.message() : "it exists";
    temporary_.clear();
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot create the folder: {}", path_, why));
  }
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::Commit() {
  SyncFolder(temporary_);
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: cannot create the folder: {}", path_, error.message()));
  }
  temporary_.clear();
  const std::string parent = fs::path(path_).parent_path().string();
  SyncFolder(parent.empty() ? "." : parent);
}

LinkCount LinkFiles(const std::string& from, const std::string& to,
                    const std::function<bool(const std::string& name)>& take) {
  LinkCount count;
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || !take(name)) continue;
    const std::string target = (fs::path(to) / name).string();
    std::error_code error;
    // Of the file, not of a symbolic link to it (the cache of Hugging Face's hub has those).
    fs::create_hard_link(fs::canonical(entry.path()), target, error);
    if (!error) {
      ++count.linked;
      continue;
    }
    fs::copy_file(entry.path(), target, error);
    if (error) {
      throw Error(ErrorCode::kIo, fmt::format("{}: cannot copy {}: {}", target,
                                              entry.path().string(), error.message()));
    }
    ++count.copied;
  }
  return count;
}

}  // namespace ropewalk::internal
