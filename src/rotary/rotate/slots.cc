#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/rotary/rotate.h"

namespace ropewalk {
namespace {

[[noreturn]] void BadSlots(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "slots: " + message);
}

constexpr int64_t kMost = int64_t{1} << 31;  // of tokens, and of the slots of a block or a ring

void CheckSlotCount(const char* what, int64_t slots) {
  if (slots < 1 || slots > kMost) {
    BadSlots("expected " + std::string(what) + " of 1 to 2147483648 slots, got " +
             std::to_string(slots));
  }
}

void CheckFirst(std::span<const int64_t> first, int64_t tokens) {
  if (tokens < 0 || tokens > kMost) {
    BadSlots("expected 0 to 2147483648 tokens, got " + std::to_string(tokens));
  }
  for (std::size_t b = 0; b < first.size(); ++b) {
    int64_t end = 0;
    if (first[b] < 0 || __builtin_add_overflow(first[b], tokens, &end)) {
      BadSlots("sequence " + std::to_string(b) + " starts at token " + std::to_string(first[b]));
    }
  }
}

}  // namespace

std::vector<int64_t> BlockTableSlots(std::span<const int32_t> table, int64_t blocks_per_sequence,
                                     int64_t block_slots, std::span<const int64_t> first,
                                     int64_t tokens) {
  CheckFirst(first, tokens);
  CheckSlotCount("a block", block_slots);
  if (blocks_per_sequence < 0 ||
      table.size() != first.size() * static_cast<std::size_t>(blocks_per_sequence)) {
    BadSlots("expected a table of " + std::to_string(first.size()) + " sequences by " +
             std::to_string(blocks_per_sequence) + " blocks, got " + std::to_string(table.size()) +
             " entries");
  }
  std::vector<int64_t> slots;
  for (std::size_t b = 0; b < first.size(); ++b) {
    for (int64_t n = first[b]; n < first[b] + tokens; ++n) {
      const int64_t block = n / block_slots;
      if (block >= blocks_per_sequence) {
        BadSlots("token " + std::to_string(n) + " of sequence " + std::to_string(b) +
                 " needs block " + std::to_string(block) + " of its table, which has " +
                 std::to_string(blocks_per_sequence));
      }
      const int32_t at = table[b * static_cast<std::size_t>(blocks_per_sequence) +
                               static_cast<std::size_t>(block)];
      if (at < 0) {
        BadSlots("block " + std::to_string(block) + " of sequence " + std::to_string(b) +
                 " is not allocated (" + std::to_string(at) + ")");
      }
      slots.push_back(at * block_slots + n % block_slots);
    }
  }
  return slots;
}

std::vector<int64_t> RingSlots(int64_t capacity, std::span<const int64_t> first, int64_t tokens) {
  CheckFirst(first, tokens);
  CheckSlotCount("a ring capacity", capacity);
  std::vector<int64_t> slots;
  for (std::size_t b = 0; b < first.size(); ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      const bool overwritten = t < tokens - capacity;
      slots.push_back(overwritten ? -1
                                  : static_cast<int64_t>(b) * capacity + (first[b] + t) % capacity);
    }
  }
  return slots;
}

}  // namespace ropewalk
