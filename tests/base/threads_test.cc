#include "ropewalk/base/threads.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstdint>
#include <stdexcept>
#include <thread>

#include "ropewalk/base/error.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

class Threads : public ::testing::Test {
 protected:
  void SetUp() override { SetNumThreads(3); }
  void TearDown() override { SetNumThreads(before_); }
  const int before_ = NumThreads();
};

TEST_F(Threads, CountsAndRefuses) {
  EXPECT_EQ(NumThreads(), 3);
  EXPECT_THROW(SetNumThreads(0), Error);
  EXPECT_THROW(SetNumThreads(-1), Error);
  EXPECT_THROW(SetNumThreads(1 << 20), Error);
  EXPECT_EQ(NumThreads(), 3);
}

// OpenMP's own number is one of the thread that sets it.
TEST_F(Threads, OneNumberWhicheverThreadSetsIt) {
  const int openmp = omp_get_max_threads();
  const auto elsewhere = [](const auto& f) { std::thread(f).join(); };
  elsewhere([] {
    EXPECT_EQ(NumThreads(), 3);
    EXPECT_EQ(internal::ThreadsFor(INT64_MAX), 3);
    SetNumThreads(1);
  });
  EXPECT_EQ(NumThreads(), 1);
  EXPECT_EQ(internal::ThreadsFor(INT64_MAX), 1);
  SetNumThreads(2);
  elsewhere([] { EXPECT_EQ(NumThreads(), 2); });
  EXPECT_EQ(omp_get_max_threads(), openmp) << "the caller's own loops are the caller's";
}

TEST_F(Threads, AScopeIsOfItsThread) {
  const internal::ScopedNumThreads one(1);
  EXPECT_EQ(omp_get_max_threads(), 1);
  std::thread([] { EXPECT_EQ(NumThreads(), 3); }).join();
  EXPECT_EQ(NumThreads(), 1);
}

TEST_F(Threads, CoresAreThoseOfOpenMp) { EXPECT_EQ(NumCores(), omp_get_num_procs()); }

TEST_F(Threads, TinyWorkGetsOne) {
  using internal::kWorthThreadsNs;
  using internal::ThreadsFor;
  for (const int64_t tiny : {int64_t{0}, int64_t{1}, kWorthThreadsNs - 1}) {
    EXPECT_EQ(ThreadsFor(tiny), 1) << tiny;
  }
  for (const int64_t large : {kWorthThreadsNs, INT64_MAX}) EXPECT_EQ(ThreadsFor(large), 3) << large;
  EXPECT_EQ(ThreadsFor(999, 1000), 1);
  EXPECT_EQ(ThreadsFor(1000, 1000), 3);
}

TEST_F(Threads, ProductsAloneCanHaveFewer) {
  using internal::ThreadsForProduct;
  EXPECT_EQ(ThreadsForProduct(INT64_MAX), 3);
  {
    const internal::ScopedProductThreads two(2);
    EXPECT_EQ(ThreadsForProduct(INT64_MAX), 2);
    EXPECT_EQ(ThreadsForProduct(0), 1);
    EXPECT_EQ(internal::ThreadsFor(INT64_MAX), 3);
    EXPECT_EQ(NumThreads(), 3);
    std::thread([] { EXPECT_EQ(ThreadsForProduct(INT64_MAX), 3); }).join();
    {
      const internal::ScopedProductThreads nine(9);
      EXPECT_EQ(ThreadsForProduct(INT64_MAX), 3);
    }
    EXPECT_EQ(ThreadsForProduct(INT64_MAX), 2);
  }
  EXPECT_EQ(ThreadsForProduct(INT64_MAX), 3);
}

TEST_F(Threads, NoRegionInsideARegion) {
  int inside[2] = {0, 0};
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; ++i) inside[i] = internal::ThreadsFor(INT64_MAX);
  EXPECT_EQ(inside[0], 1);
  EXPECT_EQ(inside[1], 1);
}

TEST_F(Threads, AScopeEndsWithTheNumberItFound) {
  {
    const internal::ScopedNumThreads one(1);
    EXPECT_EQ(NumThreads(), 1);
    {
      const internal::ScopedNumThreads two(2);
      EXPECT_EQ(NumThreads(), 2);
    }
    EXPECT_EQ(NumThreads(), 1);
  }
  EXPECT_EQ(NumThreads(), 3);
  try {
    const internal::ScopedNumThreads one(1);
    throw std::runtime_error("out of the scope");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(NumThreads(), 3);
  }
}

}  // namespace
}  // namespace ropewalk
