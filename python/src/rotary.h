// A table of cos and sin as Python holds it.
#pragma once

#include <memory>

#include "ropewalk/rotary/table.h"

namespace ropewalk::python {

struct PyTable {
  std::shared_ptr<const CosSinTable> table;  // another one after it grew
};

}  // namespace ropewalk::python
