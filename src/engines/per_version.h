// A setting for each range of versions in which an engine needs another one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ropewalk/engines/settings.h"
#include "src/engines/facts.h"

namespace ropewalk::internal {

// One way to run a model: an engine in some of its versions, and for vLLM the transformers below
// it.
struct Way {
  const char* name;
  EngineKind engine;
  VersionRange versions;
};
inline constexpr Way kTransformers5{"Hugging Face transformers 5", EngineKind::kTransformers,
                                    Row(Fact::kRopeParameters).versions};
inline constexpr Way kTransformers4{"Hugging Face transformers 4",
                                    EngineKind::kTransformers,
                                    {std::nullopt, Row(Fact::kRopeParameters).versions.since}};
inline constexpr Way kVllmOn5{"vLLM (on transformers 5)", EngineKind::kVllm,
                              Row(Fact::kOnTransformers5).versions};
inline constexpr Way kVllmOn4{"vLLM (on transformers 4)", EngineKind::kVllm, {}};
inline constexpr Way kVllm{"vLLM", EngineKind::kVllm, {}};
inline constexpr Way kLlamaCpp{"llama.cpp", EngineKind::kLlamaCpp, {}};

// The setting for one version of an engine.
struct Told {
  std::string setting;  // empty: the engine has none
  std::string note;
  friend bool operator==(const Told&, const Told&) = default;
};
using Has = std::function<bool(Fact)>;

// The result of `tell` for each range of versions with different results, the newest first.
void AddPerVersion(const Way& way, const std::function<Told(const Has&)>& tell,
                   std::vector<EngineSetting>& settings);
// The same in all versions.
EngineSetting InEveryVersion(const Way& way, Told told);

}  // namespace ropewalk::internal
