// What the engines, models and sweeps of ropewalk/eval share when Python hands them over.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "python/src/arrays.h"
#include "python/src/plan.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk::python {

namespace nb = nanobind;

template <class T>
using Ids = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::vector<T> VectorOf(const Ids<T>& ids) {
  return {ids.data(), ids.data() + ids.size()};
}

// A numpy array of its own.
template <class T>
nb::object ArrayOf(std::vector<T> values) {
  return nb::cast(Owned(std::move(values)));
}

// What numpy makes of anything that holds numbers.
template <class T>
Ids<T> AsArray(nb::handle given, const char* type) {
  return nb::cast<Ids<T>>(nb::module_::import_("numpy").attr("ascontiguousarray")(given, type));
}

// ropewalk.Plan, which holds its PyPlan as _core.
inline nb::object PlanObject(const PyPlan& plan) {
  return nb::module_::import_("ropewalk._plan").attr("Plan")(nb::cast(plan));
}
inline const PyPlan& PlanOf(const nb::object& plan) {
  return nb::cast<const PyPlan&>(nb::getattr(plan, "_core", plan));
}

inline AnglePrecision AnglesOf(const std::string& angles) {
  return Choice<AnglePrecision, 2>("angles", angles, {"exact", "float32"});
}

// Looks for Ctrl-C now and then in work that runs without the GIL: what Python's handler raises ends
// the work.
class Signals {
 public:
  void Check() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point last_ = {};
};

}  // namespace ropewalk::python
