// What the C functions share: structs with a size, errors as codes, enums from numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/base/tensor_view.h"
#include "ropewalk/ropewalk.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/rotate.h"
#include "src/capi/older_layouts.h"

struct ropewalk_frequencies {
  ropewalk::Frequencies frequencies;
  std::vector<double> inv_freq;
};
struct ropewalk_table {
  ropewalk::CosSinTable table;
};

namespace ropewalk::capi {

[[noreturn]] inline void Bad(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void SetLastError(const char* text) noexcept;

// Runs `body`; what it throws becomes a code and a text.
template <class Body>
ropewalk_status Guard(const Body& body) noexcept {
  try {
    body();
    return ROPEWALK_OK;
  } catch (const Error& e) {
    SetLastError(e.what());
    return static_cast<ropewalk_status>(e.code()) + ROPEWALK_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    SetLastError("out of memory");
    return ROPEWALK_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    SetLastError(e.what());
    return ROPEWALK_INTERNAL;
  } catch (...) {
    SetLastError("unknown error");
    return ROPEWALK_INTERNAL;
  }
}

template <class T>
const T& NotNull(const T* p, const char* name) {
  if (p == nullptr) Bad(std::string(name) + ": expected a pointer, got NULL");
  return *p;
}

// The struct as this library knows it, from the layout of today, of an older header, or of a newer
// one. Fields that it lacks are 0, their default; fields that are not known here must be 0.
template <class T>
T Read(const T* given, const char* name) {
  NotNull(given, name);
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  T out{};
  if (size < sizeof(T)) {
    if (ReadOlder(given, size, out)) return out;
    Bad(std::string(name) + ".size: expected sizeof of the struct, " + std::to_string(sizeof(T)) +
        ", or what it was in an older header, got " + std::to_string(size));
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  if (std::any_of(bytes + sizeof(T), bytes + std::min(size, sizeof(T) + 4096),
                  [](char b) { return b != 0; })) {
    Bad(std::string(name) + ": a field that this version of the library does not know is set");
  }
  std::memcpy(&out, given, sizeof(T));
  return out;
}

// `info`, which Read gave, back to the caller: no more of it than there is room for.
template <class T>
void Write(const T& info, T* out) {
  std::memcpy(out, &info, std::min(info.size, sizeof(T)));
}

// A list that may be absent.
template <class T>
std::span<const T> List(const T* data, int64_t size, const char* name) {
  if (size < 0 || (size > 0 && data == nullptr)) {
    Bad(std::string(name) + ": a list of " + std::to_string(size) + " elements at " +
        (data == nullptr ? "NULL" : "a pointer"));
  }
  constexpr int64_t kMost = PTRDIFF_MAX / sizeof(T);  // no object is larger
  if (size > kMost) {
    Bad(std::string(name) + ": expected at most " + std::to_string(kMost) + " elements, got " +
        std::to_string(size));
  }
  return {data, static_cast<std::size_t>(size)};
}

// The names of a list of parameters, none of which may come twice.
inline std::span<const ropewalk_parameter> Parameters(const ropewalk_parameter* data,
                                                      int64_t size) {
  const std::span<const ropewalk_parameter> list = List(data, size, "parameters");
  for (std::size_t i = 0; i < list.size(); ++i) {
    NotNull(list[i].name, "parameters.name");
    for (std::size_t j = 0; j < i; ++j) {
      if (std::strcmp(list[i].name, list[j].name) != 0) continue;
      Bad("parameters: " + std::string(list[i].name) + " is given twice");
    }
  }
  return list;
}

// A number of an enum whose values are first .. last.
template <class E>
E Enum(int32_t value, int32_t first, int32_t last, const char* name) {
  if (value < first || value > last) {
    Bad(std::string(name) + ": expected " + std::to_string(first) + " to " + std::to_string(last) +
        ", got " + std::to_string(value));
  }
  return static_cast<E>(value - first);
}
inline PairLayout Layout(int32_t value) { return Enum<PairLayout>(value, 1, 2, "layout"); }
inline AnglePrecision Precision(int32_t value) {
  return Enum<AnglePrecision>(value, 0, 1, "precision");
}

TensorView View(const ropewalk_tensor* tensor, const char* name);
// Absent when NULL.
TensorView OptionalView(const ropewalk_tensor* tensor, const char* name);
Positions PositionsOf(const ropewalk_positions* positions);
RotarySpec SpecOf(const ropewalk_spec* spec);

}  // namespace ropewalk::capi
