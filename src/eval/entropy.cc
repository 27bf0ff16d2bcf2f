#include "src/eval/entropy.h"

#include <algorithm>
#include <cmath>

#include "src/attention/form.h"

namespace ropewalk::internal {
namespace {

// The number of keys (and the sink) that query `row` attends to.
int64_t KeysSeen(const AttentionArgs& args, const QueryRanges& ranges, int64_t row) {
  const int64_t begin = ranges.begin[row], end = ranges.end[row];
  int64_t seen = args.sinks.empty() ? 0 : 1;
  if (args.rotation == nullptr || !args.rotation->map())
    return seen + std::max<int64_t>(0, end - begin);
  const DistanceMap& map = *args.rotation->map();
  const int64_t position = args.cache->tokens() - args.q.shape[0] + row;
  const auto views = static_cast<int>(Views(map).size());
  for (int v = 0; v < views; ++v) {
    const KeyInterval keys = KeysOfView(map, v, position);
    seen += std::max<int64_t>(0, std::min(keys.end, end) - std::max(keys.first, begin));
  }
  return seen;
}

}  // namespace

EntropySums& EntropySums::operator+=(const EntropySums& other) {
  nats += other.nats;
  share += other.share;
  rows += other.rows;
  return *this;
}

EntropyMeter::EntropyMeter(Sequence& sequence, std::vector<int64_t> positions)
    : sequence_(sequence), positions_(std::move(positions)) {
  sequence_.ObserveAttention([this](int64_t, const AttentionArgs& args) { Add(args); },
                             positions_.empty() ? 0 : positions_.front());
}
EntropyMeter::~EntropyMeter() { sequence_.ObserveAttention({}); }

void EntropyMeter::Add(const AttentionArgs& args) {
  const int64_t tokens = args.q.shape[0], heads = args.q.shape[1];
  const QueryRanges ranges = FindRanges(args);
  for (const int64_t position : positions_) {
    const int64_t row = position - (args.cache->tokens() - tokens);
    if (row < 0 || row >= tokens) continue;
    const int64_t seen = KeysSeen(args, ranges, row);
    if (seen < 2) continue;
    for (int64_t h = 0; h < heads; ++h) {
      const double nats = args.entropy[static_cast<std::size_t>(row * heads + h)];
      sums_.nats += nats;
      sums_.share += nats / std::log(static_cast<double>(seen));
      ++sums_.rows;
    }
  }
}

}  // namespace ropewalk::internal
