// Progress on stderr, and Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ropewalk::cli {

// Call it before anything is opened: otherwise a file could get the number of a closed stdin,
// stdout or stderr, and what is written there.
void OpenStandardFiles();

// Ctrl-C ends the program with exit code 130: at once, or, while an InterruptScope lives, when the
// work next asks `Interrupted()`. A second Ctrl-C always ends it at once. What cannot be written is
// an error of write() and ends nothing.
void InstallInterruptHandler();
// SIGBUS, where another process shortens a mapped file, becomes a message with its path and exit
// code 1 (130 where an unfinished model is removed first).
void InstallBusErrorHandler();
bool IsInterrupted();
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
};

// To stderr, in place of a progress line; dropped where stderr cannot be written.
// Whether messages are dropped.
void Silence(bool silent);
void Message(const std::string& line);

// One line that is rewritten on a terminal; elsewhere a plain line now and then.
class ProgressLine {
 public:
  ~ProgressLine();

  // `what` runs, and has done so much of its tokens (or other units). Without `seconds_left` those of
  // `what` alone are shown.
  void Update(const std::string& what, int64_t done_tokens, int64_t all_tokens,
              std::optional<double> seconds_left = {});
  // `what` ended. `computed` false: its result was there before.
  void Finish(const std::string& what, const std::string& result, bool computed);

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin_ = Clock::now(), last_ = {};
  std::string what_;
  int64_t done_ = 0;
};

std::string Duration(double seconds);  // "1:05", "2:03:10"

}  // namespace ropewalk::cli
