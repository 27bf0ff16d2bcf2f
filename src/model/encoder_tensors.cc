#include "src/model/encoder_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "ropewalk/base/error.h"
#include "src/config/family.h"

namespace ropewalk::internal {
namespace {

using Id = EncoderTensor;
using Tensors = EncoderSpec::Tensors;

struct Expected {
  Id id;
  int64_t layer;
  bool bias;
  std::string name;
  std::vector<int64_t> shape;
  bool optional;  // a file without it is whole
};

// Collects what a model has.
class List {
 public:
  explicit List(const ModelConfig& config) : c(config), e(*config.encoder) {}
  const ModelConfig& c;
  const EncoderSpec& e;
  std::vector<Expected> all;

  void In(int64_t layer, std::string prefix) { layer_ = layer, prefix_ = std::move(prefix); }
  void Tensor(Id id, const std::string& name, std::vector<int64_t> shape, bool bias = false) {
    all.push_back({id, layer_, bias, prefix_ + name, std::move(shape), false});
  }
  void Optional(Id id, const std::string& name, std::vector<int64_t> shape) {
    all.push_back({id, layer_, false, prefix_ + name, std::move(shape), true});
  }
  void Matrix(Id id, const std::string& name, int64_t out, int64_t in, bool bias) {
    Tensor(id, name + ".weight", {out, in});
    if (bias) Tensor(id, name + ".bias", {out}, true);
  }
  void Norm(Id id, const std::string& name) {
    Tensor(id, name + ".weight", {c.hidden});
    if (c.block.norm == BlockStyle::Norm::kLayer) Tensor(id, name + ".bias", {c.hidden}, true);
  }

