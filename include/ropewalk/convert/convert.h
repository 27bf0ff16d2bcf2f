// Models from one format to another, the same model with another position setting, and the proof
// that what was written is what was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/settings.h"
#include "ropewalk/model/model.h"

namespace ropewalk {

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

// All of these write under the name that they are given, and throw Error(kUnsupported) with the
// reason where the format or its readers cannot say what the model does. NewOutput
// (ropewalk/convert/new_output.h) keeps what is not whole and not proven from its final name.

// A Hugging Face folder of the families llama, qwen2 and qwen3 as one GGUF file that llama.cpp
// reads. Norms and biases become float32, as llama.cpp expects them. Keys of the folder's files
// that GGUF has no place for are in the notes.
Converted FolderToGguf(const ModelFiles& files, const std::string& path,
                       const ConvertOptions& options);

// A GGUF file as a Hugging Face folder, whose config.json has the file's position setting in the
// schema of transformers 4. Quantised matrices become float32 with the values that they stand for;
// vectors get the matrices' type where that loses nothing.
Converted GgufToFolder(const ModelFiles& files, const std::string& folder,
                       const ConvertOptions& options);

// The same folder with the scaling of `plan`, of which every rotating layer has the same, in its
// config.json, in the schema that this speaks; `target` is where that scaling goes. Every other
// file is a copy, weights hard links where `link_weights` asks for it.
Converted ExtendFolder(const ModelFiles& files, const std::string& folder, const PositionPlan& plan,
                       const SettingsTarget& target, bool link_weights = false);
// The same GGUF file (shards become one) with the keys and tensors of `plan`, served up to
// `served_length` tokens; other metadata and tensors are copied byte for byte.
Converted ExtendGguf(const ModelFiles& files, const std::string& path, const PositionPlan& plan,
                     int64_t served_length);

// Opens a Hugging Face folder with the rows of q and k in either pair layout: `rope_interleaved` of
// its config.json says which. Every other reader refuses the interleaved one. Without a tokenizer.
ModelFiles OpenEitherLayout(const std::string& folder, bool allow_unknown = false);

// q and k of safetensors in the other pair layout; everything else is copied byte for byte. One
// file (a model or a LoRA adapter), or a folder opened by OpenEitherLayout, whose config.json then
// says it. Weights of other formats in a folder are left out: their layout would be the old one.
struct HeadSizes {
  int64_t head_dim = 0, rotary_dim = 0;  // elements of a head, and how many of them rotate
};
Converted PermuteSafetensors(const std::string& from, const std::string& to, HeadSizes sizes,
                             PairLayout to_layout);
Converted PermuteFolder(const ModelFiles& files, const std::string& to, PairLayout to_layout);

// ---- Proof --------------------------------------------------------------------------------------

struct PlanProof {
  int64_t length = 0;             // tokens that the hashes are for
  std::string asked, read;        // hash of the plan asked for, and of the plan read back
  double largest_difference = 0;  // of a frequency, relative; not 0 where a format rounds
};

// `read` (from the new files) has the hash of `stored` (as their format holds it) at every length
// that can matter: 1 token, the trained length and one more, the served length. And `stored` is
// `asked` up to rounding to float32. Throws Error(kMismatch) that names the length and both.
PlanProof ProvePlan(const PositionPlan& asked, const PositionPlan& stored, const PositionPlan& read,
                    int64_t served_length);

// Logits [tokens, vocab] of a fixed sequence of ids at every position.
std::vector<float> ProbeLogits(const ModelFiles& files);
// The same at the positions of `plan`: what files have to give whose format rounds frequencies.
std::vector<float> ProbeLogits(const ModelFiles& files, const PositionPlan& plan);

// Both spell and cut a text full of traps (digits, contractions, spaces, scripts, added tokens)
// alike. Throws Error(kMismatch) that shows where they differ.
void ProveTokenizer(const Tokenizer& before, const Tokenizer& after);
// The roles of tokens and the chat templates in `read`, a folder or a GGUF file, are `written`.
void ProveExtras(const TokenizerExtras& written, const ModelFiles& read);

}  // namespace ropewalk
