// The facts of a layer's plan, a row each: hash and description follow from it.
#pragma once

#include "ropewalk/base/hash.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk::internal {

// How the hash of a plan takes a fact.
enum class Hashed : uint8_t {
  kAlways,    // in every layer, before the rotation
  kWhereSet,  // after it, where the layer has it, so that layers without it keep their hash
  kNot
};

// The facts of one kind, one after the other.
void HashFacts(const LayerFacts& facts, Hashed kind, Hasher& hasher);

}  // namespace ropewalk::internal
