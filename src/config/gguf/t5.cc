// T5 in GGUF ("t5", UMT5 as well, and "t5encoder"). The keys say less than a config.json: what they
// leave out is fixed in llama.cpp (src/models/t5.cpp) or follows from the tensors. What they say is
// read as that config.json.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ropewalk/base/error.h"
#include "src/config/gguf/config.h"
#include "src/config/tensor_names.h"
#include "src/io/gguf_file.h"

namespace ropewalk::internal {
namespace {

constexpr int64_t kLastDistance = 128;  // of the buckets, in every published model

// The keys of a config.json with the same meaning.
nlohmann::json AsConfigJson(const GgufKeys& keys) {
  const GgufFile& gguf = keys.gguf();
  const auto has = [&](const char* name) { return gguf.tensors.contains(name); };
  const int64_t layers = keys.RequiredInt("block_count", 1, kMaxLayers);
  const int64_t hidden = keys.RequiredInt("embedding_length", 1, kMaxDim);
  const int64_t heads = keys.RequiredInt("attention.head_count", 1, kMaxDim);
  const auto key_length = keys.Int("attention.key_length", 1, kMaxHeadDim);
  if (!key_length && hidden % heads != 0) {
    keys.Fail("attention.key_length",
              fmt::format("it, because {} elements do not divide into {} heads", hidden, heads));
  }
  const int64_t head_dim = key_length ? *key_length : hidden / heads;
  const auto value_length = keys.Int("attention.value_length", 1, kMaxHeadDim);
  if (value_length && *value_length != head_dim) {
    keys.Fail("attention.value_length",
              fmt::format("the head size {}, got {}", head_dim, *value_length));
  }
  const auto kv_heads = keys.Int("attention.head_count_kv", 1, kMaxDim);
  if (kv_heads && *kv_heads != heads) {
    keys.Fail("attention.head_count_kv",
              fmt::format("{}, as of queries, got {}", heads, *kv_heads));
  }
  const auto rms = keys.Number("attention.layer_norm_rms_epsilon", 0, 1);
  const auto plain = keys.Number("attention.layer_norm_epsilon", 0, 1);
  const int64_t decoder_layers = keys.Int("decoder_block_count", 1, kMaxLayers).value_or(layers);
  const bool decodes = keys.prefix() == "t5.";
  const bool gated = std::any_of(gguf.tensors.begin(), gguf.tensors.end(), [](const auto& tensor) {
    return tensor.first.ends_with(".ffn_gate.weight");
  });
  // ReLU is the first T5's, whose head is the embedding, stored a second time or not.
  const bool tied = !gated || !has("output.weight");
  // UMT5 has a bias in every layer.
  const bool per_layer = has("enc.blk.1.attn_rel_b.weight");
  const int64_t vocab = GgufVocab(keys);
  if (vocab < 1) keys.Fail("vocab_size", "1 or more, or a tensor 'token_embd.weight'");
  nlohmann::json config = {{"model_type", per_layer ? "umt5" : "t5"},
                           {"vocab_size", vocab},
                           {"d_model", hidden},
                           {"d_ff", keys.RequiredInt("feed_forward_length", 1, kMaxDim)},
                           {"d_kv", head_dim},
                           {"num_heads", heads},
                           {"num_layers", layers},
                           {"num_decoder_layers", decoder_layers},
                           {"is_encoder_decoder", decodes},
                           {"relative_attention_num_buckets",
                            keys.Int("attention.relative_buckets_count", 4, kMaxDim).value_or(32)},
                           {"relative_attention_max_distance", kLastDistance},
                           {"layer_norm_epsilon", rms ? *rms : plain.value_or(1e-6)},
                           {"feed_forward_proj", gated ? "gated-gelu" : "relu"},
                           {"tie_word_embeddings", tied}};
  if (const auto length = keys.Int("context_length", 1, kMaxTokens)) {
    config["n_positions"] = *length;
  }
  if (const auto start = keys.Int("decoder_start_token_id", 0, kMaxDim)) {
    config["decoder_start_token_id"] = *start;
  }
  const auto end = gguf.metadata.find("tokenizer.ggml.eos_token_id");
  if (end != gguf.metadata.end()) {
    config["eos_token_id"] = WithFile(keys.File(), [&] { return end->second.AsInt(end->first); });
  }
  return config;
}

void SetNames(const TensorNames& names, ModelConfig& c) {
  c.format = FileFormat::kGguf;
  c.tensor_names = &names;
}

}  // namespace

ModelConfig ReadGgufT5(const GgufKeys& keys, bool allow_unknown) {
  ModelConfig c = ParseHfConfig(AsConfigJson(keys).dump(), keys.File(), allow_unknown);
  SetNames(kGgufT5Names, c);
  if (c.decoder != nullptr) {
    auto decoder = std::make_shared<DecoderPart>(*c.decoder);
    SetNames(kGgufT5DecoderNames, decoder->config);
    c.decoder = std::move(decoder);
  }
  return c;
}

}  // namespace ropewalk::internal
