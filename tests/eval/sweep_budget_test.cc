// A sweep under a budget, on a clock that engines move: what is measured, in which order, what is left
// out, and that more of it goes on to the rows of a sweep without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ropewalk/eval/results.h"
#include "tests/eval/noisy_sweep.h"

namespace ropewalk {
namespace {

using test::kLength;
using test::kRaceTrained;
using test::kWindows;
using test::Made;
using test::Of;
using test::TempFolder;
using test::WithoutSeconds;
using testing::ElementsAre;

// At the trained length, twice, four and eight times it.
Made FourLengths(bool race = true) {
  Made made(race);
  made.spec.lengths = {kRaceTrained, 2 * kRaceTrained, kLength, 2 * kLength};
  made.tasks = PlanSweep(made.spec, made.plan);
  made.header.common = CommonFields(made.spec, made.inputs, 2 * kLength);
  return made;
}

std::vector<int64_t> LengthsOf(const std::vector<Cell>& cells) {
  std::vector<int64_t> lengths;
  for (const Cell& cell : cells) {
    if (lengths.empty() || lengths.back() != cell.length) lengths.push_back(cell.length);
  }
  return lengths;
}

// Seconds of everything, if nobody leaves.
double Whole(const Made& made, int64_t length) {
  double seconds = 0;
  for (const SweepTask& task : made.tasks) {
    if (task.length == length) {
      seconds += CostOf(task, made.spec, made.inputs, made.header.common.longest_length).flops;
    }
  }
  return seconds;
}

TEST(Budget, ThatIsEnoughChangesNothing) {
  Made made = FourLengths(), free = FourLengths();
  const TempFolder a, b;
  const auto cells = made.Run(a, 1e9);
  EXPECT_TRUE(made.left_out.empty());
  EXPECT_EQ(WithoutSeconds(cells), WithoutSeconds(free.Run(b)));
  EXPECT_EQ(made.engine.asked, free.engine.asked);
}

TEST(Budget, LeavesOutTheLongestAndSaysItsPrice) {
  Made whole = FourLengths();
  const TempFolder other;
  whole.Run(other);
  Made made = FourLengths();
  const TempFolder folder;
  const double budget = 0.6 * whole.engine.now;
  const std::vector<Cell> cells = made.Run(folder, budget);
  EXPECT_LE(made.engine.now, budget + 5 * 2 * kLength);  // and a round of one method
  EXPECT_GT(made.engine.now, 0.5 * budget);
  EXPECT_THAT(LengthsOf(cells), ElementsAre(kRaceTrained, 2 * kRaceTrained, kLength));
  ASSERT_FALSE(made.left_out.empty());
  const LeftOut& longest = made.left_out.back();
  EXPECT_EQ(longest.length, 2 * kLength);
  EXPECT_EQ(longest.windows, 0);
  EXPECT_TRUE(longest.open);
  EXPECT_NEAR(longest.seconds, Whole(made, 2 * kLength), 0.02 * longest.seconds);
  for (const Cell& cell : cells) {
    EXPECT_EQ(cell.unfinished, !cell.race_exit && cell.windows < kWindows);
    EXPECT_TRUE(cell.race_exit || cell.windows >= 4) << cell.method << " at " << cell.length;
    // kv needs more tokens than the shorter lengths have.
    const bool kv = !cell.tasks.empty() && cell.tasks.back().task == "kv";
    EXPECT_EQ(kv, !cell.race_exit && cell.length >= kLength) << cell.method;
  }
}

// No scaling at the trained length before anything, then the least of each length in turn.
TEST(Budget, OrderIsWhatDecidesMost) {
  Made made = FourLengths();
  std::vector<size_t> order;
  SweepEvents events;
  events.progress = [&](const SweepProgress& now) {
    if (order.empty() || order.back() != now.index) order.push_back(now.index);
    return true;
  };
  const TempFolder folder;
  RunSweep(made.tasks, made.spec, made.inputs, made.header, folder.path(), events);
  ASSERT_FALSE(order.empty());
  EXPECT_TRUE(made.tasks[order[0]].unscaled);
  EXPECT_EQ(made.tasks[order[0]].length, kRaceTrained);
  // Up to the first time that a length comes after a longer one: every method of every length.
  size_t ascending = 1;
  while (ascending < order.size() &&
         made.tasks[order[ascending]].length >= made.tasks[order[ascending - 1]].length) {
    ++ascending;
  }
  const std::set<size_t> seen(order.begin(), order.begin() + static_cast<ptrdiff_t>(ascending));
  EXPECT_EQ(seen.size(), made.tasks.size());
  // Then first where yarn and by-parts, of which one is a hundredth of a nat better, are open.
  ASSERT_LT(ascending, order.size());
  EXPECT_GT(made.tasks[order[ascending]].length, kRaceTrained);
}

TEST(Budget, MoreOfItGoesOnToTheRowsOfAnUndisturbedSweep) {
  for (const bool race : {true, false}) {
    Made whole = FourLengths(race);
    const TempFolder undisturbed;
    const std::string expected = WithoutSeconds(whole.Run(undisturbed));
    for (const double share : {0.07, 0.2, 0.45}) {
      SCOPED_TRACE(share);
      const TempFolder folder;
      Made made = FourLengths(race);
      std::vector<Cell> cells;
      double budget = share * whole.engine.now;
      int runs = 0;
      do {
        ASSERT_LT(++runs, 60);
        const double begin = made.engine.now;
        cells = made.Run(folder, budget);
        EXPECT_LE(made.engine.now - begin, budget + 5 * 2 * kLength);
        if (made.engine.now == begin) budget *= 2;  // what comes next does not fit
      } while (!made.left_out.empty());
      EXPECT_GT(runs, 1);
      EXPECT_EQ(WithoutSeconds(cells), expected);
      EXPECT_EQ(made.engine.asked, whole.engine.asked);  // nothing twice
      for (const CellLeft& left :
           WhatIsLeft(made.tasks, made.spec, made.inputs, made.header, folder.path())) {
        EXPECT_TRUE(left.finished);
      }
      EXPECT_EQ(ReadResults(folder.path()).cells.size(), cells.size());
    }
  }
}

// Killed before every call under a budget, and then gone on without one.
TEST(Budget, ResumesAtEveryPoint) {
  Made whole = FourLengths();
  const TempFolder undisturbed;
  const std::string expected = WithoutSeconds(whole.Run(undisturbed));
  Made limited = FourLengths();
  const TempFolder first;
  const double budget = 0.5 * whole.engine.now;
  limited.Run(first, budget);
  for (int last = 0; last < limited.engine.calls; ++last) {
    SCOPED_TRACE(last);
    Made made = FourLengths();
    const TempFolder folder;
    made.engine.last_call = last;
    EXPECT_THROW(made.Run(folder, budget), Interrupted);
    made.engine.last_call = -1;
    EXPECT_EQ(WithoutSeconds(made.Run(folder)), expected);
    EXPECT_EQ(made.engine.asked, whole.engine.asked);
  }
}

TEST(Budget, ASlowerMachineThanExpectedIsNoticed) {
  Made whole = FourLengths();
  const TempFolder other;
  whole.Run(other);
  std::vector<int64_t> lengths;
  for (const double slowness : {0.3, 1.0, 3.0}) {
    Made made = FourLengths();
    made.engine.slowness = slowness;
    const TempFolder folder;
    const double budget = 0.6 * whole.engine.now;
    const std::vector<Cell> cells = made.Run(folder, budget);
    EXPECT_LE(made.engine.now, budget + slowness * 5 * 2 * kLength);
    EXPECT_GT(made.engine.now, 0.3 * std::min(budget, slowness * whole.engine.now));
    lengths.push_back(std::ssize(LengthsOf(cells)));
  }
  EXPECT_THAT(lengths, ElementsAre(4, 3, testing::Lt(3)));
}

TEST(Budget, OfNothingMeasuresNothing) {
  Made made = FourLengths();
  const TempFolder folder;
  EXPECT_TRUE(made.Run(folder, 10).empty());
  EXPECT_EQ(made.engine.calls, 0);
  ASSERT_EQ(made.left_out.size(), 4u);
  for (const LeftOut& out : made.left_out) {
    EXPECT_EQ(out.windows, 0);
    EXPECT_NEAR(out.seconds, Whole(made, out.length), 1e-6 * out.seconds);
  }
}

// A part for each run, however short the budget is, to the rows of a sweep without one.
TEST(Budget, ThatHoldsNoPartMeasuresOneAllTheSameWhereAsked) {
  Made whole = FourLengths();
  const TempFolder undisturbed;
  const std::string expected = WithoutSeconds(whole.Run(undisturbed));
  Made made = FourLengths();
  const TempFolder folder;
  std::vector<Cell> cells;
  do {
    const double begin = made.engine.now;
    cells = made.Run(folder, 10, {}, true);
    ASSERT_GT(made.engine.now, begin);
    ASSERT_LE(made.engine.now - begin, 10 + 5 * 2 * kLength);
  } while (!made.left_out.empty());
  EXPECT_EQ(WithoutSeconds(cells), expected);
  EXPECT_EQ(made.engine.asked, whole.engine.asked);
}

TEST(WhatIsLeft, KnowsTheWindowsThatAreThere) {
  Made made = FourLengths(false);
  const TempFolder folder;
  Made whole = FourLengths(false);
  const TempFolder other;
  whole.Run(other);
  made.Run(folder, 0.5 * whole.engine.now);
  double left_seconds = 0;
  const auto left = WhatIsLeft(made.tasks, made.spec, made.inputs, made.header, folder.path());
  for (const CellLeft& cell : left) left_seconds += cell.of_windows.flops + cell.of_others.flops;
  EXPECT_EQ(left_seconds, whole.engine.now - made.engine.now);
}

}  // namespace
}  // namespace ropewalk
