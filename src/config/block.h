// How the layers of the families that run are built, and which keys of a configuration say it; one
// row per kind.
#pragma once

#include <cstdint>
#include <span>

#include "ropewalk/config/config.h"
#include "src/config/tensor_names.h"

namespace ropewalk::internal {

inline constexpr NormSpec kLayerNorm = {NormSpec::Kind::kLayer};

struct HfSource;
class GgufKeys;

// A fact that a configuration may state.
struct Flag {
  const char* key = nullptr;  // null: no key, always `otherwise`
  bool otherwise = false;     // where the key is absent
};

// A number that a configuration may state, by the same key in config.json and, behind the
// architecture's name, in GGUF; null there means 0, which is an error for a multiplier.
struct Number {
  const char* key = nullptr;  // null: no key, always `otherwise`
  double otherwise = 0;       // where the key is absent
};

class JsonObject;
// Throws Error for what is not above 0.
double ReadMultiplier(const JsonObject& top, const Number& number);

// Layers with a norm before attention and another before the MLP.
constexpr LayerSpec PreNorm(NormSpec norm, bool gated) {
  LayerSpec layer;
  layer.pre_attention = layer.pre_mlp = norm;
  layer.mlp.gated = gated;
  return layer;
}

// What llama.cpp does with its keys embedding_scale, residual_scale, attention.scale and
// logit_scale.
enum class GgufScales : uint8_t {
  kNone,      // the architecture has none of them
  kGranite,   // logits are divided by logit_scale
  kMiniCpm,   // the same; the numbers of MiniCPM 2B where they are absent
  kMiniCpm3,  // those numbers, and no keys
  kCohere     // logit_scale alone, which multiplies
};

struct Block {
  const TensorNames* names;
  LayerSpec layer = {};         // without what the keys below decide
  bool embedding_norm = false;  // of the layers' kind, behind the embedding
  bool head_bias = false;
  const char* activation_key = "hidden_act";    // null: no key
  const char* activation = "gelu_new";          // where the key is absent
  const char* norm_eps_key = "layer_norm_eps";  // null: PyTorch's 1e-5, no key
  double norm_eps = 1e-5;                       // where the key is absent
  Flag qkv_bias = {}, out_bias = {}, mlp_bias = {};
  Flag tied_head = {"tie_word_embeddings", false};
  Number score_cap = {}, logit_cap = {};
  Number clip_qkv = {};
  Number embedding_scale = {nullptr, 1}, score_scale = {}, residual_scale = {nullptr, 1};
  Number logit_scale = {nullptr, 1}, logit_divisor = {nullptr, 1};
  Flag qk_norm = {nullptr, true};  // whether the norms of q and k that `layer` has exist
  // Scores are divided by its root. llama.cpp divides them by that of hidden / heads where the
  // model has `wide_layers` layers (it has no key), else by that of head_dim.
  Number score_divisor = {};
  int64_t wide_layers = 0;
  bool scaled_embedding = false;  // times the root of hidden
  Flag parallel = {};             // attention and feed-forward side by side
  bool one_norm_if_parallel = false;
  const TensorNames* two_norms = nullptr;    // names where both have their own (Falcon 40B on)
  const TensorNames* mxfp4 = nullptr;        // names where quantization_config says MXFP4
  const TensorNames* expert_rows = nullptr;  // names where stacked experts are [out, in]
  int64_t learned_first_row = -1;         // row of position 0 in the table of positions; -1: none
  bool feed_forward_is_4_hidden = false;  // where intermediate_size is absent
  // ALiBi as Falcon has it: slopes rounded to bfloat16, added before scores are scaled.
  bool falcon_alibi = false;
  std::span<const Flag> only = {};  // flags whose other value the decoder does not compute
  const char* no_bias = "";         // keys of biases that the family has not
  const TensorNames* gguf_names = &kGgufNames;  // as llama.cpp's converter writes them
  GgufScales gguf_scales = GgufScales::kNone;
  bool gguf_clip = false;                                          // GGUF has attention.clamp_kqv
  void (*rest)(const HfSource& source, ModelConfig& c) = nullptr;  // what no row above can say
  void (*gguf_rest)(const GgufKeys& keys, ModelConfig& c) = nullptr;  // the same, of a GGUF file
};

extern const Block kLlamaBlock, kRopewalkBlock, kDropeLlamaBlock, kDropeQwen2Block, kSmolLm3Block,
    kMistralBlock, kQwen2Block, kQwen3Block, kGemmaBlock, kGemma2Block, kGemma3Block, kGpt2Block,
    kGptNeoxBlock, kGptjBlock, kFalconBlock, kPhiBlock, kStableLmBlock, kOptBlock, kBloomBlock,
    kMptBlock, kGraniteBlock, kOlmoBlock, kOlmo2Block, kCohereBlock, kCohere2Block, kGlmBlock,
    kGlm4Block, kPhi3Block, kStarCoder2Block, kMixtralBlock, kOlmoeBlock, kQwen2MoeBlock,
    kQwen3MoeBlock, kDeepseekV2Block, kDeepseekV3Block, kMistral4Block, kGptOssBlock, kLlama4Block,
    kQwen1Block, kBaichuanBlock, kMiniCpm3Block, kMinistral3Block, kInternLm2Block, kMiniCpmBlock,
    kOrionBlock, kChatGlmBlock, kQwen2VlBlock, kQwen3VlMoeBlock;

}  // namespace ropewalk::internal
