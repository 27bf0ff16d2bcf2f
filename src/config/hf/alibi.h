// What the families with ALiBi say in keys of their own: BLOOM, MPT, Falcon.
#pragma once

#include "src/config/hf/config.h"

namespace ropewalk::internal {

// The bias of every layer, of a model whose heads are known.
void ReadAlibi(const HfSource& source, ModelConfig& c);

// What Block::rest asks for.
void ReadBloom(const HfSource& source, ModelConfig& c);
void ReadMpt(const HfSource& source, ModelConfig& c);

// Keys inside `attn_config` that no reader asked for: an error where they are about positions by
// their names, otherwise listed.
void SortAttentionKeys(const HfSource& source, const JsonObject& attn, ModelConfig& c);

}  // namespace ropewalk::internal
