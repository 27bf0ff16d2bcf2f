// How a call of attention is divided into jobs.
#pragma once

#include <cstdint>

#include "src/attention/kernel/tile.h"

namespace ropewalk::internal {

// A job is a tile of queries, a key head and a span of keys. Spans depend on shapes alone and tiles
// change no bit, so a result's bits do not depend on the number of threads.
struct Schedule {
  int64_t tile_tokens, tiles, spans, span_keys, jobs;
  int64_t kv_heads, heads_at_once;

  // What a job is. Jobs are handed out in order as threads become free: as many heads at once as there
  // are threads, whose keys and values then stay in cache from tile to tile, and of these the last
  // tiles, which see most keys, first.
  struct Job {
    int64_t tile, kv_head, span;
  };
  Job At(int64_t job) const;
};

// `one_span`: the keys of a query cannot be divided. `tile_rows`: the most of a tile.
Schedule PlanSchedule(int64_t tokens, int64_t group, int64_t kv_heads, int64_t keys,
                      int64_t threads, bool one_span, int64_t tile_rows = kTileRows);

}  // namespace ropewalk::internal
