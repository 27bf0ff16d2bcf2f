#include "cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ropewalk/base/error.h"

namespace ropewalk::cli {

void WriteWhole(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  {
    std::ofstream file(part, std::ios::binary);
    file << text;
    file.close();
    if (!file) {
      const std::string reason = std::strerror(errno);
      std::remove(part.c_str());
      throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}; free some space or choose "
                                              "another place with -o",
                                              path, reason));
    }
  }
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) {
    std::remove(part.c_str());
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path, error.message()));
  }
}

void WriteResult(const Options& options, const std::string& text) {
  if (!options.output.empty()) return WriteWhole(options.output, text);
  std::fwrite(text.data(), 1, text.size(), stdout);  // Main looks at what became of it
}

}  // namespace ropewalk::cli
