// What the reader, the writer and the split files of GGUF share.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/io/weights.h"

namespace ropewalk::internal {

// One file, split or not.
GgufFile ParseGguf(const std::string& path);

// general.alignment, 32 where it is absent; Error unless a power of two.
uint64_t GgufAlignment(const std::map<std::string, GgufValue>& metadata);

// GgufValue knows the key but not the file: calls `f`, with the file in front of its errors.
template <class F>
auto WithFile(const std::string& file, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(e.code(), file + ": " + e.what());
  }
}

}  // namespace ropewalk::internal
