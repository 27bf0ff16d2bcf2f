#include "cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ropewalk/base/error.h"

namespace ropewalk::cli {

void WriteWhole(const std::string& name, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A device or a pipe (/dev/stdout) is written to: a file would take its place, and that of a link.
  const bool stream = fs::is_other(name, error);
  const bool link = fs::is_symlink(name, error) && fs::exists(name, error);
  const std::string path = link && !stream ? fs::canonical(name, error).string() : name;
  const std::string part = stream ? path : path + ".part";
  {
    std::ofstream file(part, std::ios::binary);
    file << text;
    file.close();
    if (!file) {
      const std::string reason = std::strerror(errno);
      if (!stream) std::remove(part.c_str());
      throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}; free some space or choose "
                                              "another place with -o",
                                              path, reason));
    }
  }
  if (stream) return;
  fs::rename(part, path, error);
  if (error) {
    std::remove(part.c_str());
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path, error.message()));
  }
}

void RefuseInput(const Options& options, const char* option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  bool read = fs::is_directory(options.model, ignored) &&
              fs::equivalent(fs::path(path).parent_path() / ".", options.model, ignored);
  for (const std::string& input :
       {options.model, options.text, options.ids, options.haystack, options.squad, options.hotpot,
        options.english_words, options.evaluator, options.spans, options.short_context}) {
    read = read || (!input.empty() && fs::equivalent(path, input, ignored));
  }
  if (!read) return;
  throw UsageError(
      fmt::format("{}: {} is a file that this command reads, and would be replaced; "
                  "give another name",
                  option, path));
}

void WriteResult(const Options& options, const std::string& text) {
  if (!options.output.empty()) {
    RefuseInput(options, "-o", options.output);
    return WriteWhole(options.output, text);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);  // Main looks at what became of it
}

}  // namespace ropewalk::cli
