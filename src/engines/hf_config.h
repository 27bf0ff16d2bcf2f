// config.json written: a setting put into an existing one, or a new one for a model that had none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/config/config.h"
#include "src/config/family.h"

namespace ropewalk::internal {

// Families that are converted between folders and GGUF: "llama, qwen2, ...".
std::string ConvertedFamilies();
bool IsConverted(const std::string& family);

// The schema of a config.json: rope_parameters (transformers 5), or rope_theta
// and rope_scaling.
bool HasRopeParameters(const nlohmann::ordered_json& config);

// `config_text` with the keys of `setting` (of its own schema) in place, other keys and their order
// kept. `trained_length` becomes max_position_embeddings where the setting does not raise it. Where
// there is a text_config, all of this is there, and what stands beside it and would contradict it
// goes. Error where rope_parameters differs by layer type.
std::string WithRopeSetting(const std::string& config_text, const std::string& file,
                            const nlohmann::ordered_json& setting, int64_t trained_length);

// The family of the folder that a model is written as; Error for one that is not converted.
const Family& FolderFamilyOf(const ModelConfig& config);

// config.json of a model whose configuration came from another format, in the older schema, plain
// RoPE. `token_ids` are keys of its own ("bos_token_id"). Error where no key of the family says
// what the model has.
nlohmann::ordered_json ConfigJsonOf(const ModelConfig& config,
                                    const nlohmann::ordered_json& token_ids,
                                    const char* torch_dtype);

// `config` with the LongRoPE of `plan` as Phi-3's code in transformers wants it: three keys, and
// the lengths beside them; `plan` becomes what that says. Error for what it cannot say.
nlohmann::ordered_json WithPhi3Rope(nlohmann::ordered_json config, PositionPlan& plan);

}  // namespace ropewalk::internal
