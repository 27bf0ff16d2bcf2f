// The time a sweep may still take, and what its parts take of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

#include "ropewalk/eval/results.h"

namespace ropewalk::internal {

class BudgetClock {
 public:
  explicit BudgetClock(const SweepBudget& budget)
      : clock_(budget.clock ? budget.clock : Seconds), begin_(clock_()), limit_(budget.seconds) {}

  double Left() const { return limit_ - (clock_() - begin_); }
  bool Expired() const { return Left() <= 0; }

  // Runs a part that should take `expected` seconds; later expectations learn from what it took.
  template <class Part>
  void Run(double expected, Part&& part) {
    const double begin = clock_();
    part();
    taken_ += clock_() - begin;
    expected_ += expected;
  }
  // What the measured pace makes of an expectation. A hundredth of the budget, at most 10 s, counts
  // as if it had come out right, so that the first parts are not taken for all others.
  double Corrected(double expected) const {
    const double prior = std::min(10.0, limit_ / 100);
    return expected * (taken_ + prior) / (expected_ + prior);
  }

 private:
  static double Seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  std::function<double()> clock_;
  double begin_, limit_;
  double taken_ = 0, expected_ = 0;
};

}  // namespace ropewalk::internal
