// Hugging Face config.json, the schema of transformers 4 (rope_theta, rope_scaling) and of 5
// (rope_parameters).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/model/family.h"
#include "src/model/json_object.h"
#include "src/model/rope_dictionary.h"

namespace ropewalk {
namespace {

using internal::Family;
using internal::JsonObject;
using internal::Shown;

// Read below.
constexpr const char* kConsumed[] = {
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "rms_norm_eps",
    "hidden_act",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "max_position_embeddings",
    "original_max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "no_rope_layers",
    "no_rope_layer_interval",
    "rope_interleaved",
    "quantization_config",
};
// Known, and without effect on what is computed here.
constexpr const char* kHarmless[] = {
    "architectures",
    "_name_or_path",
    "_attn_implementation_autoset",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "attention_dropout",
    "initializer_range",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "pretraining_tp",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "name_or_path",
    "auto_map",
    "hidden_dropout",
    "attn_implementation",
};
// Parts of a name that say it is about positions.
constexpr const char* kPositionWords[] = {"rope",
                                          "rotary",
                                          "position",
                                          "theta",
                                          "yarn",
                                          "ntk",
                                          "alibi",
                                          "long_factor",
                                          "short_factor",
                                          "window_size",
                                          "chunk_attention",
                                          "attn_factor",
                                          "attention_factor"};

template <class List>
bool Contains(const List& list, const std::string& key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

void SortKeys(const JsonObject& top, bool allow_unknown, ModelConfig& c) {
  for (const auto& item : top.value().items()) {
    const std::string& key = item.key();
    const nlohmann::json& value = item.value();
    if (Contains(kConsumed, key)) continue;
    if (Contains(kHarmless, key)) {
      c.harmless_keys.push_back(key);
      continue;
    }
    const bool about_positions =
        !value.is_null() && key != "context_window_size" &&
        std::any_of(std::begin(kPositionWords), std::end(kPositionWords),
                    [&](const char* w) { return key.find(w) != std::string::npos; });
    if (!about_positions) {
      c.unknown_keys.push_back(key);
      continue;
    }
    const std::string message = fmt::format(
        "{}: unknown key {} = {}{}", top.where(), Shown(nlohmann::json(key)), Shown(value),
        internal::DidYouMean(key, {std::begin(kConsumed), std::end(kConsumed)}));
    if (!allow_unknown) {
      throw Error(ErrorCode::kInvalidConfig,
                  message + "; by its name it changes positions: remove it, or allow unknown keys");
    }
    c.plan.notes.push_back(message + "; ignored");
    c.unknown_keys.push_back(key);
  }
}

const Family& ReadFamily(const JsonObject& top) {
  const std::string type =
      top.Require(top.String("model_type"), "model_type", "one of " + internal::FamilyNames());
  const Family* family = internal::FindFamily(type);
  if (family == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: model_type: {} is not supported; supported are {}", top.where(),
                            Shown(nlohmann::json(type)), internal::FamilyNames()));
  }
  return *family;
}

void ReadSizes(const JsonObject& top, const Family& family, ModelConfig& c) {
  const auto dim = [&](const char* key, int64_t high) {
    return top.Require(top.Int(key, 1, high), key, "an integer");
  };
  c.layers = dim("num_hidden_layers", internal::kMaxLayers);
  c.hidden = dim("hidden_size", internal::kMaxDim);
  c.heads = dim("num_attention_heads", internal::kMaxDim);
  c.feed_forward = dim("intermediate_size", internal::kMaxDim);
  c.vocab = dim("vocab_size", internal::kMaxDim);
  c.kv_heads = family.kv_heads_default_heads && !top.Has("num_key_value_heads")
                   ? c.heads
                   : dim("num_key_value_heads", internal::kMaxDim);
  if (const auto head_dim = top.Int("head_dim", 2, internal::kMaxHeadDim)) {
    c.head_dim = *head_dim;
  } else if (family.default_head_dim > 0) {
    c.head_dim = family.default_head_dim;
    c.plan.notes.push_back(
        fmt::format("head_dim is absent: {}, the default of {}", c.head_dim, family.name));
  } else {
    if (c.hidden % c.heads != 0) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: hidden_size {} is no multiple of num_attention_heads {} and "
                              "head_dim is absent",
                              top.where(), c.hidden, c.heads));
    }
    c.head_dim = c.hidden / c.heads;
  }
  internal::CheckSizes(c, top.where());
}

