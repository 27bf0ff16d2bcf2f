// How methods write and read tables over distance.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/relative/forms.h"
#include "src/relative/check.h"

namespace ropewalk::internal {

// Columns for distances first .. last; bias(head, distance) in double.
template <class Bias>
DistanceForm MakeDistanceForm(int64_t heads, int64_t first, int64_t last, const Bias& bias) {
  DistanceForm form{first, last - first + 1, {}};
  form.values.resize(heads * form.columns);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < form.columns; ++c) {
      form.values[h * form.columns + c] = static_cast<float>(bias(h, first + c));
    }
  }
  return form;
}

// Calls visit(head, distance, number) for every number of a form of `heads` heads.
template <class Visit>
void VisitDistanceForm(const std::string& method, const DistanceForm& form, int64_t heads,
                       const Visit& visit) {
  CheckAtLeast(method + ": gradient.columns", form.columns, 1);
  CheckNumbers(method + ": gradient.values", form.values, heads * form.columns);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t c = 0; c < form.columns; ++c) {
      visit(h, form.first + c, form.values[h * form.columns + c]);
    }
  }
}

}  // namespace ropewalk::internal
