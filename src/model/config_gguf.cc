// GGUF metadata. The pair layout is not in the file: it follows the architecture's name, and
// "llama" has its q and k rows permuted for the interleaved layout.
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

// Without the architecture's prefix. Read below, or known to be without effect here.
constexpr const char* kConsumed[] = {
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "vocab_size",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
};
constexpr const char* kHarmless[] = {"attention.layer_norm_epsilon", "rope.scaling.finetuned",
                                     "tensor_data_layout", "expert_count", "expert_used_count"};

class Keys {
 public:
  Keys(const GgufFile& gguf, std::string prefix) : gguf_(gguf), prefix_(std::move(prefix)) {}

  std::string Name(const char* key) const { return prefix_ + key; }
  const GgufValue* Find(const std::string& full) const {
    const auto it = gguf_.metadata.find(full);
    return it == gguf_.metadata.end() ? nullptr : &it->second;
  }
  std::optional<int64_t> Int(const char* key, int64_t low, int64_t high) const {
    const GgufValue* v = Find(Name(key));
    if (v == nullptr) return std::nullopt;
    const int64_t i = WithFile([&] { return v->AsInt(Name(key)); });
    if (i < low || i > high) Fail(key, fmt::format("{} to {}, got {}", low, high, i));
    return i;
  }
  int64_t RequiredInt(const char* key, int64_t low, int64_t high) const {
    const auto i = Int(key, low, high);
    if (!i) Fail(key, fmt::format("{} to {}, but it is missing", low, high));
    return *i;
  }
  std::optional<double> Number(const char* key, double low, double high) const {
    const GgufValue* v = Find(Name(key));
    if (v == nullptr) return std::nullopt;
    const double d = WithFile([&] { return v->AsDouble(Name(key)); });
    if (!(d >= low && d <= high)) Fail(key, fmt::format("{:g} to {:g}, got {:g}", low, high, d));
    return d;
  }
  std::optional<std::string> String(const char* key) const {
    const GgufValue* v = Find(Name(key));
    if (v == nullptr) return std::nullopt;
    return WithFile([&] { return v->AsString(Name(key)); });
  }
  [[noreturn]] void Fail(const char* key, const std::string& expected) const {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: {}: expected {}", File(), Name(key), expected));
  }
  const std::string& File() const { return gguf_.file->path(); }
  const GgufFile& gguf() const { return gguf_; }

 private:
  // GgufValue knows the key but not the file.
  template <class F>
  auto WithFile(F&& f) const -> decltype(f()) {
    try {
      return f();
    } catch (const Error& e) {
      throw Error(ErrorCode::kInvalidConfig, File() + ": " + e.what());
    }
  }
  const GgufFile& gguf_;
  std::string prefix_;
};

void SortKeys(const Keys& keys, bool allow_unknown, ModelConfig& c) {
  const std::string prefix = keys.Name("");
  for (const auto& [name, value] : keys.gguf().metadata) {
    if (name.starts_with("general.") || name.starts_with("tokenizer.") ||
        name.starts_with("quantize.") || name.starts_with("split.")) {
      continue;
    }
    const std::string key = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    const auto same = [&](const char* k) { return key == k; };
    if (name != key && std::any_of(std::begin(kConsumed), std::end(kConsumed), same)) continue;
    if (name != key && std::any_of(std::begin(kHarmless), std::end(kHarmless), same)) {
      c.harmless_keys.push_back(name);
      continue;
    }
    const bool about_positions =
        key.find("rope") != std::string::npos || key.find("alibi") != std::string::npos ||
        key.find("position") != std::string::npos || key.find("yarn") != std::string::npos;
    if (!about_positions) {
      c.unknown_keys.push_back(name);
      continue;
    }
    const std::string message =
        fmt::format("{}: unknown key {}{}", keys.File(), internal::Shown(nlohmann::json(name)),
                    internal::DidYouMean(key, {std::begin(kConsumed), std::end(kConsumed)}));
    if (!allow_unknown) {
      throw Error(ErrorCode::kInvalidConfig,
                  message + "; by its name it changes positions; allow unknown keys to go on");
    }
    c.plan.notes.push_back(message + "; ignored");
  }
}

const Family& ReadFamily(const GgufFile& gguf) {
  const auto it = gguf.metadata.find("general.architecture");
  const std::string& file = gguf.file->path();
  if (it == gguf.metadata.end()) {
    throw Error(ErrorCode::kInvalidConfig,
                fmt::format("{}: general.architecture: expected one of {}, but it is missing", file,
                            internal::GgufFamilyNames()));
  }
  const std::string& name = it->second.AsString("general.architecture");
  const Family* family = internal::FindGgufFamily(name);
  if (family == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: general.architecture: {} is not supported; supported are {}", file,
                            internal::Shown(nlohmann::json(name)), internal::GgufFamilyNames()));
  }
  return *family;
}

