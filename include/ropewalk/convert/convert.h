// Converts models between formats, writes models with another position setting, and verifies what
// was written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/settings.h"
#include "ropewalk/model/model.h"

namespace ropewalk {

// Numbers of the model beside weights and positions that the new format holds otherwise than the
// source; absent: as they were.
struct StoredNumbers {
  std::optional<double> latent_norm_eps;  // of the norms of latent attention
  std::optional<double> logit_scale;      // its inverse is a float32 in GGUF
  bool exist() const { return latent_norm_eps || logit_scale; }
};

// What was written.
struct Converted {
  std::vector<std::string> notes;  // for the user: choices made, types changed
  PositionPlan stored;             // as the new files hold it (GGUF rounds to float32)
  bool same_values = true;         // false: weights were rounded to the requested type
  StoredNumbers numbers;           // with the notes that say so
  TokenizerExtras extras;          // where the tokenizer was converted
};

struct ConvertOptions {
  std::optional<WeightType> type;  // of matrices; absent: unchanged where the format has it
  bool tokenizer = true;           // false: weights only
};

// All of these write to the given path, and throw Error(kUnsupported) with the reason where the
// format or its readers cannot express the model. Use NewOutput (ropewalk/convert/new_output.h) to
// write to a temporary path until the result is complete and verified.

// A Hugging Face folder (families: docs/extend-and-convert.md) as one GGUF file that llama.cpp
// reads. Norms and biases become float32, as llama.cpp expects them. Keys of the folder's files
// that GGUF cannot hold are listed in the notes.
Converted FolderToGguf(const ModelFiles& files, const std::string& path,
                       const ConvertOptions& options);

// A GGUF file as a Hugging Face folder, whose config.json has the file's position setting in the
// schema of transformers 4. Quantised matrices are dequantised to float32; vectors get the
// matrices' type where that is lossless.
Converted GgufToFolder(const ModelFiles& files, const std::string& folder,
                       const ConvertOptions& options);

// A copy of the folder whose config.json has the scaling of `plan`, which must be equal in all
// rotating layers, in the schema of that config.json; of the family ropewalk `positions`, with the
// map and the temperature of `plan` too. `target` has the lengths and base that the
// setting is for. With `link_weights` the weight files are hard links, not copies.
Converted ExtendFolder(const ModelFiles& files, const std::string& folder, const PositionPlan& plan,
                       const SettingsTarget& target, bool link_weights = false);
// A copy of the GGUF file (shards become one file) with the rope keys and tensors of `plan` for up
// to `served_length` tokens; other metadata and tensors are copied byte for byte.
Converted ExtendGguf(const ModelFiles& files, const std::string& path, const PositionPlan& plan,
                     int64_t served_length);

// Opens a Hugging Face folder, without its tokenizer, whose rows of q and k have either pair
// layout, according to `rope_interleaved` of its config.json. All other readers refuse the
// interleaved one. Of a family that rotates consecutive elements itself, rows are in that order
// anyway, and PermuteFolder refuses it.
ModelFiles OpenEitherLayout(const std::string& folder, bool allow_unknown = false);
// The interleaved layout as code reads it that rotates consecutive elements: rows stay as they are
// stored, and the plan rotates them so. Other files are returned as they are.
ModelFiles RotatedAsStored(ModelFiles files);

// Permutes q and k of safetensors to the other pair layout; everything else is copied byte for
// byte. Takes one file (a model or a LoRA adapter), or a folder opened by OpenEitherLayout, whose
// new config.json names the layout. Weights of other formats in the folder are not copied, because
// they would keep the old layout.
struct HeadSizes {
  int64_t head_dim = 0, rotary_dim = 0;  // elements of a head, and how many of them rotate
};
Converted PermuteSafetensors(const std::string& from, const std::string& to, HeadSizes sizes,
                             PairLayout to_layout);
Converted PermuteFolder(const ModelFiles& files, const std::string& to, PairLayout to_layout);

// ---- Verification -------------------------------------------------------------------------------

struct PlanProof {
  int64_t length = 0;             // tokens, at which the hashes are resolved
  std::string asked, read;        // hashes of the requested plan and of the plan read back
  double largest_difference = 0;  // relative, of a frequency; not 0 where a format rounds
};

// Checks that `read` (from the new files) has the hash of `stored` (as their format holds it) at
// each length that can matter (1 token, the trained length, one more, and the served length), and
// that `stored` equals `asked` up to rounding to float32. Throws Error(kMismatch) that names the
// length and both plans.
PlanProof ProvePlan(const PositionPlan& asked, const PositionPlan& stored, const PositionPlan& read,
                    int64_t served_length);

// Logits [tokens, vocab] of a fixed sequence of ids. Equal numbers in two files give equal bits
// under one `weights`; kAuto may choose differently for the two.
std::vector<float> ProbeLogits(const ModelFiles& files,
                               WeightStorage weights = WeightStorage::kUnpacked);
// The same under `plan`: the reference for files whose format rounds frequencies.
std::vector<float> ProbeLogits(const ModelFiles& files, const PositionPlan& plan,
                               WeightStorage weights = WeightStorage::kUnpacked);
// The source, without its tokenizer, with the positions and numbers that the new format holds: the
// reference for what was written, equal bit for bit where no weight was rounded.
ModelFiles AsWritten(const ModelFiles& source, const Converted& written);

// Checks that both tokenise a text of difficult cases (digits, contractions, spaces, scripts, added
// tokens) equally. Throws Error(kMismatch) that shows where they differ.
void ProveTokenizer(const Tokenizer& before, const Tokenizer& after);
// Checks that special tokens and chat templates of `read`, a folder or a GGUF file, equal
// `written`. Throws Error(kMismatch).
void ProveExtras(const TokenizerExtras& written, const ModelFiles& read);

}  // namespace ropewalk
