// Reading GGUF metadata, in parts: keys and sizes here, positions in rope.cc.
#pragma once

#include "ropewalk/config/config.h"
#include "src/config/family.h"
#include "src/config/gguf/keys.h"

namespace ropewalk::internal {

void ReadGgufPlan(const GgufKeys& keys, const Family& family, ModelConfig& c);

}  // namespace ropewalk::internal
