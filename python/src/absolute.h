// What the absolute encodings return to Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "python/src/arrays.h"

namespace ropewalk::python {

using Floats = nb::ndarray<nb::numpy, float>;
using Doubles = nb::ndarray<nb::numpy, double>;

inline std::size_t Size(int64_t n) { return static_cast<std::size_t>(n); }

// [rows, dim] that `fill` writes, without the GIL.
template <class T = float, class Fill>
nb::ndarray<nb::numpy, T> Filled(std::vector<std::size_t> shape, const Fill& fill) {
  std::size_t size = 1;
  for (const std::size_t n : shape) {
    if (__builtin_mul_overflow(size, n, &size) || size > std::size_t{1} << 40) {
      Bad("sizes: the result has too many elements");
    }
  }
  std::vector<T> out(size);
  {
    nb::gil_scoped_release release;
    fill(std::span<T>(out));
  }
  return Owned(std::move(out), std::move(shape));
}

}  // namespace ropewalk::python
