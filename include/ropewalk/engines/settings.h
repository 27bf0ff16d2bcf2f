// A position scaling as the text to paste into the engines that people serve models with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/versions.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// One engine's way to say it, or why it has none.
struct EngineSetting {
  std::string engine;       // "Hugging Face transformers 5"
  bool expressible = true;  // false: `note` gives the reason and `setting` is empty
  std::string setting;      // JSON for config.json, or command-line flags
  std::string note;         // where it goes and what to watch
  // For which of its versions, and in words where these are fewer than `engine` names: "before
  // 2026-08-30", else empty. Without a kind it is said of all engines.
  std::optional<EngineKind> kind = std::nullopt;
  VersionRange range = {};
  std::string versions = {};
  std::string Title() const;  // "llama.cpp before 2026-08-30"
};

// Those for one of the chosen engines and versions; all of them where none is chosen.
std::vector<EngineSetting> Narrow(std::vector<EngineSetting> settings,
                                  const std::vector<EngineChoice>& choices);

struct SettingsTarget {
  int64_t trained_length = 0;  // tokens, before extension
  int64_t target_length = 0;   // tokens that the engine shall serve
  double base = 10000;         // rope_theta
  int64_t rotary_dim = 0;
  bool base_changed = false;  // the model's files have another base: the setting says this one
  // rope_theta of sliding layers that keep plain RoPE whatever the setting is (Gemma 3).
  std::optional<double> local_base = std::nullopt;
};

// Hugging Face (two forms), vLLM and llama.cpp, in this order; one for each range of versions in
// which it differs, the newest first. Throws Error for a scaling that does not resolve (see Resolve
// in rotary/frequencies.h).
std::vector<EngineSetting> SettingsFor(const Scaling& scaling, const SettingsTarget& target);

// The same for a method by its words. A distance map or a temperature is what attention does with
// positions, and no engine but vLLM before 0.11 (dual chunk, for Qwen) and llama.cpp (Self-Extend,
// nearly) has any.
std::vector<EngineSetting> SettingsFor(const PositionMethod& method, double factor,
                                       const SettingsTarget& target);

// The two schemas of a Hugging Face config.json: rope_theta and rope_scaling (transformers 4), or
// rope_parameters (transformers 5).
enum class ConfigSchema : uint8_t { kRopeScaling, kRopeParameters };
// The keys of config.json for a scaling, as a JSON object: what SettingsFor says of that version of
// transformers. Error(kUnsupported) with the reason where it cannot say the scaling.
std::string HuggingFaceSetting(ConfigSchema schema, const Scaling& scaling,
                               const SettingsTarget& target);

// The rotation that all rotating layers of a plan share, which is all that one setting can say;
// layers with a local base (below) aside. Error(kUnsupported) where there is none or more than one.
const RotarySpec& OnlyRotation(const PositionPlan& plan);

// SettingsTarget::local_base of a plan: the base of sliding layers where the others have another.
std::optional<double> LocalBase(const PositionPlan& plan);

// The scaling is in the model's files already: nothing but the length is set.
std::vector<EngineSetting> SettingsAsShipped(int64_t target_length);

// For a rope dictionary as a user gave it (JSON, either schema): it is repeated, and llama.cpp has
// the flags of the scaling that it comes to. `factor` completes a YaRN dictionary without one.
// `target` is of the model without it.
std::vector<EngineSetting> SettingsForDictionary(const std::string& dictionary, double factor,
                                                 SettingsTarget target);

}  // namespace ropewalk
