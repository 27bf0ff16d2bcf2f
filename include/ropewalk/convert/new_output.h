// A file or folder that gets its final name only when it is complete.
#pragma once

#include <string>

namespace ropewalk {

class NewOutput {
 public:
  // Creates a temporary folder beside `path` to write in. Throws Error if `path` exists or the
  // folder cannot be created.
  explicit NewOutput(std::string path);
  ~NewOutput();  // removes the temporary folder and, without Commit, what was written
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  // Where to write: `path`'s last name in the temporary folder. Nothing exists there yet.
  const std::string& written() const { return written_; }
  // Renames it to `path`. Something that was created there meanwhile is not overwritten.
  void Commit();

  // The temporary folder of NewOutput(path), for callers that remove it after a crash.
  static std::string TemporaryFolder(const std::string& path);

 private:
  std::string path_, temporary_, written_;
};

}  // namespace ropewalk
