// Progress on stderr, and Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ropewalk::cli {

// Call it before anything is opened: otherwise a file could get the number of a closed stdin,
// stdout or stderr, and what is written there.
void OpenStandardFiles();

// Ctrl-C ends the program with exit code 130: at once, or, while an InterruptScope lives, when the
// work next asks `Interrupted()`. A second Ctrl-C always ends it at once. What cannot be written is
// an error of write() and ends nothing.
void InstallInterruptHandler();
bool IsInterrupted();
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
};

// To stderr, in place of a progress line; dropped where stderr cannot be written.
void Message(const std::string& line);
// Asks, where a person can answer: false unless stdin and stderr are a terminal and the answer is
// y.
bool Confirm(const std::string& question);

// One line that is rewritten on a terminal; elsewhere a plain line now and then.
class ProgressLine {
 public:
  explicit ProgressLine(double all_work) : all_work_(all_work) {}
  ~ProgressLine();

  // `cell` names what runs; its `work` is done to the share done / all.
  void Update(const std::string& cell, int64_t done_tokens, int64_t all_tokens, double work);
  // A cell ended. `computed` false: it was finished before and tells nothing about speed.
  void Finish(const std::string& cell, const std::string& result, double work, bool computed);

 private:
  using Clock = std::chrono::steady_clock;
  std::string TimeLeft(double work_now) const;

  double all_work_, skipped_work_ = 0, done_work_ = 0;
  Clock::time_point begin_ = Clock::now(), cell_begin_ = Clock::now(), last_ = {};
  std::string cell_;
};

std::string Duration(double seconds);  // "1:05", "2:03:10"

}  // namespace ropewalk::cli
