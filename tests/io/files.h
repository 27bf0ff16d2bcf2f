// Writers of tiny model files, and what the tests of hostile ones share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/base/error.h"

namespace ropewalk::testing {

// A folder that goes away with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view bytes) const;  // returns the path

 private:
  std::string path_;
};

// Largest single operator new since the object was made, anywhere in the program.
class AllocationWatch {
 public:
  AllocationWatch();
  std::size_t largest() const;
};

template <class T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// 8 bytes of length, the header, then the data.
std::string Safetensors(std::string_view header, std::string_view data);

// GGUF, field by field; every part may lie about the others.
class GgufWriter {
 public:
  GgufWriter(uint64_t tensors, uint64_t keys, uint32_t version = 3);
  GgufWriter& String(std::string_view text);
  template <class T>
  GgufWriter& Value(T value) {
    Append(&bytes, value);
    return *this;
  }
  // Key, value type, value.
  template <class T>
  GgufWriter& Key(std::string_view key, uint32_t type, T value) {
    return String(key).Value(type).Value(value);
  }
  GgufWriter& Tensor(std::string_view name, const std::vector<uint64_t>& inner_first, uint32_t type,
                     uint64_t offset);
  GgufWriter& Data(std::size_t count, std::size_t alignment = 32);  // pads, then counts up

  std::string bytes;
};

std::string Llama2c(const std::vector<int32_t>& header, std::size_t floats);

// `call` throws Error with this code whose message has all of `parts` in it, and no allocation on
// the way is above 1 MiB.
void ExpectRefused(const std::function<void()>& call, ErrorCode code,
                   const std::vector<std::string>& parts);

}  // namespace ropewalk::testing
