// A hop of the ring between ranks of MPI: every rank sends to the next and receives from the one before at once, as
// src/ranks does it. The constants of tools/scale_model.py.
//   mpirun -n N hop_bench [ROUNDS]; rank 0 prints a JSON line for each size, the median of the slowest rank's seconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "ropewalk/ranks/rank_group.h"

namespace {

double Hop(ropewalk::RankGroup& group, std::span<const std::byte> out, std::span<std::byte> in) {
  group.Barrier();
  const auto begin = std::chrono::steady_clock::now();
  group.BeginShift(out, in);
  group.FinishShifts();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  const double own = spent.count();
  std::vector<double> all(static_cast<size_t>(group.size()));
  group.GatherAll(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return *std::max_element(all.begin(), all.end());
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 31;
  if (rounds < 1) return 2;
  const auto group = ropewalk::MpiRanks();
  for (size_t bytes = 64; bytes <= size_t{64} << 20; bytes *= 16) {
    const std::vector<std::byte> out(bytes, std::byte{1});
    std::vector<std::byte> in(bytes);
    Hop(*group, out, in);
    std::vector<double> seconds;
    for (int i = 0; i < rounds; ++i) seconds.push_back(Hop(*group, out, in));
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    if (group->rank() != 0) continue;
    std::printf(R"({"bench":"hop","ranks":%d,"bytes":%zu,"us":%.2f,"gb_per_s":%.3f,"rounds":%d})"
                "\n",
                group->size(), bytes, median * 1e6, static_cast<double>(bytes) / median * 1e-9,
                rounds);
  }
}
