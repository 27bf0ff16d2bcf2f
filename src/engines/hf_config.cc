#include "src/engines/hf_config.h"

#include <fmt/format.h>

#include "ropewalk/base/error.h"
#include "src/config/family.h"
#include "src/config/hf/config.h"
#include "src/io/json.h"

namespace ropewalk::internal {
namespace {

using Json = nlohmann::ordered_json;

bool IsPerLayerType(const Json& rope_parameters) {
  for (const auto& [key, value] : rope_parameters.items()) {
    if (value.is_object()) return true;
  }
  return false;
}

// Where a configuration has its text part; null: it is flat.
const char* TextPartOf(const Json& config) {
  for (const char* part : kTextParts) {
    const auto it = config.find(part);
    if (it != config.end() && it->is_object() && !it->empty()) return part;
  }
  return nullptr;
}

// The names that a family has for the base.
std::vector<std::string> BaseKeys(const Family* family) {
  if (family == nullptr) return {"rope_theta"};
  return KeyNames(*family, "rope_theta");
}

}  // namespace

bool HasRopeParameters(const Json& config) {
  if (const char* part = TextPartOf(config)) return HasRopeParameters(config[part]);
  const auto it = config.find("rope_parameters");
  return it != config.end() && it->is_object();
}

std::string WithRopeSetting(const std::string& config_text, const std::string& file,
                            const Json& setting, int64_t trained_length) {
  Json config = ParseOrderedObject(config_text, file);
  if (const char* part = TextPartOf(config)) {
    config[part] = Json::parse(
        WithRopeSetting(config[part].dump(), file + ": " + part, setting, trained_length));
    // Outside they would contradict it.
    for (const char* key : {"rope_scaling", "rope_parameters", "rope_theta",
                            "max_position_embeddings", "original_max_position_embeddings"}) {
      config.erase(key);
    }
    return config.dump(2) + "\n";
  }
  const auto type = config.find("model_type");
  const Family* family = type != config.end() && type->is_string()
                             ? FindFamily(type->get_ref<const std::string&>())
                             : nullptr;
  if (family != nullptr && !family->Reads("rope_scaling")) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: transformers reads no position scaling of a {} model: its code "
                            "has sinusoids of its own, so that the setting would change nothing",
                            file, family->name));
  }
  const bool fresh = HasRopeParameters(config);
  Json rope = setting;
  if (fresh) {
    const Json& old = config["rope_parameters"];
    Json& all = rope["rope_parameters"];
    const bool local_base = IsPerLayerType(all);  // the setting leaves sliding layers alone
    if (IsPerLayerType(old)) {
      if (!local_base) {
        throw Error(ErrorCode::kUnsupported,
                    file +
                        ": rope_parameters has a dictionary for each layer type; which of them to "
                        "extend is not for a command to guess");
      }
      all["sliding_attention"] = old["sliding_attention"];
    }
    for (const std::string& key : BaseKeys(family)) config.erase(key);  // said in both schemas
    config.erase("rope_scaling");
    rope.erase("rope_scaling");  // null; there is none to replace any more
  } else if (rope.contains("rope_theta")) {
    // transformers 4 reads the base of a GPT-NeoX by its own name alone, and writes both.
    const Json base = rope["rope_theta"];
    for (const std::string& key : BaseKeys(family)) rope[key] = base;
  }
  config.erase("original_max_position_embeddings");  // the setting's dictionary names it
  if (!rope.contains("max_position_embeddings")) rope["max_position_embeddings"] = trained_length;
  for (const auto& [key, value] : rope.items()) config[key] = value;
  return config.dump(2) + "\n";
}

}  // namespace ropewalk::internal
