"""Cases of llamacpp_families.py with experts or latent attention, and of vendors' own code."""

import numpy as np

import llamacpp_cases as cases

COUNT, CHOSEN, WIDTH = 6, 2, 64
Q_RANK, KV_RANK, PLAIN, ROTARY, VALUE = 64, 96, 32, 32, 32
DEEP = 1e-4  # of the largest logit, where roundings of 32 or 40 layers add up


def experts(m, p, width=WIDTH, names=("gate_proj", "up_proj", "down_proj"), router="gate", where="experts"):
    m.matrix(p + router, COUNT, m.hidden, 2 / m.hidden ** 0.5)
    for e in range(COUNT):
        one_mlp(m, f"{p}{where}.{e}.", width, names)


def one_mlp(m, p, width, names=("gate_proj", "up_proj", "down_proj")):
    for name in names[:2]:
        m.matrix(p + name, width, m.hidden)
    m.matrix(p + names[2], m.hidden, width, 0.8 / width ** 0.5)


def norms(m, p):
    m.norm(p + "input_layernorm")
    m.norm(p + "post_attention_layernorm")


def mixtral(m):
    m.ends()
    for p in m.each_layer():
        m.attention(p + "self_attn.")
        experts(m, p + "block_sparse_moe.", m.ff, ("w1", "w3", "w2"))
        norms(m, p)


def qwen(biases=False, heads_norms=None, shared=0, width=WIDTH):
    def make(m):
        m.ends()
        for p in m.each_layer():
            m.attention(p + "self_attn.", biases)
            experts(m, p + "mlp.", width or m.ff)
            if shared:
                one_mlp(m, p + "mlp.shared_expert.", shared)
                m.matrix(p + "mlp.shared_expert_gate", 1, m.hidden)
            if heads_norms:
                q, kv = heads_norms(m)
                m.norm(p + "self_attn.q_norm", q)
                m.norm(p + "self_attn.k_norm", kv)
            norms(m, p)
    return make


def stacked_experts(m, p, width, bias):
    """All experts in one tensor, gate and up in one: as transformers has gpt-oss and Llama 4."""
    gate_up = m.normal(COUNT, m.hidden, 2 * width, scale=1.2 / m.hidden ** 0.5)
    down = m.normal(COUNT, width, m.hidden, scale=0.8 / width ** 0.5)
    m.out[p + "gate_up_proj"], m.out[p + "down_proj"] = gate_up, down
    if bias:
        m.out[p + "gate_up_proj_bias"] = m.normal(COUNT, 2 * width, scale=0.3)
        m.out[p + "down_proj_bias"] = m.normal(COUNT, m.hidden, scale=0.3)


def qwen3_vl(m):
    m.ends()
    for p in m.each_layer():
        m.attention(p + "self_attn.")
        m.matrix(p + "mlp.gate", COUNT, m.hidden, 2 / m.hidden ** 0.5)
        stacked_experts(m, p + "mlp.experts.", WIDTH, False)
        m.norm(p + "self_attn.q_norm", m.shape.head_dim)
        m.norm(p + "self_attn.k_norm", m.shape.head_dim)
        norms(m, p)


def gpt_oss(m):
    m.ends()
    for p in m.each_layer():
        m.attention(p + "self_attn.", True, True)
        m.out[p + "self_attn.sinks"] = m.normal(cases.HEADS, scale=1.0)
        m.matrix(p + "mlp.router", COUNT, m.hidden, 2 / m.hidden ** 0.5, True)
        stacked_experts(m, p + "mlp.experts.", m.ff, True)
        norms(m, p)


