// Settings for methods with maps or temperatures, which few engines have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ropewalk/engines/settings.h"
#include "ropewalk/plan/method.h"
#include "src/engines/per_version.h"
#include "src/engines/settings_recipes.h"

namespace ropewalk {
namespace {

using internal::Fact;
using internal::Has;
using internal::Told;
using Json = nlohmann::ordered_json;

// What an engine needs for the method.
std::string Missing(const PositionMethod& method, double factor, const SettingsTarget& t) {
  std::vector<std::string> words;
  if (const auto map = method.MapFor(factor, t.trained_length)) words.push_back(Describe(*map));
  if (const auto temperature = method.TemperatureFor(t.trained_length)) {
    words.push_back(DescribeMethodTemperature(*temperature));
  }
  return fmt::format("{}", fmt::join(words, " and no "));
}

Told VllmDualChunk(const DualChunk& m, const SettingsTarget& t, const Has& has) {
  if (!has(Fact::kDualChunk)) {
    return {"", fmt::format("Only vLLM {} {}.", Versions(Fact::kDualChunk),
                            Row(Fact::kDualChunk).text)};
  }
  const Json overrides = {{"max_position_embeddings", t.target_length},
                          {"dual_chunk_attention_config",
                           {{"chunk_size", m.limit}, {"local_size", m.limit - m.chunk}}}};
  std::string note =
      "For Qwen2 and Qwen3 models alone, with VLLM_ATTENTION_BACKEND=DUAL_CHUNK_FLASH_ATTN. Append "
      "to the command: vllm serve MODEL.";
  if (m.chunk % 16 != 0) {
    note += fmt::format(
        " Its kernel wants a chunk ({}) that is a multiple of the cache's block size, 16 as a "
        "rule.",
        m.chunk);
  }
  return {fmt::format("--max-model-len {} --hf-overrides '{}'", t.target_length, overrides.dump()),
          note};
}

// The patch multiplies queries by log-n too.
std::string ReRopePatch(const Rerope& m, const SettingsTarget& t) {
  return fmt::format(" vLLM {} {}: VLLM_USE_REROPE=1 REROPE_WINDOW={} TRAINING_LENGTH={}.",
                     Versions(Fact::kReRopePatch), Row(Fact::kReRopePatch).text, m.window,
                     t.trained_length);
}

Told LlamaCppSelfExtend(const SelfExtend& m, const SettingsTarget& t, const Has& has) {
  const int64_t window = (m.window + m.group - 1) / m.group * m.group;
  return {fmt::format("-c {} --grp-attn-n {} --grp-attn-w {}", t.target_length, m.group, window),
          (has(Fact::kSelfExtendInServer)
               ? "Append to the command: llama-server -m MODEL.gguf."
               : fmt::format("Not for llama-server, which had these flags {} alone.",
                             Versions(Fact::kSelfExtendInServer))) +
              " It moves blocks of its cache as it fills, so distances come near those that were "
              "measured here and are not the same."};
}

// Flags that approximate attention sinks.
std::string NearSinks(const AttentionSinks& m) {
  return fmt::format(
      " -c {} --keep {} --context-shift comes near: when the cache is full it drops half of what "
      "lies between, not one token at a time.",
      m.sinks + m.window, m.sinks);
}

}  // namespace

std::vector<EngineSetting> SettingsFor(const PositionMethod& method, double factor,
                                       const SettingsTarget& target) {
  const Scaling scaling = method.ScalingFor(factor);
  if (method.only_scales()) {
    SettingsTarget all = target;
    all.scales_local = method.all_layers();
    return SettingsFor(scaling, all);
  }
  const auto map = method.MapFor(factor, target.trained_length);
  const std::string missing = Missing(method, factor, target);
  // Nothing but the map: no other frequencies, no temperature.
  const bool alone = map && std::holds_alternative<NoScaling>(scaling) &&
                     !method.TemperatureFor(target.trained_length);
  const std::string lacks = fmt::format("It has no {}.", missing);
  std::string hf = lacks, vllm = lacks, llama = lacks;
  if (const auto t = method.TemperatureFor(target.trained_length);
      t && t->kind == QueryTemperature::Kind::kLogN) {
    hf += " Qwen 1's own code has log-n (use_logn_attn) and no other model's.";
  }
  const bool scaled = !std::holds_alternative<NoScaling>(scaling);
  if (map && std::holds_alternative<Rerope>(*map) && !scaled) {
    vllm += ReRopePatch(std::get<Rerope>(*map), target);
  }
  if (map && std::holds_alternative<AttentionSinks>(*map)) {
    llama += NearSinks(std::get<AttentionSinks>(*map));
  }
  const auto tell_vllm = [&](const Has& has) -> Told {
    if (!alone || !std::holds_alternative<DualChunk>(*map)) return {"", vllm};
    return VllmDualChunk(std::get<DualChunk>(*map), target, has);
  };
  const auto tell_llama = [&](const Has& has) -> Told {
    if (!alone || !std::holds_alternative<SelfExtend>(*map)) return {"", llama};
    if (target.place.kept_in_gguf) return {"", internal::kKeptInGguf};
    return LlamaCppSelfExtend(std::get<SelfExtend>(*map), target, has);
  };
  std::vector<EngineSetting> out = {internal::InEveryVersion(internal::kTransformers5, {"", hf}),
                                    internal::InEveryVersion(internal::kTransformers4, {"", hf})};
  internal::AddPerVersion(internal::kVllmOn5, tell_vllm, out);
  internal::AddPerVersion(internal::kVllmOn4, tell_vllm, out);
  internal::AddPerVersion(internal::kLlamaCpp, tell_llama, out);
  return out;
}

}  // namespace ropewalk
