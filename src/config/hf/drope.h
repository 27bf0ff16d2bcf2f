// DroPE (arXiv 2512.12167): a LLaMA or Qwen 2 whose rotation was removed and that was trained on.
#pragma once

#include "src/config/hf/config.h"

namespace ropewalk::internal {

// What Block::rest asks for: attention_type, softmax_scale.
void ReadDrope(const HfSource& source, ModelConfig& c);

}  // namespace ropewalk::internal
