// Reading GGUF metadata, in parts: keys and sizes in config.cc, how layers are built in layer.cc,
// positions in rope.cc; T5 in t5.cc.
#pragma once

#include "ropewalk/config/config.h"
#include "src/config/family.h"
#include "src/config/gguf/keys.h"

namespace ropewalk::internal {

// How the layers of a model that runs are built: by the family's row, keys and the tensors that are
// there.
void ReadGgufLayer(const GgufKeys& keys, const Family& family, ModelConfig& c);
void ReadGgufPlan(const GgufKeys& keys, const Family& family, ModelConfig& c);
// Tokens, by the embedding, the key or the tokenizer; 0: none of them says.
int64_t GgufVocab(const GgufKeys& keys);
// Of an encoder-decoder model, or its encoder alone.
ModelConfig ReadGgufT5(const GgufKeys& keys, bool allow_unknown);

}  // namespace ropewalk::internal
