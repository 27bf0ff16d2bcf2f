// The setting of a scaling in each engine, before it is written as text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ropewalk/engines/settings.h"

namespace ropewalk::internal {

struct Recipe {
  nlohmann::ordered_json rope =
      nullptr;                 // Hugging Face dictionary without rope_theta; null: plain RoPE
  std::optional<double> base;  // a changed base
  std::optional<double> longrope_amplitude;  // on cos and sin, for engines that take another
  bool raise_positions = true;               // max_position_embeddings becomes the served length
  std::string hf_note, vllm_note;
  nlohmann::ordered_json vllm_rope = nullptr;  // where vLLM's dictionary differs
  std::string llama_flags;                     // empty: llama.cpp cannot
  bool llama_yarn = false;                     // llama_flags are those of YaRN
  std::string llama_note;
};

// Why llama.cpp's flags do not set a model that ships another scaling (SettingPlace::kept_in_gguf).
inline constexpr char kKeptInGguf[] =
    "The model ships divisors or an attention factor that llama.cpp applies whatever its flags "
    "are. "
    "ropewalk extend writes a model with this setting in their place.";

Recipe RecipeOf(const Scaling& scaling, const SettingsTarget& target);

}  // namespace ropewalk::internal
