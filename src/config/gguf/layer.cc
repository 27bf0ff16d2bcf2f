// How the layers of a model in a GGUF file are built. What llama.cpp knows by the architecture is in
// the family's row; what it knows by the tensors that are there, and by keys, is read here.
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "ropewalk/base/error.h"
#include "src/config/block.h"
#include "src/config/gguf/config.h"
#include "src/config/hf/config.h"
#include "src/config/number_keys.h"

namespace ropewalk::internal {
namespace {

class LayerReader {
 public:
  LayerReader(const GgufKeys& keys, const Family& family, ModelConfig& c)
      : keys_(keys), block_(*family.block), c_(c) {}

  void Run() {
    c_.layer = block_.layer;
    c_.layer.mlp.activation = *FindActivation(block_.activation);
    ReadNames();
    ReadNorms();
    ReadBiases();
    ReadScales();
    ReadScores();
    if (block_.gguf_rest != nullptr) block_.gguf_rest(keys_, c_);
  }

 private:
  // A file without tensors is one of metadata alone: then the row decides.
  bool Bare() const { return keys_.gguf().tensors.empty(); }
  bool HasTensor(const char* name) const { return keys_.gguf().tensors.contains(name); }
  // Of the first layer: all are alike, or CheckTensors says which is not.
  bool InLayer(const char* name) const { return HasTensor(("blk.0." + std::string(name)).c_str()); }
  // As in the file, where it has no more than a float32 holds.
  double Read(const char* key, double otherwise) const {
    const auto value = keys_.Number(key, 0, 1e9);
    return value ? ShortestDecimal(*value) : otherwise;
  }

  // llama.cpp takes q, k and v of most architectures in one tensor or in three.
  void ReadNames() {
    const bool fused_usually = block_.gguf_names->qkv != TensorNames::Qkv::kSplit;
    fused_ = InLayer("attn_qkv.weight") || (fused_usually && !InLayer("attn_q.weight"));
    const bool gate_up = block_.gguf_names->Find(TensorId::kGateUp) != nullptr;
    c_.tensor_names = gate_up ? (fused_ ? &kGgufFusedGateUpNames : &kGgufGateUpNames)
                              : (fused_ ? &kGgufFusedNames : &kGgufNames);
    if (block_.gguf_names == &kGgufGptOssNames) {
      c_.tensor_names = fused_ ? &kGgufFusedGptOssNames : &kGgufGptOssNames;
    }
    // Files from before 2025 have keys and values of latent attention in one tensor.
    if (block_.gguf_names == &kGgufSplitKvNames && !InLayer("attn_kv_b.weight")) {
      const std::string fused = fmt::format("blk.{}.ffn_gate_up_exps.weight", c_.layers - 1);
      c_.tensor_names = HasTensor(fused.c_str()) ? &kGgufFusedExpertsNames : &kGgufSplitKvNames;
    }
  }

  // Falcon's layers are parallel in llama.cpp, StableLM's where they have one norm.
  bool IsParallel() const {
    if (block_.parallel.key == nullptr) return block_.parallel.otherwise;
    const bool said = keys_.Bool("use_parallel_residual").value_or(block_.parallel.otherwise);
    if (block_.two_norms != nullptr) return true;
    return block_.one_norm_if_parallel && !Bare() ? !InLayer("ffn_norm.weight") : said;
  }

  void ReadNorms() {
    LayerSpec& layer = c_.layer;
    if (IsParallel()) {
      const bool two = block_.two_norms != nullptr && InLayer("attn_norm_2.weight");
      layer.residual = Residual::kParallel;
      if (two) c_.tensor_names = &kGgufTwoNormNames;
      if (block_.one_norm_if_parallel && !two) layer.pre_mlp = {};
    }
    if (block_.qk_norm.key != nullptr && !InLayer("attn_q_norm.weight")) {
      layer.attention.qk_norm = {};
    }
    const NormSpec norm = layer.pre_attention.exists() ? layer.pre_attention : layer.post_attention;
    c_.final_norm = norm;
    if (block_.embedding_norm) c_.embedding_norm = norm;
    c_.norm_eps = Read(norm.kind == NormSpec::Kind::kRms ? "attention.layer_norm_rms_epsilon"
                                                         : "attention.layer_norm_epsilon",
                       1e-5);
  }

  void ReadBiases() {
    AttentionSpec& attention = c_.layer.attention;
    const auto always = [](const Flag& flag) { return flag.key == nullptr && flag.otherwise; };
    attention.qkv_bias =
        Bare() ? always(block_.qkv_bias) : InLayer(fused_ ? "attn_qkv.bias" : "attn_q.bias");
    attention.out_bias = Bare() ? always(block_.out_bias) : InLayer("attn_output.bias");
    c_.layer.mlp.bias = Bare() ? always(block_.mlp_bias) : InLayer("ffn_up.bias");
    c_.head_bias = block_.head_bias;
  }

  // 0 stands for a key that is absent, as in llama.cpp.
  void ReadScales() {
    if (block_.scaled_embedding) c_.embedding_scale = std::sqrt(static_cast<double>(c_.hidden));
    const GgufScales kind = block_.gguf_scales;
    if (kind == GgufScales::kNone) return;
    const bool mini = kind == GgufScales::kMiniCpm || kind == GgufScales::kMiniCpm3;
    const auto read = [&](const char* key, double otherwise) {
      return kind == GgufScales::kMiniCpm3 ? otherwise : Read(key, otherwise);
    };
    const auto multiplier = [&](const char* key, double otherwise) {
      const double value = read(key, otherwise);
      return value == 0 ? 1 : value;
    };
    // The oldest files of MiniCPM have no keys: of its 2B scale_depth is 1.4, dim_model_base 256.
    const auto hidden = static_cast<double>(c_.hidden);
    const double logits = read("logit_scale", mini ? hidden / 256 : 0);
    c_.logit_scale = logits == 0 ? 1 : kind == GgufScales::kCohere ? logits : 1 / logits;
    if (kind == GgufScales::kCohere) return;
    const double depth = 1.4 / std::sqrt(static_cast<double>(c_.layers));
    c_.embedding_scale = multiplier("embedding_scale", mini ? 12 : 1);
    c_.layer.residual_scale = multiplier("residual_scale", mini ? depth : 1);
    if (!mini) c_.layer.attention.score_scale = Read("attention.scale", 0);
  }

  void ReadScores() {
    AttentionSpec& attention = c_.layer.attention;
    const auto number = [&](const Number& n) {
      return n.key == nullptr ? n.otherwise : Read(n.key, n.otherwise);
    };
    attention.soft_cap = number(block_.score_cap);
    c_.logit_cap = number(block_.logit_cap);
    if (block_.gguf_clip) attention.clip_qkv = Read("attention.clamp_kqv", 0);
    if (block_.wide_layers == 0 || block_.wide_layers != c_.layers) return;
    const int64_t whole = c_.hidden / c_.heads;  // llama.cpp divides integers
    attention.score_scale = 1 / std::sqrt(static_cast<double>(whole));
    c_.plan.notes.push_back(fmt::format(
        "scores are divided by the root of {} / {}: llama.cpp's rule for {} layers, not a key of "
        "the file",
        c_.hidden, c_.heads, c_.layers));
  }

  const GgufKeys& keys_;
  const Block& block_;
  ModelConfig& c_;
  bool fused_ = false;  // q, k and v are one tensor
};

}  // namespace

void ReadGgufLayer(const GgufKeys& keys, const Family& family, ModelConfig& c) {
  LayerReader(keys, family, c).Run();
}

}  // namespace ropewalk::internal
