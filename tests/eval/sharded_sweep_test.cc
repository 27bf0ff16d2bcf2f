// A sweep by several processes in one folder: however they come and go, the rows are those of one
// undisturbed process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "ropewalk/base/error.h"
#include "tests/eval/noisy_sweep.h"
#include "tests/support/message_of.h"

namespace ropewalk {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;  // NOLINT: of times
using test::kLength;
using test::Made;
using test::MessageOf;
using test::TempFolder;
using test::WithoutSeconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Shard Quick(int64_t index, int64_t count) {
  return {.index = index, .count = count, .beat_seconds = 0.05, .stale_seconds = 0.5};
}

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Of an undisturbed sweep, with and without a race.
const std::string& Expected(bool race = true) {
  static const auto make = [](bool with) {
    Made whole(with);
    const TempFolder folder;
    return WithoutSeconds(whole.Run(folder));
  };
  static const std::string kRace = make(true), kWhole = make(false);
  return race ? kRace : kWhole;
}

std::vector<std::string> FilesOf(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Until a shard has a lease on a part.
void WaitForWork(const TempFolder& folder) {
  const auto leases = folder / "leases";
  for (std::error_code none; !fs::exists(leases) || fs::is_empty(leases, none);) {
    std::this_thread::sleep_for(1ms);
  }
}

TEST(ShardedSweep, OneOfFourAloneMeasuresEverything) {
  for (const bool race : {true, false}) {
    Made made(race);
    const TempFolder folder;
    EXPECT_EQ(WithoutSeconds(made.Run(folder, Quick(3, 4))), Expected(race));
    EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells), Expected(race));
    EXPECT_THAT(FilesOf(folder), ElementsAre("results.3-of-4.jsonl", "units.3-of-4.jsonl"));
  }
}

TEST(ShardedSweep, EachPartIsMeasuredOnce) {
  for (const bool race : {true, false}) {
    Made whole(race);
    const TempFolder undisturbed, folder;
    whole.Run(undisturbed);
    std::vector<std::unique_ptr<Made>> made;
    std::vector<std::string> rows(3);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      made.push_back(std::make_unique<Made>(race));
      made.back()->engine.pause = i == 2 ? 8ms : 2ms;  // one machine is slower
    }
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back(
          [&, i] { rows[i] = WithoutSeconds(made[i]->Run(folder, Quick(i + 1, 3))); });
    }
    for (std::thread& thread : threads) thread.join();
    auto asked = made[0]->engine.asked;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(rows[i], Expected(race)) << i;
      for (const auto& [what, times] : made[i]->engine.asked) {
        if (i > 0) asked[what] += times;
      }
    }
    EXPECT_EQ(asked, whole.engine.asked);
    EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells), Expected(race));
    size_t lines = 0;
    for (const std::string& name : FilesOf(folder)) {
      const std::string text = Slurp(folder / name);
      if (name.starts_with("results")) lines += std::ranges::count(text, '\n') - 1;
    }
    EXPECT_EQ(lines, whole.tasks.size());  // each row once
    EXPECT_FALSE(fs::exists(folder / "leases"));
  }
}

// A process that runs a shard, and is killed by signal 9 in one of its next calls or not.
pid_t Start(const TempFolder& folder, int index, int killed_at) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  Made made;
  made.engine.pause = 1ms;
  made.engine.killed_at = killed_at;
  int code = 1;
  try {
    if (WithoutSeconds(made.Run(folder, Quick(index, 3))) == Expected()) code = 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "shard %d: %s\n", index, e.what());
  }
  ::_exit(code);
}

TEST(ShardedSweep, KilledAtRandomGoesOnToTheSameRows) {
  const std::string expected = Expected();  // before children are made
  for (unsigned seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const TempFolder folder;
    std::map<pid_t, int> running;
    int kills = 0;
    const auto start = [&](int index) {
      const int at = kills < 12 ? static_cast<int>(random() % 8) : -1;
      running[Start(folder, index, at)] = index;
    };
    for (int index = 1; index <= 3; ++index) start(index);
    while (!running.empty()) {
      int status = 0;
      const pid_t child = ::waitpid(-1, &status, 0);
      ASSERT_GT(child, 0);
      const int index = running[child];
      running.erase(child);
      if (WIFSIGNALED(status)) {
        ++kills;
        // The last of them stays dead; what it had is taken over.
        if (index != 3) start(index);
      } else {
        EXPECT_EQ(WEXITSTATUS(status), 0) << index;
      }
    }
    EXPECT_GT(kills, 2);
    EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells), expected);
  }
}

