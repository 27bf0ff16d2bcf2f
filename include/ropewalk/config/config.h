// Reads a model's metadata: its sizes, the structure of its layers and its position plan. Needs no
// weights, and links neither oneDNN nor OpenMP.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  bool bias = true;    // of kLayer
  bool weight = true;  // without: 1 (OLMo, Groeneveld et al. 2024, arXiv 2402.00838)
  bool exists() const { return kind != Kind::kNone; }
  bool has_weight() const { return exists() && weight; }
  bool has_bias() const { return kind == Kind::kLayer && bias; }
};

// What a norm of q and k is taken over, and which weights it has.
enum class QkNormOver : uint8_t {
  kHead,      // each head, the same weights for all of them
  kEachHead,  // each head with weights of its own (Cohere)
  kAllHeads   // all heads as one vector (OLMo 2)
};

// Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1): keys and values of
// all heads are made from one short vector per token. The rotated dimensions of a head come last, and
// those of all keys are the same. Keys and values are cached whole, as multi-head attention has them.
struct LatentSpec {
  int64_t kv_rank = 0;  // elements of that vector; 0: no latent attention
  int64_t q_rank = 0;   // the same for queries; 0: q is made from the hidden state
  int64_t rotary_dim = 0;
  int64_t value_dim = 0;   // of a head of values
  double norm_eps = 1e-6;  // of the norms of the two vectors
  bool down_bias = false;  // of the products that make the two vectors
  bool exists() const { return kv_rank > 0; }
};

struct AttentionSpec {
  NormSpec qk_norm;  // of q and of k, before the rotation
  QkNormOver qk_norm_over = QkNormOver::kHead;
  bool qk_norm_where_rotated = false;  // in no other layer (Llama 4)
  bool qkv_bias = false, out_bias = false;
  double clip_qkv = 0;     // q, k and v are clamped to +- this; 0: not
  double score_scale = 0;  // multiplies q . k; 0: 1 / sqrt(head_dim)
  double soft_cap = 0;     // scores become cap tanh(score / cap); 0: not
  bool sinks = false;      // a logit for each head in the denominator of the softmax (gpt-oss)
  LatentSpec latent;
};

struct MlpSpec {
  enum class Activation : uint8_t {
    kSilu,
    kGelu,
    kGeluTanh,
    kRelu,
    // Gated alone: g sigmoid(1.702 g) (u + 1), with the gate g clamped to at most 7 and u to +- 7
    // (gpt-oss, OpenAI 2025, arXiv 2508.10925).
    kClampedSwiglu
  };
  Activation activation = Activation::kSilu;
  bool gated = true;  // activation(gate x) * up x; otherwise activation(up x)
  bool bias = false;
};

// A mixture of experts in the place of the MLP (Shazeer et al. 2017, arXiv 1701.06538): scores choose
// `chosen` of `count` MLPs for each token, whose outputs are added with the scores as weights.
struct ExpertsSpec {
  enum class Scores : uint8_t { kSoftmax, kSigmoid };
  // What a group of experts is chosen by: its largest score (DeepSeek V2), or its two largest.
  enum class GroupBy : uint8_t { kLargest, kTwoLargest };
  int64_t count = 0;  // 0: none
  int64_t chosen = 0;
  int64_t feed_forward = 0;         // width of an expert
  int64_t shared_feed_forward = 0;  // width of the expert that every token passes; 0: none
  Scores scores = Scores::kSoftmax;
  bool normalized = false;  // the chosen scores are divided by their sum
  double scale = 1;         // multiplies them
  int64_t groups = 1, chosen_groups = 1;
  GroupBy group_by = GroupBy::kLargest;
  bool choice_bias = false;  // added to the scores for the choice alone (DeepSeek V3)
  bool router_bias = false;
  // Biases of the MLP are those of the experts too. Of a DeepSeek V2 the files say it: what
  // transformers 4 wrote has them, what 5 wrote has none.
  bool biased = true, biased_by_files = false;
  bool shared_gate = false;   // the shared expert's output times the sigmoid of a score of its own
  bool weighs_input = false;  // scores multiply what experts read, not what they give (Llama 4)
  std::vector<bool> layers = {};  // that have experts; the others have the MLP
  bool In(int64_t layer) const { return count > 0 && layers[layer]; }
  bool InAll() const {
    for (const bool in_layer : layers) {
      if (!in_layer) return false;
    }
    return count > 0;
  }
};

// The residual connections of a layer.
enum class Residual : uint8_t {
  kSum,          // x + f(norm(x))
  kParallel,     // attention and MLP read the same x; without a pre_mlp norm, with the same norm
  kNormedInput,  // norm(x) + f(norm(x)) (BLOOM's "post_layernorm")
  kNormedSum     // norm(x + f(x)) (BERT), with the post_ norms
};

// A transformer layer; the defaults are LLaMA's. All layers of a model that runs are equal, except
// for what PositionPlan has for each, and for experts.
struct LayerSpec {
  NormSpec pre_attention = {NormSpec::Kind::kRms};
  NormSpec post_attention;  // of attention's output; with kNormedSum, of the sum
  NormSpec pre_mlp = {NormSpec::Kind::kRms};
  NormSpec post_mlp;
  AttentionSpec attention;
  MlpSpec mlp;
  Residual residual = Residual::kSum;
  // Between attention and MLP: attention to the states of an encoder, without a bias, with a norm of
  // pre_attention's kind before it.
  bool cross_attention = false;
  double residual_scale = 1;  // multiplies what attention and the MLP add (Granite)
};

