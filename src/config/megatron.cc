// Megatron-LM's arguments. Names are those of its argument parser, with _ for -.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/base/error.h"
#include "src/config/hf/config.h"
#include "src/config/text.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;

double G(double mscale, double factor) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Splits a launch script's text into words; comments, brackets of arrays and line ends fall away.
std::vector<std::string> ScriptWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool comment = false;
  const auto finish = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const char ch : text) {
    if (ch == '\n') comment = false;
    if (ch == '#' && word.empty()) comment = true;
    if (comment) continue;
    if (ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r' || ch == '\\') {
      finish();
    } else if (ch != '"' && ch != '\'' && ch != '(' && ch != ')') {
      word += ch;
    }
  }
  finish();
  return words;
}

json ScriptValue(const std::string& word) {
  const json value = json::parse(word, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() || value.is_object() ? json(word) : value;
}

// {"num_layers": 28, "swiglu": true, ...}
json ScriptToJson(std::string_view text, const std::string& file) {
  try {
    (void)json(text).dump();
  } catch (const json::type_error&) {
    throw Error(ErrorCode::kInvalidConfig, file + ": expected UTF-8 text, got other bytes");
  }
  json out = json::object();
  std::string key;
  std::vector<json> values;
  const auto finish = [&] {
    if (key.empty()) return;
    const json value = values.empty() ? json(true) : values.size() == 1 ? values[0] : json(values);
    const auto [it, fresh] = out.emplace(key, value);
    if (!fresh && *it != value) {
      Contradiction(file, key, it->dump(), key, value.dump());
    }
  };
  for (const std::string& word : ScriptWords(text)) {
    if (!word.starts_with("--")) {
      if (!key.empty()) values.push_back(ScriptValue(word));
      continue;
    }
    finish();
    values.clear();
    const std::size_t equals = word.find('=');
    key = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (equals != std::string::npos) values.push_back(ScriptValue(word.substr(equals + 1)));
    std::replace(key.begin(), key.end(), '-', '_');
  }
  finish();
  return out;
}

void ReadMegatronSizes(const JsonObject& top, ModelConfig& c) {
  const auto required = [&](const char* key, int64_t high) {
    return top.Require(top.Int(key, 1, high), key, "an integer");
  };
  c.layers = required("num_layers", kMaxLayers);
  c.hidden = required("hidden_size", kMaxDim);
  c.heads = required("num_attention_heads", kMaxDim);
  const auto groups = top.Int("num_query_groups", 1, kMaxDim);
  const bool grouped = top.Bool("group_query_attention").value_or(groups.has_value());
  c.kv_heads = grouped ? groups.value_or(1) : c.heads;
  c.feed_forward = top.Int("ffn_hidden_size", 1, kMaxDim).value_or(4 * c.hidden);
  c.vocab = top.Int("vocab_size", 1, kMaxDim).value_or(0);
  c.head_dim = top.Int("kv_channels", 2, kMaxHeadDim).value_or(c.hidden / c.heads);
  CheckSizes(c, top.where());
}

// YaRN of latent attention, and of position type "yarn", whose arguments begin with yarn_.
Scaling ReadYarn(const JsonObject& top, bool latent, PositionPlan& plan) {
  const auto name = [&](const char* key) {
    const bool bare = std::string_view(key).starts_with("beta") ||
                      std::string_view(key).starts_with("mscale") ||
                      std::string_view(key).starts_with("original") ||
                      std::string_view(key).starts_with("rotary_scaling");
    return latent || !bare ? std::string(key) : std::string("yarn_") + key;
  };
  YarnScaling y;
  y.factor = top.Number(name("rotary_scaling_factor"), 1, kMaxFactor).value_or(latent ? 40 : 1);
  y.beta_fast = top.Number(name("beta_fast"), 1e-3, 1e6).value_or(32);
  y.beta_slow = top.Number(name("beta_slow"), 1e-3, 1e6).value_or(1);
  y.truncate = top.Bool("yarn_correction_range_round_to_int").value_or(true);
  plan.trained_length =
      top.Int(name("original_max_position_embeddings"), 1, kMaxTokens).value_or(4096);
  const double mscale = top.Number(name("mscale"), 0, 1e3).value_or(1);
  const double all = top.Number(name("mscale_all_dim"), 0, 1e3).value_or(0);
  if (all != 0 && mscale != 0) {
    y.mscale = mscale;
    y.mscale_all_dim = all;
    y.softmax_mscale = latent;
    plan.yarn_scales_scores = latent;
  } else {  // Megatron takes zeros as they are
    y.attention_factor = G(mscale, y.factor) / G(all, y.factor);
  }
  return y;
}

struct MegatronRope {
  std::string type;  // learned_absolute, rope, mrope, yarn, none, ...
  bool latent = false;
};

MegatronRope ReadType(const JsonObject& top) {
  MegatronRope out;
  const auto type = top.String("position_embedding_type");
  const bool rotary = top.Bool("use_rotary_position_embeddings").value_or(false);
  if (rotary && type && *type != "rope") {
    Contradiction(top.where(), "use_rotary_position_embeddings", "true", "position_embedding_type",
                  "\"" + *type + "\"");
  }
  out.type = rotary ? "rope" : type.value_or("learned_absolute");
  if (out.type != "learned_absolute" && out.type != "rope" && out.type != "mrope" &&
      out.type != "yarn" && out.type != "none") {
    top.Fail("position_embedding_type", "learned_absolute, rope, mrope, yarn or none");
  }
  out.latent = top.Bool("multi_latent_attention").value_or(false);
  return out;
}

Scaling ReadScaling(const JsonObject& top, const MegatronRope& rope, PositionPlan& plan) {
  std::vector<std::pair<std::string, Scaling>> found;
  const auto interpolation = top.Number("rotary_seq_len_interpolation_factor", 1, kMaxFactor);
  if (interpolation && *interpolation != 1) {
    found.emplace_back("rotary_seq_len_interpolation_factor", LinearScaling{*interpolation});
  }
  const auto factor = top.Number("rope_scaling_factor", 1, kMaxFactor);
  if (top.Bool("use_rope_scaling").value_or(false)) {
    found.emplace_back("use_rope_scaling", Llama3Scaling{factor.value_or(8), 1, 4});
    plan.trained_length = 8192;
    plan.notes.push_back(
        "use_rope_scaling: trained at 8192 tokens, factors 1 and 4, constants of Megatron-LM");
  }
  const auto rope_type = top.String("rope_type");
  if (rope_type && *rope_type != "rope" && *rope_type != "yarn") {
    top.Fail("rope_type", "rope or yarn");
  }
  const bool yarn = rope.type == "yarn" || (rope.latent && rope_type.value_or("yarn") == "yarn");
  if (yarn) found.emplace_back("yarn", ReadYarn(top, rope.latent, plan));
  if (found.size() > 1) {
    Contradiction(top.where(), found[0].first, Describe(found[0].second), found[1].first,
                  Describe(found[1].second));
  }
  return found.empty() ? NoScaling{} : found[0].second;
}

// Layers that do not rotate: n for every n-th, or a list in which 1 skips the rotation.
std::vector<bool> ReadRotating(const JsonObject& top, int64_t layers) {
  std::vector<bool> rotates(layers, true);
  const json* value = top.Find("no_rope_freq");
  if (value == nullptr) return rotates;
  if (value->is_number()) {
    const int64_t n = *top.Int("no_rope_freq", 1, kMaxLayers);
    for (int64_t l = 0; l < layers; ++l) rotates[l] = (l + 1) % n != 0;
    return rotates;
  }
  const auto list = top.Numbers("no_rope_freq", 0, 1);
  if (static_cast<int64_t>(list->size()) != layers) {
    top.Fail("no_rope_freq", fmt::format("an integer or {} zeros and ones", layers));
  }
  for (int64_t l = 0; l < layers; ++l) rotates[l] = (*list)[l] == 0;
  return rotates;
}

RotarySpec ReadSpec(const JsonObject& top, const MegatronRope& rope, ModelConfig& c) {
  const bool interleaved = top.Bool("rotary_interleaved").value_or(rope.latent);
  RotarySpec spec(interleaved ? PairLayout::kInterleaved : PairLayout::kHalf);
  const auto base = top.Number("rotary_base", 1, 1e18);
  spec.base = base.value_or(1e4);
  if (!base) c.plan.notes.push_back("rotary_base is absent: 10000, Megatron-LM's default");
  spec.head_dim = c.head_dim;
  const double share = top.Number("rotary_percent", 0, 1).value_or(1);
  if (rope.latent) {
    const int64_t nope = top.Int("qk_head_dim", 1, kMaxHeadDim).value_or(128);
    spec.rotary_dim = top.Int("qk_pos_emb_head_dim", 2, kMaxHeadDim).value_or(64);
    spec.first_dim = nope;
    spec.head_dim = c.head_dim = nope + spec.rotary_dim;
  } else {
    spec.rotary_dim = RotaryDim(c.head_dim, share, top.where() + ": rotary_percent");
  }
  spec.scaling = ReadScaling(top, rope, c.plan);
  spec.trained_length = c.plan.trained_length;
  if (rope.type == "mrope") {
    const auto sections = top.Numbers("mrope_section", 0, double(kMaxHeadDim));
    if (!sections || sections->size() > 4) top.Fail("mrope_section", "at most 4 integers");
    for (const double s : *sections) spec.axes.sections.push_back(static_cast<int64_t>(s));
  }
  Resolve(spec, std::max<int64_t>(spec.trained_length, 1));  // refuses here
  return spec;
}

}  // namespace