def pairs_of_mxfp4(m, name, rows, cols):
    """Two tensors of bytes, as published folders have them."""
    m.out[name + "_blocks"] = m.rng.integers(0, 256, (COUNT, rows, cols // 32, 16), dtype=np.uint8)
    m.out[name + "_scales"] = m.rng.integers(121, 124, (COUNT, rows, cols // 32), dtype=np.uint8)


def gpt_oss_mxfp4(m):
    gpt_oss(m)
    for p in m.each_layer():
        for name in ("gate_up_proj", "down_proj"):
            del m.out[f"{p}mlp.experts.{name}"]
        pairs_of_mxfp4(m, p + "mlp.experts.gate_up_proj", 2 * m.ff, m.hidden)
        pairs_of_mxfp4(m, p + "mlp.experts.down_proj", m.hidden, m.ff)


def latent(m, p, q_rank):
    q = cases.HEADS * (PLAIN + ROTARY)
    if q_rank:
        m.matrix(p + "q_a_proj", q_rank, m.hidden)
        m.norm(p + "q_a_layernorm", q_rank)
        m.matrix(p + "q_b_proj", q, q_rank, m.spread)
    else:
        m.matrix(p + "q_proj", q, m.hidden, m.spread)
    m.matrix(p + "kv_a_proj_with_mqa", KV_RANK + ROTARY, m.hidden, m.spread)
    m.norm(p + "kv_a_layernorm", KV_RANK)
    m.matrix(p + "kv_b_proj", cases.HEADS * (PLAIN + VALUE), KV_RANK, 0.5 / KV_RANK ** 0.5)
    m.matrix(p + "o_proj", m.hidden, cases.HEADS * VALUE)


def deepseek(q_rank, choice_bias):
    def make(m):
        m.ends()
        for layer, p in enumerate(m.each_layer()):
            latent(m, p + "self_attn.", q_rank)
            norms(m, p)
            if layer == 0:
                m.mlp(p + "mlp.")
                continue
            experts(m, p + "mlp.")
            one_mlp(m, p + "mlp.shared_experts.", 2 * WIDTH)
            if choice_bias:
                m.out[p + "mlp.gate.e_score_correction_bias"] = m.normal(COUNT, scale=0.1)
    return make


def mistral4(m):
    m.ends()
    for layer, p in enumerate(m.each_layer()):
        latent(m, p + "self_attn.", Q_RANK)
        norms(m, p)
        if layer == 0:
            m.mlp(p + "mlp.")
            continue
        m.matrix(p + "mlp.gate", COUNT, m.hidden, 2 / m.hidden ** 0.5)
        m.out[p + "mlp.experts.gate_up_proj"] = m.normal(COUNT, 2 * WIDTH, m.hidden, scale=1.2 / m.hidden ** 0.5)
        m.out[p + "mlp.experts.down_proj"] = m.normal(COUNT, m.hidden, WIDTH, scale=0.8 / WIDTH ** 0.5)
        one_mlp(m, p + "mlp.shared_experts.", 2 * WIDTH)


def llama4(m):
    m.ends()
    for layer, p in enumerate(m.each_layer()):
        m.attention(p + "self_attn.")
        norms(m, p)
        if layer % 2 == 0:
            m.mlp(p + "feed_forward.")
            continue
        m.matrix(p + "feed_forward.router", COUNT, m.hidden, 2 / m.hidden ** 0.5)
        stacked_experts(m, p + "feed_forward.experts.", WIDTH, False)
        one_mlp(m, p + "feed_forward.shared_expert.", WIDTH)


def minicpm3(m):
    m.ends(head=None)
    for p in m.each_layer():
        latent(m, p + "self_attn.", Q_RANK)
        m.mlp(p + "mlp.")
        norms(m, p)


def mistral(m):
    m.ends()
    for p in m.each_layer():
        m.attention(p + "self_attn.")
        m.mlp(p + "mlp.")
        norms(m, p)


def qwen1(m):
    m.ends("transformer.wte", "transformer.ln_f")
    for p in m.each_layer("transformer.h."):
        m.stacked(p + "attn.c_attn", bias=True)
        m.matrix(p + "attn.c_proj", m.hidden, m.q)
        m.mlp(p + "mlp.", names=("w2", "w1", "c_proj"))
        m.norm(p + "ln_1")
        m.norm(p + "ln_2")


def baichuan(m):
    m.ends()
    for p in m.each_layer():
        m.stacked(p + "self_attn.W_pack")
        m.matrix(p + "self_attn.o_proj", m.hidden, m.q)
        m.mlp(p + "mlp.")
        norms(m, p)


def vendors(Case, RMS, LONGROPE, YARN, SCALED, THETA, BLENDED, ORIGINAL):
    yield Case("mistral", "plain", dict(RMS, tie_word_embeddings=False, sliding_window=None), mistral,
               {"base": THETA, "a window": dict(sliding_window=40)})
    all_heads = dict(num_key_value_heads=cases.HEADS, tie_word_embeddings=False)
    mini = dict(RMS, num_key_value_heads=cases.HEADS, head_dim=ROTARY, kv_lora_rank=KV_RANK, q_lora_rank=Q_RANK,
                qk_nope_head_dim=PLAIN, qk_rope_head_dim=ROTARY, v_head_dim=VALUE, scale_emb=12, scale_depth=1.4,
                dim_model_base=256, tie_word_embeddings=True, rms_norm_eps=1e-6)
    yield Case("minicpm3", "plain", mini, minicpm3, {"base": THETA, "scale_depth": dict(scale_depth=2.8)})
    yield Case("minicpm3", "longrope", dict(mini, rope_scaling=LONGROPE, **SCALED), minicpm3,
               {"no scaling": dict(rope_scaling=None)}, far=BLENDED)
    theta = dict(rope_theta=cases.EXACT.base)
    for name, rope in (("plain", dict(rope_type="default", **theta)),
                       ("yarn", dict(YARN, **theta, mscale=1.0, mscale_all_dim=1.0, beta_fast=16.0)),
                       ("temperature", dict(YARN, **theta, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))):
        wrong = {"base": dict(rope_parameters=dict(rope, rope_theta=1.5 * cases.EXACT.base))}
        if name == "temperature":
            wrong["none"] = dict(rope_parameters={k: v for k, v in rope.items() if k != "llama_4_scaling_beta"})
        if name != "plain":
            wrong["amplitude"] = dict(rope_parameters={k: v for k, v in rope.items() if "mscale" not in k})
        yield Case("ministral3", name, dict(RMS, tie_word_embeddings=False, rope_parameters=rope, rope_theta=None,
                                            **(SCALED if name != "plain" else {})), mistral, wrong,
                   far={"plain": 2e-5, "yarn": BLENDED, "temperature": 2 * BLENDED}[name])
    yield Case("qwen", "plain", dict(all_heads, layer_norm_epsilon=cases.EPS, intermediate_size=2 * cases.FEED_FORWARD,
                                     seq_length=ORIGINAL, no_bias=True), qwen1, {"base": THETA})
    yield Case("baichuan", "7B", dict(all_heads, **RMS), baichuan, {"base": THETA}, 32, DEEP, DEEP)
    yield Case("baichuan", "2, 7B", dict(all_heads, **RMS, z_loss_weight=0), baichuan,
               {"the head as it is": dict(z_loss_weight=None)}, 32, DEEP, DEEP)
    yield Case("baichuan", "13B", dict(all_heads, **RMS, model_max_length=ORIGINAL, max_position_embeddings=None,
                                       rope_theta=None), baichuan,
               {"rotated": dict(max_position_embeddings=ORIGINAL, model_max_length=None,
                                rope_theta=cases.EXACT.base)}, 40, DEEP, DEEP)


def mixtures(Case, RMS, YARN, SCALED, THETA, WINDOW, BLENDED, TURNS):
    untied = dict(RMS, tie_word_embeddings=False, num_experts_per_tok=CHOSEN)
    one = {"base": THETA, "one expert": dict(num_experts_per_tok=1)}
    unscaled = {"no scaling": dict(rope_scaling=None)}
    # Far away ggml's float32 angles of YaRN's blend would choose other experts.
    every = dict(SCALED, num_experts_per_tok=COUNT)
    mixtral_keys = dict(untied, num_local_experts=COUNT)
    yield Case("mixtral", "plain", mixtral_keys, mixtral, one)
    yield Case("mixtral", "yarn", dict(mixtral_keys, rope_scaling=YARN, **every), mixtral, unscaled, far=BLENDED)
    own = dict(untied, num_experts=COUNT, moe_intermediate_size=WIDTH)
    yield Case("qwen3_moe", "plain", dict(own, norm_topk_prob=True),
               qwen(heads_norms=lambda m: (m.shape.head_dim, m.shape.head_dim)),
               {**one, "weights as they are": dict(norm_topk_prob=False)})
    yield Case("qwen3_vl_moe_text", "plain", dict(own, rope_scaling=TURNS), qwen3_vl, one)
    yield Case("qwen2_moe", "plain", dict(own, norm_topk_prob=False, shared_expert_intermediate_size=WIDTH + 32),
               qwen(True, shared=WIDTH + 32), {**one, "weights sum to 1": dict(norm_topk_prob=True)})
    yield Case("olmoe", "plain", dict(untied, num_experts=COUNT, num_key_value_heads=cases.HEADS),
               qwen(heads_norms=lambda m: (m.q, m.kv), width=0), {**one, "weights sum to 1": dict(norm_topk_prob=True)})
    oss = dict(untied, num_local_experts=COUNT, sliding_window=WINDOW, attention_bias=True,
               rope_scaling=dict(rope_type="default"))
    seen = {**one, "no window": dict(sliding_window=4096)}
    yield Case("gpt_oss", "plain", oss, gpt_oss, seen)
    yield Case("gpt_oss", "yarn", dict(oss, rope_scaling=YARN, **every), gpt_oss,
               {"no scaling": dict(rope_scaling=dict(rope_type="default"))}, far=BLENDED)
    yield Case("gpt_oss", "mxfp4", dict(oss, quantization_config=dict(quant_method="mxfp4")), gpt_oss_mxfp4, seen,
               packed=True)
    mla = dict(untied, rms_norm_eps=1e-6, num_key_value_heads=cases.HEADS, head_dim=ROTARY, kv_lora_rank=KV_RANK,
               qk_nope_head_dim=PLAIN, qk_rope_head_dim=ROTARY, v_head_dim=VALUE, n_routed_experts=COUNT,
               moe_intermediate_size=WIDTH, n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=2.5)
    v2 = dict(mla, q_lora_rank=None)
    yield Case("deepseek_v2", "plain", v2, deepseek(0, False), {**one, "scale": dict(routed_scaling_factor=1.0)})
    yield Case("deepseek_v2", "yarn", dict(v2, rope_scaling=dict(YARN, mscale=0.707, mscale_all_dim=0.707), **every),
               deepseek(0, False), {**unscaled, "scores as they are": dict(
                   rope_scaling=dict(YARN, attention_factor=1.0))}, far=BLENDED)
    v3 = dict(mla, q_lora_rank=Q_RANK, n_group=3, topk_group=2, norm_topk_prob=True)
    yield Case("deepseek_v3", "plain", v3, deepseek(Q_RANK, True),
               {**one, "no groups": dict(n_group=1, topk_group=1), "weights as they are": dict(norm_topk_prob=False)})
    yield Case("deepseek_v3", "yarn", dict(
        v3, n_group=1, topk_group=1, rope_scaling=dict(YARN, mscale=1.0, mscale_all_dim=1.0), **every),
               deepseek(Q_RANK, True), unscaled, far=BLENDED)
    theta = dict(rope_theta=cases.EXACT.base)
    m4 = dict(v3, rope_theta=None, head_dim=None)
    plain = dict(theta, rope_type="default", llama_4_scaling_beta=0.3)
    tempered = dict(YARN, **plain | dict(rope_type="yarn"), mscale=1.0, mscale_all_dim=1.0)
    yield Case("mistral4", "plain", dict(m4, rope_parameters=plain), mistral4,
               {**{k: v for k, v in one.items() if k != "base"}, "no groups": dict(n_group=1, topk_group=1),
                "weights as they are": dict(norm_topk_prob=False),
                "no temperature": dict(rope_parameters=dict(plain, llama_4_scaling_beta=0.0))})
    yield Case("mistral4", "yarn", dict(m4, n_group=1, topk_group=1, rope_parameters=tempered, **every), mistral4,
               {"no scaling": dict(rope_parameters=plain)}, far=2 * BLENDED)
    yield Case("llama4_text", "plain", dict(untied, num_experts_per_tok=1, num_local_experts=COUNT,
                                            intermediate_size=WIDTH, intermediate_size_mlp=cases.FEED_FORWARD,
                                            interleave_moe_layer_step=2, attention_chunk_size=8192), llama4,
               {"base": THETA, "two experts": dict(num_experts_per_tok=2), "no norms": dict(use_qk_norm=False)}, 4)