// What an encoder has beyond ModelConfig.
struct EncoderSpec {
  // Naming scheme.
  enum class Tensors : uint8_t {
    kBert,
    kRoberta,
    kT5,
    kDeberta,
    kXlnet,
    kRoformer,
    kNezha,
    kDebertaV1,
    kRopewalk
  };
  Tensors tensors = Tensors::kBert;
  int64_t token_types = 0;  // embeddings of segments; 0: none
  // Elements of an embedding, where they are not `hidden`: a matrix makes `hidden` of them
  // (RoFormer). 0: hidden.
  int64_t embedding_dim = 0;
  // Of the head of the masked language model, where the files have one.
  MlpSpec::Activation head_activation = MlpSpec::Activation::kGelu;
  // The masked language model's head is the vocabulary's matrix alone.
  bool plain_head = false;
  // DeBERTa: rows of absolute positions that only its mask decoder adds; 0: none.
  int64_t mask_decoder_positions = 0;
};

struct DecoderPart;

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
  // Why Decoder does not run this model; empty: it does. Positions are read in any case; sizes that
  // they do not need may then be 0.
  std::string not_runnable;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, feed_forward = 0,
          vocab = 0;
  // Of a head of values; head_dim is that of queries and keys.
  int64_t value_dim() const {
    return layer.attention.latent.exists() ? layer.attention.latent.value_dim : head_dim;
  }
  // Of a query and a key as attention reads them: an encoding of the plan may widen them (PoPE), in
  // all layers alike.
  int64_t key_dim() const {
    return plan.layers.empty() ? head_dim : EncodedDim(plan.layers[0].encoding, head_dim);
  }
  double norm_eps = 1e-5;
  NormSpec embedding_norm;  // after the embedding
  LayerSpec layer;          // of every layer
  ExpertsSpec experts;
  // Layers of the file behind the last, which predict further tokens (DeepSeek V3) and do not run.
  int64_t further_layers = 0;
  NormSpec final_norm = {NormSpec::Kind::kRms};
  double embedding_scale = 1;  // of the token embeddings
  double logit_scale = 1;      // multiplies the logits (Cohere, Granite)
  double logit_cap = 0;        // logits become cap tanh(logit / cap); 0: not
  bool tied_head = false, head_bias = false;
  bool normalized_head = false;  // each row of the head is divided by its length (Baichuan 2)
  // Names of the tensors; null: LLaMA's. Static storage.
  const internal::TensorNames* tensor_names = nullptr;
  std::shared_ptr<const EncoderSpec> encoder;  // for a text encoder that Encoder runs, else null
  // Of an encoder-decoder model, whose encoder this is; EncoderDecoder runs both. Null: no decoder.
  std::shared_ptr<const DecoderPart> decoder;
  // The files have the head of an encoder's masked language model; known when tensors are checked.
  bool masked_head = false;
  // The text part of a model that reads images too: files hold other parts beside its tensors.
  bool text_part = false;
  bool bare_names = false;  // tensor names lack their prefix ("transformer."), as in GPT-2's files
  // Rows of q and k are stored for the interleaved layout (GGUF "llama", llama2.c) and are permuted
  // to the half layout at load.
  bool permuted_qk = false;
  // What the encodings of the plan learned are tensors with the names of their parameters (family
  // ropewalk: docs/model-format.md), not those of a family.
  bool encoding_tensors = false;
  // What stands for a token that a masked language model predicts, where the configuration says it.
  std::optional<int32_t> mask_id = {};
  PositionPlan plan;
  std::vector<std::string> harmless_keys;  // known keys without effect here
  // Keys of the file without effect, as sentences that name file, key and value: keys that the
  // family's own code ignores, and those that `allow_unknown` accepted.
  std::vector<std::string> not_honoured;
  std::vector<std::string> unknown_keys;  // unknown top-level keys, listed by inspect
};

// The decoder of an encoder-decoder model.
struct DecoderPart {
  ModelConfig config;  // with cross_attention
  // In front of the tokens that it reads (decoder_start_token_id); absent: the file does not say.
  std::optional<int32_t> start_id;
  int32_t end_id = 1;  // behind the tokens that the encoder reads (eos_token_id)
};

// Parses the text of a Hugging Face config.json. `file` is for messages. Throws Error, unless
// `allow_unknown`, for unknown keys in a rope dictionary, for unknown keys about positions and for
// keys that the family's own code rejects. Keys that the family's code ignores are ignored here too
// (not_honoured). With a key that changes results and that Decoder does not implement, the model is
// read but does not run (not_runnable), unless `allow_unknown`.
ModelConfig ParseHfConfig(const std::string& json_text, const std::string& file,
                          bool allow_unknown = false);
// The same for any text that tells a model's positions: a config.json, a params.json of Mistral AI or
// Meta, or arguments of Megatron-LM (JSON or a launch script), told apart by what they contain.
ModelConfig ParseConfig(const std::string& text, const std::string& file,
                        bool allow_unknown = false);
ModelConfig ParseGgufConfig(const GgufFile& gguf, bool allow_unknown = false);

// Applies a Hugging Face rope dictionary ({"rope_type": "yarn", "factor": 4, ...}; in the form of
// `rope_scaling` or `rope_parameters`) to the rotations of `plan`. A rope_theta in it replaces the
// base.
PositionPlan ParseRopeDictionary(const std::string& json_text, const std::string& source,
                                 const PositionPlan& plan, bool allow_unknown = false);

}  // namespace ropewalk
