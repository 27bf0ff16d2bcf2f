// Arguments from Python as the library takes them: arrays in memory of the CPU (numpy, or any
// producer of DLPack) without a copy, and names as enums. All throw Error that names the argument.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/base/error.h"
#include "ropewalk/base/tensor_view.h"

namespace ropewalk::python {

namespace nb = nanobind;

[[noreturn]] inline void Bad(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

// An array, kept alive and unchanged in place as long as this lives. None is empty.
class Array {
 public:
  Array() = default;
  Array(nb::handle given, const char* name) : Array(given, name, false) {}
  // One that is written to.
  static Array Written(nb::handle given, const char* name) { return Array(given, name, true); }

  bool given() const { return array_.is_valid(); }
  const char* name() const { return name_; }
  int64_t rank() const { return static_cast<int64_t>(array_.ndim()); }
  int64_t size(int64_t axis) const { return static_cast<int64_t>(array_.shape(axis)); }
  std::string ShapeString() const;

  // Floating-point elements, with any strides; rank 0 where nothing is given.
  TensorView View() const;
  // Elements of type T in order. Throws unless it has this type and no gaps.
  template <class T>
  std::span<T> List() const {
    CheckList(nb::dtype<std::remove_const_t<T>>());
    if (!given()) return {};
    return {static_cast<T*>(Data()), static_cast<std::size_t>(array_.size())};
  }
  bool HoldsInt32() const { return array_.dtype() == nb::dtype<int32_t>(); }
  bool HoldsBytes() const { return array_.dtype() == nb::dtype<uint8_t>() && !float8_; }
  // Throws unless the shape is this; -1: any size.
  void CheckShape(std::initializer_list<int64_t> shape) const;

 private:
  Array(nb::handle given, const char* name, bool written);
  void CheckList(nb::dlpack::dtype expected) const;
  void* Data() const;

  nb::ndarray<nb::ro> array_;
  const char* name_ = "";
  bool bfloat16_ = false, float8_ = false;  // given as their bits
};

// What f returns, computed while other Python threads run.
template <class F>
auto Unlocked(const F& f) {
  nb::gil_scoped_release release;
  return f();
}

// A numpy array of T that owns `data`.
template <class T>
nb::ndarray<nb::numpy, T> Owned(std::vector<T> data, std::vector<std::size_t> shape) {
  auto* kept = new std::vector<T>(std::move(data));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.data(), owner);
}
template <class T>
nb::ndarray<nb::numpy, T> Owned(std::vector<T> data) {
  const std::size_t size = data.size();
  return Owned(std::move(data), {size});
}

// The value whose name is `given`, counted from 0.
template <class E, std::size_t N>
E Choice(const char* what, const std::string& given, const std::array<const char*, N>& names) {
  std::string known;
  for (std::size_t i = 0; i < N; ++i) {
    if (given == names[i]) return static_cast<E>(i);
    known += (i == 0 ? "\"" : i + 1 == N ? " or \"" : ", \"") + std::string(names[i]) + "\"";
  }
  Bad(std::string(what) + ": expected " + known + ", got \"" + given + "\"");
}

}  // namespace ropewalk::python
