// Work that runs side by side on threads of its own.
#pragma once

#include <cstdint>
#include <functional>

namespace ropewalk::internal {

using TickFn = std::function<void(int64_t tokens)>;

// Calls work(lane, tick) for lanes 0 .. lanes - 1, each on a thread of its own that has an equal
// share of the caller's NumThreads(); one lane alone runs on the calling thread with all of them.
// What lanes tick reaches `tick` on the calling thread, so it needs no lock and may be what looks
// for signals. The first exception, of `tick` or of a lane, ends every lane at its next tick and is
// thrown once none runs any more.
void RunLanes(int lanes, const TickFn& tick,
              const std::function<void(int lane, const TickFn& tick)>& work);

}  // namespace ropewalk::internal
