// `positions` of a config.json of the family ropewalk, written: what the readers of its parts read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/plan/plan.h"

namespace ropewalk::internal {

// The keys of positions.rotation for this scaling, from rope_type and rope_theta on. Throws
// Error(kUnsupported) for a setting that has no key there.
nlohmann::ordered_json RotationKeys(const Scaling& scaling, double base);

nlohmann::ordered_json MapObject(const DistanceMap& map);
nlohmann::ordered_json TemperatureObject(const QueryTemperature& temperature);

// A config.json of the family with the rotation, the map and the temperature of `plan`, whose layers
// are alike; every other key stays. Throws Error(kUnsupported) for what the object cannot say.
std::string WithPositions(const std::string& config_text, const std::string& file,
                          const PositionPlan& plan);

}  // namespace ropewalk::internal
