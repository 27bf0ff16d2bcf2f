// Keys that the family's code does not read, and keys that the decoder does not compute.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/hf/config.h"
#include "src/config/number_keys.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

bool AllAre(const json& list, const json& value) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [&](const json& item) { return item == value; });
}

// {"rope_type": "default", ...}, or the pairs that GPT-J has anyway: as without it.
bool ScalesNothing(const json& rope, const Family& family) {
  if (!rope.is_object()) return false;
  const json type = rope.contains("rope_type") ? rope["rope_type"] : rope.value("type", json());
  const bool none = type.is_null() && !rope.contains("factor");
  return (none || type == "default" || type == "gptj") &&
         rope.value("rope_theta", json(family.default_theta)) == family.default_theta;
}

// Whether the family's own name for the same thing is there: a reader compares the two.
bool SaidUnderItsName(const HfSource& source, const std::string& key) {
  const std::vector<std::string> names = source.NamesOf(key.c_str());
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name != key && source.top.Has(name); });
}

// A value with which nothing would be different if the family read the key.
bool SaysNothing(const HfSource& source, const std::string& key, const json& value) {
  const json& top = source.top.value();
  const auto window = top.find("sliding_window");
  const bool slides = source.family.Takes("sliding_window") &&
                      (window == top.end() ? source.family.default_window > 0 : !window->is_null());
  if (key == "layer_types") return AllAre(value, "full_attention");
  if (key == "no_rope_layers") return AllAre(value, 1);
  if (key == "sliding_window") {
    return value == 0 || top.value("use_sliding_window", json()) == false;
  }
  if (key == "use_sliding_window") return !slides || value == true;
  if (key == "max_window_layers") return !slides;
  if (key == "partial_rotary_factor") return value == source.family.default_partial;
  if (key == "rope_theta") return value == source.family.default_theta;
  if (key == "rope_scaling" || key == "rope_parameters") {
    return ScalesNothing(value, source.family);
  }
  if (key == "head_dim") {
    const auto hidden = source.Int("hidden_size", 1, kMaxDim);
    const auto heads = source.Int("num_attention_heads", 1, kMaxDim);
    return hidden && heads && value.is_number() && value.get<double>() * double(*heads) == *hidden;
  }
  return false;
}

// Lists hold one number per part of a layer.
bool IsNeutralValue(const NumberKey& key, const json& value, const ModelConfig& c) {
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const json& item) { return IsNeutralValue(key, item, c); });
  }
  if (value.is_boolean()) return IsNeutral(key, value.get<bool>() ? 1 : 0, c);
  return value.is_number() && IsNeutral(key, value.get<double>(), c);
}

}  // namespace

json WithoutUnread(const HfSource& source, ModelConfig& c) {
  const Family& family = source.family;
  json kept = source.top.value();
  for (const SharedKey& shared : SharedKeys()) {
    const auto it = source.top.value().find(shared.key);
    if (it == source.top.value().end() || it->is_null() || family.Reads(shared.key) ||
        (shared.key != std::string_view("head_dim") && SaidUnderItsName(source, shared.key))) {
      continue;
    }
    kept.erase(shared.key);
    if (SaysNothing(source, shared.key, *it)) {
      c.harmless_keys.emplace_back(shared.key);
      continue;
    }
    const bool stops = shared.stops_with != nullptr && family.Reads(shared.stops_with);
    const std::string message = fmt::format(
        "{}: {} = {}: transformers {} in a {} model", source.top.where(), shared.key, Shown(*it),
        stops ? "stops at it or takes half of it" : "does not read it", family.name);
    if (stops && !source.allow_unknown) {
      throw Error(ErrorCode::kInvalidConfig,
                  message + "; remove it, or allow unknown keys (--allow-unknown)");
    }
    c.not_honoured.push_back(message + "; ignored");
  }
  return kept;
}

void RefuseNumberKeys(const HfSource& source, ModelConfig& c) {
  if (!source.family.Runs() && c.encoder == nullptr) return;  // it gives no numbers
  const JsonObject& top = source.top;
  std::vector<std::string> said;
  for (const NumberKey& key : NumberKeys()) {
    if (key.hf == nullptr || top.asked().contains(key.hf)) continue;
    const json* value = top.Find(key.hf);
    if (value == nullptr) continue;
    if (IsNeutralValue(key, *value, c)) {
      c.harmless_keys.emplace_back(key.hf);
    } else {
      said.push_back(fmt::format("{} = {}", key.hf, Shown(*value)));
    }
  }
  RefuseNumbers(top.where(), said, source.allow_unknown, c);
}

}  // namespace ropewalk::internal
