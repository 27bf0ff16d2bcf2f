// What a folder holds, and a file copied as cheaply as its file system can.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ropewalk::internal {

// True: a file; false: there is nothing. Error(kIo) with the reason for everything else: a folder,
// a symbolic link to nothing or in a circle, no permission.
bool FileExists(const std::string& path);

// The names in `folder`, sorted, without "." and ".."; none where there is no such folder. Throws
// Error(kIo) where it cannot be read to its end. std::filesystem::directory_iterator ends the
// process where it gets no memory (libstdc++'s _Dir::advance is noexcept and copies a path).
std::vector<std::string> NamesIn(const std::string& folder);

// Makes `to`, which must not exist, a file of its own with the bytes of `from` (links are
// followed), and syncs it. Both share their blocks on disk until one is written where the file
// system can (FICLONE), so that the copy needs no room; where it cannot, `before_bytes` is called
// before the first byte is written and may throw. Throws Error(kIo) with the path and the system's
// reason.
void CopyFile(const std::string& from, const std::string& to,
              const std::function<void()>& before_bytes);

// What a folder's file system has left for ordinary users; -1: it does not say.
int64_t FreeBytes(const std::string& folder);

}  // namespace ropewalk::internal
