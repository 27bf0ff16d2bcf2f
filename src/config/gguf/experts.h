// What the architectures with experts, or with latent attention, say in GGUF; what
// Block::gguf_rest asks for. What no key says is what llama.cpp knows by the architecture.
#pragma once

#include "ropewalk/config/config.h"
#include "src/config/gguf/keys.h"

namespace ropewalk::internal {

void ReadGgufMixtral(const GgufKeys& keys, ModelConfig& c);
void ReadGgufOlmoe(const GgufKeys& keys, ModelConfig& c);
void ReadGgufQwen2Moe(const GgufKeys& keys, ModelConfig& c);
void ReadGgufQwen3Moe(const GgufKeys& keys, ModelConfig& c);
void ReadGgufGptOss(const GgufKeys& keys, ModelConfig& c);
void ReadGgufDeepseek(const GgufKeys& keys, ModelConfig& c);
void ReadGgufMistral4(const GgufKeys& keys, ModelConfig& c);
void ReadGgufLlama4(const GgufKeys& keys, ModelConfig& c);
void ReadGgufMiniCpm3(const GgufKeys& keys, ModelConfig& c);
void ReadGgufQwen1(const GgufKeys& keys, ModelConfig& c);

// The keys that a mixture has, for files of architectures that may be one.
bool HasGgufExperts(const GgufKeys& keys);

}  // namespace ropewalk::internal
