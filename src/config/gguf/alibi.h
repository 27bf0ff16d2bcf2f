// Models whose GGUF files say, by a key or by their architecture, that they have ALiBi.
#pragma once

#include "ropewalk/config/config.h"
#include "src/config/family.h"
#include "src/config/gguf/keys.h"

namespace ropewalk::internal {

// MPT's, with a key that says it, and BLOOM's, which llama.cpp knows by its name; of others that do
// not rotate, what they have in its place.
void ReadGgufAlibi(const GgufKeys& keys, const Family& family, ModelConfig& c);

// llama.cpp knows a Baichuan 13B by its 40 layers; false: the model rotates.
bool ReadBaichuanAlibi(const GgufKeys& keys, ModelConfig& c);

}  // namespace ropewalk::internal
