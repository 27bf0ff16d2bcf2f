// ropewalk: which context-extension setting for this model, and what does it cost?
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/program.h"

int main(int argc, char** argv) {
  std::vector<std::string> restart;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error && argc > 0) {
    restart.push_back(self.string());
    restart.insert(restart.end(), argv + 1, argv + argc);
  }
  return ropewalk::cli::RunProgram(argc, argv, std::move(restart));
}