void ReadSizes(const Keys& keys, const Family& family, ModelConfig& c) {
  c.layers = keys.RequiredInt("block_count", 1, internal::kMaxLayers);
  c.hidden = keys.RequiredInt("embedding_length", 1, internal::kMaxDim);
  c.heads = keys.RequiredInt("attention.head_count", 1, internal::kMaxDim);
  c.kv_heads = keys.Int("attention.head_count_kv", 1, internal::kMaxDim).value_or(c.heads);
  c.feed_forward = keys.RequiredInt("feed_forward_length", 1, internal::kMaxDim);
  if (const auto head_dim = keys.Int("attention.key_length", 2, internal::kMaxHeadDim)) {
    c.head_dim = *head_dim;
  } else {
    if (c.hidden % c.heads != 0) {
      keys.Fail(
          "attention.key_length",
          fmt::format("it, because {} elements do not divide into {} heads", c.hidden, c.heads));
    }
    c.head_dim = c.hidden / c.heads;
  }
  if (const auto v = keys.Int("attention.value_length", 2, internal::kMaxHeadDim);
      v && *v != c.head_dim) {
    keys.Fail("attention.value_length", fmt::format("the head size {}, got {}", c.head_dim, *v));
  }
  internal::CheckSizes(c, keys.File());
  const auto& tensors = keys.gguf().tensors;
  const auto embedding = tensors.find("token_embd.weight");
  if (embedding != tensors.end()) {
    c.vocab = embedding->second.rows();
  } else if (const auto vocab = keys.Int("vocab_size", 1, internal::kMaxDim)) {
    c.vocab = *vocab;
  } else if (const GgufValue* tokens = keys.Find("tokenizer.ggml.tokens")) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&tokens->value)) {
      c.vocab = static_cast<int64_t>(list->size());
    }
  }
  if (c.vocab < 1) keys.Fail("vocab_size", "1 or more, but it is missing");
  c.rms_eps = keys.Number("attention.layer_norm_rms_epsilon", 0, 1).value_or(1e-5);
  c.tied_head = !tensors.contains("output.weight");
  c.qkv_bias = tensors.empty() ? family.qkv_bias : tensors.contains("blk.0.attn_q.bias");
  c.out_bias = tensors.contains("blk.0.attn_output.bias");
  c.mlp_bias = tensors.contains("blk.0.ffn_gate.bias");
  c.qk_norm = family.qk_norm;
}

std::vector<double> ReadDivisors(const Keys& keys, const char* name, int64_t pairs) {
  const Weight& w = keys.gguf().tensors.at(name);
  if (w.rows() != 1 || w.cols() != pairs) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: tensor '{}' has {} x {} elements, expected one for each of the {} "
                            "rotated pairs",
                            keys.File(), name, w.rows(), w.cols(), pairs));
  }
  std::vector<float> values(pairs);
  w.ReadRows(0, 1, values.data());
  for (const float v : values) {
    if (!(v > 0 && std::isfinite(v))) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' holds {}; expected positive divisors", keys.File(),
                              name, v));
    }
  }
  return {values.begin(), values.end()};
}

YarnScaling ReadYarn(const Keys& keys, double factor) {
  YarnScaling y;
  y.factor = factor;
  y.beta_fast = keys.Number("rope.scaling.yarn_beta_fast", 1e-3, 1e6).value_or(32);
  y.beta_slow = keys.Number("rope.scaling.yarn_beta_slow", 1e-3, 1e6).value_or(1);
  // A multiplier of YaRN's own amplitude.
  if (const auto attn = keys.Number("rope.scaling.attn_factor", 1e-6, 1e6); attn && *attn != 1) {
    y.attention_factor = *attn * (0.1 * std::log(factor) + 1);
  }
  return y;
}

