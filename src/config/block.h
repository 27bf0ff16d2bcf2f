// How the layers of the families beyond LLaMA's are built, and which keys of a configuration say
// it; one row a kind.
#pragma once

#include <cstdint>
#include <span>

#include "ropewalk/config/config.h"
#include "src/config/tensor_names.h"

namespace ropewalk::internal {

struct HfSource;

// A fact that a configuration may state.
struct Flag {
  const char* key = nullptr;  // null: no key, always `otherwise`
  bool otherwise = false;     // where the key is absent
};

struct Block {
  const TensorNames* names;
  BlockStyle style;                             // without what the keys below decide
  const char* activation_key = "hidden_act";    // null: no key
  const char* activation = "gelu_new";          // where the key is absent
  const char* norm_eps_key = "layer_norm_eps";  // null: PyTorch's 1e-5, no key
  Flag qkv_bias = {}, out_bias = {}, mlp_bias = {};
  Flag tied_head = {"tie_word_embeddings", false};
  Flag parallel = {};  // attention and feed-forward side by side
  bool one_norm_if_parallel = false;
  const TensorNames* two_norms = nullptr;  // names where both have their own (Falcon 40B on)
  int64_t learned_first_row = -1;          // row of position 0 in the table of positions; -1: none
  bool feed_forward_is_4_hidden = false;   // where intermediate_size is absent
  // ALiBi as Falcon has it: slopes rounded to bfloat16, added before scores are scaled.
  bool falcon_alibi = false;
  std::span<const Flag> only = {};  // flags whose other value the decoder does not compute
  void (*rest)(const HfSource& source, ModelConfig& c) = nullptr;  // what no row above can say
};

extern const Block kGpt2Block, kGptNeoxBlock, kGptjBlock, kFalconBlock, kPhiBlock, kStableLmBlock,
    kOptBlock, kBloomBlock, kMptBlock;

}  // namespace ropewalk::internal