TEST(ShardedSweep, WhatAShardOfAnotherMachineHadIsTakenOver) {
  Made made;
  const TempFolder folder;
  fs::create_directories(folder / "leases");
  // It died with a lease on every cell, in the folder and at its work.
  const char* const dead = R"({"shard":"9/9","host":"far","process":3,"kernel":"k","started":1})";
  for (const char* name : {"start.1", "shard-9-of-9.1", "rows-512-f32.1", "rows-128-f32.1"}) {
    std::ofstream(folder / "leases/" + name) << dead;
  }
  for (const SweepTask& task : made.tasks) {
    Cell cell = made.header.common;
    cell.method = task.method;
    cell.factor = task.factor;
    cell.length = task.length;
    cell.scaling = task.scaling;
    cell.plan_hash = task.plan_hash;
    for (const char* part : {".w4.1", ".w8.1", ".t0.1"}) {
      std::ofstream(folder / "leases/" + cell.Identity() + part) << dead;
    }
  }
  std::vector<std::string> said;
  int waits = 0;
  SweepEvents events;
  events.message = [&](const std::string& line) { said.push_back(line); };
  events.waiting = [&](const std::string&) { return ++waits > 0; };
  EXPECT_EQ(WithoutSeconds(made.Run(folder, Quick(1, 2), events)), Expected());
  EXPECT_GT(waits, 0);
  EXPECT_THAT(said, testing::Contains(HasSubstr("shard 9/9 (far, process 3)")));
}

TEST(ShardedSweep, AnInterruptedOneLeavesItsPartsToOthers) {
  Made whole;
  const TempFolder undisturbed;
  whole.Run(undisturbed);
  for (int last = 0; last < 30; last += 3) {
    const TempFolder folder;
    Made first, second;
    first.engine.last_call = last;
    EXPECT_THROW(first.Run(folder, Quick(1, 2)), Interrupted);
    EXPECT_FALSE(fs::exists(folder / "leases"));
    EXPECT_EQ(WithoutSeconds(second.Run(folder, Quick(2, 2))), Expected());
    EXPECT_EQ(second.engine.calls + last, [] {
      Made alone;
      const TempFolder other;
      alone.Run(other, Quick(1, 2));
      return alone.engine.calls;
    }());
  }
}

TEST(ShardedSweep, OtherOptionsAreRefusedByName) {
  const TempFolder folder;
  Made first;
  first.engine.last_call = 5;
  EXPECT_THROW(first.Run(folder, Quick(1, 2)), Interrupted);
  const auto before = FilesOf(folder);
  Made other;
  other.header.common.seed = 77;
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { other.Run(folder, Quick(2, 2)); }),
              AllOf(HasSubstr("results.1-of-2.jsonl"), HasSubstr("seed there 1, here 77")));
  Made threads;
  threads.header.common.threads = 64;
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { threads.Run(folder, Quick(2, 2)); }),
              HasSubstr("threads there"));
  EXPECT_EQ(FilesOf(folder), before);  // and leave nothing
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { other.Run(folder); }),
              HasSubstr("seed there 1, here 77"));
}

// Which methods race is in no header; whoever is at work says it.
TEST(ShardedSweep, OtherMethodsBesideOneAtWorkAreRefused) {
  const TempFolder folder;
  Made first;
  std::atomic<bool> held{true};
  first.engine.held = &held;
  std::thread at_work([&] { first.Run(folder, Quick(1, 2)); });
  WaitForWork(folder);
  Made other;
  other.spec.methods.pop_back();
  other.tasks = PlanSweep(other.spec, other.plan);
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { other.Run(folder, Quick(2, 2)); }),
              AllOf(HasSubstr("shard 1/2"), HasSubstr("methods none,linear,by-parts,yarn;"),
                    HasSubstr("methods none,linear,by-parts;")));
  Made whole(false);
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { whole.Run(folder, Quick(2, 2)); }),
              HasSubstr("race none here"));
  held = false;
  at_work.join();
  // Afterwards the folder goes on with other methods, as without shards.
  EXPECT_EQ(other.Run(folder, Quick(2, 2)).size(), other.tasks.size());
}