Scaling ReadScaling(const Keys& keys, int64_t pairs) {
  constexpr double kMaxFactor = 1e6;
  const auto& tensors = keys.gguf().tensors;
  const auto type = keys.String("rope.scaling.type");
  const auto factor = keys.Number("rope.scaling.factor", 0, kMaxFactor);
  const auto legacy = keys.Number("rope.scale_linear", 0, kMaxFactor);
  if (factor && legacy && *factor != *legacy) {
    keys.Fail("rope.scale_linear",
              fmt::format("the value of rope.scaling.factor ({}), got {}; they "
                          "contradict each other",
                          *factor, *legacy));
  }
  double s = factor ? *factor : legacy.value_or(1);
  if (s == 0) s = 1;  // llama.cpp: 0 means unset
  if (s < 1) keys.Fail("rope.scaling.factor", fmt::format("1 to {:g}, got {}", kMaxFactor, s));
  const bool long_rope = tensors.contains("rope_factors_long.weight");

  Scaling scaling = NoScaling{};
  const std::string name = type.value_or(long_rope ? "longrope" : "linear");
  if (name == "yarn") {
    scaling = ReadYarn(keys, s);
  } else if (name == "longrope") {
    if (!long_rope || !tensors.contains("rope_factors_short.weight")) {
      keys.Fail("rope.scaling.type",
                "tensors rope_factors_long.weight and rope_factors_short.weight for \"longrope\"");
    }
    LongRopeScaling l;
    l.short_factor = ReadDivisors(keys, "rope_factors_short.weight", pairs);
    l.long_factor = ReadDivisors(keys, "rope_factors_long.weight", pairs);
    l.attention_factor = keys.Number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1);
    scaling = std::move(l);
  } else if (name == "linear") {  // llama.cpp's default where the type is absent
    if (s != 1) scaling = LinearScaling{s};
  } else if (name != "none") {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: {}: unknown type {}; known are none, linear, yarn, longrope", keys.File(),
                    keys.Name("rope.scaling.type"), internal::Shown(nlohmann::json(name))));
  }
  if (tensors.contains("rope_freqs.weight")) {
    if (!std::holds_alternative<NoScaling>(scaling)) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: tensor 'rope_freqs.weight' together with {}; expected one of them",
                      keys.File(), Describe(scaling)));
    }
    scaling = ExplicitScaling{ReadDivisors(keys, "rope_freqs.weight", pairs)};
  }
  return scaling;
}

void ReadPlan(const Keys& keys, const Family& family, ModelConfig& c) {
  PositionPlan& plan = c.plan;
  plan.configured_length = keys.RequiredInt("context_length", 1, internal::kMaxTokens);
  // 0 stands for unset in some converters' files.
  const int64_t original =
      keys.Int("rope.scaling.original_context_length", 0, internal::kMaxTokens).value_or(0);
  plan.trained_length = original > 0 ? original : plan.configured_length;

  RotarySpec spec(PairLayout::kHalf);
  spec.head_dim = c.head_dim;
  spec.rotary_dim = keys.Int("rope.dimension_count", 2, c.head_dim).value_or(c.head_dim);
  if (spec.rotary_dim % 2 != 0) {
    keys.Fail("rope.dimension_count", fmt::format("an even number, got {}", spec.rotary_dim));
  }
  const auto base = keys.Number("rope.freq_base", 1, 1e18);
  spec.base = base.value_or(1e4);
  if (!base) plan.notes.push_back("rope.freq_base is absent: 10000, llama.cpp's default");
  spec.trained_length = plan.trained_length;
  spec.scaling = ReadScaling(keys, spec.rotary_dim / 2);
  try {
    Resolve(spec, plan.trained_length);  // refuses here what would fail later
  } catch (const Error& e) {
    throw Error(ErrorCode::kInvalidConfig, keys.File() + ": " + e.what());
  }
  c.permuted_qk = family.gguf_permuted;
  if (c.permuted_qk) {
    plan.notes.push_back(
        "q and k are stored for the interleaved layout and permuted at load to the "
        "half layout");
  }
  const int64_t window = keys.Int("attention.sliding_window", 0, internal::kMaxTokens).value_or(0);
  if (window > 0) {
    plan.notes.push_back(
        fmt::format("sliding window of {} tokens on every layer; llama.cpp ignores "
                    "it for this architecture",
                    window));
  }
  plan.layers.assign(c.layers, LayerPlan{spec, window});
}

}  // namespace

ModelConfig ParseGgufConfig(const GgufFile& gguf, bool allow_unknown) {
  const Family& family = ReadFamily(gguf);
  const Keys keys(gguf, std::string(family.gguf_name) + ".");
  ModelConfig c;
  c.format = fmt::format("GGUF v{}", gguf.version);
  c.architecture = family.name;
  SortKeys(keys, allow_unknown, c);
  ReadSizes(keys, family, c);
  ReadPlan(keys, family, c);
  return c;
}

}  // namespace ropewalk
