// Ranks that are threads of one process.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "ropewalk/base/error.h"
#include "ropewalk/ranks/rank_group.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

// Ends a rank because another has failed.
struct OtherFailed : Error {
  OtherFailed() : Error(ErrorCode::kIo, "ranks: another rank has failed") {}
};

// What the ranks share.
class Hub {
 public:
  explicit Hub(int ranks) : sent_(static_cast<size_t>(ranks)) {}

  // Waits until all ranks are here.
  void Meet() {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (++here_ == static_cast<int>(sent_.size())) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
    }
    Wait(lock, [&] { return round_ != round; });
  }
  // What a rank gives the others to read until all have met again.
  void Show(int rank, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    sent_[static_cast<size_t>(rank)].push_back(bytes);
  }
  void Hide(int rank) {
    const std::lock_guard lock(mutex_);
    sent_[static_cast<size_t>(rank)].clear();
  }
  std::vector<std::span<const std::byte>> Of(int rank) {
    const std::lock_guard lock(mutex_);
    return sent_[static_cast<size_t>(rank)];
  }
  // While a rank reads what another shows; nobody leaves, and takes its memory along, before it has.
  class Reading {
   public:
    explicit Reading(Hub& hub) : hub_(hub) {
      const std::lock_guard lock(hub_.mutex_);
      if (hub_.failed_) throw OtherFailed();
      ++hub_.readers_;
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() {
      const std::lock_guard lock(hub_.mutex_);
      --hub_.readers_;
      hub_.changed_.notify_all();
    }

   private:
    Hub& hub_;
  };
  void Fail(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    if (error != nullptr && error_ == nullptr) error_ = std::move(error);
    changed_.notify_all();
  }
  // Fails with an error, once nobody reads what this rank shows.
  [[noreturn]] void Leave(const Error& error) {
    Fail(std::make_exception_ptr(error));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return readers_ == 0; });
    throw OtherFailed();
  }
  void Rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  template <class Ready>
  void Wait(std::unique_lock<std::mutex>& lock, Ready ready) {
    changed_.wait(lock, [&] { return ready() || failed_; });
    if (ready()) return;
    changed_.wait(lock, [&] { return readers_ == 0; });
    throw OtherFailed();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0, readers_ = 0;
  int64_t round_ = 0;
  bool failed_ = false;
  std::exception_ptr error_;
  std::vector<std::vector<std::span<const std::byte>>> sent_;  // by rank
};

class ThreadRank final : public RankGroup {
 public:
  ThreadRank(Hub& hub, int rank, int size) : hub_(hub), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string Describe() const override {
    return std::to_string(size_) + " ranks, threads of one process";
  }

  void BeginShift(std::span<const std::byte> out, std::span<std::byte> in) override {
    hub_.Show(rank_, out);
    in_.push_back(in);
  }
  void Progress() override {}
  void FinishShifts() override {
    hub_.Meet();
    Take(hub_.Of((rank_ + size_ - 1) % size_), in_);
    hub_.Meet();
    hub_.Hide(rank_);
    in_.clear();
  }

  void Broadcast(std::span<std::byte> bytes, int root) override {
    if (rank_ == root) hub_.Show(rank_, bytes);
    hub_.Meet();
    if (rank_ != root) Take(hub_.Of(root), {bytes});
    hub_.Meet();
    hub_.Hide(rank_);
  }
  void GatherAll(std::span<const std::byte> mine, std::span<std::byte> all) override {
    hub_.Show(rank_, mine);
    hub_.Meet();
    for (int r = 0; r < size_; ++r) {
      Take(hub_.Of(r), {all.subspan(static_cast<size_t>(r) * mine.size(), mine.size())});
    }
    hub_.Meet();
    hub_.Hide(rank_);
  }
  void Barrier() override { hub_.Meet(); }
  void Fail(int /*code*/) noexcept override { hub_.Fail(nullptr); }

 private:
  void Take(const std::vector<std::span<const std::byte>>& from,
            const std::vector<std::span<std::byte>>& to) {
    for (size_t i = 0; i < to.size(); ++i) {
      if (i < from.size() && from[i].size() == to[i].size()) continue;
      hub_.Leave(Error(ErrorCode::kMismatch, "ranks: a rank sends what another does not expect"));
    }
    const Hub::Reading reading(hub_);
    for (size_t i = 0; i < to.size(); ++i) {
      if (!to[i].empty()) std::memcpy(to[i].data(), from[i].data(), to[i].size());
    }
  }

  Hub& hub_;
  const int rank_, size_;
  std::vector<std::span<std::byte>> in_;
};

}  // namespace

void RunThreadRanks(int ranks, int threads, const std::function<void(RankGroup&)>& work) {
  if (ranks < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "RunThreadRanks: ranks: expected 1 or more, got " + std::to_string(ranks));
  }
  Hub hub(ranks);
  {
    std::vector<std::jthread> running;
    running.reserve(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      running.emplace_back([&hub, &work, r, ranks, threads] {
        const internal::ScopedNumThreads limit(threads);
        ThreadRank rank(hub, r, ranks);
        try {
          work(rank);
        } catch (const OtherFailed&) {
          hub.Fail(nullptr);
        } catch (...) {
          hub.Fail(std::current_exception());
        }
      });
    }
  }
  hub.Rethrow();
}

}  // namespace ropewalk
