// The setting of a scaling in each engine, before it is written as text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ropewalk/engines/settings.h"

namespace ropewalk::internal {

struct Recipe {
  nlohmann::ordered_json rope =
      nullptr;                  // Hugging Face dictionary without rope_theta; null: plain RoPE
  std::optional<double> base;   // a changed base
  bool raise_positions = true;  // max_position_embeddings becomes the served length
  std::string hf_note, vllm_note;
  std::string hf4_note;                        // of transformers 4 alone
  nlohmann::ordered_json vllm_rope = nullptr;  // where vLLM's dictionary differs
  std::string llama_flags;                     // empty: llama.cpp cannot
  bool llama_yarn = false;                     // llama_flags are those of YaRN
  std::string llama_note;
};

Recipe RecipeOf(const Scaling& scaling, const SettingsTarget& target);

}  // namespace ropewalk::internal
