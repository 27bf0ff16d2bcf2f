// How a call of attention is divided into jobs.
#pragma once

#include <cstdint>

namespace ropewalk::internal {

// A job is a tile of queries, a key head and a span of keys. Spans depend on shapes alone and tiles
// change no bit, so a result's bits do not depend on the number of threads.
struct Schedule {
  int64_t tile_tokens, tiles, spans, span_keys, jobs;
};

// `one_span`: the keys of a query cannot be divided.
Schedule PlanSchedule(int64_t tokens, int64_t group, int64_t kv_heads, int64_t keys,
                      int64_t threads, bool one_span);

}  // namespace ropewalk::internal
