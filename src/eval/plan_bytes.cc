// A plan of positions as bytes, for ranks that have no memory in common.
#include <utility>

#include "ropewalk/eval/ranked_engine.h"
#include "src/eval/pack.h"

namespace ropewalk {

std::vector<std::byte> PackPlan(const PositionPlan& plan) { return internal::Pack(plan); }

PositionPlan UnpackPlan(std::vector<std::byte> bytes) {
  return internal::Unpack<PositionPlan>(std::move(bytes));
}

std::vector<std::byte> PackRotation(const ResolvedRotation& rotation) {
  return internal::Pack(rotation);
}

ResolvedRotation UnpackRotation(std::vector<std::byte> bytes) {
  return internal::Unpack<ResolvedRotation>(std::move(bytes));
}

}  // namespace ropewalk
