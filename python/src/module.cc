#include "python/src/register.h"

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of ropewalk.";
  // Python does not free what modules still hold when it ends.
  nanobind::set_leak_warnings(false);
  namespace python = ropewalk::python;
  python::RegisterBase(m);
  python::RegisterRotary(m);
  python::RegisterRotate(m);
  python::RegisterPositions(m);
  python::RegisterRelative(m);
  python::RegisterPlan(m);
  python::RegisterLayers(m);
  python::RegisterAttention(m);
  python::RegisterAbsolute(m);
  python::RegisterComplex(m);
  python::RegisterAnalysis(m);
  python::RegisterPointers(m);
  python::RegisterCuda(m);
  python::RegisterEngines(m);
  python::RegisterModels(m);
  python::RegisterSweep(m);
  python::RegisterProgram(m);
}
