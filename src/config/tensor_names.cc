#include "src/config/tensor_names.h"

namespace ropewalk::internal {
namespace {

using Id = TensorId;

constexpr TensorName kLlama[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.o_proj"},
    {Id::kQNorm, "self_attn.q_norm"},
    {Id::kKNorm, "self_attn.k_norm"},
    {Id::kFeedForwardNorm, "post_attention_layernorm"},
    {Id::kGate, "mlp.gate_proj"},
    {Id::kUp, "mlp.up_proj"},
    {Id::kDown, "mlp.down_proj"},
};
constexpr TensorName kGguf[] = {
    {Id::kEmbedding, "token_embd"},
    {Id::kFinalNorm, "output_norm"},
    {Id::kHead, "output"},
    {Id::kAttentionNorm, "attn_norm"},
    {Id::kQ, "attn_q"},
    {Id::kK, "attn_k"},
    {Id::kV, "attn_v"},
    {Id::kO, "attn_output"},
    {Id::kQNorm, "attn_q_norm"},
    {Id::kKNorm, "attn_k_norm"},
    {Id::kFeedForwardNorm, "ffn_norm"},
    {Id::kGate, "ffn_gate"},
    {Id::kUp, "ffn_up"},
    {Id::kDown, "ffn_down"},
};
constexpr TensorName kGpt2[] = {
    {Id::kEmbedding, "transformer.wte"},
    {Id::kPositions, "transformer.wpe"},
    {Id::kFinalNorm, "transformer.ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "ln_1"},
    {Id::kQkv, "attn.c_attn"},
    {Id::kO, "attn.c_proj"},
    {Id::kFeedForwardNorm, "ln_2"},
    {Id::kUp, "mlp.c_fc"},
    {Id::kDown, "mlp.c_proj"},
};
constexpr TensorName kGptNeox[] = {
    {Id::kEmbedding, "gpt_neox.embed_in"},
    {Id::kFinalNorm, "gpt_neox.final_layer_norm"},
    {Id::kHead, "embed_out"},
    {Id::kAttentionNorm, "input_layernorm"},
    {Id::kQkv, "attention.query_key_value"},
    {Id::kO, "attention.dense"},
    {Id::kFeedForwardNorm, "post_attention_layernorm"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kGptj[] = {
    {Id::kEmbedding, "transformer.wte"},
    {Id::kFinalNorm, "transformer.ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "ln_1"},
    {Id::kQ, "attn.q_proj"},
    {Id::kK, "attn.k_proj"},
    {Id::kV, "attn.v_proj"},
    {Id::kO, "attn.out_proj"},
    {Id::kUp, "mlp.fc_in"},
    {Id::kDown, "mlp.fc_out"},
};
constexpr TensorName kFalcon[] = {
    {Id::kEmbedding, "transformer.word_embeddings"},
    {Id::kFinalNorm, "transformer.ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "input_layernorm"},
    {Id::kQkv, "self_attention.query_key_value"},
    {Id::kO, "self_attention.dense"},
    {Id::kFeedForwardNorm, "post_attention_layernorm"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kFalconTwoNorms[] = {
    {Id::kEmbedding, "transformer.word_embeddings"},
    {Id::kFinalNorm, "transformer.ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "ln_attn"},
    {Id::kQkv, "self_attention.query_key_value"},
    {Id::kO, "self_attention.dense"},
    {Id::kFeedForwardNorm, "ln_mlp"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kPhi[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.final_layernorm"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.dense"},
    {Id::kUp, "mlp.fc1"},
    {Id::kDown, "mlp.fc2"},
};
constexpr TensorName kOpt[] = {
    {Id::kEmbedding, "model.decoder.embed_tokens"},
    {Id::kPositions, "model.decoder.embed_positions"},
    {Id::kFinalNorm, "model.decoder.final_layer_norm"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "self_attn_layer_norm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.out_proj"},
    {Id::kFeedForwardNorm, "final_layer_norm"},
    {Id::kUp, "fc1"},
    {Id::kDown, "fc2"},
};

constexpr TensorName kBloom[] = {
    {Id::kEmbedding, "transformer.word_embeddings"},
    {Id::kEmbeddingNorm, "transformer.word_embeddings_layernorm"},
    {Id::kFinalNorm, "transformer.ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "input_layernorm"},
    {Id::kQkv, "self_attention.query_key_value"},
    {Id::kO, "self_attention.dense"},
    {Id::kFeedForwardNorm, "post_attention_layernorm"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kMpt[] = {
    {Id::kEmbedding, "transformer.wte"},
    {Id::kFinalNorm, "transformer.norm_f"},
    {Id::kHead, "lm_head"},
    {Id::kAttentionNorm, "norm_1"},
    {Id::kQkv, "attn.Wqkv"},
    {Id::kO, "attn.out_proj"},
    {Id::kFeedForwardNorm, "norm_2"},
    {Id::kUp, "ffn.up_proj"},
    {Id::kDown, "ffn.down_proj"},
};

// The causal mask and, in old files, what a mask adds; the frequencies.
constexpr const char* kMasks = ".attn.bias .attn.masked_bias rotary_emb.inv_freq";

}  // namespace

constexpr TensorNames kLlamaNames = {"", "model.layers.", kLlama, "rotary_emb.inv_freq"};
constexpr TensorNames kGgufNames = {
    "", "blk.", kGguf, "rope_freqs.weight rope_factors_long.weight rope_factors_short.weight"};
constexpr TensorNames kGpt2Names = {"transformer.", "transformer.h.", kGpt2, kMasks};
constexpr TensorNames kGptNeoxNames = {
    "gpt_neox.", "gpt_neox.layers.", kGptNeox,
    ".attention.bias .attention.masked_bias rotary_emb.inv_freq"};
constexpr TensorNames kGptjNames = {"transformer.", "transformer.h.", kGptj, kMasks};
constexpr TensorNames kFalconNames = {"transformer.", "transformer.h.", kFalcon,
                                      "rotary_emb.inv_freq"};
constexpr TensorNames kFalconTwoNormNames = {"transformer.", "transformer.h.", kFalconTwoNorms,
                                             "rotary_emb.inv_freq"};
constexpr TensorNames kPhiNames = {"", "model.layers.", kPhi, "rotary_emb.inv_freq"};
constexpr TensorNames kOptNames = {"model.", "model.decoder.layers.", kOpt};
constexpr TensorNames kBloomNames = {"transformer.", "transformer.h.", kBloom};
constexpr TensorNames kMptNames = {"transformer.", "transformer.blocks.", kMpt};

const char* TensorNames::Find(TensorId weight) const {
  for (const TensorName& n : names) {
    if (n.id == weight) return n.name;
  }
  return nullptr;
}

}  // namespace ropewalk::internal
