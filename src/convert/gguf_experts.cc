#include "src/convert/gguf_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ropewalk/base/error.h"
#include "src/config/gguf/keys.h"
#include "src/config/number_keys.h"

namespace ropewalk::internal {
namespace {

using Scores = ExpertsSpec::Scores;

[[noreturn]] void Refuse(const Family& family, const std::string& what, const std::string& why) {
  throw Error(ErrorCode::kUnsupported, fmt::format("GGUF cannot hold it: {}; llama.cpp {} of the "
                                                   "architecture {}",
                                                   what, why, family.gguf));
}

// What llama.cpp takes of an architecture's experts; read in src/models/ of the llama.cpp that
// llama-cpp-python 0.3.36 brings.
struct Mixture {
  enum class Shared : uint8_t { kNone, kGated, kCounted, kOne };
  enum class Layers : uint8_t { kAll, kBehindDense, kEveryNth };
  enum class Said : uint8_t { kNo, kYes, kByKey };
  std::string_view architecture;
  Scores scores = Scores::kSoftmax;
  Said normalized = Said::kNo;  // weights sum to 1
  bool own_width = false;       // a key for it; otherwise that of the feed-forward layers
  Shared shared = Shared::kNone;
  Layers layers = Layers::kAll;
  bool router_bias = false;
  bool groups = false;  // and the other keys of DeepSeek
};
constexpr Mixture kMixtures[] = {
    {.architecture = "llama", .normalized = Mixture::Said::kYes},
    {.architecture = "qwen3moe", .normalized = Mixture::Said::kYes, .own_width = true},
    {.architecture = "qwen3vlmoe", .normalized = Mixture::Said::kYes, .own_width = true},
    {.architecture = "qwen2moe", .own_width = true, .shared = Mixture::Shared::kGated},
    {.architecture = "olmoe"},
    {.architecture = "gpt-oss",
     .normalized = Mixture::Said::kYes,
     .own_width = true,
     .router_bias = true},
    {.architecture = "deepseek2",
     .normalized = Mixture::Said::kByKey,
     .own_width = true,
     .shared = Mixture::Shared::kCounted,
     .layers = Mixture::Layers::kBehindDense,
     .groups = true},
    {.architecture = "mistral4",
     .normalized = Mixture::Said::kByKey,
     .own_width = true,
     .shared = Mixture::Shared::kCounted,
     .layers = Mixture::Layers::kBehindDense,
     .groups = true},
    {.architecture = "llama4",
     .scores = Scores::kSigmoid,
     .own_width = true,
     .shared = Mixture::Shared::kOne,
     .layers = Mixture::Layers::kEveryNth},
};

const Mixture* Find(const Family& family) {
  const auto* it = std::find_if(std::begin(kMixtures), std::end(kMixtures),
                                [&](const Mixture& m) { return m.architecture == family.gguf; });
  return it == std::end(kMixtures) ? nullptr : it;
}

// The first layers without experts, all others with.
int64_t DenseLayers(const ModelConfig& c) {
  const auto& layers = c.experts.layers;
  return std::find(layers.begin(), layers.end(), true) - layers.begin();
}

// Every n-th layer has experts; 0: there is no such number.
int64_t StepOf(const ModelConfig& c) {
  for (int64_t step = 1; step <= c.layers; ++step) {
    bool fits = true;
    for (int64_t l = 0; l < c.layers; ++l) fits &= c.experts.In(l) == ((l + 1) % step == 0);
    if (fits) return step;
  }
  return 0;
}

void CheckWhichLayers(const ModelConfig& c, const Family& family, const Mixture& mixture) {
  const std::vector<bool>& layers = c.experts.layers;
  switch (mixture.layers) {
    case Mixture::Layers::kAll:
      if (!c.experts.InAll()) {
        Refuse(family, "some layers have no experts", "wants them in every layer");
      }
      return;
    case Mixture::Layers::kBehindDense:
      if (std::find(layers.begin() + DenseLayers(c), layers.end(), false) != layers.end()) {
        Refuse(family, "layers without experts follow others with", "has them in front alone");
      }
      return;
    case Mixture::Layers::kEveryNth:
      if (StepOf(c) == 0) {
        Refuse(family, "the layers with experts are not every n-th", "has a key for that alone");
      }
      return;
  }
}

void CheckShared(const ModelConfig& c, const Family& family, const Mixture& mixture) {
  const int64_t shared = c.experts.shared_feed_forward, width = c.experts.feed_forward;
  const bool counted = mixture.shared == Mixture::Shared::kCounted;
  if (counted && (shared == 0 || shared % width != 0)) {
    Refuse(family, fmt::format("shared experts of {} beside experts of {}", shared, width),
           "wants one or more shared experts of the others' width");
  }
}

// A model with groups of which all count, or with one, has none.
bool HasGroups(const ExpertsSpec& experts) {
  return experts.groups > 1 && experts.chosen_groups < experts.groups;
}

}  // namespace

void CheckExperts(const ModelConfig& c, const Family& family) {
  const ExpertsSpec& experts = c.experts;
  const Mixture* mixture = Find(family);
  if (experts.count == 0) {
    const bool may_be_dense = mixture == nullptr || mixture->architecture == "llama" ||
                              mixture->layers == Mixture::Layers::kBehindDense;
    if (!may_be_dense) Refuse(family, "it has no experts", "loads no file without");
    return;
  }
  if (mixture == nullptr) Refuse(family, "it has experts", "loads none");
  using Said = Mixture::Said;
  if (mixture->normalized != Said::kByKey &&
      experts.normalized != (mixture->normalized == Said::kYes)) {
    Refuse(family, fmt::format("norm_topk_prob is {}", experts.normalized),
           fmt::format("always takes {}", !experts.normalized));
  }
  if (!mixture->own_width && experts.feed_forward != c.feed_forward) {
    Refuse(family, fmt::format("experts of {}", experts.feed_forward),
           fmt::format("takes feed_forward_length ({}) for their width", c.feed_forward));
  }
  CheckWhichLayers(c, family, *mixture);
  CheckShared(c, family, *mixture);
  if (HasGroups(experts) && experts.group_by != ExpertsSpec::GroupBy::kTwoLargest) {
    Refuse(family, "groups of experts are chosen by their largest score (group_limited_greedy)",
           "takes the two largest");
  }
  constexpr int64_t kMaverick = 128;
  if (experts.weighs_input && c.layer.attention.qk_norm.exists() == (experts.count == kMaverick)) {
    Refuse(family,
           fmt::format("{} experts {} norms of q and k", experts.count,
                       c.layer.attention.qk_norm.exists() ? "with" : "without"),
           "has these norms unless there are 128 experts");
  }
}

std::map<std::string, GgufValue> ExpertKeys(const ModelConfig& c, const Family& family) {
  const ExpertsSpec& experts = c.experts;
  const Mixture* mixture = Find(family);
  std::map<std::string, GgufValue> keys;
  if (mixture == nullptr) return keys;
  const auto integer = [&](const char* key, int64_t value) { keys[key] = {value, GgufType::kU32}; };
  if (mixture->groups) {
    integer("leading_dense_block_count", experts.count == 0 ? c.layers : DenseLayers(c));
    const int64_t width = experts.count == 0 ? c.feed_forward : experts.feed_forward;
    integer("expert_feed_forward_length", width);
    integer("expert_shared_count", experts.shared_feed_forward / width);
  }
  if (experts.count == 0) return keys;
  integer("expert_count", experts.count);
  integer("expert_used_count", experts.chosen);
  if (mixture->own_width) integer("expert_feed_forward_length", experts.feed_forward);
  if (mixture->shared == Mixture::Shared::kGated) {
    integer("expert_shared_feed_forward_length", experts.shared_feed_forward);
  }
  if (mixture->layers == Mixture::Layers::kEveryNth) {
    integer("interleave_moe_layer_step", StepOf(c));
  }
  if (!mixture->groups) return keys;
  keys["expert_weights_scale"] = {static_cast<double>(static_cast<float>(experts.scale)),
                                  GgufType::kF32};
  keys["expert_weights_norm"] = {experts.normalized, GgufType::kBool};
  integer("expert_gating_func", experts.scores == Scores::kSigmoid ? 2 : 1);
  if (HasGroups(experts)) {
    integer("expert_group_count", experts.groups);
    integer("expert_group_used_count", experts.chosen_groups);
  }
  return keys;
}

void CheckLatent(const ModelConfig& c, const Family& family) {
  const LatentSpec& latent = c.layer.attention.latent;
  if (!latent.exists()) return;
  if (latent.down_bias) {
    Refuse(family, "the vectors of latent attention have biases (attention_bias)", "takes none");
  }
  const bool deepseek = IsDeepseekGguf(family.gguf);
  // Of models of so many layers llama.cpp reads no q_lora_rank, and a file of others without the key
  // is refused; 0 is taken for none.
  constexpr int64_t kKananaVocab = 128256;
  const bool lite = c.layers == 26 || c.layers == 27 || (c.layers == 48 && c.vocab == kKananaVocab);
  if (deepseek && latent.q_rank > 0 && lite) {
    Refuse(family, fmt::format("{} layers and {} tokens with q_lora_rank", c.layers, c.vocab),
           "takes models of 26 and 27 layers, and of 48 with 128256 tokens, for those without");
  }
  if (!deepseek && latent.q_rank == 0) Refuse(family, "q_lora_rank is null", "wants a number");
  if (family.block->gguf_scales != GgufScales::kMiniCpm3) return;
  const auto layers = static_cast<double>(c.layers), hidden = static_cast<double>(c.hidden);
  const bool usual = c.embedding_scale == 12 && c.logit_scale == 256 / hidden &&
                     c.layer.residual_scale == 1.4 / std::sqrt(layers);
  if (!usual) {
    Refuse(family, "scale_emb, scale_depth and dim_model_base are not 12, 1.4 and 256",
           "has these as constants");
  }
}

std::map<std::string, GgufValue> LatentKeys(const ModelConfig& c, const Family& family) {
  const LatentSpec& latent = c.layer.attention.latent;
  std::map<std::string, GgufValue> keys;
  if (!latent.exists()) return keys;
  const auto integer = [&](const char* key, int64_t value) {
    keys[std::string("attention.") + key] = {value, GgufType::kU32};
  };
  integer("kv_lora_rank", latent.kv_rank);
  integer("q_lora_rank", latent.q_rank);
  if (!IsDeepseekGguf(family.gguf)) {
    integer("key_length", c.head_dim);
    integer("value_length", latent.value_dim);
    return keys;
  }
  // One key for all heads, as long as the vector that keys and values are made of.
  integer("head_count_kv", 1);
  integer("key_length", latent.kv_rank + latent.rotary_dim);
  integer("value_length", latent.kv_rank);
  integer("key_length_mla", c.head_dim);
  integer("value_length_mla", latent.value_dim);
  return keys;
}

}  // namespace ropewalk::internal
