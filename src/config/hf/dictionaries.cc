// The rope dictionaries of a configuration: one, or one for each layer type or layer.
#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/base/error.h"
#include "src/config/hf/config.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

bool NamesLayers(const HfSource& source, const std::string& key) {
  return key == kFull || key == kSliding || HasWord(source.family.layer_kinds, key) || IsIndex(key);
}

// Keys of one dictionary for all layers, beside dictionaries for each layer type: transformers 5
// writes both where an OLMo 3 was given the former, and reads the latter alone.
void IgnoreFlatKeys(const JsonObject& object, const std::vector<std::string>& keys,
                    RopeDictionaries& ropes) {
  const json& all = object.value();
  for (const std::string& key : keys) {
    RopeDictionary* first = nullptr;
    bool same = true;
    for (auto& [type, rope] : ropes) {
      if (!rope) continue;
      if (first == nullptr) first = &*rope;
      const auto own = all[type].find(key);
      same = same && own != all[type].end() && *own == all[key];
    }
    if (first == nullptr || same) continue;
    first->ignored.push_back(fmt::format(
        "{}: {} = {} beside dictionaries for each layer type: transformers reads those alone; "
        "ignored",
        object.where(), key, Shown(all[key])));
  }
}

// rope_parameters: one dictionary, or one for each layer type or layer.
RopeDictionaries ReadParameters(const HfSource& source, const json& parameters,
                                const RopeContext& context) {
  RopeDictionaries out;
  const JsonObject object(parameters, source.top.where() + ": rope_parameters");
  const auto names_layers = [&](const auto& item) { return NamesLayers(source, item.key()); };
  const auto items = parameters.items();
  if (std::none_of(items.begin(), items.end(), names_layers)) {
    out.emplace("", ParseRope(object, context));
    return out;
  }
  std::vector<std::string> flat;
  for (const auto& [key, value] : parameters.items()) {
    if (!NamesLayers(source, key)) {
      if (IsRopeKey(key)) {
        flat.push_back(key);
        continue;
      }
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: unknown key {} beside full_attention and sliding_attention",
                              object.where(), Shown(json(key))));
    }
    if (value.is_null()) {
      out.emplace(key, std::nullopt);  // such layers do not rotate
    } else {
      out.emplace(key, ParseRope(JsonObject(value, object.where() + "." + key), context));
    }
  }
  IgnoreFlatKeys(object, flat, out);
  return out;
}

// rope_scaling and rope_parameters side by side: transformers 5 keeps the old key when it saves.
void CheckSame(const HfSource& source, const RopeDictionary& old, const RopeDictionaries& now) {
  const auto it = now.find("");
  const RopeDictionary* flat = it == now.end() ? nullptr : &*it->second;
  const std::string difference = flat != nullptr ? Difference(old, *flat) : "";
  if (flat != nullptr && difference.empty()) return;
  throw Error(ErrorCode::kInvalidConfig,
              fmt::format("{}: rope_scaling says {} and rope_parameters {}{}; remove the wrong one",
                          source.top.where(), Describe(old.scaling),
                          flat != nullptr ? Describe(flat->scaling) : "one for each layer type",
                          flat != nullptr ? ": " + difference : ""));
}

}  // namespace

bool IsIndex(const std::string& key) {
  return !key.empty() && key.size() < 6 && key.find_first_not_of("0123456789") == std::string::npos;
}

RopeDictionaries ReadRopeDictionaries(const HfSource& source, const RopeContext& context) {
  const auto find = [&](const char* key) {
    const json* value = source.top.Find(key);
    return value != nullptr && value->is_object() && value->empty() ? nullptr : value;
  };
  const json* scaling = find("rope_scaling");
  const json* parameters = find("rope_parameters");
  RopeContext relaxed = context;
  relaxed.type_required = false;
  RopeDictionaries out;
  if (parameters != nullptr) {
    const JsonObject check(*parameters, source.top.where() + ": rope_parameters");
    out = ReadParameters(source, *parameters, relaxed);
  }
  if (scaling != nullptr) {
    const JsonObject object(*scaling, source.top.where() + ": rope_scaling");
    // A M-RoPE dictionary may hold sections alone.
    RopeDictionary parsed = ParseRope(object, object.Has("mrope_section") ? relaxed : context);
    if (parameters == nullptr) {
      out.emplace("", std::move(parsed));
    } else {
      CheckSame(source, parsed, out);
    }
  }
  if (out.empty()) {
    if (source.family.Has(kScaledByDefault) && !source.top.value().contains("rope_scaling")) {
      source.top.Fail("rope_parameters",
                      fmt::format("a dictionary, since transformers has a scaling of its own for a "
                                  "{} model without one",
                                  source.family.name));
    }
    out.emplace("", RopeDictionary());
    if (source.family.Has(kGlobalHeadDim)) {  // Gemma 4's defaults
      RopeDictionary full;
      full.type = "proportional";
      full.partial = 0.25;
      full.theta = 1e6;
      full.scaling = ProportionalScaling{0.25, 1};
      full.notes = {"rope_parameters is absent: the defaults of Gemma 4"};
      out.emplace(kFull, full);
    }
  }
  return out;
}

}  // namespace ropewalk::internal
