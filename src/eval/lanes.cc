#include "src/eval/lanes.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ropewalk/base/threads.h"
#include "src/base/parallel.h"

namespace ropewalk::internal {
namespace {

// Ends a lane because of what happened elsewhere.
struct Stopped {};

// What lanes tell the calling thread.
class Relay {
 public:
  void Begin() {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_one();
  }
  void Fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void Tick(int64_t tokens) {
    const std::lock_guard lock(mutex_);
    if (error_) throw Stopped();
    ticked_.push_back(tokens);
    changed_.notify_one();
  }
  // Hands on what is ticked until no lane runs.
  void Listen(const TickFn& tick) {
    for (bool running = true; running;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !ticked_.empty() || running_ == 0; });
      running = running_ > 0;
      const std::vector<int64_t> ticked = std::exchange(ticked_, {});
      if (error_) continue;
      lock.unlock();
      try {
        for (const int64_t tokens : ticked) tick(tokens);
      } catch (...) {
        Fail(std::current_exception());
      }
    }
  }
  void Rethrow() const {  // when no lane runs
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
  std::vector<int64_t> ticked_;
  std::exception_ptr error_;
};

}  // namespace

void RunLanes(int lanes, const TickFn& tick,
              const std::function<void(int lane, const TickFn& tick)>& work) {
  if (lanes == 1) return work(0, tick);
  const int share = std::max(1, NumThreads() / std::max(1, lanes));
  Relay relay;
  const auto run = [&](int lane) {
    const ScopedNumThreads threads(share);
    try {
      work(lane, [&relay](int64_t tokens) { relay.Tick(tokens); });
    } catch (const Stopped&) {  // what stopped it is thrown
    } catch (...) {
      relay.Fail(std::current_exception());
    }
    relay.End();
  };
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(std::max(0, lanes)));
  for (int lane = 0; lane < lanes; ++lane) {
    relay.Begin();
    try {
      threads.emplace_back(run, lane);
    } catch (...) {  // the system has no more threads
      relay.Fail(std::current_exception());
      relay.End();
      break;
    }
  }
  relay.Listen(tick);
  threads.clear();
  relay.Rethrow();
}

}  // namespace ropewalk::internal
