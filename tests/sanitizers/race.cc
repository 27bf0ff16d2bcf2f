// Races that are meant, and work that has none: what scripts/tsan.sh must see and must not see before
// it says that the library has no race.
//   race omp | threads | rotate    two threads write the same memory
//   race ordered                   the same memory by one thread after the other
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "ropewalk/base/threads.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {
namespace {

constexpr int kThreads = 4;
int sum = 0;

int OpenMp() {
#pragma omp parallel num_threads(kThreads)
  sum += 1;
  return sum;
}

int Threads() {
  std::jthread first([] { sum += 1; }), second([] { sum += 1; });
  return 0;
}

// Parallel regions behind each other: without Archer the sanitizer takes these for races.
int Ordered() {
  std::vector<int> x(1000, 1);
  for (int round = 0; round < 100; ++round) {
#pragma omp parallel for num_threads(kThreads) schedule(dynamic, 7)
    for (int i = 0; i < 1000; ++i) x[i] += x[i];
#pragma omp parallel for num_threads(kThreads) schedule(static)
    for (int i = 0; i < 1000; ++i) x[999 - i] = 1;
#pragma omp parallel num_threads(kThreads)
    {
#pragma omp critical(ropewalk_race_test)
      sum += x[17];
    }
  }
  return sum == 100 * kThreads ? 0 : 1;
}

// Two calls of the library that write the same tensor, which base/threads.h forbids.
int SameTensor() {
  constexpr int64_t kTokens = 64, kDim = 64;
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = spec.rotary_dim = kDim;
  const CosSinTable table(Resolve(spec, kTokens), 0, kTokens, AnglePrecision::kExact);
  std::vector<float> q(kTokens * kDim, 1);
  const auto rotate = [&] {
    for (int round = 0; round < 50; ++round) {
      Rotate({.table = &table,
              .layout = spec.layout,
              .positions = Positions::From(0),
              .q = TensorView::Of(q.data(), {kTokens, 1, kDim})});
    }
  };
  std::jthread first(rotate), second(rotate);
  return 0;
}

int Run(std::string_view what) {
  if (what == "omp") return OpenMp() >= 0 ? 0 : 1;
  if (what == "threads") return Threads();
  if (what == "rotate") return SameTensor();
  if (what == "ordered") return Ordered();
  std::fprintf(stderr, "usage: race omp|threads|rotate|ordered\n");
  return 2;
}

}  // namespace
}  // namespace ropewalk

int main(int argc, char** argv) { return ropewalk::Run(argc > 1 ? argv[1] : ""); }
