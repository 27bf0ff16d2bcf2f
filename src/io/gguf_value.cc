// Typed access to the metadata of a GGUF file.
#include <fmt/format.h>

#include <limits>

#include "ropewalk/base/error.h"
#include "src/io/bytes.h"
#include "src/io/gguf_file.h"

namespace ropewalk {
namespace {

using internal::Quote;

template <class T>
const T& Get(const GgufValue& value, std::string_view key, const char* expected) {
  static constexpr const char* kNames[] = {"an integer",
                                           "an integer",
                                           "a float",
                                           "a bool",
                                           "a string",
                                           "an array of integers",
                                           "an array of floats",
                                           "an array of strings"};
  if (const T* found = std::get_if<T>(&value.value)) return *found;
  throw Error(ErrorCode::kInvalidFile, fmt::format("GGUF key {}: {} expected, found {}", Quote(key),
                                                   expected, kNames[value.value.index()]));
}

}  // namespace

int64_t GgufValue::AsInt(std::string_view key) const {
  if (const auto* big = std::get_if<uint64_t>(&value)) {
    if (*big <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return static_cast<int64_t>(*big);
    }
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("GGUF key {}: {} is above 2^63 - 1", Quote(key), *big));
  }
  return Get<int64_t>(*this, key, "an integer");
}

double GgufValue::AsDouble(std::string_view key) const {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* big = std::get_if<uint64_t>(&value)) return static_cast<double>(*big);
  return Get<double>(*this, key, "a number");
}

bool GgufValue::AsBool(std::string_view key) const { return Get<bool>(*this, key, "a bool"); }

const std::string& GgufValue::AsString(std::string_view key) const {
  return Get<std::string>(*this, key, "a string");
}

namespace internal {

uint64_t GgufAlignment(const std::map<std::string, GgufValue>& metadata) {
  constexpr char kKey[] = "general.alignment";
  const auto it = metadata.find(kKey);
  if (it == metadata.end()) return 32;
  const int64_t value = it->second.AsInt(kKey);
  if (value < 1 || value > (int64_t{1} << 31) || (value & (value - 1)) != 0) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("key '{}' is {}; a power of two expected", kKey, value));
  }
  return static_cast<uint64_t>(value);
}

}  // namespace internal
}  // namespace ropewalk
