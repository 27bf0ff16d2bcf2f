// Reading GGUF metadata, in parts: keys and sizes here, positions in config_gguf_rope.cc.
#pragma once

#include "ropewalk/model/model.h"
#include "src/model/family.h"
#include "src/model/gguf_keys.h"

namespace ropewalk::internal {

void ReadGgufPlan(const GgufKeys& keys, const Family& family, ModelConfig& c);

}  // namespace ropewalk::internal
