#include "src/eval/deal.h"

#include <algorithm>
#include <numeric>

#include "src/eval/sequence_feeder.h"

namespace ropewalk::internal {
namespace {

// Requests that stay together, and how many tokens they feed: in an empty cache, and behind what
// stands in front of them.
struct Group {
  RequestRun run;
  int64_t alone = 0, behind = 0;
};

int32_t TokenAt(const ScoreRequest& r, size_t i) {
  return i < r.prefix.size() ? r.prefix[i] : r.ids[i - r.prefix.size()];
}

// With how many equal tokens two sequences begin.
int64_t CommonTokens(const ScoreRequest& a, const ScoreRequest& b) {
  const size_t most = std::min(a.prefix.size() + a.ids.size(), b.prefix.size() + b.ids.size());
  size_t i = 0;
  if (a.prefix.data() == b.prefix.data()) i = std::min({a.prefix.size(), b.prefix.size(), most});
  while (i < most && TokenAt(a, i) == TokenAt(b, i)) ++i;
  return static_cast<int64_t>(i);
}

std::vector<Group> GroupsOf(std::span<const ScoreRequest> requests, PrefixReuse reuse) {
  const std::vector<Feed> feeds = FeedsOf(requests, reuse);
  std::vector<Group> groups;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Feed& feed = feeds[i];
    const int64_t fed = feed.ends.empty() ? 0 : feed.ends.back();
    if (groups.empty() || 2 * feed.kept < fed) {
      groups.push_back({{i, i + 1}, fed + feed.made, feed.tokens()});
    } else {
      Group& group = groups.back();
      group.run.end = i + 1;
      group.alone += feed.tokens();
      group.behind += feed.tokens();
    }
  }
  return groups;
}

// Fills one run after the other with groups up to `most` tokens each.
std::vector<RequestRun> Fill(const std::vector<Group>& groups, int64_t most) {
  std::vector<RequestRun> runs;
  int64_t tokens = 0;
  for (const Group& group : groups) {
    if (!runs.empty() && group.behind <= most - tokens) {
      runs.back().end = group.run.end;
      tokens += group.behind;
    } else {
      runs.push_back(group.run);
      tokens = group.alone;
    }
  }
  return runs;
}

}  // namespace

std::vector<Feed> FeedsOf(std::span<const ScoreRequest> requests, PrefixReuse reuse) {
  std::vector<Feed> feeds(requests.size());
  const ScoreRequest* last = nullptr;  // that is fed
  const std::vector<int64_t>* last_ends = nullptr;
  for (size_t i = 0; i < requests.size(); ++i) {
    const ScoreRequest& request = requests[i];
    const FeedExtent extent = ExtentOf(request);
    Feed& feed = feeds[i];
    feed.ends = ChunkEnds(extent.needed, static_cast<int64_t>(request.prefix.size()), reuse);
    if (feed.ends.empty()) continue;
    feed.made = std::max<int64_t>(0, request.continue_tokens - 1);
    if (last != nullptr) {
      feed.kept = CommonChunks(feed.ends, *last_ends,
                               std::min(CommonTokens(*last, request), extent.first_row));
    }
    last = &request;
    last_ends = &feed.ends;
  }
  return feeds;
}

std::vector<RequestRun> DealRequests(std::span<const ScoreRequest> requests, PrefixReuse reuse,
                                     int lanes) {
  const std::vector<Group> groups = GroupsOf(requests, reuse);
  // The least that is enough lies between the longest group and all of them.
  int64_t low = 0, high = 0;
  for (const Group& group : groups) {
    low = std::max(low, group.alone);
    high += group.alone;
  }
  const auto fits = [&](int64_t most) {
    return static_cast<int64_t>(Fill(groups, most).size()) <= std::max(1, lanes);
  };
  while (low < high) {
    const int64_t middle = std::midpoint(low, high);
    fits(middle) ? high = middle : low = middle + 1;
  }
  return Fill(groups, low);
}

}  // namespace ropewalk::internal
