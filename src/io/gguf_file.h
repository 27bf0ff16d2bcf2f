// What the reader, the writer and the split files of GGUF share.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// One file, split or not.
GgufFile ParseGguf(const std::string& path);

// general.alignment, 32 where it is absent; Error unless a power of two.
uint64_t GgufAlignment(const std::map<std::string, GgufValue>& metadata);

}  // namespace ropewalk::internal
