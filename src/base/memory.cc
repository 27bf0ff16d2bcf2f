#include "src/base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace ropewalk::internal {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The number in a file that has one alone; none for "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The number behind `key` in a file of lines "key number".
std::optional<int64_t> NumberOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return std::nullopt;
}

struct GroupNames {
  const char *limit, *used, *inactive, *active;
};
constexpr GroupNames kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr GroupNames kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file", "total_active_file"};

// What the group in `folder` leaves.
int64_t LeftIn(const std::string& folder, const GroupNames& names) {
  const auto limit = NumberIn(folder + "/" + names.limit);
  const auto used = NumberIn(folder + "/" + names.used);
  if (!limit || !used) return kNoLimit;
  const std::string stat = folder + "/memory.stat";
  const int64_t pages =
      NumberOf(stat, names.inactive).value_or(0) + NumberOf(stat, names.active).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - pages));
}

// The group itself and those around it, up to the root; in a container the path may be that of the
// host, and the root is the container's own.
int64_t LeftUpwards(const std::string& root, std::string path, const GroupNames& names) {
  int64_t left = kNoLimit;
  while (true) {
    left = std::min(left, LeftIn(root + path, names));
    const std::size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return left;
    path.resize(slash);
  }
}

// Whether `list` ("cpu,memory") has an item "memory".
bool NamesMemory(const std::string& list) {
  return ("," + list + ",").find(",memory,") != std::string::npos;
}

}  // namespace

int64_t AvailableMemory(const MemoryFiles& files) {
  int64_t available = kNoLimit;
  if (const auto kib = NumberOf(files.meminfo, "MemAvailable:")) available = *kib * 1024;
  std::ifstream groups(files.own_groups);
  std::string line;
  while (std::getline(groups, line)) {  // 0::/path, or 5:memory:/path
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      available = std::min(available, LeftUpwards(files.groups, path, kVersion2));
    } else if (NamesMemory(controllers)) {
      available = std::min(available, LeftUpwards(files.groups + "/memory", path, kVersion1));
    }
  }
  return available;
}

}  // namespace ropewalk::internal
