// Settings for methods that are more than frequencies: few engines can say any of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ropewalk/engines/settings.h"
#include "ropewalk/plan/method.h"

namespace ropewalk {
namespace {

using Json = nlohmann::ordered_json;

// What the engine would have to have.
std::string Missing(const PositionMethod& method, double factor, const SettingsTarget& t) {
  std::vector<std::string> words;
  if (const auto map = method.MapFor(factor, t.trained_length)) words.push_back(Describe(*map));
  if (const auto temperature = method.TemperatureFor(t.trained_length)) {
    words.push_back(fmt::format("log-n(length {})", temperature->period));
  }
  return fmt::format("{}", fmt::join(words, " and no "));
}

EngineSetting VllmDualChunk(const std::string& engine, const DualChunk& m,
                            const SettingsTarget& t) {
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
  return {engine, true,
          fmt::format("--max-model-len {} --hf-overrides '{}'", t.target_length, overrides.dump()),
          note};
}

EngineSetting LlamaCppSelfExtend(const SelfExtend& m, const SettingsTarget& t) {
  const int64_t window = (m.window + m.group - 1) / m.group * m.group;
  return {"llama.cpp", true,
          fmt::format("-c {} --grp-attn-n {} --grp-attn-w {}", t.target_length, m.group, window),
          "Not for llama-server, which dropped these flags in October 2024 (pull request 9860). It "
          "moves blocks of its cache as it fills, so distances come near those that were measured "
          "here and are not the same."};
}

EngineSetting LlamaCpp(const std::optional<DistanceMap>& map, bool alone, const SettingsTarget& t,
                       const std::string& missing) {
  if (alone && std::holds_alternative<SelfExtend>(*map)) {
    return LlamaCppSelfExtend(std::get<SelfExtend>(*map), t);
  }
  std::string note = fmt::format("It has no {}.", missing);
  if (map && std::holds_alternative<AttentionSinks>(*map)) {
    const auto& m = std::get<AttentionSinks>(*map);
    note += fmt::format(
        " -c {} --keep {} --context-shift comes near: when the cache is full it drops half of what "
        "lies between, not one token at a time.",
        m.sinks + m.window, m.sinks);
  }
  return {"llama.cpp", false, "", note};
}

}  // namespace

std::vector<EngineSetting> SettingsFor(const PositionMethod& method, double factor,
                                       const SettingsTarget& target) {
  const Scaling scaling = method.ScalingFor(factor);
  if (method.only_scales()) return SettingsFor(scaling, target);
  const auto map = method.MapFor(factor, target.trained_length);
  const std::string missing = Missing(method, factor, target);
  // Nothing but the map: no other frequencies, no temperature.
  const bool alone = map && std::holds_alternative<NoScaling>(scaling) &&
                     !method.TemperatureFor(target.trained_length);
  std::string hf = fmt::format("It has no {}.", missing);
  if (method.TemperatureFor(target.trained_length)) {
    hf += " Qwen 1's own code has log-n (use_logn_attn) and no other model's.";
  }
  std::vector<EngineSetting> out = {{"Hugging Face transformers 5", false, "", hf},
                                    {"Hugging Face transformers 4", false, "", hf}};
  for (const char* engine : {"vLLM (on transformers 5)", "vLLM (on transformers 4)"}) {
    if (alone && std::holds_alternative<DualChunk>(*map)) {
      out.push_back(VllmDualChunk(engine, std::get<DualChunk>(*map), target));
    } else {
      out.push_back({engine, false, "", fmt::format("It has no {}.", missing)});
    }
  }
  out.push_back(LlamaCpp(map, alone, target, missing));
  return out;
}

}  // namespace ropewalk
