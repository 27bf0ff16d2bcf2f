#include "ropewalk/ranks/rank_group.h"

#include <algorithm>

namespace ropewalk {

std::vector<std::byte> RankGroup::BroadcastBytes(std::vector<std::byte> bytes, int root) {
  uint64_t size = bytes.size();
  Broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  bytes.resize(size);
  Broadcast(bytes, root);
  return bytes;
}

std::vector<std::vector<std::byte>> RankGroup::GatherBytes(std::span<const std::byte> mine) {
  const uint64_t own = mine.size();
  std::vector<uint64_t> sizes(static_cast<size_t>(size()));
  GatherAll(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(sizes)));
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::byte> padded(mine.begin(), mine.end());
  padded.resize(most);
  std::vector<std::byte> all(most * sizes.size());
  GatherAll(padded, all);
  std::vector<std::vector<std::byte>> parts;
  for (size_t r = 0; r < sizes.size(); ++r) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(r * most);
    parts.emplace_back(from, from + static_cast<std::ptrdiff_t>(sizes[r]));
  }
  return parts;
}

bool UnderMpi(const std::function<const char*(const char*)>& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* value = variables(name);
    if (value != nullptr && std::string(value) != "1") return true;
  }
  return false;
}

}  // namespace ropewalk
