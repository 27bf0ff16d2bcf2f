// What a layer adds to its scores, as a description: the same before a sequence is known and after.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "ropewalk/base/hash.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/forms.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// Learned biases as a configuration tells them: the numbers lie in tensors, which the model reads.
struct T5LayerBias {
  T5Bias bias = {};
  bool per_layer = false;  // a table in every layer (UMT5), not the first one's for all

  bool operator==(const T5LayerBias&) const = default;
};
struct DebertaLayerBias {
  DebertaBias bias = {};
  bool content_to_position = false, position_to_content = false;
  bool shared_keys = false;           // by the matrices of the layer's own q and k
  bool normalized_embedding = false;  // of distances

  int Terms() const { return 1 + (content_to_position ? 1 : 0) + (position_to_content ? 1 : 0); }
  bool operator==(const DebertaLayerBias&) const = default;
};

// One alternative a method. A new one needs what std::visit asks for in src/plan/layer_bias.cc.
struct LayerBias {
  int64_t heads = 0;  // of the queries
  std::variant<AlibiBias, T5LayerBias, DebertaLayerBias, TransformerXlBias> method = {};

  bool operator==(const LayerBias&) const = default;
};

// What attention takes, for a sequence of `length` tokens. kFloat32 is what transformers computes
// where this differs from the formula: Falcon's ALiBi, whose products have eight bits there. Throws
// Error for heads or parameters that the method refuses, and for a learned bias without its
// numbers.
ScoreForm Lower(const LayerBias& bias, int64_t length, AnglePrecision precision);

// "ALiBi, 32 slopes 0.8409 to 0.003906, ..."
std::string Describe(const LayerBias& bias);

// What the bias is made of, not how it is written: the slopes as scores get them, the buckets and
// terms of a learned one. Throws Error for parameters that the method refuses.
void HashBias(const LayerBias& bias, Hasher& hasher);

}  // namespace ropewalk
