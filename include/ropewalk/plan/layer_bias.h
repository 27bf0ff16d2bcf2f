// What a layer adds to its scores, as a description: the same before a sequence is known and after.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "ropewalk/base/hash.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/forms.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// One alternative a method. A new one needs what std::visit asks for in src/plan/layer_bias.cc.
struct LayerBias {
  int64_t heads = 0;  // of the queries
  std::variant<AlibiBias> method = {};

  bool operator==(const LayerBias&) const = default;
};

// What attention takes, for a sequence of `length` tokens. kFloat32 is what transformers computes
// where this differs from the formula: Falcon's ALiBi, whose products have eight bits there. Throws
// Error for heads or parameters that the method refuses.
ScoreForm Lower(const LayerBias& bias, int64_t length, AnglePrecision precision);

// "ALiBi, 32 slopes 0.8409 to 0.003906, ..."
std::string Describe(const LayerBias& bias);

// What the bias is made of, not how it is written: the slopes as scores get them.
void HashBias(const LayerBias& bias, Hasher& hasher);

}  // namespace ropewalk
