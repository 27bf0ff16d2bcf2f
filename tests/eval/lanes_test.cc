// How requests are dealt to lanes, against all ways to cut a call in two, and how lanes end.
#include "src/eval/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/base/threads.h"
#include "src/eval/deal.h"
#include "src/eval/sequence_feeder.h"

namespace ropewalk::internal {
namespace {

using Ids = std::vector<int32_t>;
using Runs = std::vector<std::pair<size_t, size_t>>;

Runs Deal(const std::vector<ScoreRequest>& requests, PrefixReuse reuse, int lanes) {
  Runs runs;
  for (const RequestRun& run : DealRequests(requests, reuse, lanes)) {
    runs.emplace_back(run.begin, run.end);
  }
  return runs;
}

// Sequences that have nothing in common.
struct Texts {
  std::vector<Ids> ids;
  std::vector<ScoreRequest> requests;
  explicit Texts(const std::vector<int64_t>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids.emplace_back(tokens[i], static_cast<int32_t>(i));
    }
    for (const Ids& text : ids) {
      requests.push_back({.ids = text, .positions = {static_cast<int64_t>(text.size()) - 1}});
    }
  }
};

TEST(Deal, EveryRequestOnceInOrder) {
  const Texts texts({9, 800, 30, 30, 2000, 5, 700, 1, 600});
  for (const int lanes : {1, 2, 3, 4, 9, 100}) {
    const Runs runs = Deal(texts.requests, PrefixReuse::kSameBits, lanes);
    EXPECT_LE(runs.size(), static_cast<size_t>(lanes));
    size_t next = 0;
    for (const auto& [begin, end] : runs) {
      EXPECT_EQ(begin, next);
      EXPECT_GT(end, begin);
      next = end;
    }
    EXPECT_EQ(next, texts.requests.size());
  }
  EXPECT_TRUE(Deal({}, PrefixReuse::kWhole, 3).empty());
}

// Of two lanes, the longer one is as short as any cut makes it.
TEST(Deal, LanesAreAsEvenAsCanBe) {
  const std::vector<int64_t> tokens = {900, 20, 700, 700, 3000, 10, 900, 900, 44};
  const Texts texts(tokens);
  const auto longer = [&](size_t cut) {
    int64_t sums[2] = {};
    for (size_t i = 0; i < tokens.size(); ++i) sums[i < cut ? 0 : 1] += tokens[i] - 1;
    return std::max(sums[0], sums[1]);
  };
  int64_t best = INT64_MAX;
  for (size_t cut = 1; cut < tokens.size(); ++cut) best = std::min(best, longer(cut));
  const Runs runs = Deal(texts.requests, PrefixReuse::kSameBits, 2);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(longer(runs[0].second), best);
}

// A shared prefix is a reason to stay together; less than half of a sequence is none.
TEST(Deal, SharersStayTogether) {
  const Ids a(4000, 1), b(4000, 2), question(50, 3), tail(3900, 4), other(3900, 5);
  const std::vector<ScoreRequest> requests = {{.prefix = a, .positions = {3999}},
                                              {.prefix = a, .ids = question, .positions = {4049}},
                                              {.prefix = a, .ids = question, .continue_tokens = 9},
                                              {.prefix = b, .ids = question, .positions = {4049}},
                                              {.prefix = b, .ids = question, .positions = {4010}}};
  EXPECT_EQ(Deal(requests, PrefixReuse::kWhole, 8), (Runs{{0, 3}, {3, 5}}));
  EXPECT_EQ(Deal(requests, PrefixReuse::kSameBits, 8), (Runs{{0, 3}, {3, 5}}));
  EXPECT_EQ(Deal(requests, PrefixReuse::kWhole, 1), (Runs{{0, 5}}));
  const std::span<const int32_t> beginning = std::span(a).first(3000);
  const std::vector<ScoreRequest> less = {{.prefix = beginning, .ids = tail, .positions = {6899}},
                                          {.prefix = beginning, .ids = other, .positions = {6899}}};
  EXPECT_EQ(Deal(less, PrefixReuse::kWhole, 2), (Runs{{0, 1}, {1, 2}}));
}

// What is kept of a request's prefix is what the feeder keeps: the same rule, counted there.
TEST(Deal, ChunksOfAPrefixDoNotDependOnWhatIsNeeded) {
  EXPECT_EQ(ChunkEnds(1000, 0, PrefixReuse::kWhole), (std::vector<int64_t>{512, 1000}));
  EXPECT_EQ(ChunkEnds(1000, 1300, PrefixReuse::kSameBits), (std::vector<int64_t>{512, 1000}));
  EXPECT_EQ(ChunkEnds(1000, 1300, PrefixReuse::kWhole), (std::vector<int64_t>{512, 1024}));
  EXPECT_EQ(ChunkEnds(1200, 1300, PrefixReuse::kWhole), (std::vector<int64_t>{512, 1024, 1299}));
  EXPECT_EQ(ChunkEnds(1300, 1300, PrefixReuse::kWhole),
            (std::vector<int64_t>{512, 1024, 1299, 1300}));
  EXPECT_EQ(ChunkEnds(2000, 1300, PrefixReuse::kWhole),
            (std::vector<int64_t>{512, 1024, 1299, 1811, 2000}));
  EXPECT_TRUE(ChunkEnds(0, 1300, PrefixReuse::kWhole).empty());
}

class RunLanesTest : public testing::Test {
 protected:
  void SetUp() override { SetNumThreads(6); }
  void TearDown() override { SetNumThreads(before_); }
  const int before_ = NumThreads();
};

TEST_F(RunLanesTest, OneRunsOnTheCallingThreadWithAllThreads) {
  int64_t ticked = 0;
  RunLanes(
      1, [&](int64_t tokens) { ticked += tokens; },
      [&](int lane, const TickFn& tick) {
        EXPECT_EQ(lane, 0);
        EXPECT_EQ(NumThreads(), 6);
        tick(5);
        EXPECT_EQ(ticked, 5);
      });
}

TEST_F(RunLanesTest, ThreadsAreShared) {
  std::atomic<int> threads = 0, lanes = 0;
  const auto caller = std::this_thread::get_id();
  int64_t ticked = 0, ticks = 0;
  RunLanes(
      3,
      [&](int64_t tokens) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        ticked += tokens;
        ++ticks;
      },
      [&](int lane, const TickFn& tick) {
        lanes += 1 << lane;
        threads += NumThreads();
        for (int i = 0; i < 1000; ++i) tick(lane + 1);
      });
  EXPECT_EQ(lanes, 7);
  EXPECT_EQ(threads, 6);
  EXPECT_EQ(ticked, 6000);
  EXPECT_EQ(ticks, 3000);
}

