// The parts of cells that were measured, by whatever process, in whatever order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/eval/cell_work.h"

namespace ropewalk::internal {

class UnitStore {
 public:
  // Of two of one part the first counts: they are the same.
  void Add(const UnitRecord& unit);
  // The whole lines of `text`, part of a file whose first `line` lines are known; returns how many
  // bytes these are, and counts on. Throws Error(kInvalidFile), which names `path` and line.
  int64_t AddLines(std::string_view text, const std::string& path, int64_t& line);

  bool HasWindow(const std::string& cell, int64_t window) const;
  bool HasTask(const std::string& cell, int64_t task) const;
  // What is missing of the windows [begin, end), as ranges.
  std::vector<std::pair<int64_t, int64_t>> MissingWindows(const std::string& cell, int64_t begin,
                                                          int64_t end) const;
  // The first windows and tasks without a gap.
  CellParts Parts(const std::string& cell) const;

 private:
  struct Units {
    std::map<int64_t, UnitRecord> windows = {}, tasks = {};
  };
  const Units* Find(const std::string& cell) const;

  std::map<std::string, Units> cells_;
};

}  // namespace ropewalk::internal
