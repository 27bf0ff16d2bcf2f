// What is left to set of a model that ships its own scaling.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/engines/settings.h"
#include "src/engines/per_version.h"
#include "src/engines/settings_recipes.h"
#include "src/engines/settings_text.h"

namespace ropewalk {
namespace {

using internal::Join;
using internal::Recipe;
using internal::Told;
using Json = nlohmann::ordered_json;

// max_position_embeddings for a scaling of the file's own, which its ratio to the original length
// may be the factor of (YaRN) or the attention factor (LongRoPE), and dynamic NTK counts from it.
// Absent: as it is in the file.
std::optional<int64_t> RaisedAsShipped(int64_t target, const SettingPlace& place) {
  if (place.stated_length > 0 && target <= place.stated_length) return std::nullopt;
  if (place.shipped == "longrope" || place.shipped == "dynamic") return std::nullopt;
  if (place.shipped != "yarn") return target;
  if (place.configured_length <= place.stated_length) return std::nullopt;
  return place.configured_length;
}

}  // namespace

std::vector<EngineSetting> SettingsAsShipped(int64_t target_length, const SettingPlace& place) {
  const std::string said = "The model's files say it already";
  const std::optional<int64_t> raised = RaisedAsShipped(target_length, place);
  const bool longer = place.stated_length > 0 && target_length > place.stated_length;
  const Json keys = raised ? Json{{"max_position_embeddings", *raised}} : Json::object();
  const std::string length_alone = said + "; only the length is set.";
  Told hf{internal::InFile(keys, place).dump(2), length_alone};
  if (!raised) hf = {"{}", said + (longer ? "; leave max_position_embeddings as it is." : ".")};
  Told vllm{fmt::format("--max-model-len {}", target_length), length_alone};
  // Its table of angles ends at max_position_embeddings, with YaRN at the factor's length.
  const bool ends = place.shipped == "longrope" || place.shipped == "yarn";
  if (ends && target_length > std::max(place.stated_length, place.configured_length)) {
    vllm = {"",
            fmt::format("Its table of angles ends at the length that the model's files say, {}, "
                        "and with a longer one the scaling is another.",
                        std::max(place.stated_length, place.configured_length))};
  } else if (raised && place.shipped != "yarn") {
    vllm.setting +=
        fmt::format(" --hf-overrides '{}'", internal::Placed(keys, place.text_part).dump());
  }
  Told llama{fmt::format("-c {}", target_length), length_alone};
  if (longer) {
    llama.setting += internal::ContextLength(target_length);
    llama.note = Join(llama.note, internal::kArchitecture);
  }
  if (place.shipped == "dynamic") {
    const Recipe r =
        internal::RecipeOf(DynamicNtkScaling{1},
                           {.trained_length = place.stated_length, .target_length = target_length});
    hf = {"{}", Join(said + ".", r.hf_note)};
    vllm.note = Join(vllm.note, r.vllm_note);
    llama = {"", r.llama_note};
  }
  return {internal::InEveryVersion(internal::kTransformers5, hf),
          internal::InEveryVersion(internal::kTransformers4, hf),
          internal::InEveryVersion(internal::kVllm, vllm),
          internal::InEveryVersion(internal::kLlamaCpp, llama)};
}

}  // namespace ropewalk