 private:
  int64_t layer_ = -1;
  std::string prefix_;
};

int64_t HeadsWide(const ModelConfig& c) { return c.heads * c.head_dim; }

// BERT's, RoBERTa's and DeBERTa's embeddings.
void AddEmbeddings(List& t) {
  const ModelConfig& c = t.c;
  t.In(-1, "embeddings.");
  t.Matrix(Id::kWords, "word_embeddings", c.vocab, c.hidden, false);
  if (c.plan.learned) {
    const int64_t rows = c.plan.learned->first_row + c.plan.learned->positions;
    t.Matrix(Id::kPositions, "position_embeddings", rows, c.hidden, false);
  } else if (t.e.mask_decoder_positions > 0) {
    t.Optional(Id::kPositions, "position_embeddings.weight",
               {t.e.mask_decoder_positions, c.hidden});
  }
  if (t.e.token_types > 0) {
    t.Matrix(Id::kTokenTypes, "token_type_embeddings", t.e.token_types, c.hidden, false);
  }
  t.Norm(Id::kEmbeddingNorm, "LayerNorm");
}

void AddBertLayers(List& t, const char* q, const char* k, const char* v) {
  const ModelConfig& c = t.c;
  const int64_t width = HeadsWide(c);
  for (int64_t l = 0; l < c.layers; ++l) {
    t.In(l, fmt::format("encoder.layer.{}.", l));
    t.Matrix(Id::kQ, fmt::format("attention.self.{}", q), width, c.hidden, true);
    t.Matrix(Id::kK, fmt::format("attention.self.{}", k), width, c.hidden, true);
    t.Matrix(Id::kV, fmt::format("attention.self.{}", v), width, c.hidden, true);
    t.Matrix(Id::kO, "attention.output.dense", c.hidden, width, true);
    t.Norm(Id::kAttentionNorm, "attention.output.LayerNorm");
    t.Matrix(Id::kUp, "intermediate.dense", c.feed_forward, c.hidden, true);
    t.Matrix(Id::kDown, "output.dense", c.hidden, c.feed_forward, true);
    t.Norm(Id::kFeedForwardNorm, "output.LayerNorm");
  }
}

void AddBert(List& t) {
  AddEmbeddings(t);
  AddBertLayers(t, "query", "key", "value");
}

void AddDeberta(List& t) {
  const ModelConfig& c = t.c;
  AddEmbeddings(t);
  AddBertLayers(t, "query_proj", "key_proj", "value_proj");
  const auto* bias = BiasOf<DebertaLayerBias>(c);
  if (bias == nullptr) return;
  t.In(-1, "encoder.");
  t.Matrix(Id::kRelative, "rel_embeddings", 2 * bias->bias.Span(), c.hidden, false);
  if (bias->normalized_embedding) t.Norm(Id::kRelativeNorm, "LayerNorm");
  if (bias->shared_keys) return;
  for (int64_t l = 0; l < c.layers; ++l) {
    t.In(l, fmt::format("encoder.layer.{}.attention.self.", l));
    const int64_t width = HeadsWide(c);
    if (bias->content_to_position)
      t.Matrix(Id::kPositionKey, "pos_key_proj", width, c.hidden, true);
    if (bias->position_to_content) {
      t.Matrix(Id::kPositionQuery, "pos_query_proj", width, c.hidden, true);
    }
  }
}

void AddT5(List& t) {
  const ModelConfig& c = t.c;
  const int64_t width = HeadsWide(c);
  const T5LayerBias& t5 = *BiasOf<T5LayerBias>(c);
  t.In(-1, "");
  t.Matrix(Id::kWords, "shared", c.vocab, c.hidden, false);
  t.Norm(Id::kFinalNorm, "encoder.final_layer_norm");
  for (int64_t l = 0; l < c.layers; ++l) {
    t.In(l, fmt::format("encoder.block.{}.layer.", l));
    t.Norm(Id::kAttentionNorm, "0.layer_norm");
    t.Matrix(Id::kQ, "0.SelfAttention.q", width, c.hidden, false);
    t.Matrix(Id::kK, "0.SelfAttention.k", width, c.hidden, false);
    t.Matrix(Id::kV, "0.SelfAttention.v", width, c.hidden, false);
    t.Matrix(Id::kO, "0.SelfAttention.o", c.hidden, width, false);
    if (l == 0 || t5.per_layer) {
      t.Matrix(Id::kRelative, "0.SelfAttention.relative_attention_bias", t5.bias.buckets, c.heads,
               false);
    }
    t.Norm(Id::kFeedForwardNorm, "1.layer_norm");
    const char* up = c.block.gated ? "1.DenseReluDense.wi_1" : "1.DenseReluDense.wi";
    if (c.block.gated) {
      t.Matrix(Id::kGate, "1.DenseReluDense.wi_0", c.feed_forward, c.hidden, false);
    }
    t.Matrix(Id::kUp, up, c.feed_forward, c.hidden, false);
    t.Matrix(Id::kDown, "1.DenseReluDense.wo", c.hidden, c.feed_forward, false);
  }
}

void AddXlnet(List& t) {
  const ModelConfig& c = t.c;
  t.In(-1, "");
  t.Matrix(Id::kWords, "word_embedding", c.vocab, c.hidden, false);
  const std::vector<int64_t> matrix = {c.hidden, c.heads, c.head_dim};
  for (int64_t l = 0; l < c.layers; ++l) {
    t.In(l, fmt::format("layer.{}.", l));
    t.Tensor(Id::kQ, "rel_attn.q", matrix);
    t.Tensor(Id::kK, "rel_attn.k", matrix);
    t.Tensor(Id::kV, "rel_attn.v", matrix);
    t.Tensor(Id::kO, "rel_attn.o", matrix);
    t.Tensor(Id::kRelative, "rel_attn.r", matrix);
    t.Tensor(Id::kContentBias, "rel_attn.r_w_bias", {c.heads, c.head_dim});
    t.Tensor(Id::kPositionBias, "rel_attn.r_r_bias", {c.heads, c.head_dim});
    t.Norm(Id::kAttentionNorm, "rel_attn.layer_norm");
    t.Matrix(Id::kUp, "ff.layer_1", c.feed_forward, c.hidden, true);
    t.Matrix(Id::kDown, "ff.layer_2", c.hidden, c.feed_forward, true);
    t.Norm(Id::kFeedForwardNorm, "ff.layer_norm");
  }
}

struct Names {
  Tensors tensors;
  void (*add)(List&);
  const char* root;      // the word that a file may have before every name
  const char* harmless;  // beginnings of what lies behind or beside the encoder
};
// Heads of the tasks that a model was trained for, its pooler, buffers, and T5's decoder.
constexpr Names kNames[] = {
    {Tensors::kBert, AddBert, "bert.",
     "pooler. cls. classifier. qa_outputs. embeddings.position_ids"},
    {Tensors::kRoberta, AddBert, "roberta.",
     "pooler. lm_head. classifier. qa_outputs. embeddings.position_ids"},
    {Tensors::kT5, AddT5, "", "decoder. lm_head. encoder.embed_tokens."},
    {Tensors::kDeberta, AddDeberta, "deberta.",
     "pooler. cls. lm_predictions. mask_predictions. classifier. qa_outputs. "
     "embeddings.position_ids"},
    {Tensors::kXlnet, AddXlnet, "transformer.",
     "mask_emb lm_loss. sequence_summary. logits_proj. classifier. qa_outputs. start_logits. "
     "end_logits. answer_class."},
};

const Names& NamesOf(const ModelConfig& c) {
  return *std::find_if(std::begin(kNames), std::end(kNames),
                       [&](const Names& n) { return n.tensors == c.encoder->tensors; });
}

// Other spellings of one tensor: TensorFlow's words for a norm, T5 saved without the shared table.
std::string OtherSpelling(const std::string& name) {
  const auto with = [&](const std::string& end, const std::string& other) {
    return name.ends_with(end) ? name.substr(0, name.size() - end.size()) + other : std::string();
  };
  if (std::string s = with("LayerNorm.weight", "LayerNorm.gamma"); !s.empty()) return s;
  if (std::string s = with("LayerNorm.bias", "LayerNorm.beta"); !s.empty()) return s;
  return name == "shared.weight" ? "encoder.embed_tokens.weight" : "";
}

bool IsHarmless(const ModelConfig& c, const Names& names, const std::string& bare) {
  const std::vector<std::string> parts = Words(names.harmless);
  if (std::any_of(parts.begin(), parts.end(),
                  [&](const std::string& part) { return bare.starts_with(part); })) {
    return true;
  }
  // With one segment the segment bias adds the same to all scores of a query: softmax drops it.
  return c.encoder->tensors == Tensors::kXlnet &&
         (bare.ends_with("rel_attn.r_s_bias") || bare.ends_with("rel_attn.seg_embed"));
}

}  // namespace

EncoderTensors::EncoderTensors(const ModelConfig& config, const ModelFiles& files) {
  if (config.layers > static_cast<int64_t>(files.tensors.size())) {
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("{}: the configuration says {} layers but there are only {} tensors; "
                            "is a weight file missing?",
                            files.path, config.layers, files.tensors.size()));
  }
  const Names& names = NamesOf(config);
  const std::string root = names.root;
  const bool rooted =
      !root.empty() && std::any_of(files.tensors.begin(), files.tensors.end(),
                                   [&](const auto& t) { return t.first.starts_with(root); });
  List list(config);
  names.add(list);
  std::set<std::string> known;
  for (const Expected& t : list.all) {
    auto it = files.tensors.find((rooted ? root : "") + t.name);
    if (it == files.tensors.end()) {
      it = files.tensors.find((rooted ? root : "") + OtherSpelling(t.name));
    }
    if (it == files.tensors.end() && t.optional) continue;
    if (it == files.tensors.end()) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' is missing (expected shape [{}]); is a weight file "
                              "missing, or is this another architecture than '{}'?",
                              files.path, t.name, fmt::join(t.shape, ", "), config.architecture));
    }
    if (it->second.shape != t.shape) {
      throw Error(ErrorCode::kInvalidFile,
                  fmt::format("{}: tensor '{}' has shape [{}], the configuration says [{}]; the "
                              "weights belong to another configuration",
                              files.path, it->first, fmt::join(it->second.shape, ", "),
                              fmt::join(t.shape, ", ")));
    }
    known.insert(it->first);
    found_[{t.id, t.layer, t.bias}] = &it->second;
  }
  for (const auto& [name, weight] : files.tensors) {
    const bool has_root = rooted && name.starts_with(root);
    if (known.contains(name) ||
        IsHarmless(config, names, has_root ? name.substr(root.size()) : name)) {
      continue;
    }
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format("{}: tensor '{}' with shape [{}] has no place in a '{}' model; its part "
                    "of the model would be ignored",
                    files.path, name, fmt::join(weight.shape, ", "), config.architecture));
  }
}

}  // namespace ropewalk::internal
