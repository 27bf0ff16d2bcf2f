// Leases on parts of a sweep, as files in FOLDER/leases that one process creates and all others see.
// A lease keeps others from doing the same work; no result rests on it, since what two processes
// measure of one part is the same.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ropewalk/eval/shard.h"

namespace ropewalk::internal {

// What the file of a lease says of its holder; empty where it says nothing that can be read.
struct LeaseHolder {
  std::string shard;  // "3/16"
  std::string asked;  // what it measures, where that is not in the headers of results
  std::string host;
  std::string kernel;  // its run and its namespace of process ids: equal ones share processes
  int64_t pid = 0, started = 0;
  bool alive = false;  // known, not only not known to be dead

  std::string Text() const;  // for people
};

// The file NAME.N is the N-th holder's. A holder that is given up stays where it is, and the next one
// creates NAME.N+1: of several that see the same only one succeeds, and nobody removes or renames what
// another may have just made.
class LeaseFolder {
 public:
  class Held;
  // Gives the lease back when it is destroyed.
  using Lease = std::unique_ptr<Held, std::function<void(Held*)>>;

  // `only_one`: no other process of this shard's name is alive, so that its leases are of one that
  // ended. `message` hears of takeovers.
  LeaseFolder(const std::string& folder, const Shard& shard, std::string asked, bool only_one,
              std::function<void(const std::string&)> message = {});
  ~LeaseFolder();
  LeaseFolder(const LeaseFolder&) = delete;
  LeaseFolder& operator=(const LeaseFolder&) = delete;

  // Null: another process has it, whom holder() names. Throws Error(kIo) where no file can be created.
  Lease Claim(const std::string& name);
  // Waits for it, but not longer than `seconds`.
  Lease Wait(const std::string& name, const WaitFn& waiting,
             double seconds = std::numeric_limits<double>::infinity());
  const std::string& holder() const { return holder_; }
  // The holders of leases whose names begin so and that are not given up.
  std::vector<LeaseHolder> Holders(const std::string& begin);

 private:
  struct Signature {
    uint64_t device = 0, inode = 0;
    int64_t seconds = 0, nanoseconds = 0, size = 0;
    bool operator==(const Signature&) const = default;
  };
  struct Seen {
    Signature signature;
    std::chrono::steady_clock::time_point since;
    bool renewed = false;
  };

  std::string PathOf(const std::string& name, int64_t generation) const;
  int Create(const std::string& path) const;
  // Whether its holder is given up; empty: the file is gone.
  std::optional<bool> IsGivenUp(const std::string& path, LeaseHolder& holder);
  void GiveBack(const Held& held);
  void Beat();

  std::string folder_;
  Shard shard_;
  LeaseHolder self_;
  bool only_one_;
  std::function<void(const std::string&)> message_;
  std::string holder_;
  std::map<std::string, Seen> seen_;
  std::mutex mutex_;  // of what follows
  std::vector<int> held_;
  bool ends_ = false;
  std::condition_variable end_;
  std::thread beat_;
};

class LeaseFolder::Held {
 public:
  std::string name;
  int64_t generation = 1;
  int fd = -1;
};

}  // namespace ropewalk::internal
