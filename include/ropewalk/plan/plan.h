// The position encoding of every layer of a model, as data. Everything that computes with positions
// reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/plan/absolute.h"
#include "ropewalk/plan/layer_bias.h"
#include "ropewalk/plan/query_key_encoding.h"
#include "ropewalk/relative/distance_map.h"
#include "ropewalk/rotary/frequencies.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// A factor of each query's scores that depends on its position n.
struct QueryTemperature {
  enum class Kind : uint8_t {
    // 1 + beta ln(1 + floor((n + offset) / period)), and 1 where n + offset is below 0. Llama 4:
    // beta 0.1, period 8192, offset 1, on its NoPE layers; Ministral 3: offset 0, period the
    // original length. They differ by one position.
    kStepLog,
    // max(1, ln(n + 1) / ln(period)): log-n attention (Su 2021, kexue.fm/archives/8823; Qwen 1).
    kLogN,
    // (1 + beta ln(period))^2 at every position: as if cos and sin were multiplied by
    // 1 + beta ln(period), of heads that rotate whole. STRING's and LaMPE's code: beta 0.1, period 2.
    kMscale
  };
  Kind kind = Kind::kStepLog;
  double beta = 0.1;
  int64_t period = 8192;  // tokens, at least 1, of kLogN 2; kMscale: a factor of the length
  int64_t offset = 0;

  bool operator==(const QueryTemperature&) const = default;
};
// Throws Error for a smaller period.
double Temperature(const QueryTemperature& temperature, int64_t position);

// What a layer does with positions besides its rotation and its bias; independent of the length of
// a sequence. A new fact is a member here and a row in src/plan/facts.h, from which hash,
// description and comparison follow.
struct LayerFacts {
  int64_t window_tokens = 0;  // sliding window: attends to the last n tokens; 0: all
  int64_t chunk_tokens = 0;   // chunked attention (Llama 4): only within the own chunk; 0: all
  std::optional<QueryTemperature> temperature = {};
  std::optional<DistanceMap> map = {};  // of the distances that are rotated by; absent: none
  // Linear attention or a state-space layer: it rotates nothing and caches no keys.
  bool recurrent = false;
  // Values are rotated as keys are, without xPos, and what attention finds is rotated back by the
  // query's position: o_i = R_i^T sum of a_ij R_j v_j (Su 2024, "VO-RoPE").
  bool rotates_values = false;
  // In the place of a rotation.
  std::optional<QueryKeyEncoding> encoding = {};

  bool operator==(const LayerFacts&) const = default;
};
// "sliding window of 512 tokens, distances mapped by rerope(window 256)", empty where there is none.
std::string Describe(const LayerFacts& facts);

struct LayerPlan : LayerFacts {
  std::optional<RotarySpec> rotation = {};  // absent, and neither bias nor encoding: NoPE
  std::optional<LayerBias> bias = {};       // added to the scores

  bool operator==(const LayerPlan&) const = default;
};

// A learned vector for each position, added to the token's embedding before the first layer.
struct LearnedPositions {
  int64_t positions = 0;  // 0 to positions - 1 have a vector, others none
  int64_t first_row = 0;  // of position 0 in the table (OPT: 2)

  bool operator==(const LearnedPositions&) const = default;
};

// What a model has in place of a rotation, according to its file. kNoPositions: nothing (NoPE).
// kOther: an encoding that this library does not compute.
enum class OtherEncoding : uint8_t {
  kNone,  // it rotates, or the file does not say
  kNoPositions,
  kLearned,
  kAlibi,
  kT5,
  kDeberta,
  kTransformerXl,
  kShaw,
  kOther
};

