// The configurations of text encoders. Defaults are those of transformers 4.57. What is not
// computed here leaves the model readable, with the reason.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ropewalk/config/config.h"
#include "src/config/block.h"
#include "src/config/hf/config.h"
#include "src/config/tensor_names.h"

namespace ropewalk::internal {
namespace {

using nlohmann::json;
using Tensors = EncoderSpec::Tensors;

// Of NEZHA's table, which is computed as soon as the configuration is read.
constexpr int64_t kMaxReach = 65536;

// Why an encoder is not run; thrown and caught here alone.
struct NotComputed {
  std::string reason;
};

class EncoderReader {
 public:
  EncoderReader(const HfSource& source, ModelConfig& c)
      : source_(source), top_(source.top), c_(c) {}

  void Bert();
  void Roformer();
  void Nezha();
  void T5();
  void T5Decoder();
  void Deberta();
  void Xlnet();
  // What every family has said by then.
  void CheckSizesKnown() const;
  EncoderSpec spec;

 private:
  [[noreturn]] void Refuse(const char* key, const std::string& why) const {
    const json* value = top_.Find(key);
    throw NotComputed{fmt::format("{}: {} is {}: {}", top_.where(), key,
                                  value == nullptr ? "absent" : Shown(*value), why)};
  }
  void RefuseIfTrue(const char* key, const std::string& why) const {
    if (top_.Bool(key).value_or(false)) Refuse(key, why);
  }
  void Activation(const char* key, const std::string& name) {
    const auto found = FindActivation(name);
    if (!found) Refuse(key, "gelu, gelu_new, gelu_fast, relu and silu are computed");
    c_.layer.mlp.activation = *found;
  }
  // Norms with biases behind each addition, two plain matrices in the feed-forward layer.
  void BertLayers(const char* activation_key, double norm_eps) {
    c_.layer.pre_attention = c_.layer.pre_mlp = c_.final_norm = {};
    c_.layer.post_attention = c_.layer.post_mlp = kLayerNorm;
    c_.layer.residual = Residual::kNormedSum;
    c_.layer.mlp.gated = false;
    c_.layer.mlp.bias = true;
    Activation(activation_key, top_.String(activation_key).value_or("gelu"));
    c_.norm_eps = top_.Number("layer_norm_eps", 0, 1).value_or(norm_eps);
  }
  bool IsMt5() const { return top_.String("model_type") == "mt5"; }
  void BertModel();
  int64_t PositionRows() const {
    return source_.Int("max_position_embeddings", 1, kMaxTokens).value_or(512);
  }
  void AbsolutePositions(int64_t first_row);
  void CheckFirstDeberta() const;
  DebertaLayerBias DebertaTerms() const;
  template <class Bias>
  void SetBias(const Bias& bias) {
    for (LayerPlan& layer : c_.plan.layers) layer.bias = LayerBias{c_.heads, bias};
  }

