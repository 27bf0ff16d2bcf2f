// The parts of the module ropewalk._core, one function for each folder of the library. Python's
// names, defaults and documentation are in python/ropewalk/*.py, which calls what is here.
#pragma once

#include <nanobind/nanobind.h>

namespace ropewalk::python {

namespace nb = nanobind;

void RegisterBase(nb::module_& m);
void RegisterRotary(nb::module_& m);
void RegisterRelative(nb::module_& m);
void RegisterPlan(nb::module_& m);    // plan, config and engines
void RegisterLayers(nb::module_& m);  // a plan without a file
void RegisterAttention(nb::module_& m);
void RegisterAbsolute(nb::module_& m);
void RegisterPointers(nb::module_& m);  // ops on raw pointers, for ropewalk.torch
void RegisterEval(nb::module_& m);
void RegisterProgram(nb::module_& m);

}  // namespace ropewalk::python
