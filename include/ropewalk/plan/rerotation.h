// Which cached keys of a model can be moved (rotary/rerotate.h), and how.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/plan/plan.h"

namespace ropewalk {

// Empty if cached keys of every layer can be moved by a pure rotation; else the reason why not,
// with the layer: xPos decay, or frequencies that depend on the declared length of the sequence
// (say which lengths, below).
std::string CanRerotate(const PositionPlan& plan);

// The same for keys cached under the declared length `old_length` and moved under `new_length`:
// length-dependent methods are fine as long as their frequencies and amplitude stay. Where they do
// not, Rerotate takes both methods, which repairs phases alone.
std::string CanRerotate(const PositionPlan& plan, int64_t old_length, int64_t new_length);

// A layer whose cached keys turn when they move. Layers without rotation (NoPE) and those with a
// distance map, which cache keys unrotated, are not among them: their keys carry no position and
// must be left as they are.
struct LayerRerotation {
  int64_t layer = 0;
  const ResolvedRotation* rotation = nullptr;  // of the plan
};
std::vector<LayerRerotation> RerotatedLayers(const ResolvedPlan& plan);

}  // namespace ropewalk
