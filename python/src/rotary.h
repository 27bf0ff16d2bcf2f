// What the parts of the rotary binding share: a table of cos and sin as Python holds it, and names.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "python/src/arrays.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk::python {

inline constexpr std::array kLayouts = {"half", "interleaved"};
inline constexpr std::array kPrecisions = {"exact", "float32"};

inline PairLayout LayoutOf(const std::string& name) {
  return Choice<PairLayout>("layout", name, kLayouts);
}

struct PyTable {
  std::shared_ptr<const CosSinTable> table;  // another one after it grew
};

}  // namespace ropewalk::python
