// A JSON-lines file of a sweep on disk: locked while open, appended line by line, each line synced.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ropewalk::internal {

// Whether a process writes to the file.
bool IsLocked(const std::string& path);

class ResultsFile {
 public:
  // Creates the folder and the file where they are missing, and takes the lock. Throws Error(kIo)
  // or Error(kMismatch) when another process holds the lock.
  explicit ResultsFile(const std::string& folder, const std::string& name = "results.jsonl");
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const std::string& path() const { return path_; }
  std::string Read() const;
  // Cuts the file to its first `bytes` bytes.
  void Truncate(int64_t bytes);
  // Writes line + newline and waits until it is on the disk. When that fails the file is cut back
  // to the lines before and Error(kIo) is thrown.
  void Append(std::string_view line);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace ropewalk::internal
