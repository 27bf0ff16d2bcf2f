// Keys that one vendor alone uses: lengths, bases, temperatures, and what is no rotation at all.
#pragma once

#include <string>
#include <vector>

#include "src/config/hf/config.h"

namespace ropewalk::internal {

// What a vendor's own keys say of the rotation, beside the common ones.
struct VendorRope {
  std::optional<double> theta;
  double base_factor = 1;  // ChatGLM's rope_ratio
  Scaling scaling = NoScaling{};
  std::string source;  // the key of `scaling`
};
VendorRope ReadVendorRope(const HfSource& source, ModelConfig& c);

// Error(kUnsupported) of the first ChatGLM-6B, whose sizes have other names too.
void RefuseTwoDimensions(const HfSource& source);
// max_position_embeddings and original_max_position_embeddings, under the family's names.
void ReadLengths(const HfSource& source, RopeContext& context, PositionPlan& plan);
// What a dictionary says beside its rotation.
void ReadRopeNotes(const HfSource& source, const RopeDictionary& rope, PositionPlan& plan);
// What the one dictionary, or that of the full layers, adds to the lengths.
void ReadRopeLengths(const RopeDictionary& rope, const RopeContext& context, PositionPlan& plan);

std::vector<std::optional<QueryTemperature>> ReadTemperatures(const HfSource& source,
                                                              const RopeDictionaries& ropes,
                                                              const std::vector<LayerFacts>& layers,
                                                              int64_t trained_length);

}  // namespace ropewalk::internal
