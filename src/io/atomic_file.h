// A file that appears under its name whole or not at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ropewalk::internal {

class AtomicFile {
 public:
  // Opens a temporary file in the folder of `path`. Every error names `path`.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without Commit: removes it
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(const void* data, std::size_t bytes);
  // Syncs, renames to `path`, syncs the folder.
  void Commit();

 private:
  [[noreturn]] void Fail(const char* what, int error) const;
  void Flush();

  std::string path_, temporary_, buffer_;
  int fd_ = -1;
};

// The whole of a small file.
void WriteFileAtomically(const std::string& path, std::string_view text);

// A new name in a folder survives a power cut only once the folder is synced.
void SyncFolder(const std::string& folder);

}  // namespace ropewalk::internal
