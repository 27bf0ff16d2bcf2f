// What every layer of a model does with positions: the one place where that is decided.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

struct LayerPlan {
  std::optional<RotarySpec> rotation;  // absent: no position information (NoPE)
  int64_t window_tokens = 0;           // sliding window: attends to the last n tokens; 0: all
};

struct PositionPlan {
  std::vector<LayerPlan> layers;
  int64_t trained_length = 0;      // tokens the model was trained at (original, before extension)
  int64_t configured_length = 0;   // tokens the file claims to serve (after its own extension)
  std::vector<std::string> notes;  // what a reader should know: weights permuted at load, ...
};

// The plan with every rotation's scaling replaced. trained_length > 0 replaces the plan's.
PositionPlan WithScaling(const PositionPlan& plan, const Scaling& scaling,
                         int64_t trained_length = 0);

struct ResolvedLayer {
  int rotation = -1;  // index into ResolvedPlan::rotations, -1: none
  int64_t window_tokens = 0;
};
struct ResolvedRotation {
  RotarySpec spec;
  Frequencies frequencies;
};
struct ResolvedPlan {
  int64_t length = 0;                       // declared final length of the sequence, tokens
  std::vector<ResolvedRotation> rotations;  // distinct ones
  std::vector<ResolvedLayer> layers;
  std::string hash;  // over float32 frequencies, amplitudes, multipliers, windows, layer by layer;
                     // not over names or layouts
};
ResolvedPlan Resolve(const PositionPlan& plan, int64_t length);

// Human-readable: what will be computed, runs of equal layers together, and the hash.
std::string Describe(const PositionPlan& plan, int64_t length);

}  // namespace ropewalk