// An error of a lane ends those that would never end, and is thrown as itself, once.
TEST_F(RunLanesTest, AnErrorEndsAllLanes) {
  std::atomic<int> ended = 0;
  const auto run = [&] {
    RunLanes(
        3, [](int64_t) {},
        [&](int lane, const TickFn& tick) {
          struct Ended {
            std::atomic<int>& count;
            ~Ended() { ++count; }
          } at_the_end{ended};
          if (lane == 1) throw Error(ErrorCode::kMismatch, "lane one");
          for (;;) tick(1);
        });
  };
  EXPECT_THAT(run, testing::ThrowsMessage<Error>(testing::StrEq("lane one")));
  EXPECT_EQ(ended, 3);
}

TEST_F(RunLanesTest, AnExceptionOfTheTickEndsAllLanes) {
  struct Stop {};
  int calls = 0;
  const auto run = [&] {
    RunLanes(
        4,
        [&](int64_t) {
          ++calls;
          throw Stop();
        },
        [](int, const TickFn& tick) {
          for (;;) tick(1);
        });
  };
  EXPECT_THROW(run(), Stop);
  EXPECT_EQ(calls, 1);
}

TEST_F(RunLanesTest, TheLastTickArrives) {
  for (int round = 0; round < 200; ++round) {
    int64_t ticked = 0;
    RunLanes(
        2, [&](int64_t tokens) { ticked += tokens; },
        [](int lane, const TickFn& tick) { tick(lane + 1); });
    ASSERT_EQ(ticked, 3);
  }
}

}  // namespace
}  // namespace ropewalk::internal
