// From a model's metadata to its sizes, the shape of its layers and its position plan. Needs no
// weights, and links neither oneDNN nor OpenMP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ropewalk/io/weights.h"
#include "ropewalk/plan/plan.h"

namespace ropewalk {

namespace internal {
struct TensorNames;
}

// A norm (Zhang & Sennrich 2019, arXiv 1910.07467; Ba, Kiros & Hinton 2016, arXiv 1607.06450).
struct NormSpec {
  enum class Kind : uint8_t {
    kNone,
    kRms,   // x / rms(x) * weight
    kLayer  // (x - mean) / deviation * weight + bias
  };
  Kind kind = Kind::kNone;
  bool bias = true;  // of kLayer
  bool exists() const { return kind != Kind::kNone; }
  bool has_bias() const { return kind == Kind::kLayer && bias; }
};

struct AttentionSpec {
  NormSpec qk_norm;  // of each head of q and of k, before they rotate
  bool qkv_bias = false, out_bias = false;
  double clip_qkv = 0;     // q, k and v are kept within +- this; 0: as they are
  double score_scale = 0;  // of the products of q and k; 0: 1 / sqrt(head_dim)
  double soft_cap = 0;     // scores become cap tanh(score / cap); 0: as they are
};

struct MlpSpec {
  enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu };
  Activation activation = Activation::kSilu;
  bool gated = true;  // activation(gate x) * up x; otherwise activation(up x)
  bool bias = false;
};

// What a layer adds attention and MLP to.
enum class Residual : uint8_t {
  kSum,          // x + f(norm(x))
  kParallel,     // the MLP reads what attention reads, not its result; without a pre_mlp norm,
                 // through the same norm
  kNormedInput,  // norm(x) + f(norm(x)) (BLOOM's "post_layernorm")
  kNormedSum     // norm(x + f(x)) (BERT): the norms behind are of the sum
};

// A layer of a transformer; what is said here is LLaMA's. All layers of a model that runs are
// alike, but for what PositionPlan says of each.
struct LayerSpec {
  NormSpec pre_attention = {NormSpec::Kind::kRms};
  NormSpec post_attention;  // of what attention adds; with kNormedSum, of the sum
  NormSpec pre_mlp = {NormSpec::Kind::kRms};
  NormSpec post_mlp;
  AttentionSpec attention;
  MlpSpec mlp;
  Residual residual = Residual::kSum;
};

// What an encoder is beyond ModelConfig.
struct EncoderSpec {
  enum class Tensors : uint8_t { kBert, kRoberta, kT5, kDeberta, kXlnet };  // whose names
  Tensors tensors = Tensors::kBert;
  int64_t token_types = 0;  // vectors for the segments of a text; 0: none are added
  // DeBERTa: rows of the absolute positions that its mask decoder alone adds; 0: it adds none.
  int64_t mask_decoder_positions = 0;
};

enum class FileFormat : uint8_t {
  kHuggingFace,
  kGguf,
  kLlama2c,
  kMistralParams,  // params.json of Mistral AI
  kLlamaModels,    // params.json of Meta
  kMegatron        // arguments of Megatron-LM
};

struct ModelConfig {
  FileFormat format = FileFormat::kHuggingFace;
  std::string format_name;   // "Hugging Face", "GGUF v3", "llama2.c", "Mistral params.json", ...
  std::string architecture;  // "llama", "mistral", "qwen2", "gemma3_text", ...
  // Why the decoder does not run this model, whose positions are read all the same; empty: it does.
  // Sizes that positions do not need may then be 0.
  std::string not_runnable;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, feed_forward = 0,
          vocab = 0;
  double norm_eps = 1e-5;
  NormSpec embedding_norm;  // behind the embedding
  LayerSpec layer;          // each of them
  NormSpec final_norm = {NormSpec::Kind::kRms};
  double embedding_scale = 1;  // of the token embeddings
  double logit_cap = 0;        // logits become cap tanh(logit / cap); 0: as they are
  bool tied_head = false, head_bias = false;
  // How the tensors are called; null: as LLaMA's are. Static.
  const internal::TensorNames* tensor_names = nullptr;
  std::shared_ptr<const EncoderSpec> encoder;  // a text encoder: Encoder runs it; null: it is none
                                               // or not one that runs
  bool bare_names = false;   // without their first word ("transformer."), as GPT-2 was published
  bool permuted_qk = false;  // rows of q and k lie in the file for the interleaved layout (GGUF
                             // "llama", llama2.c); they are put back for the half layout at load
  PositionPlan plan;
  std::vector<std::string> harmless_keys;  // known and of no effect here
  // What the file says and nobody here follows, in sentences that name file, key and value: what
  // the family's code does not read either, and what `allow_unknown` let pass.
  std::vector<std::string> not_honoured;
  std::vector<std::string>
      unknown_keys;  // top-level keys that nobody here knows, listed by inspect
};

// Parses a Hugging Face config.json text. `file` is for messages. Unknown keys inside a rope object
// and unknown position-related keys are errors unless `allow_unknown`. So are keys that the
// family's code stops at; those that it ignores are ignored here too (`not_honoured`). Keys that
// change numbers and that the decoder does not compute leave the model readable but not runnable,
// unless `allow_unknown`.
ModelConfig ParseHfConfig(const std::string& json_text, const std::string& file,
                          bool allow_unknown = false);
ModelConfig ParseGgufConfig(const GgufFile& gguf, bool allow_unknown = false);

// One Hugging Face rope dictionary ({"rope_type": "yarn", "factor": 4, ...}; `rope_scaling` or
// `rope_parameters` form) as a scaling for `plan`'s rotations. Any rope_theta in it replaces the
// base.
PositionPlan ParseRopeDictionary(const std::string& json_text, const std::string& source,
                                 const PositionPlan& plan, bool allow_unknown = false);

}  // namespace ropewalk
