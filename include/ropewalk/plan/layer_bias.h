// The score bias of a layer as data. It does not depend on the length of a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "ropewalk/base/hash.h"
#include "ropewalk/relative/alibi.h"
#include "ropewalk/relative/deberta.h"
#include "ropewalk/relative/forms.h"
#include "ropewalk/relative/kerple.h"
#include "ropewalk/relative/sandwich.h"
#include "ropewalk/relative/shaw.h"
#include "ropewalk/relative/t5.h"
#include "ropewalk/relative/transformer_xl.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// Learned biases as a configuration describes them. The learned values are tensors that the model
// reads.
struct T5LayerBias {
  T5Bias bias = {};
  bool per_layer = false;  // a table per layer (UMT5); false: all layers use the first one's
  bool scaled = false;     // q . k is scaled by head_dim^-0.5 all the same; T5 does not

  bool operator==(const T5LayerBias&) const = default;
};
struct DebertaLayerBias {
  DebertaBias bias = {};
  bool content_to_position = false, position_to_content = false;
  bool shared_keys = false;  // distances are projected by the layer's own q and k (share_att_key)
  bool normalized_embedding = false;  // a norm follows the embedding of distances

  int Terms() const { return 1 + (content_to_position ? 1 : 0) + (position_to_content ? 1 : 0); }
  bool operator==(const DebertaLayerBias&) const = default;
};

// NEZHA's: Shaw's rows for keys and for values, both ShawSinusoidalRows; nothing is learned.
struct NezhaLayerBias {
  int64_t reach = 64;  // max_relative_position; distances beyond it count as it
  int64_t head_dim = 0;

  ShawBias Shaw() const;
  bool operator==(const NezhaLayerBias&) const = default;
};

// ALiBi whose slopes are learned.
struct LearnedAlibiLayerBias {
  bool causal = true;  // false: -slope |distance| on both sides

  bool operator==(const LearnedAlibiLayerBias&) const = default;
};
struct FireLayerBias {
  int64_t width = 32;  // of the hidden layer

  bool operator==(const FireLayerBias&) const = default;
};
struct ShawLayerBias {
  int64_t left = 32, right = 0;  // clipping distances before and after the query
  int64_t head_dim = 0;
  bool values = true;     // rows are added to values too
  bool per_head = false;  // false: all heads share the rows

  bool operator==(const ShawLayerBias&) const = default;
};
struct TupeLayerBias {
  int64_t positions = 0;  // rows of the table of positions
  int64_t head_dim = 0;
  bool reset = true;      // learned values for the terms of the first token
  bool relative = false;  // TUPE-R: T5's buckets of both directions too
  int64_t buckets = 32, last_distance = 128;

  bool operator==(const TupeLayerBias&) const = default;
};
struct CopeLayerBias {
  int64_t rows = 64;
  int64_t head_dim = 0;
  bool per_head = false;

  bool operator==(const CopeLayerBias&) const = default;
};
// The forgetting gate, of the layer's normalised input.
struct GateLayerBias {
  bool operator==(const GateLayerBias&) const = default;
};

// One alternative per method. A new one needs an overload in each visitor of
// src/plan/layer_bias.cc.
struct LayerBias {
  int64_t heads = 0;  // of the queries
  std::variant<AlibiBias, T5LayerBias, DebertaLayerBias, TransformerXlBias, NezhaLayerBias,
               LearnedAlibiLayerBias, KerpleBias, SandwichBias, FireLayerBias, ShawLayerBias,
               TupeLayerBias, CopeLayerBias, GateLayerBias>
      method = {};

  bool operator==(const LayerBias&) const = default;
};

// The form that Attention takes, for sequences of `length` tokens. kFloat32 reproduces transformers
// where it differs from the formula: Falcon's ALiBi, whose products it rounds to bfloat16. Throws
// Error for heads or parameters that the method refuses, and for a learned bias without its values.
ScoreForm Lower(const LayerBias& bias, int64_t length, AnglePrecision precision);

// "ALiBi, 32 slopes 0.8409 to 0.003906, ..."
std::string Describe(const LayerBias& bias);

// Hashes what the scores depend on (the resulting slopes, or the buckets and terms of a learned
// bias), not how it is written. Throws Error for parameters that the method refuses.
void HashBias(const LayerBias& bias, Hasher& hasher);

}  // namespace ropewalk
