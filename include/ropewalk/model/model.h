// From files to a model that computes: configuration, plan, weights, decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/attention/attention.h"
#include "ropewalk/attention/linear.h"
#include "ropewalk/attention/load_rotation.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/io/tokenizer.h"
#include "ropewalk/io/weights.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/table.h"

namespace ropewalk {

namespace internal {
struct TensorNames;
}
struct EncoderSpec;  // ropewalk/model/encoder.h

// How the layers of a decoder are built; what is said here is LLaMA's.
struct BlockStyle {
  enum class Norm : uint8_t {
    kRms,   // x / rms(x) * weight
    kLayer  // (x - mean) / deviation * weight + bias
  };
  enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu };
  // Where the file has the rows of q, k and v.
  enum class Qkv : uint8_t {
    kSplit,    // three tensors
    kStacked,  // one tensor: all of q, then all of k, then all of v
    kGrouped   // one tensor: for each key head the query heads that share it, itself, its values
  };
  Norm norm = Norm::kRms;
  Activation activation = Activation::kSilu;
  Qkv qkv = Qkv::kSplit;
  bool gated = true;        // activation(gate x) * up x; otherwise activation(up x)
  bool parallel = false;    // the feed-forward layer reads what attention reads, not its result
  bool one_norm = false;    // ... through the same norm
  bool transposed = false;  // matrices between layers are stored [in, out] (GPT-2's Conv1D)
  bool head_bias = false;
  bool norm_bias = true;            // of LayerNorm
  bool embedding_norm = false;      // a norm behind the embedding
  bool residual_is_normed = false;  // a layer adds to its normed input (BLOOM's "post_layernorm")
  double clip_qkv = 0;              // q, k and v are kept within +- this; 0: as they are
  double score_scale = 0;           // of the products of q and k; 0: 1 / sqrt(head_dim)
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
  BlockStyle block;
  bool tied_head = false;
  bool qkv_bias = false, out_bias = false, mlp_bias = false, qk_norm = false;
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

// A model on disk: a Hugging Face folder, a .gguf file, a llama2.c .bin. Cheap: maps, reads
// metadata.
struct ModelFiles {
  std::string path;
  ModelConfig config;
  std::map<std::string, Weight> tensors;  // by their names in the file
  std::unique_ptr<Tokenizer> tokenizer;   // null when unreadable or absent, see tokenizer_error
  std::string tokenizer_error;
  std::string config_hash;   // of config.json's bytes, where there is one
  std::string Hash() const;  // content hash of configuration and weights (reads all)
};
struct OpenOptions {
  bool allow_unknown = false;
  bool need_weights = true;  // inspect works on a lone config.json as well
};
ModelFiles OpenModel(const std::string& path, const OpenOptions& options = {});

class Decoder;

// The state of one sequence: KV caches, the declared final length, its resolved plan and tables.
class Sequence {
 public:
  // final_length: tokens the sequence will have in the end; pins length-dependent methods and
  // bounds the cache.
  Sequence(const Decoder& decoder, const PositionPlan& plan, int64_t final_length,
           AnglePrecision precision);
  int64_t tokens() const { return tokens_; }
  int64_t final_length() const { return resolved_.length; }
  const ResolvedPlan& resolved() const { return resolved_; }
  void Truncate(int64_t tokens);        // back to a prefix
  void OffsetPositions(int64_t first);  // token 0 stands at `first` (before any Forward)
  int64_t bytes() const;
  // Called for every layer and chunk with its queries and keys before they are rotated:
  // [tokens, heads, head_dim], valid during the call.
  using Observer = std::function<void(int64_t layer, const TensorView& q, const TensorView& k)>;
  void Observe(Observer observer) { observer_ = std::move(observer); }
  // Called for every layer and chunk with what attention is given, before it runs; valid during the
  // call. The last layer attends only for rows that somebody reads.
  using AttentionObserver = std::function<void(int64_t layer, const AttentionArgs& args)>;
  void ObserveAttention(AttentionObserver observer) { attention_observer_ = std::move(observer); }

 private:
  friend class Decoder;
  Observer observer_;
  AttentionObserver attention_observer_;
  void GrowTables(int64_t tokens);
  ResolvedPlan resolved_;
  std::vector<CosSinTable> tables_;  // one a distinct rotation
  std::vector<PreparedForm> forms_;  // one a distinct bias
  std::vector<KvCache> caches_;      // one a layer; layers with a distance map keep unrotated keys
  struct Load {
    int rotation;  // index into resolved_.rotations
    LoadRotation turn;
  };
  std::vector<Load> loads_;  // one a distinct rotation and map
  std::vector<int>
      load_of_;  // [layers] index into loads_, -1: keys are rotated before they are kept
  AnglePrecision precision_;
  int64_t first_position_ = 0;
  int64_t tokens_ = 0;
};

// Decoder of the LLaMA family and of those whose layers BlockStyle can say. Weights packed once;
// immutable after Load. `compute` is the type of the linear layers and of the head; norms,
// rotation, attention and what lies between are float32.
class Decoder {
 public:
  static std::unique_ptr<Decoder> Load(const ModelFiles& files,
                                       ComputeType compute = ComputeType::kFloat32);
  ~Decoder();

  const ModelConfig& config() const;
  ComputeType compute() const;
  int64_t weight_bytes() const;

  // Appends tokens to the sequence, in chunks of at most chunk_tokens. `hidden`, when not null,
  // receives the final normalised states of the last `hidden_rows` of them: [hidden_rows, hidden].
  // Throws Error for ids outside the vocabulary and past final_length, before changing anything.
  void Forward(Sequence& sequence, std::span<const int32_t> ids, float* hidden,
               int64_t hidden_rows) const;
  // logits [rows, vocab] of hidden states [rows, hidden].
  void Logits(const float* hidden, int64_t rows, float* logits) const;

  static constexpr int64_t kChunkTokens = 512;

 private:
  friend class Sequence;
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk
