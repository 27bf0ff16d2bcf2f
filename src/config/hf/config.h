// Reading a Hugging Face config.json, in parts: keys and sizes, layers, rotations.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/config/config.h"
#include "src/config/family.h"
#include "src/config/json_object.h"
#include "src/config/rope_dictionary.h"

namespace ropewalk::internal {

// Where configurations of models that read images or sound keep their language model.
inline constexpr const char* kTextParts[] = {"text_config", "llm_config", "language_config",
                                             "thinker_config"};

// Of layer_types, and of rope_parameters that differ by them.
inline constexpr char kFull[] = "full_attention";
inline constexpr char kSliding[] = "sliding_attention";

// A key by its common name and all others that the family has for it, the common one first.
std::vector<std::string> KeyNames(const Family& family, const char* name);

// One configuration, or the text part of a multimodal one, of a known family.
struct HfSource {
  const JsonObject& top;
  const Family& family;
  bool nested;  // a text_config, which transformers fills up with defaults
  bool allow_unknown;

  // By its common name or by any other that the family uses for it. Two names that are both given
  // must agree.
  std::optional<int64_t> Int(const char* name, int64_t low, int64_t high) const;
  std::optional<double> Number(const char* name, double low, double high) const;
  std::vector<std::string> NamesOf(const char* name) const { return KeyNames(family, name); }
};

// The configuration without those of SharedKeys() that the family's code does not read: what that
// changes is said in c.not_honoured, or thrown.
nlohmann::json WithoutUnread(const HfSource& source, ModelConfig& c);

// Throws what every contradiction between two keys says: both, with their values.
[[noreturn]] void Contradiction(const std::string& where, const std::string& a,
                                const std::string& a_value, const std::string& b,
                                const std::string& b_value);

// Consumed, harmless, listed as unknown, or an error: what becomes of each key. Called last, when
// the readers have asked for all they know.
void SortKeys(const JsonObject& top, const Family& family, bool allow_unknown, ModelConfig& c);
bool IsAboutPositions(const std::string& key);
// Known, and without effect on positions.
bool IsHarmless(const std::string& key);
// Of a model that runs: keys that change its numbers and that no reader has asked for.
void RefuseNumberKeys(const HfSource& source, ModelConfig& c);

void ReadHfSizes(const HfSource& source, ModelConfig& c);
// How the layers of a model that the decoder runs are built.
void ReadHfBlock(const HfSource& source, ModelConfig& c);

// By the name that configurations use; absent: not computed here.
std::optional<MlpSpec::Activation> FindActivation(std::string_view name);
// Of a model that is an encoder: fills c.encoder, or c.not_runnable with the reason.
void ReadHfEncoder(const HfSource& source, ModelConfig& c);

// What the configuration says of one layer before its rotation is made.
struct LayerFacts {
  std::string type = "full_attention";
  bool rotates = true;
  bool recurrent = false;
  int64_t window_tokens = 0;
  int64_t chunk_tokens = 0;
};
std::vector<LayerFacts> ReadHfLayers(const HfSource& source, ModelConfig& c);

// What the model has in place of a rotation; empty when it rotates.
struct InsteadOfRotation {
  OtherEncoding other = OtherEncoding::kNone;
  std::string words = {};  // for a note
};
InsteadOfRotation ReadOtherEncoding(const HfSource& source);
// The plan of such a model.
void ReadHfOther(const HfSource& source, const InsteadOfRotation& instead, ModelConfig& c);

// The plan's layers, out of the facts and the rope dictionaries.
void ReadHfPlan(const HfSource& source, ModelConfig& c);

// By layer type or layer index ("0"), "" for all others; null: such layers do not rotate.
using RopeDictionaries = std::map<std::string, std::optional<RopeDictionary>>;
// Whether a key is the number of a layer.
bool IsIndex(const std::string& key);
RopeDictionaries ReadRopeDictionaries(const HfSource& source, const RopeContext& context);

}  // namespace ropewalk::internal
