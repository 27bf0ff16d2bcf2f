// A model's sizes, windows and multipliers as keys of a GGUF file, and whether llama.cpp would load
// it.
#pragma once

#include <map>
#include <string>

#include "ropewalk/convert/convert.h"
#include "src/config/family.h"
#include "src/engines/gguf_rope.h"

namespace ropewalk::internal {

// The row whose general.architecture the model is written with. Throws Error(kUnsupported) with the
// reason for a model that llama.cpp would not load, or would read as another.
const Family& GgufFamilyOf(const ModelConfig& config);

// Keys and tensors of the positions, and the plan as they hold it.
StoredRope GgufPositionsOf(const ModelConfig& config, const Family& family);
// All keys but those and the tokenizer's.
std::map<std::string, GgufValue> GgufModelKeys(const ModelConfig& config, const Family& family);

// Notes on what llama.cpp makes of the file, and whether float32 keys rounded the model.
void NoteWhatLlamaCppDoes(const ModelConfig& config, const Family& family, Converted& result);

}  // namespace ropewalk::internal
