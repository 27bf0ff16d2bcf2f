// The `positions` object of a model of the family ropewalk: any combination of the encodings of this
// library (docs/model-format.md).
#pragma once

#include <string>

#include "src/config/hf/config.h"

namespace ropewalk::internal {

// What the readers of its parts rely on from around them.
struct PositionsContext {
  bool causal = true;  // false: the twin that attends in both directions
  bool allow_unknown = false;
};

// Sizes are known. Fills c.plan, and what else follows from the encodings.
void ReadPositionsObject(const HfSource& source, ModelConfig& c);

// One part each, under its key.
void ReadRotationPart(const JsonObject& part, const PositionsContext& context, ModelConfig& c);
void ReadAbsolutePart(const JsonObject& part, const PositionsContext& context, ModelConfig& c);
void ReadRecurrentLayerPart(const JsonObject& part, const PositionsContext& context,
                            ModelConfig& c);
void ReadBiasPart(const JsonObject& part, const PositionsContext& context, ModelConfig& c);

// The `type` of positions.temperature.
const char* TemperatureName(QueryTemperature::Kind kind);

// Throws Error for parts that are not defined together: a distance map beside a bias that reads
// rotated keys, or beside PoPE and FoPE; PoPE beside a bias with rows of head_dim elements.
void RefuseCombinations(const std::string& where, const ModelConfig& c);

// Throws Error for a key that no reader has asked for; it lists those that exist.
void RefuseUnknownKeys(const JsonObject& object);
// Throws Error for a `type` that is none of `names`, which it lists.
[[noreturn]] void RefuseType(const JsonObject& part, const char* key, const std::string& type,
                             const std::vector<std::string_view>& names);

}  // namespace ropewalk::internal
