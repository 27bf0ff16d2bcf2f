// The text of results.jsonl -> header and rows.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/eval/results.h"

namespace ropewalk::internal {

struct ParsedResults {
  SweepResults results;
  bool has_header = false;
  int64_t whole_bytes = 0;  // up to the end of the last whole line
};
// `path` is for messages. See ReadResults.
ParsedResults ParseResults(const std::string& text, const std::string& path);

}  // namespace ropewalk::internal
