#include "src/config/tensor_names.h"

#include <algorithm>
#include <array>

namespace ropewalk::internal {
namespace {

using Id = TensorId;

constexpr TensorName kLlama[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.o_proj"},
    {Id::kQNorm, "self_attn.q_norm"},
    {Id::kKNorm, "self_attn.k_norm"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kGate, "mlp.gate_proj"},
    {Id::kUp, "mlp.up_proj"},
    {Id::kDown, "mlp.down_proj"},
};
// Gemma 2 and 3; two of the words mean other norms than LLaMA's.
constexpr TensorName kGemma2[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.o_proj"},
    {Id::kQNorm, "self_attn.q_norm"},
    {Id::kKNorm, "self_attn.k_norm"},
    {Id::kPostAttentionNorm, "post_attention_layernorm"},
    {Id::kPreMlpNorm, "pre_feedforward_layernorm"},
    {Id::kGate, "mlp.gate_proj"},
    {Id::kUp, "mlp.up_proj"},
    {Id::kDown, "mlp.down_proj"},
    {Id::kPostMlpNorm, "post_feedforward_layernorm"},
};
constexpr auto kGguf = std::to_array<TensorName>({
    {Id::kEmbedding, "token_embd"},
    {Id::kPositions, "position_embd"},
    {Id::kEmbeddingNorm, "token_embd_norm"},
    {Id::kFinalNorm, "output_norm"},
    {Id::kHead, "output"},
    {Id::kPreAttentionNorm, "attn_norm"},
    {Id::kQ, "attn_q"},
    {Id::kK, "attn_k"},
    {Id::kV, "attn_v"},
    {Id::kQkv, "attn_qkv"},
    {Id::kO, "attn_output"},
    {Id::kQNorm, "attn_q_norm"},
    {Id::kKNorm, "attn_k_norm"},
    {Id::kPostAttentionNorm, "post_attention_norm"},
    {Id::kPreMlpNorm, "ffn_norm"},
    {Id::kGate, "ffn_gate"},
    {Id::kUp, "ffn_up"},
    {Id::kDown, "ffn_down"},
    {Id::kPostMlpNorm, "post_ffw_norm"},
    {Id::kSinks, "attn_sinks"},
    {Id::kQA, "attn_q_a"},
    {Id::kQANorm, "attn_q_a_norm"},
    {Id::kQB, "attn_q_b"},
    {Id::kKvA, "attn_kv_a_mqa"},
    {Id::kKvANorm, "attn_kv_a_norm"},
    {Id::kKvB, "attn_kv_b"},
    {Id::kVB, "attn_v_b"},
    {Id::kRouter, "ffn_gate_inp"},
    {Id::kChoiceBias, "exp_probs_b", ".bias"},
    {Id::kExpertGate, "ffn_gate_exps"},
    {Id::kExpertUp, "ffn_up_exps"},
    {Id::kExpertDown, "ffn_down_exps"},
    {Id::kSharedGate, "ffn_gate_shexp"},
    {Id::kSharedUp, "ffn_up_shexp"},
    {Id::kSharedDown, "ffn_down_shexp"},
    {Id::kSharedRouter, "ffn_gate_inp_shexp"},
});
// ffn_up holds all of the gate, then all of up.
constexpr auto kGgufGateUp = [] {
  auto names = kGguf;
  for (TensorName& n : names) {
    if (n.id == Id::kUp) n.id = Id::kGateUp;
  }
  return names;
}();
// The norm before attention is the second one.
constexpr auto kGgufTwoNorms = [] {
  auto names = kGguf;
  for (TensorName& n : names) {
    if (n.id == Id::kPreMlpNorm) n.name = "attn_norm";
    if (n.id == Id::kPreAttentionNorm) n.name = "attn_norm_2";
  }
  return names;
}();
// Keys and values of latent attention in two tensors.
constexpr auto kGgufSplitKv = [] {
  auto names = kGguf;
  for (TensorName& n : names) {
    if (n.id == Id::kKvB) n = {Id::kKB, "attn_k_b"};
  }
  return names;
}();
// Gate and up of experts in one tensor as well (--fuse-gate-up-exps of llama.cpp's converter).
constexpr auto kGgufFusedExperts = [] {
  auto names = kGgufSplitKv;
  for (TensorName& n : names) {
    if (n.id == Id::kExpertUp) n = {Id::kExpertGateUp, "ffn_gate_up_exps"};
  }
  return names;
}();
// The norm before the experts has the name of one behind attention.
constexpr auto kGgufGptOss = [] {
  auto names = kGguf;
  for (TensorName& n : names) {
    if (n.id == Id::kPreMlpNorm) n.name = "post_attention_norm";
  }
  return names;
}();
constexpr TensorName kGpt2[] = {
    {Id::kEmbedding, "wte"},   {Id::kPositions, "wpe"},         {Id::kFinalNorm, "ln_f"},
    {Id::kHead, "lm_head"},    {Id::kPreAttentionNorm, "ln_1"}, {Id::kQkv, "attn.c_attn"},
    {Id::kO, "attn.c_proj"},   {Id::kPreMlpNorm, "ln_2"},       {Id::kUp, "mlp.c_fc"},
    {Id::kDown, "mlp.c_proj"},
};
constexpr TensorName kGptNeox[] = {
    {Id::kEmbedding, "embed_in"},
    {Id::kFinalNorm, "final_layer_norm"},
    {Id::kHead, "embed_out"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQkv, "attention.query_key_value"},
    {Id::kO, "attention.dense"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kGptj[] = {
    {Id::kEmbedding, "wte"},         {Id::kFinalNorm, "ln_f"},  {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "ln_1"}, {Id::kQ, "attn.q_proj"},   {Id::kK, "attn.k_proj"},
    {Id::kV, "attn.v_proj"},         {Id::kO, "attn.out_proj"}, {Id::kUp, "mlp.fc_in"},
    {Id::kDown, "mlp.fc_out"},
};
constexpr TensorName kFalcon[] = {
    {Id::kEmbedding, "word_embeddings"},
    {Id::kFinalNorm, "ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQkv, "self_attention.query_key_value"},
    {Id::kO, "self_attention.dense"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kFalconTwoNorms[] = {
    {Id::kEmbedding, "word_embeddings"},
    {Id::kFinalNorm, "ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "ln_attn"},
    {Id::kQkv, "self_attention.query_key_value"},
    {Id::kO, "self_attention.dense"},
    {Id::kPreMlpNorm, "ln_mlp"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kPhi[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.final_layernorm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.dense"},
    {Id::kUp, "mlp.fc1"},
    {Id::kDown, "mlp.fc2"},
};
constexpr TensorName kOpt[] = {
    {Id::kEmbedding, "decoder.embed_tokens"},
    {Id::kPositions, "decoder.embed_positions"},
    {Id::kFinalNorm, "decoder.final_layer_norm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "self_attn_layer_norm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.out_proj"},
    {Id::kPreMlpNorm, "final_layer_norm"},
    {Id::kUp, "fc1"},
    {Id::kDown, "fc2"},
};

constexpr TensorName kBloom[] = {
    {Id::kEmbedding, "word_embeddings"},
    {Id::kEmbeddingNorm, "word_embeddings_layernorm"},
    {Id::kFinalNorm, "ln_f"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQkv, "self_attention.query_key_value"},
    {Id::kO, "self_attention.dense"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};
constexpr TensorName kMpt[] = {
    {Id::kEmbedding, "wte"},           {Id::kFinalNorm, "norm_f"}, {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "norm_1"}, {Id::kQkv, "attn.Wqkv"},    {Id::kO, "attn.out_proj"},
    {Id::kPreMlpNorm, "norm_2"},       {Id::kUp, "ffn.up_proj"},   {Id::kDown, "ffn.down_proj"},
};

constexpr TensorName kGlm[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.o_proj"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kGateUp, "mlp.gate_up_proj"},
    {Id::kDown, "mlp.down_proj"},
};
constexpr TensorName kGlm4[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.o_proj"},
    {Id::kPostAttentionNorm, "post_self_attn_layernorm"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kGateUp, "mlp.gate_up_proj"},
    {Id::kDown, "mlp.down_proj"},
    {Id::kPostMlpNorm, "post_mlp_layernorm"},
};
constexpr TensorName kPhi3[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQkv, "self_attn.qkv_proj"},
    {Id::kO, "self_attn.o_proj"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kGateUp, "mlp.gate_up_proj"},
    {Id::kDown, "mlp.down_proj"},
};
constexpr TensorName kStarCoder2[] = {
    {Id::kEmbedding, "model.embed_tokens"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "lm_head"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQ, "self_attn.q_proj"},
    {Id::kK, "self_attn.k_proj"},
    {Id::kV, "self_attn.v_proj"},
    {Id::kO, "self_attn.o_proj"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kUp, "mlp.c_fc"},
    {Id::kDown, "mlp.c_proj"},
};

// Mixtures of experts; what is not here is as in LLaMA.
constexpr TensorName kMixtral[] = {
    {Id::kRouter, "block_sparse_moe.gate"},
    {Id::kExpertGate, "block_sparse_moe.experts.*.w1"},
    {Id::kExpertUp, "block_sparse_moe.experts.*.w3"},
    {Id::kExpertDown, "block_sparse_moe.experts.*.w2"},
};
constexpr TensorName kQwenMoe[] = {
    {Id::kRouter, "mlp.gate"},
    {Id::kExpertGate, "mlp.experts.*.gate_proj"},
    {Id::kExpertUp, "mlp.experts.*.up_proj"},
    {Id::kExpertDown, "mlp.experts.*.down_proj"},
    {Id::kSharedGate, "mlp.shared_expert.gate_proj"},
    {Id::kSharedUp, "mlp.shared_expert.up_proj"},
    {Id::kSharedDown, "mlp.shared_expert.down_proj"},
    {Id::kSharedRouter, "mlp.shared_expert_gate"},
};
constexpr TensorName kDeepseek[] = {
    {Id::kQA, "self_attn.q_a_proj"},
    {Id::kQANorm, "self_attn.q_a_layernorm"},
    {Id::kQB, "self_attn.q_b_proj"},
    {Id::kKvA, "self_attn.kv_a_proj_with_mqa"},
    {Id::kKvANorm, "self_attn.kv_a_layernorm"},
    {Id::kKvB, "self_attn.kv_b_proj"},
    {Id::kRouter, "mlp.gate"},
    {Id::kChoiceBias, "mlp.gate.e_score_correction_bias", ""},
    {Id::kExpertGate, "mlp.experts.*.gate_proj"},
    {Id::kExpertUp, "mlp.experts.*.up_proj"},
    {Id::kExpertDown, "mlp.experts.*.down_proj"},
    {Id::kSharedGate, "mlp.shared_experts.gate_proj"},
    {Id::kSharedUp, "mlp.shared_experts.up_proj"},
    {Id::kSharedDown, "mlp.shared_experts.down_proj"},
};
// Experts in two tensors, as transformers 5 writes families that it did not have before.
constexpr auto kMistral4 = [] {
  auto names = std::to_array(kDeepseek);
  for (TensorName& n : names) {
    if (n.id == Id::kExpertUp) n = {Id::kExpertGateUp, "mlp.experts.gate_up_proj", ""};
    if (n.id == Id::kExpertDown) n = {Id::kExpertDown, "mlp.experts.down_proj", ""};
  }
  return names;
}();
constexpr TensorName kQwen3VlMoe[] = {
    {Id::kRouter, "mlp.gate"},
    {Id::kExpertGateUp, "mlp.experts.gate_up_proj", ""},
    {Id::kExpertDown, "mlp.experts.down_proj", ""},
};
constexpr TensorName kGptOss[] = {
    {Id::kSinks, "self_attn.sinks", ""},
    {Id::kRouter, "mlp.router"},
    {Id::kExpertGateUp, "mlp.experts.gate_up_proj", ""},
    {Id::kExpertDown, "mlp.experts.down_proj", ""},
};

// Llama 4: all feed-forward parts under one word.
constexpr TensorName kLlama4[] = {
    {Id::kGate, "feed_forward.gate_proj"},
    {Id::kUp, "feed_forward.up_proj"},
    {Id::kDown, "feed_forward.down_proj"},
    {Id::kRouter, "feed_forward.router"},
    {Id::kExpertGateUp, "feed_forward.experts.gate_up_proj", ""},
    {Id::kExpertDown, "feed_forward.experts.down_proj", ""},
    {Id::kSharedGate, "feed_forward.shared_expert.gate_proj"},
    {Id::kSharedUp, "feed_forward.shared_expert.up_proj"},
    {Id::kSharedDown, "feed_forward.shared_expert.down_proj"},
};
constexpr TensorName kQwen1[] = {
    {Id::kEmbedding, "wte"},   {Id::kFinalNorm, "ln_f"}, {Id::kPreAttentionNorm, "ln_1"},
    {Id::kQkv, "attn.c_attn"}, {Id::kO, "attn.c_proj"},  {Id::kPreMlpNorm, "ln_2"},
    {Id::kGate, "mlp.w2"},     {Id::kUp, "mlp.w1"},      {Id::kDown, "mlp.c_proj"},
};
constexpr TensorName kBaichuan[] = {{Id::kQkv, "self_attn.W_pack"}};

constexpr TensorName kInternLm2[] = {
    {Id::kEmbedding, "model.tok_embeddings"},
    {Id::kFinalNorm, "model.norm"},
    {Id::kHead, "output"},
    {Id::kPreAttentionNorm, "attention_norm"},
    {Id::kQkv, "attention.wqkv"},
    {Id::kO, "attention.wo"},
    {Id::kPreMlpNorm, "ffn_norm"},
    {Id::kGate, "feed_forward.w1"},
    {Id::kUp, "feed_forward.w3"},
    {Id::kDown, "feed_forward.w2"},
};
constexpr TensorName kChatGlm[] = {
    {Id::kEmbedding, "transformer.embedding.word_embeddings"},
    {Id::kFinalNorm, "transformer.encoder.final_layernorm"},
    {Id::kHead, "transformer.output_layer"},
    {Id::kPreAttentionNorm, "input_layernorm"},
    {Id::kQkv, "self_attention.query_key_value"},
    {Id::kO, "self_attention.dense"},
    {Id::kPreMlpNorm, "post_attention_layernorm"},
    {Id::kGateUp, "mlp.dense_h_to_4h"},
    {Id::kDown, "mlp.dense_4h_to_h"},
};

// BERT's; RoBERTa's for its head; DeBERTa's words for q, k and v and what its distances have.
constexpr TensorName kBert[] = {
    {Id::kEmbedding, "embeddings.word_embeddings"},
    {Id::kPositions, "embeddings.position_embeddings"},
    {Id::kTokenTypes, "embeddings.token_type_embeddings"},
    {Id::kEmbeddingNorm, "embeddings.LayerNorm"},
    {Id::kQ, "attention.self.query"},
    {Id::kK, "attention.self.key"},
    {Id::kV, "attention.self.value"},
    {Id::kO, "attention.output.dense"},
    {Id::kPostAttentionNorm, "attention.output.LayerNorm"},
    {Id::kUp, "intermediate.dense"},
    {Id::kDown, "output.dense"},
    {Id::kPostMlpNorm, "output.LayerNorm"},
    {Id::kMaskedDense, "cls.predictions.transform.dense"},
    {Id::kMaskedNorm, "cls.predictions.transform.LayerNorm"},
    {Id::kMaskedBias, "cls.predictions.bias", ""},
    {Id::kHead, "cls.predictions.decoder"},
    {Id::kEmbeddingProjection, "embeddings_project"},
};
constexpr TensorName kRoberta[] = {
    {Id::kMaskedDense, "lm_head.dense"},
    {Id::kMaskedNorm, "lm_head.layer_norm"},
    {Id::kMaskedBias, "lm_head.bias", ""},
    {Id::kHead, "lm_head.decoder"},
};
// What version 1 calls otherwise than 2 and 3.
constexpr TensorName kDebertaV1[] = {
    {Id::kQkv, "attention.self.in_proj"},
    {Id::kQBias, "attention.self.q_bias", ""},
    {Id::kVBias, "attention.self.v_bias", ""},
    {Id::kDistanceKey, "attention.self.pos_proj"},
    {Id::kDistanceQuery, "attention.self.pos_q_proj"},
};
constexpr TensorName kDeberta[] = {
    {Id::kEmbedding, "embeddings.word_embeddings"},
    {Id::kPositions, "embeddings.position_embeddings"},
    {Id::kTokenTypes, "embeddings.token_type_embeddings"},
    {Id::kEmbeddingNorm, "embeddings.LayerNorm"},
    {Id::kDistances, "encoder.rel_embeddings"},
    {Id::kDistancesNorm, "encoder.LayerNorm"},
    {Id::kQ, "attention.self.query_proj"},
    {Id::kK, "attention.self.key_proj"},
    {Id::kV, "attention.self.value_proj"},
    {Id::kDistanceKey, "attention.self.pos_key_proj"},
    {Id::kDistanceQuery, "attention.self.pos_query_proj"},
    {Id::kO, "attention.output.dense"},
    {Id::kPostAttentionNorm, "attention.output.LayerNorm"},
    {Id::kUp, "intermediate.dense"},
    {Id::kDown, "output.dense"},
    {Id::kPostMlpNorm, "output.LayerNorm"},
};
constexpr TensorName kT5[] = {
    {Id::kEmbedding, "shared"},
    {Id::kFinalNorm, "encoder.final_layer_norm"},
    {Id::kSharedBuckets, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"},
    {Id::kPreAttentionNorm, "layer.0.layer_norm"},
    {Id::kQ, "layer.0.SelfAttention.q"},
    {Id::kK, "layer.0.SelfAttention.k"},
    {Id::kV, "layer.0.SelfAttention.v"},
    {Id::kO, "layer.0.SelfAttention.o"},
    {Id::kBuckets, "layer.0.SelfAttention.relative_attention_bias"},
    {Id::kPreMlpNorm, "layer.1.layer_norm"},
    {Id::kGate, "layer.1.DenseReluDense.wi_0"},
    {Id::kUp, "layer.1.DenseReluDense.wi"},
    {Id::kGatedUp, "layer.1.DenseReluDense.wi_1"},
    {Id::kDown, "layer.1.DenseReluDense.wo"},
};
constexpr TensorName kT5Decoder[] = {
    {Id::kFinalNorm, "decoder.final_layer_norm"},
    {Id::kHead, "lm_head"},
    {Id::kSharedBuckets, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"},
    {Id::kCrossNorm, "layer.1.layer_norm"},
    {Id::kCrossQ, "layer.1.EncDecAttention.q"},
    {Id::kCrossK, "layer.1.EncDecAttention.k"},
    {Id::kCrossV, "layer.1.EncDecAttention.v"},
    {Id::kCrossO, "layer.1.EncDecAttention.o"},
    {Id::kPreMlpNorm, "layer.2.layer_norm"},
    {Id::kGate, "layer.2.DenseReluDense.wi_0"},
    {Id::kUp, "layer.2.DenseReluDense.wi"},
    {Id::kGatedUp, "layer.2.DenseReluDense.wi_1"},
    {Id::kDown, "layer.2.DenseReluDense.wo"},
};
constexpr TensorName kGgufT5[] = {
    {Id::kEmbedding, "token_embd"},
    {Id::kFinalNorm, "enc.output_norm"},
    {Id::kSharedBuckets, "enc.blk.0.attn_rel_b"},
    {Id::kPreAttentionNorm, "attn_norm"},
    {Id::kQ, "attn_q"},
    {Id::kK, "attn_k"},
    {Id::kV, "attn_v"},
    {Id::kO, "attn_o"},
    {Id::kBuckets, "attn_rel_b"},
    {Id::kPreMlpNorm, "ffn_norm"},
    {Id::kGate, "ffn_gate"},
    {Id::kUp, "ffn_up"},
    {Id::kGatedUp, "ffn_up"},
    {Id::kDown, "ffn_down"},
};
constexpr TensorName kGgufT5Decoder[] = {
    {Id::kFinalNorm, "dec.output_norm"},
    {Id::kHead, "output"},
    {Id::kSharedBuckets, "dec.blk.0.attn_rel_b"},
    {Id::kCrossNorm, "cross_attn_norm"},
    {Id::kCrossQ, "cross_attn_q"},
    {Id::kCrossK, "cross_attn_k"},
    {Id::kCrossV, "cross_attn_v"},
    {Id::kCrossO, "cross_attn_o"},
};
constexpr TensorName kXlnet[] = {
    {Id::kEmbedding, "word_embedding"},
    {Id::kQ, "rel_attn.q", ""},
    {Id::kK, "rel_attn.k", ""},
    {Id::kV, "rel_attn.v", ""},
    {Id::kO, "rel_attn.o", ""},
    {Id::kDistanceProjection, "rel_attn.r", ""},
    {Id::kContentBias, "rel_attn.r_w_bias", ""},
    {Id::kPositionBias, "rel_attn.r_r_bias", ""},
    {Id::kPostAttentionNorm, "rel_attn.layer_norm"},
    {Id::kUp, "ff.layer_1"},
    {Id::kDown, "ff.layer_2"},
    {Id::kPostMlpNorm, "ff.layer_norm"},
};

// Conv1D stores its matrices [in, out]; so does XLNet, for what it multiplies by itself.
constexpr TensorId kConv1d[] = {Id::kQkv, Id::kO, Id::kUp, Id::kDown};
constexpr TensorId kExpertsTransposed[] = {Id::kExpertGateUp, Id::kExpertDown};
constexpr TensorId kLatentKeys[] = {Id::kKB};
constexpr TensorId kXlnetTransposed[] = {Id::kQ, Id::kK, Id::kV, Id::kDistanceProjection};

// The causal mask and, in old files, what a mask adds; the frequencies.
constexpr const char* kMasks = ".attn.bias .attn.masked_bias rotary_emb.inv_freq";
constexpr const char* kFrequencies = "rotary_emb.inv_freq";

// Heads of the tasks that an encoder was trained for, its pooler, buffers, T5's decoder.
constexpr const char* kBertHeads = "pooler. cls. classifier. qa_outputs. embeddings.position_ids";
constexpr const char* kRobertaHeads =
    "pooler. lm_head. classifier. qa_outputs. embeddings.position_ids";
// Tables that the configuration gives.
constexpr const char* kSines = "encoder.embed_positions.weight";
constexpr const char* kNezhaRows = "relative_positions_encoding.positions_encoding";
constexpr const char* kDebertaHeads =
    "pooler. cls. lm_predictions. mask_predictions. classifier. qa_outputs. "
    "embeddings.position_ids";
constexpr const char* kXlnetHeads =
    "mask_emb lm_loss. sequence_summary. logits_proj. classifier. qa_outputs. start_logits. "
    "end_logits. answer_class.";
// With one segment the segment bias adds the same to all scores of a query: softmax drops it.
constexpr const char* kXlnetSegments = "rel_attn.r_s_bias rel_attn.seg_embed";

using Qkv = TensorNames::Qkv;

}  // namespace

constexpr TensorNames kLlamaNames = {
    .layers = "model.layers.", .names = kLlama, .harmless = kFrequencies};
constexpr TensorNames kGemmaNames = {
    .layers = "model.layers.", .names = kLlama, .harmless = kFrequencies, .norm_offset = 1};
constexpr TensorNames kGemma2Names = {
    .layers = "model.layers.", .names = kGemma2, .harmless = kFrequencies, .norm_offset = 1};
constexpr TensorNames kGgufNames = {
    .layers = "blk.",
    .names = kGguf,
    .harmless = "rope_freqs.weight rope_factors_long.weight rope_factors_short.weight",
    .transposed = kLatentKeys,
    .experts_stacked = true};
constexpr TensorNames Fused(TensorNames names) {
  names.qkv = Qkv::kStacked;
  return names;
}
constexpr TensorNames Named(TensorNames names, std::span<const TensorName> list) {
  names.names = list;
  return names;
}
constexpr TensorNames kGgufFusedNames = Fused(kGgufNames);
constexpr TensorNames kGgufGateUpNames = Named(kGgufNames, kGgufGateUp);
constexpr TensorNames kGgufFusedGateUpNames = Fused(kGgufGateUpNames);
constexpr TensorNames kGgufTwoNormNames = Named(kGgufFusedNames, kGgufTwoNorms);
constexpr TensorNames kGgufSplitKvNames = Named(kGgufNames, kGgufSplitKv);
constexpr TensorNames kGgufFusedExpertsNames = Named(kGgufNames, kGgufFusedExperts);
constexpr TensorNames kGgufGptOssNames = Named(kGgufNames, kGgufGptOss);
constexpr TensorNames kGgufFusedGptOssNames = Fused(kGgufGptOssNames);
constexpr TensorNames kGpt2Names = {.root = "transformer.",
                                    .layers = "h.",
                                    .names = kGpt2,
                                    .harmless = kMasks,
                                    .qkv = Qkv::kStacked,
                                    .transposed = kConv1d};
constexpr TensorNames kGptNeoxNames = {
    .root = "gpt_neox.",
    .layers = "layers.",
    .names = kGptNeox,
    .harmless = ".attention.bias .attention.masked_bias rotary_emb.inv_freq",
    .qkv = Qkv::kGrouped};
constexpr TensorNames kGptjNames = {
    .root = "transformer.", .layers = "h.", .names = kGptj, .harmless = kMasks};
constexpr TensorNames kFalconNames = {.root = "transformer.",
                                      .layers = "h.",
                                      .names = kFalcon,
                                      .harmless = kFrequencies,
                                      .qkv = Qkv::kGrouped};
constexpr TensorNames kFalconTwoNormNames = {.root = "transformer.",
                                             .layers = "h.",
                                             .names = kFalconTwoNorms,
                                             .harmless = kFrequencies,
                                             .qkv = Qkv::kGrouped};
constexpr TensorNames kPhiNames = {
    .layers = "model.layers.", .names = kPhi, .harmless = kFrequencies};
constexpr TensorNames kOptNames = {.root = "model.", .layers = "decoder.layers.", .names = kOpt};
constexpr TensorNames kBloomNames = {
    .root = "transformer.", .layers = "h.", .names = kBloom, .qkv = Qkv::kGrouped};
constexpr TensorNames kMptNames = {
    .root = "transformer.", .layers = "blocks.", .names = kMpt, .qkv = Qkv::kStacked};

// Gemma 2's words, of which the norms before are absent; weights of norms are what they are.
constexpr TensorNames kOlmo2Names = {
    .layers = "model.layers.", .names = kGemma2, .harmless = kFrequencies};
constexpr TensorNames kGlmNames = {
    .layers = "model.layers.", .names = kGlm, .harmless = kFrequencies};
constexpr TensorNames kGlm4Names = {
    .layers = "model.layers.", .names = kGlm4, .harmless = kFrequencies};
constexpr TensorNames kPhi3Names = {
    .layers = "model.layers.", .names = kPhi3, .harmless = kFrequencies, .qkv = Qkv::kStacked};
constexpr TensorNames kStarCoder2Names = {
    .layers = "model.layers.", .names = kStarCoder2, .harmless = kFrequencies};

constexpr TensorNames kMixtralNames = {
    .layers = "model.layers.", .names = kMixtral, .otherwise = kLlama, .harmless = kFrequencies};
constexpr TensorNames kQwenMoeNames = {
    .layers = "model.layers.", .names = kQwenMoe, .otherwise = kLlama, .harmless = kFrequencies};
constexpr TensorNames kDeepseekNames = {
    .layers = "model.layers.", .names = kDeepseek, .otherwise = kLlama, .harmless = kFrequencies};
constexpr TensorNames kMistral4Names = {.layers = "model.layers.",
                                        .names = kMistral4,
                                        .otherwise = kLlama,
                                        .harmless = kFrequencies,
                                        .experts_stacked = true};
constexpr TensorNames kQwen3VlMoeNames = {.layers = "model.layers.",
                                          .names = kQwen3VlMoe,
                                          .otherwise = kLlama,
                                          .harmless = kFrequencies,
                                          .transposed = kExpertsTransposed,
                                          .experts_stacked = true};
constexpr TensorNames kQwen3VlMoeRowNames = {.layers = "model.layers.",
                                             .names = kQwen3VlMoe,
                                             .otherwise = kLlama,
                                             .harmless = kFrequencies,
                                             .experts_stacked = true};
constexpr TensorNames kGptOssNames = {.layers = "model.layers.",
                                      .names = kGptOss,
                                      .otherwise = kLlama,
                                      .harmless = kFrequencies,
                                      .transposed = kExpertsTransposed,
                                      .experts_stacked = true,
                                      .gate_up_in_turn = true};

// Blocks of MXFP4 run along a row of the product: these experts are [out, in].
constexpr TensorNames kGptOssMxfp4Names = {.layers = "model.layers.",
                                           .names = kGptOss,
                                           .otherwise = kLlama,
                                           .harmless = kFrequencies,
                                           .experts_stacked = true,
                                           .gate_up_in_turn = true};
constexpr TensorNames kLlama4Names = {.layers = "model.layers.",
                                      .names = kLlama4,
                                      .otherwise = kLlama,
                                      .harmless = kFrequencies,
                                      .transposed = kExpertsTransposed,
                                      .experts_stacked = true};
constexpr TensorNames kQwen1Names = {.root = "transformer.",
                                     .layers = "h.",
                                     .names = kQwen1,
                                     .otherwise = kLlama,
                                     .harmless = kFrequencies,
                                     .qkv = Qkv::kStacked};
constexpr TensorNames kBaichuanNames = {.layers = "model.layers.",
                                        .names = kBaichuan,
                                        .otherwise = kLlama,
                                        .harmless = kFrequencies,
                                        .qkv = Qkv::kStacked};

constexpr TensorNames kInternLm2Names = {
    .layers = "model.layers.", .names = kInternLm2, .harmless = kFrequencies, .qkv = Qkv::kGrouped};
constexpr TensorNames kChatGlmNames = {.layers = "transformer.encoder.layers.",
                                       .names = kChatGlm,
                                       .harmless = "rotary_pos_emb.inv_freq",
                                       .qkv = Qkv::kStacked};

constexpr TensorNames kBertNames = {.root = "bert.",
                                    .layers = "encoder.layer.",
                                    .names = kBert,
                                    .beside = kBertHeads,
                                    .masked_head = "cls.predictions."};
constexpr TensorNames kRobertaNames = {.root = "roberta.",
                                       .layers = "encoder.layer.",
                                       .names = kRoberta,
                                       .otherwise = kBert,
                                       .beside = kRobertaHeads,
                                       .masked_head = "lm_head."};
constexpr TensorNames kRoformerNames = {.root = "roformer.",
                                        .layers = "encoder.layer.",
                                        .names = kBert,
                                        .harmless = kSines,
                                        .beside = kBertHeads,
                                        .masked_head = "cls.predictions."};
constexpr TensorNames kNezhaNames = {.root = "nezha.",
                                     .layers = "encoder.layer.",
                                     .names = kBert,
                                     .harmless = kNezhaRows,
                                     .beside = kBertHeads,
                                     .masked_head = "cls.predictions."};
constexpr TensorNames kDebertaV1Names = {.root = "deberta.",
                                         .layers = "encoder.layer.",
                                         .names = kDebertaV1,
                                         .otherwise = kDeberta,
                                         .beside = kDebertaHeads,
                                         .qkv = Qkv::kGrouped};
constexpr TensorNames kDebertaNames = {
    .root = "deberta.", .layers = "encoder.layer.", .names = kDeberta, .beside = kDebertaHeads};
constexpr TensorNames kT5Names = {
    .layers = "encoder.block.", .names = kT5, .beside = "decoder. lm_head. encoder.embed_tokens."};
// The first checkpoints have a bias of cross-attention that nothing reads.
constexpr TensorNames kT5DecoderNames = {
    .layers = "decoder.block.",
    .names = kT5Decoder,
    .otherwise = kT5,
    .harmless = "decoder.embed_tokens.weight EncDecAttention.relative_attention_bias.weight",
    .beside = "encoder."};
constexpr TensorNames kGgufT5Names = {
    .layers = "enc.blk.", .names = kGgufT5, .beside = "dec. output."};
constexpr TensorNames kGgufT5DecoderNames = {.layers = "dec.blk.",
                                             .names = kGgufT5Decoder,
                                             .otherwise = kGgufT5,
                                             .harmless = "cross_attn_rel_b.weight",
                                             .beside = "enc."};
constexpr TensorNames kXlnetNames = {.root = "transformer.",
                                     .layers = "layer.",
                                     .names = kXlnet,
                                     .harmless = kXlnetSegments,
                                     .beside = kXlnetHeads,
                                     .transposed = kXlnetTransposed,
                                     .heads_apart = true};

const TensorName* TensorNames::Find(TensorId id) const {
  for (const std::span<const TensorName> list : {names, otherwise}) {
    for (const TensorName& n : list) {
      if (n.id == id) return &n;
    }
  }
  return nullptr;
}

bool TensorNames::IsTransposed(TensorId id) const {
  return std::find(transposed.begin(), transposed.end(), id) != transposed.end();
}

}  // namespace ropewalk::internal
