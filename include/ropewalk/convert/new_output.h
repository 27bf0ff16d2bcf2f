// A file or a folder that appears under its name whole and proven, or not at all.
#pragma once

#include <string>

namespace ropewalk {

class NewOutput {
 public:
  // Makes a folder beside `path`, in which what is to become `path` is written. Error when there is
  // something under that name, or no folder can be made there.
  explicit NewOutput(std::string path);
  ~NewOutput();  // without Commit: removes all of it
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  // Where to write: the same last name in the folder beside. Nothing is there yet.
  const std::string& written() const { return written_; }
  // Gives it its name; what has got that name since is not overwritten.
  void Commit();

  // The folder that NewOutput(path) makes, for those who have to remove it from outside.
  static std::string TemporaryFolder(const std::string& path);

 private:
  std::string path_, temporary_, written_;
};

}  // namespace ropewalk
