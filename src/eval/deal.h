// Which requests of a call run in which lane.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/eval/scoring_engine.h"

namespace ropewalk::internal {

// Neighbours: requests[begin] to requests[end - 1].
struct RequestRun {
  size_t begin = 0, end = 0;
};

// What an engine with one KV cache computes of a request that follows others: tokens from `kept` on in
// chunks that end at `ends`, and `made` tokens of a continuation one by one.
struct Feed {
  int64_t kept = 0;
  std::vector<int64_t> ends = {};  // empty: nothing is asked for
  int64_t made = 0;

  int64_t tokens() const { return ends.empty() ? 0 : ends.back() - kept + made; }
};
std::vector<Feed> FeedsOf(std::span<const ScoreRequest> requests, PrefixReuse reuse);

// At most `lanes` runs, in order, whose longest feeds as few tokens as can be. A request that finds
// at least half of its tokens computed stays with the one in front of it, so that a shared prefix is
// computed once; no run for no request. Depends on the arguments alone.
std::vector<RequestRun> DealRequests(std::span<const ScoreRequest> requests, PrefixReuse reuse,
                                     int lanes);

}  // namespace ropewalk::internal
