// What the tensors of a model are called.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ropewalk::internal {

// Tensors of a model. A weight and its bias share an id and a name; the file adds ".weight" or
// ".bias".
enum class TensorId : uint8_t {
  kEmbedding,
  kPositions,   // learned, one row per position
  kTokenTypes,  // one row per segment of a text
  kEmbeddingNorm,
  kEmbeddingProjection,  // of narrower embeddings to the width of the layers
  kFinalNorm,
  kMaskedDense,  // of the head of a masked language model; its matrix to the vocabulary is kHead
  kMaskedNorm,
  kMaskedBias,
  kHead,
  kSharedBuckets,  // T5's bias of all layers, [buckets, heads]
  kDistances,      // DeBERTa's embedding of distances
  kDistancesNorm,
  kPreAttentionNorm,
  kQ,
  kK,
  kV,
  kQkv,    // the three in one tensor
  kQBias,  // of q and v alone, beside kQkv without a bias (DeBERTa v1)
  kVBias,
  kBuckets,      // of one layer
  kDistanceKey,  // DeBERTa's own matrices for distances
  kDistanceQuery,
  kDistanceProjection,  // XLNet's r
  kContentBias,         // XLNet's r_w_bias and r_r_bias
  kPositionBias,
  kO,
  kCrossNorm,  // attention to an encoder's states
  kCrossQ,
  kCrossK,
  kCrossV,
  kCrossO,
  kQNorm,
  kKNorm,
  kPostAttentionNorm,
  kPreMlpNorm,
  kGate,
  kUp,
  kGatedUp,  // where it has a name of its own
  kGateUp,   // the two in one tensor: all of the gate, then all of up
  kDown,
  kPostMlpNorm,
  kSinks,  // gpt-oss
  kQA,     // latent attention: hidden to the queries' vector, its norm, the vector to heads
  kQANorm,
  kQB,
  kKvA,  // hidden to the vector of keys and values, and to the rotated dimensions of the keys
  kKvANorm,
  kKvB,  // for each head: the dimensions of its key that do not rotate, its value
  kKB,   // the two apart, in GGUF: of each head a matrix
  kVB,
  kRouter,
  kChoiceBias,  // DeepSeek V3's e_score_correction_bias
  kExpertGate,
  kExpertUp,
  kExpertGateUp,
  kExpertDown,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedRouter,  // one score
  kEncoding,      // of a parameter of an encoding: EncodingTensors, by name
};

struct TensorName {
  TensorId id;
  // Behind the root, and behind the number of a layer; * is the number of an expert.
  const char* name;
  const char* weight = ".weight";  // what the file adds to a weight's name; "": "_bias" to a bias's
};

// What the tensors of a family are called and how they lie in the file.
struct TensorNames {
  // Where the rows of q, k and v are.
  enum class Qkv : uint8_t {
    kSplit,    // three tensors
    kStacked,  // one tensor: all of q, then all of k, then all of v
    kGrouped   // one tensor: for each key head the query heads that share it, itself, its values
  };
  const char* root = "";  // before every name but the head's; a file may leave it out
  const char* layers;     // before the number of a layer
  std::span<const TensorName> names;
  std::span<const TensorName> otherwise = {};  // where `names` lacks one
  std::string_view harmless = "";  // ends of names of tensors that a model computes by itself
  std::string_view beside = "";    // beginnings, behind the root, of what is no part of the model
  // What the names of the masked language model's head begin with; "": it is not read.
  std::string_view masked_head = "";
  Qkv qkv = Qkv::kSplit;
  std::span<const TensorId> transposed = {};  // matrices that are stored [in, out]
  bool heads_apart = false;      // the width of q, k and v is two dimensions: [heads, head_dim]
  bool experts_stacked = false;  // one tensor for all experts: [count, ...]
  // Gate and up in one tensor lie in turn: a row of the gate, a row of up (gpt-oss).
  bool gate_up_in_turn = false;
  float norm_offset = 0;  // the file has the weights of norms less this (Gemma: 1)

  const TensorName* Find(TensorId id) const;  // null: the family has no such tensor
  bool IsTransposed(TensorId id) const;
};

extern const TensorNames kLlamaNames, kGemmaNames, kGemma2Names, kGpt2Names, kGptNeoxNames,
    kGptjNames, kFalconNames, kFalconTwoNormNames, kPhiNames, kOptNames, kBloomNames, kMptNames,
    kOlmo2Names, kMixtralNames, kQwenMoeNames, kQwen3VlMoeNames, kQwen3VlMoeRowNames,
    kDeepseekNames, kMistral4Names, kGptOssNames, kGptOssMxfp4Names, kLlama4Names, kQwen1Names,
    kBaichuanNames, kGlmNames, kGlm4Names, kPhi3Names, kStarCoder2Names, kInternLm2Names,
    kChatGlmNames, kBertNames, kRobertaNames, kDebertaNames, kT5Names, kT5DecoderNames, kXlnetNames,
    kRoformerNames, kNezhaNames, kDebertaV1Names;

// GGUF has one list of names. Whether q, k and v are one tensor, and gate and up, and keys and values
// of latent attention, follows from the architecture and from the tensors of a file.
// kGgufTwoNormNames: Falcon 40B's.
extern const TensorNames kGgufNames, kGgufFusedNames, kGgufGateUpNames, kGgufFusedGateUpNames,
    kGgufTwoNormNames, kGgufSplitKvNames, kGgufFusedExpertsNames, kGgufGptOssNames,
    kGgufFusedGptOssNames, kGgufT5Names, kGgufT5DecoderNames;

}  // namespace ropewalk::internal
