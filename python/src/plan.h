// A model's position plan as Python holds it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ropewalk/plan/plan.h"

namespace ropewalk::python {

struct PyPlan {
  PositionPlan plan;
  ResolvedPlan resolved;                  // at resolved.length
  std::vector<std::string> not_honoured;  // keys of the file without effect, as sentences
  std::string family = {};                // of the model as its file names it, where there is one

  PyPlan(PositionPlan made, int64_t length, std::vector<std::string> keys = {})
      : plan(std::move(made)), resolved(Resolve(plan, length)), not_honoured(std::move(keys)) {}
};

}  // namespace ropewalk::python
