// The parts of the module ropewalk._core, a function or two for each folder of the library. Python's
// names, defaults and documentation are in python/ropewalk/*.py, which calls what is here.
#pragma once

#include <nanobind/nanobind.h>

namespace ropewalk::python {

namespace nb = nanobind;

void RegisterBase(nb::module_& m);
void RegisterRotary(nb::module_& m);
void RegisterRotate(nb::module_& m);
void RegisterPositions(nb::module_& m);
void RegisterRelative(nb::module_& m);
void RegisterPlan(nb::module_& m);    // plan and config
void RegisterLayers(nb::module_& m);  // a plan without a file
void RegisterAttention(nb::module_& m);
void RegisterAbsolute(nb::module_& m);
void RegisterComplex(nb::module_& m);
void RegisterAnalysis(nb::module_& m);  // analysis and engines
void RegisterPointers(nb::module_& m);  // ops on raw pointers, for ropewalk.torch
void RegisterCuda(nb::module_& m);      // the same in memory of a GPU
void RegisterEngines(nb::module_& m);   // of eval, that score tokens
void RegisterModels(nb::module_& m);    // in files, and tokenizers
void RegisterSweep(nb::module_& m);
void RegisterProgram(nb::module_& m);

}  // namespace ropewalk::python
