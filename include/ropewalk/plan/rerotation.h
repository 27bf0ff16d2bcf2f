// Which cached keys of a model can be moved (rotary/rerotate.h), and how.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ropewalk/plan/plan.h"

namespace ropewalk {

// Empty if cached keys of every layer can be moved by a pure rotation; else the reason why not,
// with the layer: xPos decay, or frequencies that depend on the declared length of the sequence
// (the next function takes the lengths).
std::string CanRerotate(const PositionPlan& plan);

// The same for keys cached under the declared length `old_length` and moved under `new_length`:
// a length-dependent method is no obstacle if its frequencies and amplitude are equal at both. If
// they are not, pass both to Rerotate (RerotateArgs::from), which corrects the rotation alone.
std::string CanRerotate(const PositionPlan& plan, int64_t old_length, int64_t new_length);

// A layer whose cached keys have to be rotated when they move. Layers without rotation (NoPE) and
// layers with a distance map, which cache unrotated keys, are not listed: their keys do not depend
// on the position and must be left unchanged.
struct LayerRerotation {
  int64_t layer = 0;
  const ResolvedRotation* rotation = nullptr;  // of the plan
};
std::vector<LayerRerotation> RerotatedLayers(const ResolvedPlan& plan);

}  // namespace ropewalk
