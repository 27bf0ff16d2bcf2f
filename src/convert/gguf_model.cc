#include "src/convert/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ropewalk/base/error.h"
#include "src/config/block.h"
#include "src/config/gguf/keys.h"
#include "src/config/hf/config.h"
#include "src/config/number_keys.h"
#include "src/convert/gguf_experts.h"
#include "src/engines/hf_config.h"
#include "src/engines/llamacpp.h"

namespace ropewalk::internal {
namespace {

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(ErrorCode::kUnsupported, "GGUF cannot hold it: " + why);
}

// Llama 4: what llama.cpp has for constants, where the file does not say that all layers are alike.
void CheckChunks(const ModelConfig& c, const Family& family) {
  QueryTemperature usual;
  usual.offset = 1;
  for (int64_t l = 0; l < c.layers; ++l) {
    const LayerPlan& layer = c.plan.layers[static_cast<std::size_t>(l)];
    const bool rotates = (l + 1) % family.no_rope_interval != 0;
    const auto temperature = rotates ? std::nullopt : std::optional(usual);
    if (layer.rotation.has_value() == rotates && layer.chunk_tokens == (rotates ? 8192 : 0) &&
        layer.window_tokens == 0 && layer.temperature == temperature) {
      continue;
    }
    Refuse(
        fmt::format("layer {} is not as llama.cpp has it of the architecture {}: three layers "
                    "that rotate and attend within chunks of 8192 tokens, one that does neither "
                    "and has the temperature 1 + 0.1 ln(floor((n + 1) / 8192) + 1)",
                    l, family.gguf));
  }
}

// Baichuan: llama.cpp knows by the number of layers which of them has ALiBi.
void CheckBaichuan(const ModelConfig& c, const Family& family) {
  const std::optional<bool> rotates = BaichuanRotates(c.layers);
  for (const LayerPlan& layer : c.plan.layers) {
    const auto* alibi = layer.bias ? std::get_if<AlibiBias>(&layer.bias->method) : nullptr;
    const bool right = rotates && layer.rotation.has_value() == *rotates &&
                       (alibi != nullptr) == !*rotates && (*rotates || alibi->max_bias == 8);
    if (right) continue;
    Refuse(
        fmt::format("{} layers that {}; llama.cpp rotates {} models of 32 layers and has ALiBi "
                    "in those of 40",
                    c.layers, layer.rotation ? "rotate" : "have ALiBi", family.gguf));
  }
}

void CheckTemperature(const ModelConfig& c, const Family& family,
                      const LlamaCppArchitecture& arch) {
  const auto& first = c.plan.layers[0].temperature;
  const bool alike = std::all_of(c.plan.layers.begin(), c.plan.layers.end(),
                                 [&](const LayerPlan& l) { return l.temperature == first; });
  QueryTemperature usual;
  if (first) usual.beta = first->beta;
  usual.period = c.plan.trained_length;
  const bool taken = arch.Takes(kTemperature) && first == usual;
  if (alike && (!first || taken)) return;
  Refuse(
      fmt::format("queries have a temperature by position{}, for which {} has no key that "
                  "llama.cpp reads",
                  alike ? "" : " in some layers alone", family.gguf));
}

// Which layers rotate and slide: what the keys of the architecture say to llama.cpp.
void CheckLayers(const ModelConfig& c, const Family& family, const LlamaCppArchitecture& arch) {
  if (family.Has(kChunks)) return CheckChunks(c, family);
  if (std::string_view(family.name) == "baichuan") return CheckBaichuan(c, family);
  CheckTemperature(c, family, arch);
  const std::vector<LayerPlan>& layers = c.plan.layers;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const bool slides = layers[l].window_tokens > 0;
    const bool known = arch.Takes(kWindows) || (arch.Takes(kIgnoredWindow) &&
                                                layers[l].window_tokens == layers[0].window_tokens);
    const bool rotates =
        family.gguf_rope != GgufRope::kNone && (!family.Has(kOnlySlidingRotate) || slides);
    if ((!slides || known) && layers[l].rotation.has_value() == rotates) continue;
    const bool window = slides && !known;
    Refuse(fmt::format("layer {} {}, for which {} has no key that llama.cpp reads", l,
                       window               ? "has a sliding window"
                       : layers[l].rotation ? "rotates"
                                            : "does not rotate (NoPE)",
                       family.gguf));
  }
}