bool IsMegatronText(std::string_view text) {
  return text.find("--num-layers") != std::string_view::npos &&
         text.find("--hidden-size") != std::string_view::npos;
}

bool IsMegatronJson(const JsonObject& top) {
  return !top.Has("model_type") && top.Has("num_layers") && top.Has("num_attention_heads") &&
         (top.Has("position_embedding_type") || top.Has("rotary_base") ||
          top.Has("use_rotary_position_embeddings") || top.Has("tensor_model_parallel_size") ||
          top.Has("swiglu"));
}

ModelConfig ParseMegatronJson(const JsonObject& top, bool allow_unknown) {
  ModelConfig c;
  c.format = FileFormat::kMegatron;
  c.format_name = "Megatron-LM arguments";
  c.architecture = "megatron";
  c.not_runnable = "arguments of Megatron-LM have no weights beside them";
  ReadMegatronSizes(top, c);
  PositionPlan& plan = c.plan;
  const auto max = top.Int("max_position_embeddings", 1, kMaxTokens);
  const auto seq = top.Int("seq_length", 1, kMaxTokens);
  plan.trained_length = max.value_or(seq.value_or(0));
  const MegatronRope rope = ReadType(top);
  plan.layers.resize(c.layers);
  if (rope.type == "learned_absolute" || rope.type == "none") {
    const bool none = rope.type == "none";
    plan.other = none ? OtherEncoding::kNoPositions : OtherEncoding::kLearned;
    plan.notes.push_back(none ? "no rotation: no positions"
                              : "no rotation: learned absolute positions, Megatron-LM's default");
  } else {
    const RotarySpec spec = ReadSpec(top, rope, c);
    const std::vector<bool> rotates = ReadRotating(top, c.layers);
    for (int64_t l = 0; l < c.layers; ++l) {
      if (rotates[l]) plan.layers[l].rotation = spec;
    }
  }
  plan.configured_length = std::max(max.value_or(seq.value_or(0)), plan.trained_length);
  static const Family none = {.name = "Megatron-LM", .keys = "rope_scaling_factor rotary_percent"};
  SortKeys(top, none, allow_unknown, c);
  return c;
}

ModelConfig ParseMegatronText(std::string_view text, const std::string& file, bool allow_unknown) {
  const json value = ScriptToJson(text, file);
  return ParseMegatronJson(JsonObject(value, file), allow_unknown);
}

}  // namespace ropewalk::internal
