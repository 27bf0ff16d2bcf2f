#include "src/attention/schedule.h"

#include <algorithm>

#include "src/attention/kernel/tile.h"

namespace ropewalk::internal {
namespace {

// Few queries against many keys (decoding): the keys are cut into spans of at least this many, so
// that every thread has work; partial results are merged in a fixed order.
constexpr int64_t kMinSpanKeys = 512;
constexpr int64_t kEnoughJobs = 32;
constexpr int64_t kSmallestTileRows = kTileRows / 4;

}  // namespace

Schedule::Job Schedule::At(int64_t job) const {
  const int64_t all = job / spans, first = all / (tiles * heads_at_once) * heads_at_once;
  const int64_t heads = std::min(heads_at_once, kv_heads - first), own = all - first * tiles;
  return {tiles - 1 - own / heads, first + own % heads, job % spans};
}

Schedule PlanSchedule(int64_t tokens, int64_t group, int64_t kv_heads, int64_t keys,
                      int64_t threads, bool one_span, int64_t tile_rows) {
  Schedule s;
  s.kv_heads = kv_heads;
  s.heads_at_once = std::clamp<int64_t>(threads, 1, kv_heads);
  const auto cut = [&](int64_t rows) {
    s.tile_tokens = std::max<int64_t>(1, rows / group);
    s.tiles = (tokens + s.tile_tokens - 1) / s.tile_tokens;
    s.jobs = s.tiles * kv_heads;
  };
  cut(kSmallestTileRows);
  s.spans = std::min((kEnoughJobs + s.jobs - 1) / s.jobs, (keys + kMinSpanKeys - 1) / kMinSpanKeys);
  if (one_span) s.spans = 1;
  const int64_t span = (keys + s.spans - 1) / s.spans;
  s.span_keys = (span + kTileKeys - 1) / kTileKeys * kTileKeys;
  s.spans = (keys + s.span_keys - 1) / s.span_keys;
  // Smaller tiles read keys more often, but idle threads cost more.
  for (int64_t rows = tile_rows; rows >= kSmallestTileRows; rows /= 2) {
    cut(rows);
    if (s.jobs * s.spans >= 4 * threads) break;
  }
  s.jobs *= s.spans;
  return s;
}

}  // namespace ropewalk::internal