TEST(ShardedSweep, OfTwoDifferentOnesThatBeginAtOnceOneIsRefused) {
  for (int round = 0; round < 20; ++round) {
    const TempFolder folder;
    Made a, b;
    b.header.common.seed = 77;
    std::atomic<int> refused{0}, ready{0};
    const auto run = [&](Made& made, int index) {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      try {
        made.Run(folder, Quick(index, 2));
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kMismatch) << e.what();
        ++refused;
      }
    };
    std::thread other([&] { run(a, 1); });
    run(b, 2);
    other.join();
    EXPECT_EQ(refused, 1) << round;
    EXPECT_EQ(ReadResults(folder.path()).cells.size(), a.tasks.size());
  }
}

TEST(ShardedSweep, ANumberIsGivenOnce) {
  const TempFolder folder;
  Made first, second;
  std::atomic<bool> held{true};
  first.engine.held = &held;
  std::thread at_work([&] { first.Run(folder, Quick(1, 2)); });
  WaitForWork(folder);
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { second.Run(folder, Quick(1, 2)); }),
              HasSubstr("results.1-of-2.jsonl"));
  // Nor does a process without a shard work beside it.
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { second.Run(folder); }),
              AllOf(HasSubstr("with --shard"), HasSubstr("results.1-of-2.jsonl")));
  held = false;
  at_work.join();
  EXPECT_EQ(WithoutSeconds(second.Run(folder)), Expected());
  EXPECT_EQ(second.engine.calls, 0);
}

TEST(ShardedSweep, NoShardWorksBesideAProcessWithout) {
  const TempFolder folder;
  Made without, shard;
  std::atomic<bool> held{true};
  without.engine.held = &held;
  std::thread at_work([&] { without.Run(folder); });
  while (!fs::exists(folder / "units.jsonl")) std::this_thread::sleep_for(1ms);
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { shard.Run(folder, Quick(1, 2)); }),
              AllOf(HasSubstr("without --shard"), HasSubstr("/results.jsonl")));
  held = false;
  at_work.join();
  EXPECT_EQ(WithoutSeconds(shard.Run(folder, Quick(1, 2))), Expected());
  EXPECT_EQ(shard.engine.calls, 0);
}

// Each goes on from what the other has left, and measures nothing twice.
TEST(ShardedSweep, GoesOnWithoutShardsAndTheOtherWayAround) {
  for (const bool race : {true, false}) {
    Made whole(race);
    const TempFolder undisturbed;
    whole.Run(undisturbed);
    for (const bool shard_first : {true, false}) {
      for (int last = 1; last < 25; last += 4) {
        SCOPED_TRACE(last);
        const TempFolder folder;
        Made first(race), second(race);
        first.engine.last_call = last;
        const std::optional<Shard> shard = Quick(2, 3), none;
        EXPECT_THROW(first.Run(folder, shard_first ? shard : none), Interrupted);
        EXPECT_EQ(WithoutSeconds(second.Run(folder, shard_first ? none : shard)), Expected(race));
        auto asked = first.engine.asked;
        for (const auto& [what, times] : second.engine.asked) asked[what] += times;
        EXPECT_EQ(asked, whole.engine.asked);
        for (const CellLeft& left :
             WhatIsLeft(second.tasks, second.spec, second.inputs, second.header, folder.path())) {
          EXPECT_TRUE(left.finished);
        }
      }
    }
  }
}

