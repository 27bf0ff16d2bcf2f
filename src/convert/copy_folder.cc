#include "src/convert/copy_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "ropewalk/base/error.h"
#include "src/io/files.h"

namespace ropewalk::internal {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Fail(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", path.string(), what));
}
void Check(const fs::path& path, const char* what, const std::error_code& error) {
  if (error) Fail(path, fmt::format("{}: {}", what, error.message()));
}

class Lister {
 public:
  explicit Lister(std::vector<std::string>* hidden) : hidden_(hidden) {}

  void Add(const fs::path& folder, const std::string& prefix) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    Check(folder, "cannot read this folder", error);
    if (std::find(open_.begin(), open_.end(), real) != open_.end()) {
      Fail(folder, "a symbolic link to a folder that holds it; remove the link");
    }
    open_.push_back(real);
    for (const std::string& name : NamesIn(folder.string())) AddEntry(folder / name, prefix + name);
    open_.pop_back();
  }
  std::vector<FolderFile> Sorted() {
    std::sort(files_.begin(), files_.end(),
              [](const FolderFile& a, const FolderFile& b) { return a.name < b.name; });
    return std::move(files_);
  }

 private:
  void AddEntry(const fs::path& path, const std::string& name) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) {
      if (path.filename().string().starts_with('.')) {
        hidden_->push_back(name);
      } else {
        Add(path, name + "/");
      }
      return;
    }
    if (status.type() == fs::file_type::not_found) {
      Fail(path, "a symbolic link to nothing; remove it, or get what it stands for");
    }
    Check(path, "cannot read it", error);
    if (!fs::is_regular_file(status)) {
      Fail(path, "neither a file nor a folder, so it cannot be copied; move it elsewhere");
    }
    const fs::path real = fs::canonical(path, error);
    Check(path, "cannot read it", error);
    const auto bytes = static_cast<int64_t>(fs::file_size(real, error));
    Check(path, "cannot read its size", error);
    files_.push_back({name, real.string(), bytes});
  }

  std::vector<std::string>* hidden_;
  std::vector<fs::path> open_;  // the folders on the way to here
  std::vector<FolderFile> files_;
};

void CheckSpace(const std::string& to, int64_t needed) {
  const int64_t free = FreeBytes(to);
  if (free < 0 || needed <= free) return;
  throw Error(ErrorCode::kIo,
              fmt::format("{}: {}: the copy needs {:.1f} MB and {:.1f} MB are free; free some, "
                          "write to another disk, or share the weights with the source by --link",
                          to, std::strerror(ENOSPC), static_cast<double>(needed) / 1e6,
                          static_cast<double>(free) / 1e6));
}

}  // namespace

std::vector<FolderFile> ListFolder(const std::string& folder, std::vector<std::string>* hidden) {
  Lister lister(hidden);
  lister.Add(folder, "");
  return lister.Sorted();
}

bool IsWeightFile(const std::string& name) {
  static constexpr std::string_view kEndings[] = {
      ".safetensors", ".bin",       ".gguf", ".pt",      ".pth",   ".ckpt",
      ".onnx",        ".onnx_data", ".h5",   ".msgpack", ".tflite"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

void CreateFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directory(folder, error);  // and none above, which an interruption may have removed
  Check(folder, "cannot create the folder", error);
}

CopyCount CopyFiles(const std::vector<FolderFile>& files, const std::string& to,
                    bool link_weights) {
  const auto links = [&](const FolderFile& file) {
    return link_weights && IsWeightFile(file.name);
  };
  int64_t left = 0;  // bytes of what is to be copied
  for (const FolderFile& file : files) left += links(file) ? 0 : file.bytes;
  CopyCount count;
  bool checked = false;
  for (const FolderFile& file : files) {
    const fs::path target = fs::path(to) / file.name;
    for (std::size_t at = 0; (at = file.name.find('/', at)) != std::string::npos; ++at) {
      CreateFolder((fs::path(to) / file.name.substr(0, at)).string());
    }
    if (links(file)) {
      std::error_code error;
      fs::create_hard_link(file.path, target, error);
      if (!error) {
        ++count.linked;
        continue;
      }
      left += file.bytes;
    }
    CopyFile(file.path, target.string(), [&] {
      if (!std::exchange(checked, true)) CheckSpace(to, left);
    });
    left -= file.bytes;
    ++count.copied;
  }
  return count;
}

}  // namespace ropewalk::internal