void ReadWeights(const JsonObject& top, const Family& family, ModelConfig& c) {
  if (top.Has("quantization_config")) {
    throw Error(ErrorCode::kUnsupported,
                top.where() +
                    ": quantization_config: weights quantised by it are not supported; use "
                    "the unquantised model, or a GGUF file");
  }
  const std::string act = top.String("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish") {
    throw Error(ErrorCode::kUnsupported, fmt::format("{}: hidden_act: expected \"silu\", got {}",
                                                     top.where(), Shown(nlohmann::json(act))));
  }
  const auto flag = [&](const char* key, bool legal) {
    const bool value = top.Bool(key).value_or(false);
    if (value && !legal) {
      throw Error(ErrorCode::kUnsupported, fmt::format("{}: {}: a {} model has no such bias",
                                                       top.where(), key, family.name));
    }
    return value;
  };
  const bool attention_bias = flag("attention_bias", family.attention_bias_key);
  c.qkv_bias = family.qkv_bias || attention_bias;
  c.out_bias = attention_bias;
  c.mlp_bias = flag("mlp_bias", family.mlp_bias_key);
  c.qk_norm = family.qk_norm;
  c.tied_head = top.Bool("tie_word_embeddings").value_or(false);
  // 1e-6 is the default of every family here in transformers.
  c.rms_eps = top.Number("rms_norm_eps", 0, 1).value_or(1e-6);
}

// Which layers slide, by layer_types or else by the family's rule. Empty list: it was absent.
std::vector<std::string> ReadLayerTypes(const JsonObject& top, int64_t layers) {
  std::vector<std::string> types;
  const nlohmann::json* list = top.Find("layer_types");
  if (list == nullptr) return types;
  const std::string expected =
      fmt::format("an array of {} times \"full_attention\" or \"sliding_attention\"", layers);
  if (!list->is_array() || static_cast<int64_t>(list->size()) != layers) {
    top.Fail("layer_types", expected);
  }
  for (const auto& item : *list) {
    if (item != "full_attention" && item != "sliding_attention") {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: layer_types: expected {}, item {} is {}", top.where(), expected,
                              types.size(), Shown(item)));
    }
    types.push_back(item.get<std::string>());
  }
  return types;
}

void ReadWindows(const JsonObject& top, const Family& family,
                 const std::vector<std::string>& layer_types, ModelConfig& c) {
  int64_t window = top.Int("sliding_window", 1, internal::kMaxTokens).value_or(0);
  const int64_t first =
      top.Int("max_window_layers", 0, int64_t{1} << 40).value_or(/*Qwen's default*/ 28);
  const bool by_flag = family.window == Family::Window::kFromMaxWindowLayers;
  const bool use = top.Bool("use_sliding_window").value_or(!by_flag);
  if (!top.value().contains("sliding_window") && use && family.default_window > 0) {
    window = family.default_window;
    c.plan.notes.push_back(
        fmt::format("sliding_window is absent: {} tokens, the default of {}", window, family.name));
  }
  if (!use) window = 0;
  for (int64_t l = 0; l < c.layers; ++l) {
    bool slides = family.window == Family::Window::kAll || (by_flag && l >= first);
    if (!layer_types.empty()) {
      slides = layer_types[l] == "sliding_attention";
      if (slides && window == 0) {
        throw Error(ErrorCode::kInvalidConfig,
                    fmt::format("{}: layer_types says that layer {} slides but sliding_window is "
                                "absent or switched off",
                                top.where(), l));
      }
    }
    if (slides) c.plan.layers[l].window_tokens = window;
  }
  if (window > 0 && family.window == Family::Window::kNone && layer_types.empty()) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: sliding_window = {}: transformers ignores it in a {} model without "
                    "layer_types; remove it, or say in layer_types which layers slide",
                    top.where(), window, family.name));
  }
}

