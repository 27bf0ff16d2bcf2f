// sweep --shard: several processes that measure one sweep together.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/options.h"
#include "ropewalk/eval/shard.h"

namespace ropewalk::cli {

// Nothing without --shard. Throws UsageError.
std::optional<Shard> ShardOf(const Options& options);
// "results.jsonl", or that of a shard.
std::string ResultsNameOf(const std::optional<Shard>& shard);
// Says now and then whom the program waits for; false after Ctrl-C.
WaitFn Waiting();
// Runs `work`; with --shard while no other shard of the folder runs work of this name.
void OneAtATime(const Options& options, const std::string& name, const std::function<void()>& work);

}  // namespace ropewalk::cli
