// Spans of complex numbers: both parts of the size that the shape says.
#pragma once

#include <initializer_list>
#include <string>

#include "ropewalk/absolute/complex_order.h"
#include "src/absolute/check.h"

namespace ropewalk::internal {

template <class T>
void CheckComplex(const std::string& name, const ComplexSpan<T>& z,
                  std::initializer_list<int64_t> shape) {
  CheckSpan(name + ".re", z.re, shape);
  CheckSpan(name + ".im", z.im, shape);
}

inline bool Empty(const ComplexSpan<const float>& z) { return z.re.empty() && z.im.empty(); }
inline bool Empty(const ComplexSpan<double>& z) { return z.re.empty() && z.im.empty(); }

}  // namespace ropewalk::internal
