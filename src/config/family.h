// The one list of model families: how each decides what its layers do with positions, by which
// names its configuration says it, and whether the decoder runs it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/config/config.h"

namespace ropewalk::internal {

// How llama.cpp rotates an architecture. A GGUF file does not say it.
enum class GgufRope : uint8_t {
  kNone,   // no rotation
  kNorm,   // pairs of consecutive elements
  kNeox,   // pairs half a rotary_dim apart
  kMrope,  // kNeox, axes in chunks
  kImrope  // kNeox, axes interleaved
};

// What a family does beyond the common rules; bits of Family::rules.
enum FamilyRule : uint32_t {
  kLengthByDefault = 1,     // runs without max_position_embeddings: the default counts
  kGgufPermuted = 2,        // the decoder undoes GGUF's permutation of q and k
  kMla = 4,                 // a head is [qk_nope_head_dim | qk_rope_head_dim], the second rotates
  kSoftmaxMscale = 8,       // YaRN multiplies scores by g(mscale_all_dim)^2 as well
  kLocalBase = 16,          // sliding layers: rope_local_base_freq, never scaled (Gemma 3)
  kLocalUnscaled = 32,      // sliding layers: rope_theta, but rope_scaling is for full layers only
  kOnlySlidingRotate = 64,  // full layers of a model that has sliding ones do not rotate
  kScaledByDefault = 128,   // transformers scales where the file says nothing: refused
  kMultiQuery = 256,        // one key head for all where `multi_query` is absent
  kElsewhere = 512,         // its code is not in transformers 4.57: each of SharedKeys() counts
  kGlobalHeadDim = 1024,    // full layers have heads, a base and a scaling of their own (Gemma 4)
  kStepTemperature = 2048,  // layers that do not rotate have Llama 4's temperature
  kTemperatureKeys = 4096,  // GGUF keys say Ministral 3's temperature
  kChunks = 8192,           // layers that rotate attend within chunks (Llama 4)
  kSeqLengthIsTrained = 16384,  // seq_length is what it was trained at (Qwen 1)
  kPositionsObject = 32768      // `positions` says all of it (ropewalk)
};

struct Block;

// Encoders that run here, by how their configurations are read.
enum class EncoderKind : uint8_t {
  kNone,
  kBert,
  kRoberta,
  kT5,
  kUmt5,
  kDeberta,
  kXlnet,
  kRoformer,
  kNezha,
  kDebertaV1
};

// "learned absolute positions"; "" of kNone.
const char* NameOf(OtherEncoding other);

// What transformers takes for sizes that a configuration may leave out, above all inside a
// text_config; 0: nothing.
struct DefaultSizes {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, max_position = 0;
};

struct Family {
  // Layers that slide where neither layer_types nor a pattern says it.
  enum class Window : uint8_t { kNone, kAll, kFromMaxWindowLayers };
  enum class Axes : uint8_t { kOne, kChunked, kInterleaved, kErnie };

  const char* name;          // Hugging Face model_type, and what results call the family
  const char* aliases = "";  // further model_types with the same rules
  PairLayout layout = PairLayout::kHalf;
  // rope_theta of transformers where it is absent; 0: its versions 4 and 5 differ, so that it must
  // be given.
  double default_theta = 1e4;
  double default_partial = 1;  // rotated share of a head without partial_rotary_factor
  // original_max_position_embeddings of LongRoPE where it is absent; 0: max_position_embeddings
  int64_t default_original = 0;
  DefaultSizes sizes = {};
  const char* keys = "";         // position keys that its code reads, beyond the common ones
  const char* unread = "";       // common ones that it does not read
  const char* layer_kinds = "";  // entries of layer_types beside full_ and sliding_attention
  Window window = Window::kNone;
  int64_t default_window = 0;    // tokens, where sliding_window is absent
  int64_t pattern = 0;           // every n-th layer is full, the others slide (or do not attend)
  int64_t no_rope_interval = 0;  // every n-th layer does not rotate, where no key says; 0: all do
  Axes axes = Axes::kOne;        // order of mrope_section's axes
  std::array<int64_t, 3> sections = {};        // mrope_section where it is absent
  OtherEncoding other = OtherEncoding::kNone;  // what it has in place of a rotation
  const char* gguf = nullptr;  // general.architecture; null: read from a GGUF by nobody here
  // The general.architecture of another family that llama.cpp's converter writes it as.
  const char* gguf_as = nullptr;
  GgufRope gguf_rope = GgufRope::kNeox;
  uint32_t rules = 0;
  const Block* block = nullptr;  // how its layers are built; null: the decoder does not run it
  EncoderKind encoder = EncoderKind::kNone;

  bool Has(FamilyRule rule) const { return (rules & rule) != 0; }
  bool Runs() const { return block != nullptr; }
  bool Takes(std::string_view key) const;  // `keys` has it
  bool Reads(std::string_view key) const;  // of SharedKeys(): whether it counts here
};

// Keys about positions and heads that the code of some families reads and that of others does not.
struct SharedKey {
  const char* key;
  bool usual = false;  // read unless the row's `unread` has it; otherwise where its `keys` has it
  // In a family that reads this one, transformers stops at the unread key or takes half of it (its
  // frequencies follow the key, its attention does not); elsewhere it is ignored.
  const char* stops_with = nullptr;
};
std::span<const SharedKey> SharedKeys();

// One word of a list in a row: "a bc d" has "bc".
bool HasWord(std::string_view list, std::string_view word);
std::vector<std::string> WordsOf(std::string_view list);

std::span<const Family> Families();  // the table, src/config/family_table.cc

// Null when nobody here knows it.
const Family* FindFamily(const std::string& hf_model_type);
const Family* FindGgufFamily(const std::string& architecture);
// The row whose general.architecture a family is written with; null: there is none.
const Family* WrittenAs(const Family& family);
std::string FamilyNames();  // "llama, mistral, ..."
std::string GgufFamilyNames();
std::string RunnableFamilyNames();
std::string EncoderFamilyNames();

// Why the decoder does not run the family; empty when it does.
std::string NotRunnable(const Family& family);
bool RunsFromGguf(const Family& family);
std::string RunnableGgufNames();  // "llama, qwen2, ...", names of general.architecture
// Why a GGUF of the family does not run, and what does; empty when it does.
std::string NotRunnableFromGguf(const Family& family);

// Bounds on what a configuration may claim before the tensors are seen: beyond every model there
// is, and small enough that products of two fit in 63 bits and lists of layers in memory.
inline constexpr int64_t kMaxDim = int64_t{1} << 26;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeadDim = 65536;
inline constexpr int64_t kMaxAlibiHeads = 65536;  // as AlibiBias takes them
inline constexpr int64_t kMaxExperts = 65536;
inline constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;

// Of a family that runs: q, k and v have a bias without a key that says so.
bool HasQkvBiasAlways(const Family& family);

// Relations that hold between sizes; `where` is for messages.
void CheckSizes(const ModelConfig& config, const std::string& where);

}  // namespace ropewalk::internal