  const HfSource& source_;
  const JsonObject& top_;
  ModelConfig& c_;
};

void EncoderReader::CheckSizesKnown() const {
  for (const auto& [size, key] : {std::pair{c_.hidden, "hidden_size"},
                                  {c_.heads, "num_attention_heads"},
                                  {c_.feed_forward, "intermediate_size"},
                                  {c_.vocab, "vocab_size"}}) {
    if (size == 0) Refuse(key, "it is needed to run the model");
  }
}

void EncoderReader::AbsolutePositions(int64_t first_row) {
  const int64_t rows = PositionRows();
  if (rows <= first_row) {
    Refuse("max_position_embeddings", fmt::format("{} rows precede position 0", first_row));
  }
  c_.plan.learned = LearnedPositions{rows - first_row, first_row};
  c_.plan.configured_length = c_.plan.trained_length = rows - first_row;
}

// What BERT, RoBERTa, RoFormer and NEZHA share.
void EncoderReader::BertModel() {
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    RefuseIfTrue(key, "this is a decoder; encoders are computed");
  }
  BertLayers("hidden_act", 1e-12);
  spec.head_activation = c_.layer.mlp.activation;
  c_.tied_head = top_.Bool("tie_word_embeddings").value_or(true);
  c_.embedding_norm = kLayerNorm;
  c_.layer.attention.qkv_bias = c_.layer.attention.out_bias = true;
  spec.token_types = top_.Int("type_vocab_size", 0, kMaxDim).value_or(2);
}

void EncoderReader::Bert() {
  const bool roberta = source_.family.encoder == EncoderKind::kRoberta;
  spec.tensors = roberta ? Tensors::kRoberta : Tensors::kBert;
  c_.tensor_names = roberta ? &kRobertaNames : &kBertNames;
  if (top_.String("position_embedding_type").value_or("absolute") != "absolute") {
    Refuse("position_embedding_type", "the encoder computes \"absolute\" alone");
  }
  BertModel();
  if (roberta) spec.head_activation = MlpSpec::Activation::kGelu;  // no key changes it
  // RoBERTa numbers positions from behind the padding's row.
  AbsolutePositions(roberta ? top_.Int("pad_token_id", 0, kMaxDim).value_or(1) + 1 : 0);
}

void EncoderReader::Roformer() {
  spec.tensors = Tensors::kRoformer;
  c_.tensor_names = &kRoformerNames;
  RefuseIfTrue("rotary_value", "values that rotate are not computed");
  BertModel();
  const int64_t embedding = top_.Int("embedding_size", 1, kMaxDim).value_or(c_.hidden);
  if (embedding != c_.hidden) spec.embedding_dim = embedding;
}

void EncoderReader::Nezha() {
  spec.tensors = Tensors::kNezha;
  c_.tensor_names = &kNezhaNames;
  BertModel();
  if (c_.head_dim % 2 != 0) Refuse("hidden_size", "an even head_dim is needed for sinusoids");
  const int64_t reach = top_.Int("max_relative_position", 1, kMaxTokens).value_or(64);
  if (reach > kMaxReach) {
    Refuse("max_relative_position", fmt::format("at most {} rows are computed", kMaxReach));
  }
  SetBias(NezhaLayerBias{reach, c_.head_dim});
}

void EncoderReader::T5() {
  spec.tensors = Tensors::kT5;
  c_.tensor_names = &kT5Names;
  c_.layer.attention.score_scale = 1;  // the initialisation of q has the square root in it
  RefuseIfTrue("is_decoder", "this is a decoder; encoders are computed");
  T5LayerBias t5;
  t5.per_layer = source_.family.encoder == EncoderKind::kUmt5;
  t5.bias = {
      .buckets = top_.Int("relative_attention_num_buckets", 4, kMaxDim).value_or(32),
      .last_distance = top_.Int("relative_attention_max_distance", 1, kMaxTokens).value_or(128)};
  t5.bias.Bucket(0);  // refuses numbers that make no buckets
  SetBias(t5);
  c_.norm_eps = source_.Number("layer_norm_epsilon", 0, 1).value_or(1e-6);
  const bool first = source_.family.encoder == EncoderKind::kT5 && !IsMt5();
  std::string name = top_.String("feed_forward_proj").value_or(first ? "relu" : "gated-gelu");
  c_.layer.mlp.gated = name.starts_with("gated-");
  if (c_.layer.mlp.gated) name.erase(0, 6);
  if (c_.layer.mlp.gated && name == "gelu") name = "gelu_new";  // as transformers reads it
  Activation("feed_forward_proj", name);
  // Both repeat it.
  const auto gated = top_.Bool("is_gated_act");
  if (gated && *gated != c_.layer.mlp.gated) {
    Contradiction(top_.where(), "feed_forward_proj", *top_.String("feed_forward_proj"),
                  "is_gated_act", fmt::format("{}", *gated));
  }
  if (const auto act = top_.String("dense_act_fn")) Activation("dense_act_fn", *act);
}

// The decoder's layers are the encoder's with a causal bias and cross-attention. A head tied to the
// embedding reads states times hidden^-0.5: transformers 4 says both by tie_word_embeddings, 5 the
// scale by scale_decoder_outputs.
void EncoderReader::T5Decoder() {
  if (!top_.Bool("is_encoder_decoder").value_or(true)) return;
  auto part = std::make_shared<DecoderPart>();
  part->config = c_;
  ModelConfig& d = part->config;
  d.not_runnable.clear();
  d.tensor_names = &kT5DecoderNames;
  d.layers = top_.Int("num_decoder_layers", 1, kMaxLayers).value_or(c_.layers);
  d.layer.cross_attention = true;
  d.tied_head = top_.Bool("tie_word_embeddings").value_or(!IsMt5());
  if (top_.Bool("scale_decoder_outputs").value_or(d.tied_head)) {
    d.logit_scale = 1 / std::sqrt(static_cast<double>(c_.hidden));
  }
  LayerPlan layer = c_.plan.layers.front();
  std::get<T5LayerBias>(layer.bias->method).bias.bidirectional = false;
  d.plan.layers.assign(static_cast<std::size_t>(d.layers), layer);
  const auto id = [this](const char* key, std::optional<int64_t> otherwise) {
    const json* value = top_.Find(key);
    if (value != nullptr && value->is_array()) value = value->empty() ? nullptr : &value->front();
    const bool given = value != nullptr && value->is_number_integer();
    const auto number = given ? std::optional<int64_t>(value->get<int64_t>()) : otherwise;
    if (number && (*number < 0 || *number >= c_.vocab)) {
      top_.Fail(key, fmt::format("a token id, 0 to {}", c_.vocab - 1));
    }
    return number ? std::optional(static_cast<int32_t>(*number)) : std::nullopt;
  };
  const bool plain = source_.family.encoder == EncoderKind::kT5 && !IsMt5();
  part->start_id = id("decoder_start_token_id", plain ? std::nullopt : std::optional<int64_t>(0));
  part->end_id = *id("eos_token_id", 1);
  c_.decoder = std::move(part);
}

// pos_att_type is a list, or words between bars.
DebertaLayerBias EncoderReader::DebertaTerms() const {
  std::vector<std::string> words;
  if (const json* types = top_.Find("pos_att_type")) {
    if (types->is_string()) {
      std::string text = types->get<std::string>();
      std::replace(text.begin(), text.end(), '|', ' ');
      words = WordsOf(text);
    } else if (types->is_array()) {
      for (const json& item : *types) {
        if (!item.is_string()) top_.Fail("pos_att_type", "a list of \"c2p\" and \"p2c\"");
        words.push_back(item.get<std::string>());
      }
    } else {
      top_.Fail("pos_att_type", "a list of \"c2p\" and \"p2c\"");
    }
  }
  DebertaLayerBias deberta;
  for (const std::string& word : words) {
    if (word == "c2p") {
      deberta.content_to_position = true;
    } else if (word == "p2c") {
      deberta.position_to_content = true;
    } else {
      Refuse("pos_att_type", fmt::format("\"{}\" is not computed; c2p and p2c are", word));
    }
  }
  return deberta;
}

// Keys that version 1 has alone, or that are version 2's.
void EncoderReader::CheckFirstDeberta() const {
  RefuseIfTrue("talking_head", "attention across heads is not computed");
  for (const char* key : {"share_att_key", "position_buckets", "norm_rel_ebd", "conv_kernel_size",
                          "attention_head_size"}) {
    const json* value = top_.Find(key);
    if (value == nullptr || *value == json(false) || *value == json(-1) || *value == json("none") ||
        *value == json(0)) {
      continue;
    }
    Refuse(key,
           "version 1 does not have it; a model of version 2 or 3 says model_type "
           "\"deberta-v2\"");
  }
}

void EncoderReader::Deberta() {
  const bool first = source_.family.encoder == EncoderKind::kDebertaV1;
  spec.tensors = first ? Tensors::kDebertaV1 : Tensors::kDeberta;
  c_.tensor_names = first ? &kDebertaV1Names : &kDebertaNames;
  if (first) CheckFirstDeberta();
  if (top_.Int("conv_kernel_size", 0, kMaxDim).value_or(0) > 0) {
    Refuse("conv_kernel_size", "the convolution beside the first layer is not computed");
  }
  if (top_.Int("embedding_size", 1, kMaxDim).value_or(c_.hidden) != c_.hidden) {
    Refuse("embedding_size", "embeddings narrower than the layers are not computed");
  }
  BertLayers("hidden_act", 1e-7);
  c_.embedding_norm = kLayerNorm;
  c_.layer.attention.qkv_bias = !first;  // a tensor for q, one for v
  c_.layer.attention.out_bias = true;
  spec.token_types = top_.Int("type_vocab_size", 0, kMaxDim).value_or(0);
  c_.head_dim = top_.Int("attention_head_size", 1, kMaxHeadDim).value_or(c_.head_dim);
  DebertaLayerBias deberta = DebertaTerms();
  c_.layer.attention.score_scale =
      1 / std::sqrt(static_cast<double>(deberta.Terms() * c_.head_dim));
  deberta.shared_keys = top_.Bool("share_att_key").value_or(false);
  std::string norms = top_.String("norm_rel_ebd").value_or("none");
  std::replace(norms.begin(), norms.end(), '|', ' ');
  deberta.normalized_embedding = HasWord(norms, "layer_norm");
  const int64_t buckets = top_.Int("position_buckets", -1, kMaxDim).value_or(-1);
  int64_t reach = top_.Int("max_relative_positions", -1, kMaxTokens).value_or(-1);
  if (reach < 1) reach = PositionRows();
  if (top_.Bool("position_biased_input").value_or(true)) {
    AbsolutePositions(0);
  } else {
    spec.mask_decoder_positions = PositionRows();
    c_.plan.notes.push_back(
        fmt::format("the mask decoder alone adds learned absolute positions, {} of them",
                    spec.mask_decoder_positions));
  }
  if (!top_.Bool("relative_attention").value_or(false)) {
    c_.plan.notes.push_back("relative_attention is false: no disentangled terms");
    return;
  }
  if (deberta.Terms() == 1) {
    Refuse("pos_att_type", "relative attention without c2p and p2c is not computed");
  }
  DebertaBias& bias = deberta.bias;
  bias.buckets = std::max<int64_t>(buckets, 0);
  bias.max_position = reach;
  bias.model_dim = c_.hidden;
  bias.head_dim = c_.head_dim;
  bias.Row(0);  // refuses numbers that make no buckets
  SetBias(deberta);
}

void EncoderReader::Xlnet() {
  spec.tensors = Tensors::kXlnet;
  c_.tensor_names = &kXlnetNames;
  if (top_.String("attn_type").value_or("bi") != "bi") {
    Refuse("attn_type", "the encoder computes \"bi\" alone");
  }
  RefuseIfTrue("bi_data", "two directions in one batch are not computed");
  if (const auto d_head = top_.Int("d_head", 1, kMaxHeadDim); d_head && *d_head != c_.head_dim) {
    Contradiction(top_.where(), "d_head", fmt::format("{}", *d_head), "d_model / n_head",
                  fmt::format("{}", c_.head_dim));
  }
  BertLayers("ff_activation", 1e-12);
  c_.feed_forward = top_.Int("d_inner", 1, kMaxDim).value_or(c_.feed_forward);
  TransformerXlBias bias;
  bias.model_dim = c_.hidden;
  bias.head_dim = c_.head_dim;
  bias.causal = false;
  bias.clamp_distance = std::max<int64_t>(top_.Int("clamp_len", -1, kMaxTokens).value_or(-1), 0);
  if (c_.hidden % 2 != 0) Refuse("d_model", "an even number is needed for sinusoids");
  SetBias(bias);
  c_.plan.notes.push_back("one segment, where XLNet's segment bias has no effect");
}

}  // namespace

