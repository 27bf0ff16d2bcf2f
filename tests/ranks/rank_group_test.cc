// Ranks that are threads: the ring, what is exchanged, and what happens when one fails.
#include "ropewalk/ranks/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "ropewalk/base/error.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

using test::MessageOf;
using testing::HasSubstr;

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int v : values) bytes.push_back(static_cast<std::byte>(v));
  return bytes;
}

TEST(ThreadRanks, ShiftsGoToTheNextRank) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    RunThreadRanks(ranks, 1, [&](RankGroup& group) {
      EXPECT_EQ(group.size(), ranks);
      std::vector<std::byte> here = Bytes({group.rank(), 7}), more = Bytes({group.rank() + 100});
      for (int step = 1; step <= 2 * ranks; ++step) {
        std::vector<std::byte> in(2), more_in(1);
        group.BeginShift(here, in);
        group.BeginShift(more, more_in);
        group.Progress();
        group.FinishShifts();
        const int owner = (group.rank() - step % ranks + ranks) % ranks;
        EXPECT_EQ(in, Bytes({owner, 7}));
        EXPECT_EQ(more_in, Bytes({owner + 100}));
        here = in, more = more_in;
      }
      group.Barrier();
    });
  }
}

TEST(ThreadRanks, SmallThingsReachAll) {
  RunThreadRanks(4, 1, [](RankGroup& group) {
    std::vector<std::byte> bytes = Bytes({group.rank(), group.rank()});
    group.Broadcast(bytes, 2);
    EXPECT_EQ(bytes, Bytes({2, 2}));
    std::vector<std::byte> all(4);
    group.GatherAll(Bytes({10 * group.rank()}), all);
    EXPECT_EQ(all, Bytes({0, 10, 20, 30}));
    const auto sent = group.rank() == 1 ? Bytes({5, 6, 7}) : std::vector<std::byte>();
    EXPECT_EQ(group.BroadcastBytes(sent, 1), Bytes({5, 6, 7}));
    const std::vector<std::byte> mine(static_cast<size_t>(group.rank()), std::byte{9});
    const auto parts = group.GatherBytes(mine);
    ASSERT_EQ(parts.size(), 4u);
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(parts[r], std::vector<std::byte>(r, std::byte{9}));
  });
}

TEST(ThreadRanks, OneThatFailsEndsTheOthers) {
  std::atomic<int> ended = 0;
  const auto run = [&] {
    RunThreadRanks(3, 1, [&](RankGroup& group) {
      if (group.rank() == 1) throw Error(ErrorCode::kIo, "no memory for rank 1");
      struct Ended {
        std::atomic<int>& count;
        ~Ended() { ++count; }
      } count{ended};
      for (;;) group.Barrier();
    });
  };
  EXPECT_EQ(MessageOf(run), "no memory for rank 1");
  EXPECT_EQ(ended, 2);
}

TEST(ThreadRanks, Refusals) {
  EXPECT_THAT(MessageOf([] { RunThreadRanks(0, 1, [](RankGroup&) {}); }), HasSubstr("got 0"));
  EXPECT_THAT(MessageOf([] {
                RunThreadRanks(2, 1, [](RankGroup& group) {
                  std::vector<std::byte> in(2), out(static_cast<size_t>(1 + group.rank()));
                  group.BeginShift(out, in);
                  group.FinishShifts();
                });
              }),
              HasSubstr("sends what another does not expect"));
}

TEST(UnderMpi, IsWhatLaunchersSay) {
  const auto under = [](const std::map<std::string, const char*>& variables) {
    return UnderMpi([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second;
    });
  };
  EXPECT_FALSE(under({}));
  EXPECT_FALSE(under({{"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_TRUE(under({{"OMPI_COMM_WORLD_SIZE", "4"}}));
  EXPECT_TRUE(under({{"PMI_SIZE", "2"}}));  // MPICH
}

TEST(Mpi, BuildsWithoutItSaySo) {
  if (HasMpi()) GTEST_SKIP() << "this build has MPI";
  EXPECT_THAT(MessageOf([] { MpiRanks(); }), HasSubstr("-DROPEWALK_MPI=ON"));
}

}  // namespace
}  // namespace ropewalk
