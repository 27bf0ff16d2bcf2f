#include "cli/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <string_view>

#include "ropewalk/io/weights.h"

namespace ropewalk::cli {
namespace {

std::atomic<int> g_scopes{0};
std::atomic<bool> g_interrupted{false};
bool g_line_open = false;
bool g_silent = false;

void OnInterrupt(int) {
  if (g_scopes.load() == 0 || g_interrupted.exchange(true)) _exit(130);
}

bool IsTerminal() {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

// The only function that writes to stderr. What cannot be written is dropped, so that work and
// results do not depend on it.
void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void CloseLine() {
  if (g_line_open) Write("\r\x1b[K");
  g_line_open = false;
}

}  // namespace

void OpenStandardFiles() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // O_PATH: the number is taken, and reading and writing fail as before.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/", O_PATH | O_DIRECTORY);
  }
}

namespace {

// A file that is mapped got shorter, and what was there cannot be read. What is on disk is as whole as
// after a power cut.
void OnBusError(int, siginfo_t* info, void*) {
  static std::atomic<bool> said{false};
  const char* path = MappedFile::PathAt(info->si_addr);
  if (path == nullptr) {
    ::signal(SIGBUS, SIG_DFL);  // and the same access comes again
    return;
  }
  if (said.exchange(true)) {
    for (;;) ::pause();  // another thread is ending the program
  }
  Write("ropewalk: error: ");
  Write(path);
  Write(": another process shortened this file while it was read; run again when it is whole\n");
  struct sigaction action {};
  ::sigaction(SIGTERM, nullptr, &action);
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) ::_exit(1);
  ::kill(::getpid(), SIGTERM);  // whoever waits for it removes what is not whole
  for (;;) ::pause();
}

}  // namespace

void InstallBusErrorHandler() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGBUS, &action, nullptr);
}

void InstallInterruptHandler() {
  g_interrupted = false;
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  // Size limits and pipes without a reader then are errors of write(), like a full disk: they are
  // reported for stdout and ignored for stderr.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

bool IsInterrupted() { return g_interrupted.load(); }
InterruptScope::InterruptScope() { ++g_scopes; }
InterruptScope::~InterruptScope() { --g_scopes; }

void Silence(bool silent) { g_silent = silent; }

void Message(const std::string& line) {
  if (g_silent) return;
  CloseLine();
  Write(line + "\n");
}

std::string Duration(double seconds) {
  const int64_t s = std::llround(std::max(0.0, seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressLine::~ProgressLine() { CloseLine(); }

void ProgressLine::Update(const std::string& what, int64_t done_tokens, int64_t all_tokens,
                          std::optional<double> seconds_left) {
  const auto now = Clock::now();
  if (what != what_ || done_tokens < done_) {
    what_ = what;
    begin_ = now;
    if (!IsTerminal()) last_ = now;
  }
  done_ = done_tokens;
  if (g_silent) return;
  const std::chrono::duration<double> quiet = now - last_;
  if (quiet.count() < (IsTerminal() ? 0.1 : 10.0)) return;
  last_ = now;
  const double share =
      all_tokens > 0 ? static_cast<double>(done_tokens) / static_cast<double>(all_tokens) : 0;
  const std::chrono::duration<double> spent = now - begin_;
  const double rate = spent.count() > 0 ? static_cast<double>(done_tokens) / spent.count() : 0;
  if (!seconds_left && share > 0 && spent.count() >= 0.5) {
    seconds_left = spent.count() * (1 - share) / share;
  }
  const std::string line =
      fmt::format("{}: {:.0f}%, {:.0f} tokens/s{}", what, 100 * share, rate,
                  seconds_left ? ", " + Duration(*seconds_left) + " left" : "");
  if (!IsTerminal()) return Message(line);
  Write("\r\x1b[K" + line);
  g_line_open = true;
}

void ProgressLine::Finish(const std::string& what, const std::string& result, bool computed) {
  if (IsTerminal()) return;
  Message(fmt::format("{}: {}{}", what, result, computed ? "" : ", already there"));
}

}  // namespace ropewalk::cli