// Biases, norms and the head: llama.cpp loads what it has a name for, and no file with more.
void CheckParts(const ModelConfig& c, const Family& family, const LlamaCppArchitecture& arch) {
  const AttentionSpec& attention = c.layer.attention;
  const bool out = attention.out_bias && !arch.Takes(kOutBias);
  if (out || (c.layer.mlp.bias && !arch.Takes(kMlpBias))) {
    Refuse(fmt::format("{} has a bias ({}), which llama.cpp does not take of the architecture {}",
                       out ? "o_proj" : "the MLP", out ? "attention_bias" : "mlp_bias",
                       family.gguf));
  }
  const bool parallel = c.layer.residual == Residual::kParallel;
  if (c.layer.residual == Residual::kNormedInput || (arch.Takes(kParallelAlone) && !parallel)) {
    Refuse(fmt::format("{}, which llama.cpp does not compute for the architecture {}",
                       parallel || !arch.Takes(kParallelAlone)
                           ? "attention and MLP are added to the norm's result"
                           : "its MLP follows attention",
                       family.gguf));
  }
  const bool scores = family.block->gguf_scales == GgufScales::kGranite;
  if (attention.score_scale > 0 && !scores) {
    Refuse(
        fmt::format("scores are multiplied by {:g}; llama.cpp has no key for it in the "
                    "architecture {}",
                    attention.score_scale, family.gguf));
  }
  const bool biased = attention.qkv_bias || !family.block->qkv_bias.otherwise;
  if (arch.Takes(kEveryBias) && !(biased && attention.out_bias && c.layer.mlp.bias)) {
    Refuse(
        fmt::format("its layers have no biases, without which llama.cpp loads no file of the "
                    "architecture {}",
                    family.gguf));
  }
  if (attention.clip_qkv > 0 && !family.block->gguf_clip) {
    Refuse(
        fmt::format("q, k and v are clipped (clip_qkv is {:g}), which llama.cpp does not do in the "
                    "architecture {}",
                    attention.clip_qkv, family.gguf));
  }
  if (c.head_bias && c.tied_head) Refuse("a tied head with a bias of its own");
  if (!arch.Takes(kOwnHead) && !c.tied_head) {
    Refuse(
        fmt::format("lm_head is not the embedding; llama.cpp has no other head for the "
                    "architecture {}",
                    family.gguf));
  }
  const int64_t from = arch.qk_norm_from_layers;
  if (from > 0 && attention.qk_norm.exists() != (c.layers >= from)) {
    Refuse(
        fmt::format("{} layers {} norms of q and k; llama.cpp takes them of {} models of {} "
                    "layers and more",
                    c.layers, attention.qk_norm.exists() ? "with" : "without", family.gguf, from));
  }
}

// Which elements of a head are a pair is known by the architecture.
void CheckLayout(const ModelConfig& c, const Family& family) {
  const bool interleaved = family.gguf_rope == GgufRope::kNorm && !family.Has(kGgufPermuted);
  for (const LayerPlan& layer : c.plan.layers) {
    if (!layer.rotation) continue;
    if ((layer.rotation->layout == PairLayout::kInterleaved) == interleaved) continue;
    constexpr const char* kHalves = "pairs of elements half a rotary_dim apart";
    constexpr const char* kNeighbours = "pairs of consecutive elements";
    Refuse(fmt::format("{}; llama.cpp has {} in the architecture {}",
                       interleaved ? kHalves : kNeighbours, interleaved ? kNeighbours : kHalves,
                       family.gguf));
  }
}

// Writes the keys of sizes, windows and scales.
class KeyWriter {
 public:
  KeyWriter(const ModelConfig& c, const Family& family) : c_(c), family_(family) {}

