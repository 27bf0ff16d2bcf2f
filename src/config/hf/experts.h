// What the families with experts, or with latent attention, say in keys of their own; what Block::rest
// asks for.
#pragma once

#include "src/config/hf/config.h"

namespace ropewalk::internal {

void ReadMixtral(const HfSource& source, ModelConfig& c);
void ReadOlmoe(const HfSource& source, ModelConfig& c);
void ReadQwen2Moe(const HfSource& source, ModelConfig& c);
void ReadQwen3Moe(const HfSource& source, ModelConfig& c);
void ReadQwen3VlMoe(const HfSource& source, ModelConfig& c);
void ReadDeepseekV2(const HfSource& source, ModelConfig& c);
void ReadDeepseekV3(const HfSource& source, ModelConfig& c);
void ReadMistral4(const HfSource& source, ModelConfig& c);
void ReadGptOss(const HfSource& source, ModelConfig& c);
void ReadLlama4(const HfSource& source, ModelConfig& c);
// The keys of latent attention; a value is as wide as `value_dim` where the file does not say.
void ReadLatent(const HfSource& source, std::optional<int64_t> value_dim, ModelConfig& c);

}  // namespace ropewalk::internal
