#include "src/eval/unit_store.h"

#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"

namespace ropewalk::internal {

void UnitStore::Add(const UnitRecord& unit) {
  Units& cell = cells_[unit.cell];
  if (unit.window >= 0) {
    cell.windows.try_emplace(unit.window, unit);
  } else if (unit.task) {
    // Older files have tasks in their order, without a number.
    const auto next = static_cast<int64_t>(cell.tasks.size());
    cell.tasks.try_emplace(unit.task_index < 0 ? next : unit.task_index, unit);
  }
}

int64_t UnitStore::AddLines(std::string_view text, const std::string& path, int64_t& line) {
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return static_cast<int64_t>(begin);
    ++line;
    try {
      Add(UnitFromJson(std::string(text.substr(begin, end - begin))));
    } catch (const nlohmann::json::exception& e) {
      throw Error(ErrorCode::kInvalidFile,
                  path + ", line " + std::to_string(line) + ": " + e.what() +
                      "; the file was written or changed by something else: move it away");
    }
    begin = end + 1;
  }
}

const UnitStore::Units* UnitStore::Find(const std::string& cell) const {
  const auto found = cells_.find(cell);
  return found == cells_.end() ? nullptr : &found->second;
}

bool UnitStore::HasWindow(const std::string& cell, int64_t window) const {
  const Units* units = Find(cell);
  return units != nullptr && units->windows.contains(window);
}

bool UnitStore::HasTask(const std::string& cell, int64_t task) const {
  const Units* units = Find(cell);
  return units != nullptr && units->tasks.contains(task);
}

std::vector<std::pair<int64_t, int64_t>> UnitStore::MissingWindows(const std::string& cell,
                                                                   int64_t begin,
                                                                   int64_t end) const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t w = begin; w < end; ++w) {
    if (HasWindow(cell, w)) continue;
    if (ranges.empty() || ranges.back().second != w) ranges.emplace_back(w, w);
    ++ranges.back().second;
  }
  return ranges;
}

CellParts UnitStore::Parts(const std::string& cell) const {
  CellParts parts;
  const Units* units = Find(cell);
  if (units == nullptr) return parts;
  for (const auto* all : {&units->windows, &units->tasks}) {
    int64_t next = 0;
    for (const auto& [index, unit] : *all) {
      if (index != next++) break;
      AddUnit(unit, parts);
    }
  }
  return parts;
}

}  // namespace ropewalk::internal
