// One Hugging Face rope dictionary, old form (`rope_scaling`) or new (`rope_parameters`).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ropewalk/config/config.h"
#include "src/config/json_object.h"

namespace ropewalk::internal {

struct RopeDictionary {
  std::string type = "default";  // as the dictionary calls it: "su", "mrope", "gptj", ...
  Scaling scaling = NoScaling{};
  std::optional<double> theta;          // rope_theta inside
  std::optional<double> partial;        // partial_rotary_factor inside
  std::optional<int64_t> original;      // original_max_position_embeddings inside
  std::optional<int64_t> max_position;  // max_position_embeddings inside
  std::vector<int64_t> sections;        // mrope_section or xdrope_section: pairs of each axis
  std::optional<bool> interleaved;      // mrope_interleaved
  std::optional<double> query_beta;     // llama_4_scaling_beta: the queries' temperature
  std::string others;                   // SettingPlace::rope_keys
  std::vector<std::string> notes;       // choices made
  std::vector<std::string> ignored;     // unknown keys that were let pass, in sentences
};

// What a dictionary may rely on from around it.
struct RopeContext {
  bool type_required = true;        // rope_parameters without a type is "default"
  std::optional<int64_t> original;  // original_max_position_embeddings at top level
  int64_t max_position = 0;         // max_position_embeddings
  bool allow_unknown = false;
  std::string further_types = {};  // that the caller reads itself, for messages: ", hope"
};

// What two dictionaries that stand for the same differ in, by key: "factor is 4 and 8"; empty where
// they say the same. What the second alone says (rope_theta, which older files have beside the
// dictionary) is no difference.
std::string Difference(const RopeDictionary& old, const RopeDictionary& now);

// Whether a dictionary may have this rope_type.
bool IsRopeType(std::string_view name);
// Whether a dictionary of some type may have this key.
bool IsRopeKey(std::string_view name);

RopeDictionary ParseRope(const JsonObject& rope, const RopeContext& context);

// int(head_dim * factor), as transformers computes it; Error unless even and in 2 .. head_dim.
int64_t RotaryDim(int64_t head_dim, double partial_rotary_factor, const std::string& where);

}  // namespace ropewalk::internal
