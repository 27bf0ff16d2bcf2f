// The form of a bias (relative/forms.h) as Python holds it, and the gradient of its numbers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "ropewalk/relative/forms.h"

namespace ropewalk::python {

struct PyForm {
  std::shared_ptr<const ScoreForm> form;
  int64_t heads = 0;
};

void BindForms(nanobind::module_& m);      // forms.cc
void BindBiases(nanobind::module_& m);     // biases.cc
void BindEncodings(nanobind::module_& m);  // encodings.cc

// A form of the same kind that holds a gradient in place of its numbers: those of `given` by the
// names of its fields, 0 for others. Each has the size that the form's has.
ScoreForm GradientForm(const ScoreForm& form, const nanobind::dict& given);

}  // namespace ropewalk::python
