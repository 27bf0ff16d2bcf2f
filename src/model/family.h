// The architectures that the decoder runs, and how transformers and llama.cpp treat them.
#pragma once

#include <cstdint>
#include <string>

#include "ropewalk/model/model.h"

namespace ropewalk::internal {

struct Family {
  // Hugging Face model_type, and GGUF's general.architecture unless gguf_name says otherwise.
  const char* name;
  const char* gguf_name;  // null: no GGUF file says so, or llama.cpp adds rules that no key tells
  double default_theta;   // transformers 4.57 where config.json has no rope_theta
  bool kv_heads_default_heads;  // absent num_key_value_heads means as many as heads
  int64_t default_head_dim;     // 0: hidden_size / num_attention_heads
  bool qkv_bias;                // always, no key
  bool attention_bias_key;      // `attention_bias` gives q, k, v and o a bias
  bool mlp_bias_key;
  bool qk_norm;
  // Layers that slide where layer_types does not say: none, all, or from max_window_layers on.
  enum class Window : uint8_t { kNone, kAll, kFromMaxWindowLayers } window;
  int64_t default_window;    // tokens, where sliding_window is absent
  int64_t no_rope_interval;  // every n-th layer does not rotate, where no key says; 0: all rotate
  bool gguf_permuted;        // GGUF stores q and k for the interleaved layout
};

// Null when nobody here computes it.
const Family* FindFamily(const std::string& hf_model_type);
const Family* FindGgufFamily(const std::string& architecture);
std::string FamilyNames();  // "llama, mistral, ..."
std::string GgufFamilyNames();

// Bounds on what a configuration may claim before the tensors are seen: beyond every model there
// is, and small enough that products of two fit in 63 bits and lists of layers in memory.
inline constexpr int64_t kMaxDim = int64_t{1} << 26;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeadDim = 65536;
inline constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;

// Relations that hold between sizes; `where` is for messages.
void CheckSizes(const ModelConfig& config, const std::string& where);

}  // namespace ropewalk::internal
