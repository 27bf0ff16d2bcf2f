// Racing in a sweep: who leaves, that nothing is measured twice at whatever point a sweep is
// interrupted, and that a race and an exhaustive sweep agree on what both measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/recommend.h"
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
using testing::HasSubstr;

TEST(SweepRace, MethodsFarBehindLeaveEarlyAndTheRestIsMeasuredWhole) {
  Made made;
  const TempFolder folder;
  const std::vector<Cell> cells = made.Run(folder);
  for (const char* method : {"none", "linear"}) {
    const Cell& cell = Of(cells, method, kLength);
    ASSERT_TRUE(cell.race_exit) << method;
    EXPECT_LT(cell.windows, kWindows / 2 + 1);
    // What it loses by is known: it has the passkeys behind its windows alone.
    ASSERT_EQ(cell.tasks.size(), cell.race_exit->round == 1 ? 1u : 2u);
    EXPECT_EQ(cell.tasks[0].prompts, cell.windows);
    EXPECT_EQ(static_cast<int64_t>(cell.tasks[0].answers.size()), cell.windows);
    EXPECT_TRUE(cell.race_exit->against == "yarn" || cell.race_exit->against == "by-parts");
    EXPECT_NEAR(cell.race_exit->difference, method == std::string("none") ? 2 : 0.6, 0.15);
    EXPECT_GT(cell.race_exit->at_least, 0);
    EXPECT_LT(cell.race_exit->at_least, cell.race_exit->difference);
    EXPECT_EQ(static_cast<int64_t>(cell.window_nll.size()), cell.windows);
  }
  for (const char* method : {"by-parts", "yarn"}) {
    const Cell& cell = Of(cells, method, kLength);
    EXPECT_FALSE(cell.race_exit) << method;
    EXPECT_EQ(cell.windows, kWindows);
    ASSERT_EQ(cell.tasks.size(), 2u);
    EXPECT_EQ(cell.tasks[0].task, "passkey");
    EXPECT_THAT(cell.tasks[0].protocol, HasSubstr(", behind windows"));
    EXPECT_EQ(cell.tasks[0].prompts, kWindows);
    EXPECT_EQ(cell.tasks[1].task, "kv");
  }
  EXPECT_EQ(Of(cells, "none", kRaceTrained).windows, kWindows);  // everything is judged by it
  // A hundredth of a nat apart, which 12 windows cannot tell.
  EXPECT_THAT(Recommend(cells).at(0).method, testing::AnyOf("yarn", "by-parts"));
}

TEST(SweepRace, RowsGoThroughJson) {
  Made made;
  const TempFolder folder;
  const std::vector<Cell> cells = made.Run(folder);
  const std::vector<Cell> read = ReadResults(folder.path()).cells;
  ASSERT_EQ(read.size(), cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ(ToJson(read[i]), ToJson(cells[i]));
  }
}

// Interrupted before every single call of the engine in turn: what was measured is not measured
// again, and the rows are those of an undisturbed sweep.
TEST(SweepRace, ResumesAtEveryPoint) {
  Made whole;
  const TempFolder undisturbed;
  const std::string expected = WithoutSeconds(whole.Run(undisturbed));
  const int calls = whole.engine.calls;
  ASSERT_GT(calls, 20);
  const auto asked = whole.engine.asked;
  for (int last = 0; last < calls; ++last) {
    SCOPED_TRACE(last);
    Made made;
    const TempFolder folder;
    made.engine.last_call = last;
    EXPECT_THROW(made.Run(folder), Interrupted);
    made.engine.last_call = -1;
    EXPECT_EQ(WithoutSeconds(made.Run(folder)), expected);
    EXPECT_EQ(made.engine.calls, calls + 1);  // the one that was interrupted is made again
    EXPECT_EQ(made.engine.asked, asked);
  }
}

// A kill may also leave the last line of either file without its end.
TEST(SweepRace, ResumesBehindATornLine) {
  Made whole;
  const TempFolder undisturbed;
  const std::string expected = WithoutSeconds(whole.Run(undisturbed));
  for (const char* name : {"results.jsonl", "units.jsonl"}) {
    for (const int cut : {1, 7, 40}) {
      Made made;
      const TempFolder folder;
      made.engine.last_call = 14;
      EXPECT_THROW(made.Run(folder), Interrupted);
      made.engine.last_call = -1;
      const std::string path = folder / name;
      const auto bytes = std::filesystem::file_size(path);
      std::filesystem::resize_file(path, bytes - static_cast<uintmax_t>(cut));
      EXPECT_EQ(WithoutSeconds(made.Run(folder)), expected) << name << " without " << cut;
    }
  }
}

TEST(SweepRace, ExhaustiveSweepGoesOnFromARaceAndKeepsItsWindows) {
  Made race;
  const TempFolder folder;
  const std::vector<Cell> raced = race.Run(folder);
  Made whole(false);
  const auto left = WhatIsLeft(whole.tasks, whole.spec, whole.inputs, whole.header, folder.path());
  EXPECT_EQ(std::ranges::count(left, false, &CellLeft::finished),
            std::count_if(raced.begin(), raced.end(),
                          [](const Cell& c) { return c.race_exit.has_value(); }));
  const std::vector<Cell> cells = whole.Run(folder);
  Made fresh(false);
  const TempFolder other;
  EXPECT_EQ(WithoutSeconds(cells), WithoutSeconds(fresh.Run(other)));
  EXPECT_LT(whole.engine.calls, fresh.engine.calls);
  for (const Cell& cell : cells) {
    EXPECT_FALSE(cell.race_exit);
    EXPECT_EQ(cell.windows, kWindows);
  }
  EXPECT_EQ(ReadResults(folder.path()).cells.size(), cells.size());  // the later row of two
}

TEST(SweepRace, UnitsThatSomethingElseWroteAreRefused) {
  for (const char* line :
       {"{\"cell\": 1}\n", "[]\n", "no json\n", "{\"cell\":\"x\",\"seconds\":1,\"window\":0}\n"}) {
    Made made;
    const TempFolder folder;
    std::ofstream(folder / "units.jsonl") << line;
    try {
      made.Run(folder);
      FAIL() << line;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidFile);
      EXPECT_THAT(e.what(), HasSubstr("units.jsonl, line 1"));
    }
  }
}

}  // namespace
}  // namespace ropewalk
