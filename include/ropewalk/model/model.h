// Model files, and the decoder that runs them.
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
#include "ropewalk/attention/load_rotation.h"
#include "ropewalk/base/buffer.h"
#include "ropewalk/config/config.h"
#include "ropewalk/io/weights.h"
#include "ropewalk/linear/linear.h"
#include "ropewalk/plan/plan.h"
#include "ropewalk/rotary/table.h"
#include "ropewalk/tokenizer/tokenizer.h"

namespace ropewalk {

namespace internal {
struct EmbeddingState;
}
class RankedSequence;

// A model on disk: a Hugging Face folder, a .gguf file or a llama2.c .bin. Opening it maps the
// files and reads metadata only.
struct ModelFiles {
  std::string path;
  ModelConfig config;
  std::map<std::string, Weight> tensors;  // by their names in the file
  std::unique_ptr<Tokenizer> tokenizer;   // null when unreadable or absent, see tokenizer_error
  std::string tokenizer_error;
  std::string config_hash;   // of config.json's bytes; empty without one
  std::string Hash() const;  // content hash of configuration and weights (reads all files)
};
struct OpenOptions {
  bool allow_unknown = false;
  bool need_weights = true;  // false: a config.json alone is enough
};
ModelFiles OpenModel(const std::string& path, const OpenOptions& options = {});

// Where the weights of matrix products are while a model runs. kUnpacked: in memory, converted once
// for its arithmetic, the fastest. kPacked: in the files, as they are, and decoded whenever they are
// needed; the same numbers in less memory. kAuto: kUnpacked where that takes at most half of the
// memory that the machine, and every control group around the process, has left.
enum class WeightStorage : uint8_t { kAuto, kUnpacked, kPacked };
constexpr const char* Name(WeightStorage weights) {
  constexpr const char* kNames[] = {"auto", "unpacked", "packed"};
  return kNames[static_cast<int>(weights)];
}
// What `wanted` means for this model, here and now; never kAuto.
WeightStorage ChooseStorage(const ModelFiles& files, ComputeType compute,
                            WeightStorage wanted = WeightStorage::kAuto);

class Decoder;

// The state of one sequence: KV caches, the declared final length, its resolved plan and tables.
class Sequence {
 public:
  // final_length: the largest number of tokens of the sequence; length-dependent methods are
  // resolved at it, and it bounds the caches. `kv`: what these hold of keys, rotated but for layers
  // with a distance map, and values. Throws Error, of `kv` as CheckKvType does.
  Sequence(const Decoder& decoder, const PositionPlan& plan, int64_t final_length,
           AnglePrecision precision, KvType kv = KvType::kF32);
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  int64_t tokens() const { return tokens_; }
  int64_t final_length() const { return resolved_.length; }
  const ResolvedPlan& resolved() const { return resolved_; }
  void Truncate(int64_t tokens);  // keeps the first `tokens` tokens
  // Appends tokens that no layer has computed, all with the same keys and values: what follows takes
  // as long as behind a text, to measure time. Throws Error past final_length.
  void Skip(int64_t tokens);
  void OffsetPositions(int64_t first);  // token 0 has position `first`; call before Forward
  int64_t bytes() const;
  // Called for every layer and chunk with its queries and keys before they are rotated:
  // [tokens, heads, head_dim], valid during the call.
  using Observer = std::function<void(int64_t layer, const TensorView& q, const TensorView& k)>;
  void Observe(Observer observer) { observer_ = std::move(observer); }
  // Called for every layer and chunk with the arguments of its attention after it ran, including
  // the entropy of its queries; valid during the call. The last layer computes only the rows that
  // are read.
  using AttentionObserver = std::function<void(int64_t layer, const AttentionArgs& args)>;
  // Chunks that end before token `first` or at it are not observed: entropy takes a third of
  // attention's time.
  void ObserveAttention(AttentionObserver observer, int64_t first = 0) {
    attention_observer_ = std::move(observer);
    observed_from_ = first;
  }

