// Experts and latent attention as keys of a GGUF file, and whether llama.cpp computes them so.
#pragma once

#include <map>
#include <string>

#include "ropewalk/io/weights.h"
#include "src/config/block.h"
#include "src/config/family.h"

namespace ropewalk::internal {

// `family` has the general.architecture. Both throw Error(kUnsupported) for what llama.cpp would
// compute otherwise, or would not load.
void CheckExperts(const ModelConfig& config, const Family& family);
void CheckLatent(const ModelConfig& config, const Family& family);

// Without the architecture in front.
std::map<std::string, GgufValue> ExpertKeys(const ModelConfig& config, const Family& family);
std::map<std::string, GgufValue> LatentKeys(const ModelConfig& config, const Family& family);

}  // namespace ropewalk::internal