// True where a layer rotates. no_rope_layers is SmolLM3's list, in which 1 means that it does.
std::vector<bool> ReadRotatingLayers(const JsonObject& top, const Family& family, ModelConfig& c) {
  std::vector<bool> rotates(c.layers, true);
  const auto interval = top.Int("no_rope_layer_interval", 1, int64_t{1} << 40);
  if (const auto list = top.Numbers("no_rope_layers", 0, 1)) {
    if (static_cast<int64_t>(list->size()) != c.layers) {
      top.Fail("no_rope_layers", fmt::format("an array of {} zeros and ones", c.layers));
    }
    for (int64_t l = 0; l < c.layers; ++l) rotates[l] = (*list)[l] != 0;
  } else if (const int64_t n = interval.value_or(family.no_rope_interval); n > 0) {
    for (int64_t l = 0; l < c.layers; ++l) rotates[l] = (l + 1) % n != 0;
  }
  if (std::find(rotates.begin(), rotates.end(), false) != rotates.end()) {
    c.plan.notes.push_back("no_rope_layers: 1 means that a layer rotates (SmolLM3)");
  }
  return rotates;
}

// The rope dictionaries by layer type; one under "" when all layers share it.
std::map<std::string, internal::RopeDictionary> ReadDictionaries(
    const JsonObject& top, const internal::RopeContext& context) {
  const nlohmann::json* scaling = top.Find("rope_scaling");
  const nlohmann::json* parameters = top.Find("rope_parameters");
  std::map<std::string, internal::RopeDictionary> out;
  internal::RopeContext relaxed = context;
  relaxed.type_required = false;
  if (parameters != nullptr) {
    const JsonObject object(*parameters, top.where() + ": rope_parameters");
    if (!object.Has("full_attention") && !object.Has("sliding_attention")) {
      out.emplace("", ParseRope(object, relaxed));
    } else {
      for (const auto& [key, value] : parameters->items()) {
        if (key != "full_attention" && key != "sliding_attention") {
          throw Error(ErrorCode::kInvalidConfig,
                      fmt::format("{}: unknown key {} beside full_attention and sliding_attention",
                                  object.where(), Shown(nlohmann::json(key))));
        }
        out.emplace(key, ParseRope(JsonObject(value, object.where() + "." + key), relaxed));
      }
    }
  }
  if (scaling != nullptr) {
    const JsonObject object(*scaling, top.where() + ": rope_scaling");
    internal::RopeDictionary parsed = ParseRope(object, context);
    if (parameters == nullptr) {
      out.emplace("", std::move(parsed));
    } else if (!out.contains("") || parsed.type != out.at("").type ||
               Describe(parsed.scaling) != Describe(out.at("").scaling) ||
               parsed.original.value_or(0) != out.at("").original.value_or(0)) {
      throw Error(
          ErrorCode::kInvalidConfig,
          fmt::format("{}: rope_scaling says {} and rope_parameters {}; remove the wrong one",
                      top.where(), Describe(parsed.scaling),
                      out.contains("") ? Describe(out.at("").scaling) : "one for each layer type"));
    }
  }
  if (out.empty()) out.emplace("", internal::RopeDictionary());
  return out;
}

// A value that may stand in the dictionary and at top level: both must agree.
std::optional<double> Agree(const JsonObject& top, const char* key, std::optional<double> outer,
                            std::optional<double> inner) {
  if (outer && inner && *outer != *inner) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {} is {} at top level and {} in the rope dictionary; remove the "
                            "wrong one",
                            top.where(), key, *outer, *inner));
  }
  return outer ? outer : inner;
}

RotarySpec MakeSpec(const JsonObject& top, const Family& family,
                    const internal::RopeDictionary& rope, ModelConfig& c) {
  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = c.head_dim;
  const double partial =
      Agree(top, "partial_rotary_factor", top.Number("partial_rotary_factor", 0, 1), rope.partial)
          .value_or(1);
  spec.rotary_dim = internal::RotaryDim(c.head_dim, partial, top.where());
  const auto theta = Agree(top, "rope_theta", top.Number("rope_theta", 1, 1e18), rope.theta);
  spec.base = theta.value_or(family.default_theta);
  if (!theta) {
    c.plan.notes.push_back(
        fmt::format("rope_theta is absent: {:g}, the default of {}", spec.base, family.name));
  }
  spec.trained_length = c.plan.trained_length;
  spec.scaling = rope.scaling;
  return spec;
}