// What a setting for engines has to know of the config.json that it goes into.
struct SettingPlace {
  std::string text_part;   // "text_config": the part with the keys of positions; "": the top
  bool flat_file = false;  // the file has them at its top, engines in text_part once it is loaded
  // Keys of its rope dictionary that are neither scaling nor base, as JSON: {"mrope_section": ..}; ""
  // for none. A setting repeats them.
  std::string rope_keys;
  std::string shipped = {};      // the file's own scaling, by the name of its method; "" for none
  bool kept_in_gguf = false;     // flags of llama.cpp do not take it out of a GGUF file
  bool original_inside = false;  // its original_max_position_embeddings is in the dictionary alone
  // Those of PositionPlan, beside such a scaling; of a GGUF file both are its context_length.
  int64_t stated_length = 0, configured_length = 0;

  bool operator==(const SettingPlace&) const = default;
};

struct PositionPlan {
  std::vector<LayerPlan> layers;
  std::optional<LearnedPositions> learned = {};
  std::optional<AbsoluteEncoding> absolute = {};
  std::optional<RecurrentLayer> recurrent_layer = {};  // behind `learned` or `absolute`
  OtherEncoding other = OtherEncoding::kNone;
  int64_t trained_length = 0;       // tokens, before any extension
  int64_t configured_length = 0;    // tokens that the file declares, after its own extension
  int64_t stated_length = 0;        // max_position_embeddings of config.json; 0: absent
  bool has_dual_chunk_key = false;  // the file has dual_chunk_attention_config (not in this plan)
  // Attention multiplies scores by the square of YaRN's factor of mscale_all_dim (DeepSeek).
  bool yarn_scales_scores = false;
  // Sliding layers are never scaled, whatever their base (OLMo 3).
  bool local_unscaled = false;
  SettingPlace place;              // of a setting that replaces the one of config.json
  std::vector<std::string> notes;  // for the user: "weights permuted at load", ...

  bool operator==(const PositionPlan&) const = default;
};

// The number of positions that have a vector or row where a table, digits or a path has them;
// INT64_MAX: positions have no end.
int64_t PositionsOf(const PositionPlan& plan);
// What a position from PositionsOf on lacks: "no learned vector: there are learned vectors for
// 64 positions, 0 to 63".
std::string DescribeEnd(const PositionPlan& plan);

// The plan with every rotation's scaling replaced. trained_length > 0 replaces the plan's. Throws
// Error where there is a scaling but no rotation that could take it.
PositionPlan WithScaling(const PositionPlan& plan, const Scaling& scaling,
                         int64_t trained_length = 0);

struct ResolvedLayer : LayerFacts {
  int rotation = -1;  // index into ResolvedPlan::rotations, -1: none
  int bias = -1;      // index into ResolvedPlan::biases, -1: none

  bool operator==(const ResolvedLayer&) const = default;
};
struct ResolvedRotation {
  RotarySpec spec;
  Frequencies frequencies;

  bool operator==(const ResolvedRotation&) const = default;
};
struct ResolvedPlan {
  int64_t length = 0;                       // declared final length of the sequence, tokens
  std::vector<ResolvedRotation> rotations;  // distinct ones
  std::vector<LayerBias> biases;            // distinct ones
  std::vector<ResolvedLayer> layers;
  std::optional<LearnedPositions> learned = {};
  std::optional<AbsoluteEncoding> absolute = {};
  std::optional<RecurrentLayer> recurrent_layer = {};
  std::string hash;  // of float32 frequencies, amplitudes, multipliers, windows, maps and biases,
                     // layer by layer; not of names or layouts
};
// Throws what Resolve of a rotation throws (rotary/frequencies.h).
ResolvedPlan Resolve(const PositionPlan& plan, int64_t length);

// ResolvedPlan::hash, of what the plan holds now.
std::string HashPlan(const ResolvedPlan& plan);

// "layer 3", "layers 0-31", "layers 0, 2, 4, ... 22" for ascending numbers.
std::string LayerNames(const std::vector<int64_t>& layers);

// For people: what each group of equal layers computes, and the hash.
std::string Describe(const PositionPlan& plan, int64_t length);

}  // namespace ropewalk
