#include "cli/progress.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>

namespace ropewalk::cli {
namespace {

std::atomic<int> g_scopes{0};
std::atomic<bool> g_interrupted{false};
bool g_line_open = false;

void OnInterrupt(int) {
  if (g_scopes.load() == 0 || g_interrupted.exchange(true)) _exit(130);
}

bool IsTerminal() {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

void CloseLine() {
  if (g_line_open) fmt::print(stderr, "\r\x1b[K");
  g_line_open = false;
}

}  // namespace

void InstallInterruptHandler() {
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  // A file that hits a size limit is an error of write(), reported like a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
}

bool IsInterrupted() { return g_interrupted.load(); }
InterruptScope::InterruptScope() { ++g_scopes; }
InterruptScope::~InterruptScope() { --g_scopes; }

void Message(const std::string& line) {
  CloseLine();
  fmt::print(stderr, "{}\n", line);
}

std::string Duration(double seconds) {
  const int64_t s = std::llround(std::max(0.0, seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

ProgressLine::~ProgressLine() { CloseLine(); }

std::string ProgressLine::TimeLeft(double work_now) const {
  const double done = done_work_ + work_now;
  const std::chrono::duration<double> spent = Clock::now() - begin_;
  if (done <= 0 || spent.count() < 0.5) return "";
  const double left = all_work_ - skipped_work_ - done;
  return ", " + Duration(spent.count() * left / done) + " left";
}

void ProgressLine::Update(const std::string& cell, int64_t done_tokens, int64_t all_tokens,
                          double work) {
  const auto now = Clock::now();
  if (cell != cell_) {
    cell_ = cell;
    cell_begin_ = now;
    if (!IsTerminal()) last_ = now;
  }
  const std::chrono::duration<double> quiet = now - last_;
  if (quiet.count() < (IsTerminal() ? 0.1 : 10.0)) return;
  last_ = now;
  const double share =
      all_tokens > 0 ? static_cast<double>(done_tokens) / static_cast<double>(all_tokens) : 0;
  const std::chrono::duration<double> spent = now - cell_begin_;
  const double rate = spent.count() > 0 ? static_cast<double>(done_tokens) / spent.count() : 0;
  const std::string line = fmt::format("{}: {:.0f}%, {:.0f} tokens/s{}", cell, 100 * share, rate,
                                       TimeLeft(work * share));
  if (IsTerminal()) {
    fmt::print(stderr, "\r\x1b[K{}", line);
    std::fflush(stderr);
    g_line_open = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
}

void ProgressLine::Finish(const std::string& cell, const std::string& result, double work,
                          bool computed) {
  (computed ? done_work_ : skipped_work_) += work;
  if (IsTerminal()) return;
  fmt::print(stderr, "{}: {}{}\n", cell, result, computed ? TimeLeft(0) : ", already there");
}

}  // namespace ropewalk::cli
