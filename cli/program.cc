#include "cli/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <thread>

#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"

namespace ropewalk::cli {
namespace {

constexpr int kDone = 0, kFailed = 1, kWrongUsage = 2, kInterrupted = 130;

int Fail(int code, const std::string& message) {
  std::string line = message;
  if (const int rank = OtherRank(); rank != 0) {
    // What rank 0 finds as well it says itself, and ends this one. Of a command line it finds the same.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    if (code == kWrongUsage) return code;
    Silence(false);
    line = fmt::format("rank {}: {}", rank, message);
  }
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  Message("ropewalk: error: " + line);
  return code;
}

void LimitSpinning(std::vector<std::string>& restart) {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (restart.empty() || ::setenv(kSpins, "10000", 1) != 0) return;
  std::vector<char*> argv;
  argv.reserve(restart.size() + 1);
  for (std::string& argument : restart) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());  // returns where it fails
  ::unsetenv(kSpins);             // it is slower then on a busy machine, and nothing else
}

int RunGuarded(int argc, char** argv, std::vector<std::string>& restart) {
  try {
    Options options;
    const Command* command = ParseCommandLine(argc, argv, options);
    if (command == nullptr) return kDone;
    if (std::string_view(command->options).find("--threads") != std::string_view::npos) {
      LimitSpinning(restart);
    }
    EnterRanks(*command);
    OtherRank() == 0 ? command->run(options) : ServeRank(options);
    return kDone;
  } catch (const UsageError& e) {
    return Fail(kWrongUsage, e.what());
  } catch (const Interrupted&) {
    Message("ropewalk: interrupted");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    return Fail(kFailed, "not enough memory; --dry-run says how much a sweep needs");
  } catch (const std::exception& e) {
    if (std::ferror(stdout) != 0) return kFailed;  // RunProgram says so
    if (dynamic_cast<const Error*>(&e) != nullptr) return Fail(kFailed, e.what());
    // Of a library below: whoever threw it did not say where.
    return Fail(kFailed, fmt::format("{}: an unexpected error ({}); please report it with "
                                     "this command line",
                                     argc > 1 ? argv[1] : "ropewalk", e.what()));
  }
}

}  // namespace

int RunProgram(int argc, char** argv, std::vector<std::string> restart) {
  OpenStandardFiles();
  SilenceOtherRanks(argc, argv);
  InstallInterruptHandler();
  InstallBusErrorHandler();
  int code = RunGuarded(argc, argv, restart);
  // A result that did not reach its reader is no result.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    code = Fail(kFailed, "cannot write to stdout");
  }
  LeaveRanks(code);
  return code;
}

}  // namespace ropewalk::cli
