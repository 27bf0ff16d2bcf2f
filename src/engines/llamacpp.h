// What llama.cpp's loader takes of an architecture: one row for each that is written. Read in
// src/models/ of the llama.cpp that llama-cpp-python 0.3.36 brings.
#pragma once

#include <cstdint>
#include <string_view>

namespace ropewalk::internal {

enum LlamaCppTakes : uint32_t {
  kPartOfAHead = 1,       // rotates part of a head; otherwise whole heads alone
  kDivisorTensor = 2,     // loads rope_freqs.weight
  kLongRopeTensors = 4,   // loads rope_factors_long.weight and rope_factors_short.weight
  kHeadSize = 8,          // has a key for the head size; otherwise hidden / heads
  kOutBias = 16,          // a bias of attn_output
  kMlpBias = 32,          // biases of ffn_up, ffn_gate and ffn_down
  kEveryBias = 64,        // loads no file without them
  kOwnHead = 128,         // an output.weight; otherwise the head is the embedding
  kNeedsHead = 256,       // loads no file without output.weight
  kWindows = 512,         // sliding layers, as the file says which
  kParallelAlone = 1024,  // attention and MLP side by side alone
  // Lets layers that have a window see everything, as in its own converter's files.
  kIgnoredWindow = 2048,
  kAllKeyHeads = 4096,  // as many key heads as heads
  kTemperature = 8192   // that of Ministral 3 and Mistral 4, on all layers
};

struct LlamaCppArchitecture {
  std::string_view name;
  uint32_t takes = 0;
  int64_t qk_norm_from_layers = 0;  // q and k have norms in models of as many layers; 0: no rule
  bool Takes(LlamaCppTakes what) const { return (takes & what) != 0; }
};

// Null for an architecture that is not written.
const LlamaCppArchitecture* FindLlamaCpp(std::string_view architecture);

}  // namespace ropewalk::internal