void ReadHfEncoder(const HfSource& source, ModelConfig& c) {
  EncoderReader reader(source, c);
  try {
    switch (source.family.encoder) {
      case EncoderKind::kNone:
        return;
      case EncoderKind::kBert:
      case EncoderKind::kRoberta:
        reader.Bert();
        break;
      case EncoderKind::kT5:
      case EncoderKind::kUmt5:
        reader.T5();
        break;
      case EncoderKind::kRoformer:
        reader.Roformer();
        break;
      case EncoderKind::kNezha:
        reader.Nezha();
        break;
      case EncoderKind::kDeberta:
      case EncoderKind::kDebertaV1:
        reader.Deberta();
        break;
      case EncoderKind::kXlnet:
        reader.Xlnet();
        break;
    }
    reader.CheckSizesKnown();
  } catch (const NotComputed& refused) {
    c.not_runnable = refused.reason;
    return;
  }
  if (source.top.Has("quantization_config")) {
    c.not_runnable = source.top.where() +
                     ": quantization_config: weights quantised by it are not supported; use the "
                     "unquantised model";
    return;
  }
  if (reader.spec.tensors == Tensors::kT5) reader.T5Decoder();
  c.encoder = std::make_shared<const EncoderSpec>(reader.spec);
  c.not_runnable = fmt::format(
      "a {} model {}", source.family.name,
      c.decoder == nullptr ? "is an encoder, which predicts no next token; ropewalk embed runs it"
                           : "has an encoder and a decoder that reads it: ropewalk perplexity "
                             "--prefix N scores its decoder, ropewalk embed runs its encoder");
}

}  // namespace ropewalk::internal