 private:
  friend class Decoder;
  friend class RankedSequence;
  // Without caches: keys of a RankedSequence are elsewhere.
  struct WithoutCaches {};
  Sequence(const Decoder& decoder, const PositionPlan& plan, int64_t final_length,
           AnglePrecision precision, WithoutCaches);
  Observer observer_;
  AttentionObserver attention_observer_;
  int64_t observed_from_ = 0;
  void CentreXpos();
  void LowerBiases(const Decoder& decoder, const PositionPlan& plan);
  void GrowTables(int64_t tokens);
  void GrowLoads(int64_t tokens);
  void ResizeGates();
  void ResizeEmbedding(int64_t tokens);
  ResolvedPlan resolved_;
  // One per distinct rotation, and that of an encoding of queries and keys.
  std::vector<CosSinTable> tables_;
  std::optional<Frequencies> encoding_;  // of the latter
  std::vector<PreparedForm> forms_;  // one per distinct bias, or per layer where they are learned
  std::vector<ScoreForm> gates_;     // [layers] where the bias is a gate: those of its tokens
  int64_t gate_heads_ = 0;
  bool bias_from_first_ = false;  // it depends on the positions themselves, not on distances
  std::vector<KvCache> caches_;   // one per layer; with a distance map its keys are unrotated
  std::vector<KvCache> sources_;  // of cross-attention, one per layer; empty: nothing is read
  // Fused RoPE, for layers with a distance map.
  struct Load {
    int rotation;  // index into resolved_.rotations
    LoadRotation fused;
  };
  std::vector<Load> loads_;   // one per distinct rotation and map
  std::vector<int> load_of_;  // [layers] index into loads_; -1: keys are cached rotated
  // What encodings in front of the layers read of earlier tokens.
  std::unique_ptr<internal::EmbeddingState> embedding_;
  int64_t hidden_ = 0;
  AnglePrecision precision_;
  int64_t first_position_ = 0;
  int64_t tokens_ = 0;
};

struct DecoderOptions {
  // Of the linear layers, of the head and, where HasBf16Attention(), of attention's products of
  // queries, keys and values; everything else (norms, rotation, softmax) is float32.
  ComputeType compute = ComputeType::kFloat32;
  WeightStorage weights = WeightStorage::kAuto;
};

// Decoder of the LLaMA family and of all families whose layers LayerSpec can express. Immutable
// after Load.
class Decoder {
 public:
  static std::unique_ptr<Decoder> Load(const ModelFiles& files, const DecoderOptions& options = {});
  ~Decoder();

  const ModelConfig& config() const;
  ComputeType compute() const;
  // What a result is to name, so that no two arithmetics share a name: "float32", "bf16" (linear
  // layers alone, where HasBf16Attention() is false) or "bf16+attention".
  const char* arithmetic() const;
  WeightStorage weights() const;  // as chosen, never kAuto
  int64_t weight_bytes() const;   // of memory
  int64_t mapped_bytes() const;   // of the files, where weights stay there

  // Appends tokens to the sequence, in chunks of at most kChunkTokens. `hidden`, when not null,
  // receives the final normalised states of the last `hidden_rows` of them: [hidden_rows, hidden].
  // Throws Error for ids outside the vocabulary and past final_length, before changing anything.
  void Forward(Sequence& sequence, std::span<const int32_t> ids, float* hidden,
               int64_t hidden_rows) const;
  // Of a decoder with cross-attention (EncoderDecoder has one): what the tokens of an empty sequence
  // will read, the final states of an encoder [tokens, hidden]. Keys and values are computed here,
  // once. Throws Error for a decoder without it and for a sequence that has tokens.
  void ReadSource(Sequence& sequence, const float* states, int64_t tokens) const;
  // logits [rows, vocab] of hidden states [rows, hidden].
  void Logits(const float* hidden, int64_t rows, float* logits) const;

  static constexpr int64_t kChunkTokens = 512;

 private:
  friend class Sequence;
  friend class RankedSequence;
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk
