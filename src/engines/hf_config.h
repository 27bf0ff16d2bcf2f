// config.json written: a setting put into an existing one, or a new one for a model that had none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/config/config.h"

namespace ropewalk::internal {

// The class in transformers of a family that is converted (llama, qwen2, qwen3); null for others.
const char* TransformersClass(const std::string& family);
inline constexpr char kConvertedFamilies[] = "llama, qwen2 and qwen3";

// The schema of a config.json: rope_parameters (transformers 5), or rope_theta
// and rope_scaling.
bool HasRopeParameters(const nlohmann::ordered_json& config);

// `config_text` with the keys of `setting` (of its own schema) in place, other keys and their order
// kept. `trained_length` becomes max_position_embeddings where the setting does not raise it. Error
// where rope_parameters differs by layer type.
std::string WithRopeSetting(const std::string& config_text, const std::string& file,
                            const nlohmann::ordered_json& setting, int64_t trained_length);

// Throws Error for a model of a family that is not written as a folder.
void CheckFolderCanBe(const ModelConfig& config);

// config.json of a model whose configuration came from another format, in the older schema, plain
// RoPE. `token_ids` are keys of its own ("bos_token_id"). Error where no key of the family says
// what the model has.
nlohmann::ordered_json ConfigJsonOf(const ModelConfig& config,
                                    const nlohmann::ordered_json& token_ids,
                                    const char* torch_dtype);

}  // namespace ropewalk::internal