// Another shard may be in the middle of writing a line. Its file is read up to there and not changed.
TEST(ShardedSweep, TornLinesOfOthersAreLeftAlone) {
  for (const char* const* names :
       {(const char* const[]){"results.1-of-2.jsonl", "units.1-of-2.jsonl"}}) {
    for (const int cut : {1, 7, 40}) {
      const TempFolder folder;
      Made first, second;
      first.engine.last_call = 14;
      EXPECT_THROW(first.Run(folder, Quick(1, 2)), Interrupted);
      std::map<std::string, std::string> before;
      for (int i = 0; i < 2; ++i) {
        const std::string path = folder / names[i];
        fs::resize_file(path, fs::file_size(path) - static_cast<uintmax_t>(cut));
        fs::permissions(path, fs::perms::owner_read);  // not to be written by others
        before[path] = Slurp(path);
      }
      EXPECT_EQ(WithoutSeconds(second.Run(folder, Quick(2, 2))), Expected()) << cut;
      EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells), Expected()) << cut;
      for (const auto& [path, text] : before) EXPECT_EQ(Slurp(path), text) << path;
      // Its owner drops the line.
      for (const auto& [path, text] : before) fs::permissions(path, fs::perms::owner_all);
      Made again;
      EXPECT_EQ(WithoutSeconds(again.Run(folder, Quick(1, 2))), Expected()) << cut;
      EXPECT_EQ(again.engine.calls, 0);
    }
  }
}

TEST(ShardedSweep, FilesOfNoShardAreNotRead) {
  const TempFolder folder;
  for (const char* name :
       {"results.old.jsonl", "results.01-of-2.jsonl", "results.3-of-2.jsonl",
        "units.1-of-2.jsonl.bak", "results..jsonl", "results.1-of-2-of-3.jsonl"}) {
    std::ofstream(folder / name) << "mine\n";
  }
  Made made;
  EXPECT_EQ(WithoutSeconds(made.Run(folder, Quick(1, 2))), Expected());
  EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells), Expected());
  for (const char* name : {"results.2-of-2.jsonl", "units.2-of-2.jsonl"}) {
    std::ofstream(folder / name) << "mine\n";
    Made other;
    EXPECT_THAT(MessageOf(ErrorCode::kInvalidFile, [&] { other.Run(folder, Quick(1, 2)); }),
                AllOf(HasSubstr(name), HasSubstr("line 1")));
    fs::remove(folder / name);
  }
}

TEST(ShardedSweep, OfARowInSeveralFilesTheOneThatMeasuredMostCounts) {
  const TempFolder folder, other;
  Made made;
  const std::vector<Cell> cells = made.Run(folder, Quick(2, 2));
  // As if the budget of the first had ended in between.
  Cell less = cells.back();
  less.windows -= 2;
  less.unfinished = true;
  const std::string header = Slurp(folder / "results.2-of-2.jsonl");
  std::ofstream(folder / "results.1-of-2.jsonl")
      << header.substr(0, header.find('\n') + 1) << ToJson(less) << "\n";
  std::ofstream(folder / "results.3-of-3.jsonl")
      << header.substr(0, header.find('\n') + 1) << ToJson(less) << "\n";
  EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells), Expected());
  // Files of different sweeps are no sweep.
  made.header.common.seed = 9;
  std::ofstream(folder / "results.3-of-3.jsonl") << ToJson(made.header) << "\n";
  EXPECT_THAT(MessageOf(ErrorCode::kMismatch, [&] { ReadResults(folder.path()); }),
              AllOf(HasSubstr("results.3-of-3.jsonl"), HasSubstr("seed there 9, here 1")));
}

TEST(ShardedSweep, ABudgetIsEachOnesOwn) {
  Made whole;
  const TempFolder undisturbed, folder;
  whole.Run(undisturbed);
  const double all = whole.engine.now;
  int runs = 0;
  std::string rows;
  for (double budget = 0.3 * all; runs < 60; ++runs) {
    // Of two that take turns each counts on the other.
    Made made;
    rows = WithoutSeconds(made.Run(folder, budget, Quick(1 + runs % 2, 2)));
    EXPECT_LE(made.engine.now, budget + 5 * kLength);
    if (made.left_out.empty()) break;
    for (const LeftOut& out : made.left_out) EXPECT_GT(out.seconds, 0);
    if (made.engine.now == 0) budget *= 2;
  }
  EXPECT_GT(runs, 1);
  EXPECT_EQ(rows, Expected());
  EXPECT_EQ(WithoutSeconds(ReadResults(folder.path()).cells), Expected());
}

}  // namespace
}  // namespace ropewalk
