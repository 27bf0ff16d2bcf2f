// ropewalk: which context-extension setting for this model, and what does it cost?
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "cli/parse.h"
#include "cli/progress.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"

namespace ropewalk::cli {
namespace {

constexpr int kDone = 0, kFailed = 1, kWrongUsage = 2, kInterrupted = 130;

int Fail(int code, const std::string& message) {
  std::string line = message;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  Message("ropewalk: error: " + line);
  return code;
}

// At a barrier libgomp's threads spin for milliseconds before they sleep, which on a busy machine takes
// time from the very thread they wait for. How long is read from the environment before main, so the
// program starts itself once more. GOMP_SPINCOUNT or OMP_WAIT_POLICY, where given, stay as they are.
void LimitSpinning(char** argv) {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error || ::setenv(kSpins, "10000", 1) != 0) return;
  ::execv(self.c_str(), argv);  // returns where it fails: then it is slower on a busy machine
}

int RunGuarded(int argc, char** argv) {
  try {
    Options options;
    const Command* command = ParseCommandLine(argc, argv, options);
    if (command == nullptr) return kDone;
    if (std::string_view(command->options).find("--threads") != std::string_view::npos) {
      LimitSpinning(argv);
    }
    command->run(options);
    return kDone;
  } catch (const UsageError& e) {
    return Fail(kWrongUsage, e.what());
  } catch (const Interrupted&) {
    Message("ropewalk: interrupted");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    return Fail(kFailed, "not enough memory; --dry-run says how much a sweep needs");
  } catch (const std::exception& e) {
    if (std::ferror(stdout) != 0) return kFailed;  // Main says so
    if (dynamic_cast<const Error*>(&e) != nullptr) return Fail(kFailed, e.what());
    // Of a library below: whoever threw it did not say where.
    return Fail(kFailed, fmt::format("{}: an unexpected error ({}); please report it with "
                                     "this command line",
                                     argc > 1 ? argv[1] : "ropewalk", e.what()));
  }
}

int Main(int argc, char** argv) {
  OpenStandardFiles();
  InstallInterruptHandler();
  int code = RunGuarded(argc, argv);
  // A result that did not reach its reader is no result.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    code = Fail(kFailed, "cannot write to stdout");
  }
  return code;
}

}  // namespace
}  // namespace ropewalk::cli

int main(int argc, char** argv) { return ropewalk::cli::Main(argc, argv); }
