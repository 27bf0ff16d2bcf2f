#include "python/src/register.h"

NB_MODULE(_core, m) {
  m.doc() = "The compiled part of ropewalk.";
  // Python does not free what modules still hold when it ends.
  nanobind::set_leak_warnings(false);
  using namespace ropewalk::python;
  RegisterBase(m);
  RegisterRotary(m);
  RegisterRelative(m);
  RegisterPlan(m);
  RegisterLayers(m);
  RegisterAttention(m);
  RegisterAbsolute(m);
  RegisterPointers(m);
  RegisterEval(m);
  RegisterProgram(m);
}