void ReadPlan(const JsonObject& top, const Family& family, bool allow_unknown, ModelConfig& c) {
  internal::RopeContext context;
  context.allow_unknown = allow_unknown;
  context.max_position = top.Require(top.Int("max_position_embeddings", 1, internal::kMaxTokens),
                                     "max_position_embeddings", "an integer");
  context.original = top.Int("original_max_position_embeddings", 1, internal::kMaxTokens);
  if (top.Bool("rope_interleaved").value_or(false)) {
    throw Error(ErrorCode::kUnsupported,
                top.where() +
                    ": rope_interleaved: expected false; transformers' models of these "
                    "types rotate halves");
  }
  const auto ropes = ReadDictionaries(top, context);
  PositionPlan& plan = c.plan;
  plan.configured_length = context.max_position;
  plan.trained_length = context.original.value_or(context.max_position);
  for (const auto& [type, rope] : ropes) {
    plan.notes.insert(plan.notes.end(), rope.notes.begin(), rope.notes.end());
    if (rope.original) plan.trained_length = *rope.original;
    // Qwen's way: max_position_embeddings stays at the original length, the factor says the rest.
    if (rope.original || context.original) {
      const double served = std::floor(double(plan.trained_length) * FactorOf(rope.scaling));
      plan.configured_length =
          std::max(plan.configured_length,
                   static_cast<int64_t>(std::min(served, double(internal::kMaxTokens))));
    }
  }

  plan.layers.resize(c.layers);
  const std::vector<std::string> types = ReadLayerTypes(top, c.layers);
  ReadWindows(top, family, types, c);
  const std::vector<bool> rotates = ReadRotatingLayers(top, family, c);
  std::map<std::string, RotarySpec> specs;
  for (const auto& [type, rope] : ropes) {
    RotarySpec spec = MakeSpec(top, family, rope, c);
    Resolve(spec, plan.trained_length);  // refuses here what would fail later
    specs.emplace(type, std::move(spec));
  }
  for (int64_t l = 0; l < c.layers; ++l) {
    if (!rotates[l]) continue;
    const std::string type = specs.contains("") ? "" : types.empty() ? "full_attention" : types[l];
    const auto spec = specs.find(type);
    if (spec == specs.end()) {
      throw Error(ErrorCode::kInvalidConfig,
                  fmt::format("{}: rope_parameters has nothing for \"{}\", the type of layer {}",
                              top.where(), type, l));
    }
    plan.layers[l].rotation = spec->second;
  }
}

// Adds the file to errors that rotary's Resolve throws.
template <class F>
auto WithSource(const std::string& source, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(source)) throw;
    throw Error(ErrorCode::kInvalidConfig, source + ": " + e.what());
  }
}

}  // namespace

ModelConfig ParseHfConfig(const std::string& json_text, const std::string& file,
                          bool allow_unknown) {
  const nlohmann::json value = internal::ParseJsonObject(json_text, file);
  const JsonObject top(value, file);
  const Family& family = ReadFamily(top);
  ModelConfig c;
  c.format = "Hugging Face";
  c.architecture = family.name;
  SortKeys(top, allow_unknown, c);
  ReadSizes(top, family, c);
  ReadWeights(top, family, c);
  WithSource(file, [&] { ReadPlan(top, family, allow_unknown, c); });
  return c;
}

PositionPlan ParseRopeDictionary(const std::string& json_text, const std::string& source,
                                 const PositionPlan& plan, bool allow_unknown) {
  const nlohmann::json value = internal::ParseJsonObject(json_text, source);
  const JsonObject object(value, source);
  internal::RopeContext context;
  context.type_required = false;
  context.allow_unknown = allow_unknown;
  context.max_position = plan.configured_length;
  // The dictionary may name another original length than the file; without one the plan's holds.
  if (!object.Has("original_max_position_embeddings")) context.original = plan.trained_length;
  const internal::RopeDictionary rope = ParseRope(object, context);
  PositionPlan out = WithScaling(plan, rope.scaling, rope.original.value_or(0));
  out.notes.insert(out.notes.end(), rope.notes.begin(), rope.notes.end());
  WithSource(source, [&] {
    for (LayerPlan& layer : out.layers) {
      if (!layer.rotation) continue;
      if (rope.theta) layer.rotation->base = *rope.theta;
      if (rope.partial) {
        layer.rotation->rotary_dim =
            internal::RotaryDim(layer.rotation->head_dim, *rope.partial, source);
      }
      Resolve(*layer.rotation, out.trained_length);
    }
  });
  return out;
}

}  // namespace ropewalk
