// How many threads a call uses, whichever thread calls.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "ropewalk/base/threads.h"
#include "ropewalk/linear/linear.h"
#include "tests/attention/attention_cases.h"

namespace ropewalk {
namespace attention_threads_test {

// A bias of 0 that counts the threads that ask for it: each waits until `expected` have asked.
class Counting : public PairFunction {
 public:
  explicit Counting(size_t expected) : expected_(expected) {}
  int64_t heads() const override { return 4; }
  int64_t parameters() const override { return 0; }
  void Evaluate(int64_t, std::span<const int64_t> queries, std::span<const int64_t> keys,
                float* out, int64_t stride) const override {
    for (size_t r = 0; r < queries.size(); ++r) {
      std::fill_n(out + static_cast<int64_t>(r) * stride, keys.size(), 0.0f);
    }
    std::unique_lock lock(mutex_);
    seen_.insert(std::this_thread::get_id());
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::seconds(60), [this] { return seen_.size() >= expected_; });
  }
  void Backward(int64_t, std::span<const int64_t>, std::span<const int64_t>, const float*, int64_t,
                std::span<double>) const override {}
  size_t seen() const { return seen_.size(); }

 private:
  const size_t expected_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::set<std::thread::id> seen_;
};

size_t ThreadsOfACall(size_t expected) {
  const auto counting = std::make_shared<Counting>(expected);
  AttentionCase c = MakeCase(4, 4, 64, 600, 600);
  c.form = PairForm{counting};
  CaseMemory m(c);
  Attention(m.args);
  return counting->seen();
}

TEST(AttentionThreads, TheNumberOfAnotherThreadHolds) {
  const int before = NumThreads();
  for (const int threads : {1, 3, 1}) {
    SetNumThreads(threads);
    const auto expected = static_cast<size_t>(threads);
    EXPECT_EQ(ThreadsOfACall(expected), expected);
    std::thread([&] { EXPECT_EQ(ThreadsOfACall(expected), expected); }).join();
  }
  SetNumThreads(before);
}

size_t ThreadsOfTheProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// OpenMP keeps the threads of a region for the thread that began it, as long as that lives.
TEST(AttentionThreads, OneDnnAsWell) {
  constexpr int64_t kSize = 512;
  const int before = NumThreads();
  const std::vector<float> weight = Normal(kSize * kSize, 1), x = Normal(kSize * kSize, 2);
  const Linear linear(
      kSize, kSize,
      [&](int64_t first, int64_t rows, float* out) {
        std::copy_n(weight.data() + first * kSize, rows * kSize, out);
      },
      nullptr);
  for (const int threads : {1, 3}) {
    SetNumThreads(threads);
    std::thread([&] {
      const size_t alone = ThreadsOfTheProcess();
      std::vector<float> y(x.size());
      linear.Apply(x.data(), kSize, kSize, y.data(), kSize);
      EXPECT_EQ(ThreadsOfTheProcess() - alone, static_cast<size_t>(threads - 1));
    }).join();
  }
  SetNumThreads(before);
}

}  // namespace attention_threads_test
}  // namespace ropewalk