  std::map<std::string, GgufValue> Run() {
    Integer("block_count", c_.layers);
    Integer("embedding_length", c_.hidden);
    // Qwen 1 counts gate and up.
    const bool both = std::string_view(family_.gguf) == "qwen";
    Integer("feed_forward_length", (both ? 2 : 1) * c_.feed_forward);
    Integer("attention.head_count", c_.heads);
    Integer("attention.head_count_kv", c_.kv_heads);
    Integer("attention.key_length", c_.head_dim);
    Integer("attention.value_length", c_.head_dim);
    Integer("vocab_size", c_.vocab);
    for (const auto& [key, value] : LatentKeys(c_, family_)) keys_[Name(key.c_str())] = value;
    for (const auto& [key, value] : ExpertKeys(c_, family_)) keys_[Name(key.c_str())] = value;
    Float(c_.final_norm.kind == NormSpec::Kind::kRms ? "attention.layer_norm_rms_epsilon"
                                                     : "attention.layer_norm_epsilon",
          c_.norm_eps);
    WriteWindows();
    WriteScales();
    WriteFlags();
    if (FindLlamaCpp(family_.gguf)->Takes(kTemperature) && c_.plan.layers[0].temperature) {
      Float("attention.temperature_scale", c_.plan.layers[0].temperature->beta);
      if (IsDeepseekGguf(family_.gguf)) {  // others take the trained length
        Integer("attention.temperature_length", c_.plan.layers[0].temperature->period);
      }
    }
    if (c_.layer.attention.clip_qkv > 0) Float("attention.clamp_kqv", c_.layer.attention.clip_qkv);
    return std::move(keys_);
  }

 private:
  void Integer(const char* key, int64_t value) { keys_[Name(key)] = {value, GgufType::kU32}; }
  void Float(const char* key, double value) {
    keys_[Name(key)] = {static_cast<double>(static_cast<float>(value)), GgufType::kF32};
  }
  std::string Name(const char* key) const { return fmt::format("{}.{}", family_.gguf, key); }

  // Which layers slide is said by the file, whatever llama.cpp's period for the architecture is.
  void WriteWindows() {
    int64_t window = 0;
    std::vector<int64_t> slides;
    for (const LayerPlan& layer : c_.plan.layers) {
      window = std::max(window, layer.window_tokens);
      slides.push_back(layer.window_tokens > 0 ? 1 : 0);
    }
    if (window == 0) return;
    Integer("attention.sliding_window", window);
    if (FindLlamaCpp(family_.gguf)->Takes(kWindows)) {
      keys_[Name("attention.sliding_window_pattern")] = {slides, GgufType::kBool};
    }
  }

  void WriteFlags() {
    const Flag& parallel = family_.block->parallel;
    if (parallel.key == nullptr || std::string_view(parallel.key) != "use_parallel_residual")
      return;
    keys_[Name("use_parallel_residual")] = {c_.layer.residual == Residual::kParallel,
                                            GgufType::kBool};
  }

  void WriteScales() {
    const GgufScales kind = family_.block->gguf_scales;
    if (kind == GgufScales::kNone || kind == GgufScales::kMiniCpm3) return;
    const bool multiplies = kind == GgufScales::kCohere;
    Float("logit_scale", multiplies ? c_.logit_scale : 1 / c_.logit_scale);
    if (multiplies) return;
    Float("embedding_scale", c_.embedding_scale);
    Float("residual_scale", c_.layer.residual_scale);
    const double scores = c_.layer.attention.score_scale;
    if (scores > 0) Float("attention.scale", scores);
  }

  const ModelConfig& c_;
  const Family& family_;
  std::map<std::string, GgufValue> keys_;
};

}  // namespace

const Family& GgufFamilyOf(const ModelConfig& c) {
  const Family* own = FindFamily(c.architecture);
  const Family* family = own == nullptr ? nullptr : WrittenAs(*own);
  const LlamaCppArchitecture* arch = family == nullptr ? nullptr : FindLlamaCpp(family->gguf);
  if (arch == nullptr || !IsConverted(c.architecture)) {
    throw Error(ErrorCode::kUnsupported, fmt::format("a '{}' model is not written as GGUF; {} are",
                                                     c.architecture, ConvertedFamilies()));
  }
  CheckLayers(c, *family, *arch);
  CheckParts(c, *family, *arch);
  CheckExperts(c, *family);
  CheckLatent(c, *family);
  CheckLayout(c, *family);
  if (arch->Takes(kAllKeyHeads) && c.kv_heads != c.heads) {
    Refuse(
        fmt::format("{} key heads for {} heads; llama.cpp takes as many of both in the "
                    "architecture {}",
                    c.kv_heads, c.heads, family->gguf));
  }
  if (!arch->Takes(kHeadSize) && c.heads * c.head_dim != c.hidden) {
    Refuse(
        fmt::format("{} heads of {} for {} hidden elements; llama.cpp takes hidden / heads for "
                    "the head size of the architecture {}",
                    c.heads, c.head_dim, c.hidden, family->gguf));
  }
  using Activation = MlpSpec::Activation;
  const Activation activation = c.layer.mlp.activation;  // gpt-oss has one that no key names
  if (activation != Activation::kClampedSwiglu &&
      activation != *FindActivation(own->block->activation)) {
    Refuse(fmt::format("its activation is not {}, which models of the architecture {} have",
                       own->block->activation, family->gguf));
  }
  return *family;
}

