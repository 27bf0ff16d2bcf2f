// Leases: one holder at a time, a dead one's are taken over by one process, a living one's are not,
// whatever else may lie in the folder.
#include "src/eval/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ropewalk/base/error.h"
#include "ropewalk/eval/eval.h"
#include "tests/eval/tiny_model.h"
#include "tests/support/message_of.h"

namespace ropewalk::internal {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;  // NOLINT: of times
using test::TempFolder;
using testing::HasSubstr;

Shard Quick(int64_t index, int64_t count = 4) {
  return {.index = index, .count = count, .beat_seconds = 0.02, .stale_seconds = 0.3};
}

// Of a process of another machine, of which nothing is known but what it does.
std::string FileOf(const std::string& shard) {
  return R"({"shard":")" + shard +
         R"(","host":"elsewhere","process":1,"kernel":"another","started":5,"asked":""})";
}
void Write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(Lease, HasOneHolder) {
  const TempFolder folder;
  LeaseFolder a(folder.path(), Quick(1), "", true), b(folder.path(), Quick(2), "", true);
  {
    const auto lease = a.Claim("x");
    ASSERT_TRUE(lease);
    EXPECT_FALSE(b.Claim("x"));
    EXPECT_THAT(b.holder(), HasSubstr("shard 1/4 ("));
    EXPECT_TRUE(b.Claim("y"));  // and gives it back
  }
  EXPECT_TRUE(b.Claim("x"));
  EXPECT_TRUE(fs::is_empty(folder / "leases"));
}

TEST(Lease, TheFolderIsRemovedWithTheLastOne) {
  const TempFolder folder;
  {
    LeaseFolder a(folder.path(), Quick(1), "", true);
    EXPECT_TRUE(a.Claim("x"));
  }
  EXPECT_FALSE(fs::exists(folder / "leases"));
  LeaseFolder b(folder.path(), Quick(2), "", true);
  EXPECT_TRUE(b.Claim("x"));
}

TEST(Lease, OfASlowWorkerIsNotTakenOver) {
  const TempFolder folder;
  Shard one = Quick(1), other = Quick(2);
  one.stale_seconds = other.stale_seconds = 1.5;  // 75 beats: a busy machine delays some
  LeaseFolder a(folder.path(), one, "", true), b(folder.path(), other, "", true);
  const auto lease = a.Claim("x");
  const auto end = std::chrono::steady_clock::now() + 3000ms;
  while (std::chrono::steady_clock::now() < end) {
    ASSERT_FALSE(b.Claim("x"));
    std::this_thread::sleep_for(20ms);
  }
}

TEST(Lease, IsTakenOverWhenNothingWasSeenForLong) {
  const TempFolder folder;
  Write(folder / "leases/x.1", FileOf("9/16"));
  std::string said;
  LeaseFolder a(folder.path(), Quick(1), "", true, [&](const std::string& line) { said = line; });
  EXPECT_FALSE(a.Claim("x"));  // however old its file is: this process has not seen it before
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(a.Claim("x"));
  std::this_thread::sleep_for(300ms);
  {
    const auto lease = a.Claim("x");
    ASSERT_TRUE(lease);
    EXPECT_THAT(said, HasSubstr("shard 9/16 (elsewhere, process 1)"));
    EXPECT_TRUE(fs::exists(folder / "leases/x.2"));
  }
  EXPECT_FALSE(fs::exists(folder / "leases"
                                   "/x.1"));
  EXPECT_FALSE(fs::exists(folder / "leases/x.2"));
}

// A renewal that it sees, by whatever clock, begins anew.
TEST(Lease, OfAnotherMachineLivesAsLongAsItIsRenewed) {
  const TempFolder folder;
  const std::string path = folder / "leases/x.1";
  Write(path, FileOf("9/16"));
  LeaseFolder a(folder.path(), Quick(1), "", true);
  auto its_clock = fs::file_time_type::clock::now() - 1000h;
  for (int i = 0; i < 10; ++i) {
    fs::last_write_time(path, its_clock += 1s);
    ASSERT_FALSE(a.Claim("x"));
    std::this_thread::sleep_for(100ms);
  }
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(a.Claim("x"));
}

TEST(Lease, OfADeadProcessOfThisMachineIsTakenOverAtOnce) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    LeaseFolder dies(folder.path(), {.index = 2, .count = 4}, "", true);
    const auto lease = dies.Claim("x");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(fs::exists(folder / "leases/x.1"));
  LeaseFolder a(folder.path(), {.index = 1, .count = 4}, "", true);  // a minute of patience
  EXPECT_TRUE(a.Claim("x"));
}

TEST(Lease, OfItsOwnNameIsOfAPredecessor) {
  const TempFolder folder;
  Write(folder / "leases/x.1", FileOf("1/4"));
  LeaseFolder unsure(folder.path(), {.index = 1, .count = 4}, "", false);
  EXPECT_FALSE(unsure.Claim("x"));
  LeaseFolder sure(folder.path(), {.index = 1, .count = 4}, "", true);
  EXPECT_TRUE(sure.Claim("x"));
}

