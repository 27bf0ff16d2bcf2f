// Models from one format to another, and the same model with another position setting.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/model/model.h"
#include "src/model/rows.h"
#include "src/tokenizer/extras.h"

namespace ropewalk::internal {

// What was written, in words: choices made, types changed, what a reader should know.
struct Converted {
  std::vector<std::string> notes;
  PositionPlan stored;      // as the new files hold it (GGUF rounds numbers to float32)
  bool same_values = true;  // false: weights were rounded to the type that was asked for
  TokenizerExtras extras;   // where the tokenizer was converted
};

struct ConvertOptions {
  std::optional<WeightType> type;  // of matrices; absent: as they are, where the format has it
  bool tokenizer = true;           // false: the weights alone
};

// All of these write under the name that they are given; NewOutput keeps what is not whole and not
// proven from its final name.

// A Hugging Face folder of the families llama, qwen2 and qwen3 as one GGUF file that llama.cpp
// reads. Norms and biases become float32, as llama.cpp expects them. Keys of the folder's files
// that GGUF has no place for are in the notes.
Converted FolderToGguf(const ModelFiles& files, const std::string& path,
                       const ConvertOptions& options);

// A GGUF file as a Hugging Face folder. `rope` is the position setting in
// the older schema, as settings.h renders it; null: plain RoPE. Quantised matrices become float32
// with the values that they stand for; vectors get the matrices' type where that loses nothing.
Converted GgufToFolder(const ModelFiles& files, const std::string& folder,
                       const nlohmann::ordered_json& rope, const ConvertOptions& options);

// The same folder with `setting` in its config.json; every other file is a copy, weights hard links
// where `link_weights` asks for it.
Converted ExtendFolder(const ModelFiles& files, const std::string& folder, const PositionPlan& plan,
                       const nlohmann::ordered_json& setting, bool link_weights = false);
// The same GGUF file (shards become one) with the keys and tensors of `plan`; other metadata and
// tensors are copied byte for byte.
Converted ExtendGguf(const ModelFiles& files, const std::string& path, const PositionPlan& plan,
                     int64_t served_length);

// q and k of safetensors in the other pair layout; everything else is copied byte for byte. One
// file (a model or a LoRA adapter), or a folder, which gets `config_json` and copies of its other
// files but weights of other formats, whose layout would be the old one.
struct HeadSizes {
  int64_t head_dim = 0, rotary_dim = 0;
};
Converted PermuteSafetensors(const std::string& from, const std::string& to, HeadSizes sizes,
                             PairLayout to_layout);
Converted PermuteFolder(const std::string& from, const std::string& to,
                        const std::string& config_json, HeadSizes sizes, PairLayout to_layout);

}  // namespace ropewalk::internal
