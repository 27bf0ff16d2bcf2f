// Words of config.json for experts and latent attention, in models that came from another format.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/config/config.h"

namespace ropewalk::internal {

// Throws the Error of a model that no key of its family's config.json describes.
[[noreturn]] void FailFor(const std::string& family, const std::string& what);

// Each adds the keys of its family to `config`, which has those of all.
void FinishMixtral(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishOlmoe(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishQwen2Moe(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishQwen3Moe(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishGptOss(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishDeepseekV2(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishDeepseekV3(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishMinistral3(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishMistral4(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishMiniCpm3(const ModelConfig& c, nlohmann::ordered_json& config);
void FinishLlama4(const ModelConfig& c, nlohmann::ordered_json& config);

}  // namespace ropewalk::internal
