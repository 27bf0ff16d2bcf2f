// What `extend` does with any config.json that is read: each setting that Hugging Face has goes in;
// what else the file says stays, in its order; a second time changes nothing; and what is read back
// is the plan that was asked for, or a refusal.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "ropewalk/base/error.h"
#include "ropewalk/convert/convert.h"
#include "ropewalk/engines/settings.h"
#include "src/config/hf/config.h"
#include "src/config/text.h"
#include "src/engines/gguf_rope.h"
#include "src/engines/hf_config.h"

namespace {

namespace internal = ropewalk::internal;
using Json = nlohmann::ordered_json;

constexpr char kFile[] = "config.json";
constexpr int64_t kServed = 16384;

bool SaysPositions(const std::string& key) {
  return key.starts_with("rope_") || key.ends_with("max_position_embeddings") ||
         key == "partial_rotary_factor";
}

Json WithoutPositions(const Json& all) {
  Json kept = Json::object();
  for (const auto& [key, value] : all.items()) {
    if (SaysPositions(key)) continue;
    const bool part = std::find(std::begin(internal::kTextParts), std::end(internal::kTextParts),
                                key) != std::end(internal::kTextParts);
    kept[key] = part && value.is_object() ? WithoutPositions(value) : value;
  }
  return kept;
}

void ExpectTheRestKept(const std::string& before, const std::string& after) {
  if (WithoutPositions(Json::parse(before)).dump() != WithoutPositions(Json::parse(after)).dump()) {
    std::abort();
  }
}

void PutIn(const std::string& text, const ropewalk::PositionPlan& from,
           const ropewalk::Scaling& scaling) {
  const ropewalk::PositionPlan plan = WithScaling(from, scaling, from.trained_length);
  const ropewalk::RotarySpec& spec = ropewalk::OnlyRotation(plan);
  for (const char* architecture : {"llama", "phi3"}) {
    try {
      internal::GgufRopeOf(architecture, plan, kServed);
    } catch (const ropewalk::Error&) {
    }
  }
  const bool fresh = internal::HasRopeParameters(Json::parse(text));
  ropewalk::SettingsTarget target{plan.trained_length, kServed, spec.base, spec.rotary_dim};
  target.place.rope_keys = plan.place.rope_keys;
  for (const ropewalk::EngineSetting& s : ropewalk::SettingsFor(scaling, target)) {
    const bool mine =
        s.engine == (fresh ? "Hugging Face transformers 5" : "Hugging Face transformers 4");
    if (!mine || !s.expressible) continue;
    const Json setting = Json::parse(s.setting);
    const std::string once = internal::WithRopeSetting(text, kFile, setting, plan.trained_length);
    ExpectTheRestKept(text, once);
    if (internal::WithRopeSetting(once, kFile, setting, plan.trained_length) != once) std::abort();
    const ropewalk::ModelConfig read = internal::ParseConfigText(once, kFile, true);
    ropewalk::ProvePlan(plan, plan, read.plan, kServed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.find('{') == std::string::npos) return 0;
  try {
    const ropewalk::ModelConfig config = internal::ParseConfigText(text, kFile, true);
    if (!Json::accept(text)) return 0;  // Megatron's flags
    for (const ropewalk::Scaling& scaling : {ropewalk::Scaling(ropewalk::LinearScaling{4}),
                                             ropewalk::Scaling(ropewalk::YarnScaling{4}),
                                             ropewalk::Scaling(ropewalk::Llama3Scaling{4})}) {
      try {
        PutIn(text, config.plan, scaling);
      } catch (const ropewalk::Error&) {
      }
    }
  } catch (const ropewalk::Error&) {
  }
  return 0;
}