StoredRope GgufPositionsOf(const ModelConfig& c, const Family& family) {
  const bool rotates = c.plan.layers[0].rotation.has_value();
  if (rotates || (family.gguf_rope != GgufRope::kNone && !c.plan.layers[0].bias)) {
    return GgufRopeOf(family.gguf, c.plan, c.plan.configured_length);
  }
  constexpr int64_t kUnsaid = 2048;  // BLOOM's length, which few of its files have
  StoredRope out;
  out.stored = c.plan;
  const auto key = [&](const char* name) { return fmt::format("{}.{}", family.gguf, name); };
  const int64_t length = c.plan.learned                 ? c.plan.learned->positions
                         : c.plan.configured_length > 0 ? c.plan.configured_length
                                                        : kUnsaid;
  out.keys[key("context_length")] = {length, GgufType::kU32};
  const auto& bias = c.plan.layers[0].bias;
  const auto* alibi = bias ? std::get_if<AlibiBias>(&bias->method) : nullptr;
  if (alibi == nullptr) return out;
  const auto max_bias = static_cast<float>(alibi->max_bias);
  // Known by the architecture's name, or by the number of layers.
  if (family.gguf_rope != GgufRope::kNone || family.other == OtherEncoding::kAlibi) return out;
  out.keys[key("attention.max_alibi_bias")] = {static_cast<double>(max_bias), GgufType::kF32};
  for (LayerPlan& layer : out.stored.layers) {
    std::get<AlibiBias>(layer.bias->method).max_bias = max_bias;
  }
  return out;
}

std::map<std::string, GgufValue> GgufModelKeys(const ModelConfig& c, const Family& family) {
  return KeyWriter(c, family).Run();
}

void NoteWhatLlamaCppDoes(const ModelConfig& c, const Family& family, Converted& result) {
  if (c.text_part) {
    result.notes.push_back(
        "the text part alone: what reads images is in no file of this program (llama.cpp has it in "
        "one of its own, mmproj)");
  }
  if (family.Has(kGgufPermuted)) {
    result.notes.push_back(
        "rows of q and k permuted for the interleaved layout, as llama.cpp "
        "expects them of this architecture");
  }
  const bool slides = !c.plan.layers.empty() && c.plan.layers[0].window_tokens > 0;
  if (slides && FindLlamaCpp(family.gguf)->Takes(kIgnoredWindow)) {
    result.notes.push_back(fmt::format(
        "the window of {} tokens is in the file, but llama.cpp ignores it in {} models: "
        "there every token sees all before it",
        c.plan.layers[0].window_tokens, family.gguf));
  }
  // GGUF has float32.
  const LatentSpec& latent = c.layer.attention.latent;
  if (latent.exists() && latent.norm_eps != c.norm_eps) {
    result.numbers.latent_norm_eps = c.norm_eps;
    result.notes.push_back(
        fmt::format("norms of latent attention have the epsilon {:g} in the folder, a constant of "
                    "transformers' code, and rms_norm_eps, {:g}, in the file: GGUF has one number "
                    "for all norms",
                    latent.norm_eps, c.norm_eps));
  }
  const GgufScales kind = family.block->gguf_scales;
  const auto stored = [](double value) {
    return 1 / ShortestDecimal(static_cast<float>(1 / value));
  };
  const bool divides = kind == GgufScales::kGranite || kind == GgufScales::kMiniCpm;
  if (divides && static_cast<float>(stored(c.logit_scale)) != static_cast<float>(c.logit_scale)) {
    result.numbers.logit_scale = stored(c.logit_scale);
    result.notes.push_back(fmt::format("logits are divided by {}, a float32: 1 / {} before",
                                       1 / stored(c.logit_scale), c.logit_scale));
  }
}

}  // namespace ropewalk::internal
