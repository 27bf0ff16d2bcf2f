// A position scaling as the text to paste into the configuration of serving engines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/versions.h"
#include "ropewalk/plan/method.h"
#include "ropewalk/rotary/spec.h"

namespace ropewalk {

// The setting of one engine, or the reason why it has none.
struct EngineSetting {
  std::string engine;       // "Hugging Face transformers 5"
  bool expressible = true;  // false: `note` gives the reason and `setting` is empty
  std::string setting;      // JSON for config.json, or command-line flags
  std::string note;         // where to put it, and caveats
  // The versions that it is for; `versions` is the text, "before 2026-08-30", where these are fewer
  // than `engine` names, else empty. Without a kind it holds for all engines.
  std::optional<EngineKind> kind = std::nullopt;
  VersionRange range = {};
  std::string versions = {};
  std::string Title() const;  // "llama.cpp before 2026-08-30"
};

// The settings of the chosen engines and versions; all of them where none is chosen.
std::vector<EngineSetting> Narrow(std::vector<EngineSetting> settings,
                                  const std::vector<EngineChoice>& choices);

struct SettingsTarget {
  int64_t trained_length = 0;  // tokens, before extension
  int64_t target_length = 0;   // tokens that the engine has to serve
  double base = 10000;         // rope_theta
  int64_t rotary_dim = 0;
  bool base_changed = false;  // the model's files have another base; the setting includes `base`
  // rope_theta of sliding-window layers that keep plain RoPE with any setting (Gemma 3).
  std::optional<double> local_base = std::nullopt;
  bool scales_local = false;  // the setting is for those layers too
  // Keys of config.json go into its part; elsewhere engines take them and do nothing.
  SettingPlace place = {};
};

// Hugging Face (two schemas), vLLM and llama.cpp, in this order; one per range of versions with
// different settings, the newest first. Throws Error for a scaling that Resolve
// (rotary/frequencies.h) refuses.
std::vector<EngineSetting> SettingsFor(const Scaling& scaling, const SettingsTarget& target);

// The same for a method with distance map or temperature. Of these the engines have only dual chunk
// attention (vLLM before 0.11, for Qwen) and an approximation of Self-Extend (llama.cpp).
std::vector<EngineSetting> SettingsFor(const PositionMethod& method, double factor,
                                       const SettingsTarget& target);

// The two schemas of a Hugging Face config.json: rope_theta and rope_scaling (transformers 4), or
// rope_parameters (transformers 5).
enum class ConfigSchema : uint8_t { kRopeScaling, kRopeParameters };
// The keys of config.json for a scaling, as a JSON object without a text part around it; as
// SettingsFor has it for that version of transformers. Throws Error(kUnsupported) with the reason
// where transformers lacks the scaling.
std::string HuggingFaceSetting(ConfigSchema schema, const Scaling& scaling,
                               const SettingsTarget& target);

// The rotation of all rotating layers of a plan, except those with a local base (below); one
// setting can express one rotation only. Throws Error(kUnsupported) where there is none or more
// than one.
const RotarySpec& OnlyRotation(const PositionPlan& plan);

// SettingsTarget::local_base of a plan: the base of sliding-window layers if it differs from the
// others'.
std::optional<double> LocalBase(const PositionPlan& plan);

// Of a model of the family ropewalk (docs/model-format.md), which those engines do not read: keys of
// `positions` in its config.json, and the command that puts them there.
inline constexpr char kPositionsFamily[] = "ropewalk";
inline constexpr char kPositionsSetting[] = "ropewalk, in config.json";  // EngineSetting::engine
std::vector<EngineSetting> SettingsInPositions(const PositionMethod& method, double factor,
                                               const SettingsTarget& target);

// For a scaling that is in the model's files already: only the length is set, in the part of
// config.json that has it, and nothing ("{}") where the scaling counts from that length.
std::vector<EngineSetting> SettingsAsShipped(int64_t target_length, const SettingPlace& place = {});

// For a rope dictionary given by the user (JSON, either schema): it is repeated as it is, and
// llama.cpp gets the flags of the resulting scaling. `factor` is for a YaRN dictionary without one.
// `target` is that of the model without the dictionary.
std::vector<EngineSetting> SettingsForDictionary(const std::string& dictionary, double factor,
                                                 SettingsTarget target);

}  // namespace ropewalk
