// ropewalk: which context-extension setting for this model, and what does it cost?
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "cli/program.h"

namespace {

// The command line with the program's file in front; empty where that is not known or there is no memory for it.
std::vector<std::string> CommandLine(int argc, char** argv) {
  try {
    std::vector<std::string> line;
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error || argc <= 0) return {};
    line.push_back(self.string());
    line.insert(line.end(), argv + 1, argv + argc);
    return line;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace

int main(int argc, char** argv) {
  return ropewalk::cli::RunProgram(argc, argv, CommandLine(argc, argv));
}