TEST(Lease, OneOfSeveralTakesOver) {
  for (int round = 0; round < 20; ++round) {
    const TempFolder folder;
    Write(folder / "leases/x.1", FileOf("9/16"));
    std::atomic<int> have{0}, ready{0}, tried{0};
    std::atomic<bool> end{false};
    std::vector<std::thread> threads;
    for (int i = 1; i <= 4; ++i) {
      threads.emplace_back([&, i] {
        LeaseFolder leases(folder.path(), {.index = i, .count = 4, .stale_seconds = 0.02}, "",
                           true);
        leases.Claim("x");
        std::this_thread::sleep_for(50ms);
        ++ready;
        while (ready < 4) std::this_thread::yield();
        const auto lease = leases.Claim("x");
        if (lease) ++have;
        ++tried;
        // No other lease is looked at for so long that it were stale.
        while (!end) std::this_thread::sleep_for(1ms);
      });
    }
    while (tried < 4) std::this_thread::sleep_for(1ms);
    end = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(have, 1) << round;
  }
}

// A holder that was taken for dead and is not gives back what is its own alone.
TEST(Lease, AFormerHolderRemovesNothingOfOthers) {
  const TempFolder folder;
  LeaseFolder b(folder.path(), Quick(2), "", true);
  {
    // Renews nothing.
    LeaseFolder paused(folder.path(), {.index = 1, .count = 4, .beat_seconds = 1000}, "", true);
    const auto lost = paused.Claim("x");
    ASSERT_TRUE(lost);
    EXPECT_FALSE(b.Claim("x"));
    std::this_thread::sleep_for(400ms);
    { EXPECT_TRUE(b.Claim("x")); }
    LeaseFolder c(folder.path(), Quick(3), "", true);
    const auto now = c.Claim("x");
    ASSERT_TRUE(now);
  }
  EXPECT_TRUE(b.Claim("x"));
}

TEST(Lease, WhateverLiesInItsPlaceIsWaitedForAndPassed) {
  const TempFolder folder;
  const std::string leases = folder / "leases";
  fs::create_directories(leases + "/folder.1/within");
  fs::create_symlink("/dev/zero", leases + "/link.1");
  fs::create_symlink("nowhere", leases + "/dangling.1");
  ASSERT_EQ(::mkfifo((leases + "/pipe.1").c_str(), 0666), 0);
  Write(leases + "/empty.1", "");
  Write(leases + "/words.1", "no json");
  Write(leases + "/list.1", "[1, 2]");
  Write(leases + "/types.1", R"({"shard":3,"host":[],"process":"x","kernel":null,"started":1.5})");
  Write(leases + "/huge.1", std::string(1 << 20, '['));
  Write(leases + "/numbers.1", R"({"shard":"1/4","process":99999999999999999999999,"kernel":"a"})");
  Write(leases + "/bytes.1", std::string("\0\xff\xfe{", 4));
  LeaseFolder a(folder.path(), Quick(2), "", true);
  const char* const names[] = {"folder", "link",  "dangling", "pipe",    "empty", "words",
                               "list",   "types", "huge",     "numbers", "bytes"};
  for (const char* name : names) EXPECT_FALSE(a.Claim(name)) << name;
  std::this_thread::sleep_for(400ms);
  for (const char* name : names) EXPECT_TRUE(a.Claim(name)) << name;
}

TEST(Lease, WaitingEndsAndCanBeInterrupted) {
  const TempFolder folder;
  LeaseFolder a(folder.path(), Quick(1), "", true), b(folder.path(), Quick(2), "", true);
  auto lease = a.Claim("x");
  std::string whom;
  EXPECT_THROW(b.Wait("x",
                      [&](const std::string& holder) {
                        whom = holder;
                        return false;
                      }),
               Interrupted);
  EXPECT_THAT(whom, HasSubstr("shard 1/4"));
  EXPECT_FALSE(b.Wait("x", {}, 0.1));
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    lease.reset();
  });
  EXPECT_TRUE(b.Wait("x", {}));
  later.join();
}

TEST(Lease, WhereNoneCanBeMadeIsAnError) {
  const TempFolder folder;
  std::ofstream(folder / "leases") << "a file";
  LeaseFolder a(folder.path(), Quick(1), "", true);
  EXPECT_THAT(test::MessageOf([&] { a.Claim("x"); }), HasSubstr("cannot create"));
}

TEST(Lease, WorkThatIsDoneOnceIsDoneOneAfterTheOther) {
  const TempFolder folder;
  std::atomic<int> at_once{0}, most{0}, done{0};
  std::vector<std::thread> threads;
  for (int i = 1; i <= 4; ++i) {
    threads.emplace_back([&, i] {
      OneAfterTheOther(folder.path(), Quick(i), "search-base", {}, [&] {
        most = std::max<int>(most, ++at_once);
        std::this_thread::sleep_for(30ms);
        --at_once;
        ++done;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(done, 4);
}

}  // namespace
}  // namespace ropewalk::internal
