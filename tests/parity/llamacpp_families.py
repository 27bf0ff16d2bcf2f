"""Hugging Face folders of families whose layers are not LLaMA's, with random weights under the names
and in the shapes of their own code: what `ropewalk convert` writes of them has, in llama.cpp, the logits
that ropewalk computes of the folder (which tests/parity/cases.py holds against transformers)."""

import dataclasses
import json

import numpy as np
import safetensors.numpy

import llamacpp_cases as cases
import llamacpp_mixtures
from llamacpp_ours import relative

WINDOW = 40
AXES = dict(rope_type="default", mrope_section=[4, 6, 6])
TURNS = dict(rope_type="default", mrope_section=[6, 5, 5], mrope_interleaved=True)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=cases.ORIGINAL)
LONG = {"short_factor": 0.03, "long_factor": 0.9}


@dataclasses.dataclass
class Case:
    family: str
    name: str
    keys: dict  # of config.json
    tensors: object  # function (Maker) -> None
    wrong: dict  # name -> keys: what another reading of them would be
    layers: int = 2
    floor: float = 2e-5  # of the largest logit
    far: float | None = 2e-5  # None: the table of positions ends before
    four: bool = False  # feed-forward layers of 4 times the width
    packed: bool = False  # some weights are in blocks, in which llama.cpp rounds activations to 8 bits


class Maker:
    """Random tensors of one model. Attention is far from uniform: a wrong rope moves every logit."""

    def __init__(self, case, shape=cases.EXACT):
        self.rng, self.layers, self.shape = np.random.default_rng(7), case.layers, shape
        self.hidden, self.ff = shape.hidden, 4 * shape.hidden if case.four else cases.FEED_FORWARD
        self.kv_heads = case.keys.get("num_key_value_heads", cases.KV_HEADS)
        self.q, self.kv = cases.HEADS * shape.head_dim, self.kv_heads * shape.head_dim
        self.spread = 0.3 * (32 / self.hidden) ** 0.5 * (16 / shape.head_dim) ** 0.25
        self.out = {}

    def normal(self, *size, scale, mean=0.0):
        return (mean + scale * self.rng.standard_normal(size)).astype(np.float32)

    def norm(self, name, *size, bias=False):
        self.out[name + ".weight"] = self.normal(*(size or (self.hidden,)), scale=0.3, mean=1.2)
        if bias:
            self.out[name + ".bias"] = self.normal(*(size or (self.hidden,)), scale=0.3)

    def matrix(self, name, rows, cols, scale=None, bias=False):
        self.out[name + ".weight"] = self.normal(rows, cols, scale=scale or 1.2 / cols ** 0.5)
        if bias:
            self.out[name + ".bias"] = self.normal(rows, scale=0.3)

    def two(self, up, down, bias=True):
        self.matrix(up, self.ff, self.hidden, bias=bias)
        self.matrix(down, self.hidden, self.ff, 0.8 / self.ff ** 0.5, bias)

    def ends(self, embedding="model.embed_tokens", norm="model.norm", head="lm_head", bias=False):
        self.out[embedding + ".weight"] = self.normal(cases.VOCAB, self.hidden, scale=0.5)
        if norm:
            self.norm(norm, bias=bias)
        if head:
            self.matrix(head, cases.VOCAB, self.hidden)

    def each_layer(self, prefix="model.layers."):
        for layer in range(self.layers):
            yield f"{prefix}{layer}."

    def attention(self, p, bias=False, out_bias=False, names=("q_proj", "k_proj", "v_proj", "o_proj")):
        for name, rows, scale in zip(names, (self.q, self.kv, self.kv), (self.spread, self.spread, None)):
            self.matrix(p + name, rows, self.hidden, scale, bias)
        self.matrix(p + names[3], self.hidden, self.q, bias=out_bias)

    def stacked(self, name, grouped=False, bias=False):
        """q, k and v in one tensor: one after the other, or for each key head its queries, itself, its values."""
        width, group = self.shape.head_dim, cases.HEADS // self.kv_heads
        q, k, v = (self.normal(n // width, width, self.hidden, scale=s) for n, s in (
            (self.q, self.spread), (self.kv, self.spread), (self.kv, 1.2 / self.hidden ** 0.5)))
        heads = [*q, *k, *v]
        if grouped:
            heads = [h for g in range(self.kv_heads) for h in (*q[g * group:(g + 1) * group], k[g], v[g])]
        self.out[name + ".weight"] = np.concatenate(heads)
        if bias:
            self.out[name + ".bias"] = self.normal(self.q + 2 * self.kv, scale=0.3)

    def mlp(self, p, bias=False, names=("gate_proj", "up_proj", "down_proj")):
        for name in names[:-1]:
            self.matrix(p + name, self.ff * (1 + (len(names) == 2 and "gate" in name)), self.hidden, bias=bias)
        self.matrix(p + names[-1], self.hidden, self.ff, 0.8 / self.ff ** 0.5, bias)


def llama_like(bias=False, out_bias=False, mlp_bias=False, head="lm_head", norm_bias=False):
    def make(m):
        m.ends(head=head, bias=norm_bias)
        for p in m.each_layer():
            m.attention(p + "self_attn.", bias, out_bias)
            m.mlp(p + "mlp.", mlp_bias)
            m.norm(p + "input_layernorm", bias=norm_bias)
            m.norm(p + "post_attention_layernorm", bias=norm_bias)
    return make


def normed(m):
    llama_like()(m)
    for p in m.each_layer():
        m.norm(p + "self_attn.q_norm", m.shape.head_dim)
        m.norm(p + "self_attn.k_norm", m.shape.head_dim)


def phi3(head="lm_head"):
    def make(m):
        m.ends(head=head)
        for p in m.each_layer():
            m.stacked(p + "self_attn.qkv_proj")
            m.matrix(p + "self_attn.o_proj", m.hidden, m.q)
            m.mlp(p + "mlp.", names=("gate_up_proj", "down_proj"))
            m.norm(p + "input_layernorm")
            m.norm(p + "post_attention_layernorm")
    return make


def olmo(m):
    m.ends(norm=None)
    for p in m.each_layer():
        m.attention(p + "self_attn.")
        m.mlp(p + "mlp.")


def olmo2(head="lm_head"):
    def make(m):
        m.ends(head=head)
        for p in m.each_layer():
            m.attention(p + "self_attn.")
            m.mlp(p + "mlp.")
            m.norm(p + "self_attn.q_norm", m.q)
            m.norm(p + "self_attn.k_norm", m.kv)
            m.norm(p + "post_attention_layernorm")
            m.norm(p + "post_feedforward_layernorm")
    return make


def cohere(qk_norm=False):
    def make(m):
        m.ends(head=None)
        for p in m.each_layer():
            m.attention(p + "self_attn.")
            m.mlp(p + "mlp.")
            m.norm(p + "input_layernorm")
            if qk_norm:
                m.norm(p + "self_attn.q_norm", cases.HEADS, m.shape.head_dim)
                m.norm(p + "self_attn.k_norm", cases.KV_HEADS, m.shape.head_dim)
    return make


def glm(four_norms=False, bias=False):
    def make(m):
        m.ends()
        for p in m.each_layer():
            m.attention(p + "self_attn.", bias)
            m.mlp(p + "mlp.", names=("gate_up_proj", "down_proj"))
            norms = ["input_layernorm", "post_attention_layernorm"]
            for name in norms + ["post_self_attn_layernorm", "post_mlp_layernorm"] * four_norms:
                m.norm(p + name)
    return make


def chatglm(m):
    m.ends("transformer.embedding.word_embeddings", "transformer.encoder.final_layernorm",
           "transformer.output_layer")
    for p in m.each_layer("transformer.encoder.layers."):
        m.stacked(p + "self_attention.query_key_value", bias=True)
        m.matrix(p + "self_attention.dense", m.hidden, m.q)
        m.matrix(p + "mlp.dense_h_to_4h", 2 * m.ff, m.hidden)
        m.matrix(p + "mlp.dense_4h_to_h", m.hidden, m.ff, 0.8 / m.ff ** 0.5)
        m.norm(p + "input_layernorm")
        m.norm(p + "post_attention_layernorm")


def starcoder2(m):
    m.ends(head=None, bias=True)
    for p in m.each_layer():
        m.attention(p + "self_attn.", True, True)
        m.two(p + "mlp.c_fc", p + "mlp.c_proj")
        m.norm(p + "input_layernorm", bias=True)
        m.norm(p + "post_attention_layernorm", bias=True)


def internlm2(m):
    m.ends("model.tok_embeddings", head="output")
    for p in m.each_layer():
        m.stacked(p + "attention.wqkv", grouped=True)
        m.matrix(p + "attention.wo", m.hidden, m.q)
        m.mlp(p + "feed_forward.", names=("w1", "w3", "w2"))
        m.norm(p + "attention_norm")
        m.norm(p + "ffn_norm")


def stablelm(parallel):
    def make(m):
        m.ends(bias=True)
        for p in m.each_layer():
            m.attention(p + "self_attn.", True)
            m.mlp(p + "mlp.")
            for name in ["input_layernorm"] + ["post_attention_layernorm"] * (not parallel):
                m.norm(p + name, bias=True)
    return make


def phi(m):
    m.ends(norm="model.final_layernorm", bias=True)
    m.out["lm_head.bias"] = m.normal(cases.VOCAB, scale=0.3)
    for p in m.each_layer():
        m.attention(p + "self_attn.", True, True, ("q_proj", "k_proj", "v_proj", "dense"))
        m.two(p + "mlp.fc1", p + "mlp.fc2")
        m.norm(p + "input_layernorm", bias=True)


def fused(root, layers, words, bias=True, norms=("input_layernorm", "post_attention_layernorm"), norm_bias=True,
          grouped=True, transposed=False, extra=None):
    """GPT-2's descendants: `words` for embedding, final norm, head (or None), q with k and v, o, up, down."""
    def make(m):
        embedding, norm, head, qkv, o, up, down = words
        m.ends(root + embedding, root + norm, head, norm_bias)
        for p in m.each_layer(root + layers):
            m.stacked(p + qkv, grouped, bias)
            m.matrix(p + o, m.hidden, m.q, bias=bias)
            m.two(p + up, p + down, bias)
            for name in norms:
                m.norm(p + name, bias=norm_bias)
            for name in (qkv, o, up, down) if transposed else ():
                m.out[p + name + ".weight"] = np.ascontiguousarray(m.out[p + name + ".weight"].T)
        if extra:
            extra(m)
    return make


NEOX = ("embed_in", "final_layer_norm", "embed_out", "attention.query_key_value", "attention.dense",
        "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
BLOOM = ("word_embeddings", "ln_f", None, "self_attention.query_key_value", "self_attention.dense",
         "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
GPT2 = ("wte", "ln_f", None, "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
MPT = ("wte", "norm_f", None, "attn.Wqkv", "attn.out_proj", "ffn.up_proj", "ffn.down_proj")


def gpt2_positions(m):
    m.out["transformer.wpe.weight"] = m.normal(2 * cases.ORIGINAL, m.hidden, scale=0.5)


def bloom_norm(m):
    m.norm("transformer.word_embeddings_layernorm", bias=True)


def longrope(kind, pairs):
    return {kind: "longrope", **{key: [1 + step * i for i in range(pairs)] for key, step in LONG.items()}}


THETA = dict(rope_theta=cases.EXACT.base * 1.5)
SCALED = dict(max_position_embeddings=4 * cases.ORIGINAL)
RMS, LAYER = dict(rms_norm_eps=cases.EPS), dict(layer_norm_eps=cases.EPS)
GELU = 5e-4  # ggml computes it by a table of float16, and with tanh where the model has the formula with erf
BLENDED = 2e-2  # far away, ggml's float32 angles of YaRN's blend and of divisors


def families():
    pairs = cases.EXACT.pairs
    granite = dict(RMS, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, logits_scaling=4.0,
                   embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.22)
    scales = {key: {key: value} for key, value in (("embedding_multiplier", 1.0), ("logits_scaling", 1.0),
                                                   ("attention_multiplier", 32 ** -0.5),
                                                   ("residual_multiplier", 1.0))}
    yield Case("granite", "plain", granite, llama_like(True, True, True), {"base": THETA, **scales})
    for name, rope in (("yarn", YARN), ("longrope", dict(longrope("rope_type", pairs), factor=4.0,
                                                         original_max_position_embeddings=cases.ORIGINAL))):
        yield Case("granite", name, dict(granite, rope_scaling=rope, **SCALED), llama_like(True, True, True),
                   {"no scaling": dict(rope_scaling=None)}, far=BLENDED)
    vl = dict(rms_norm_eps=1e-12, tie_word_embeddings=False)  # llama-cpp-python 0.3.36 takes 0 in qwen2vl
    for family, axes, tensors in (("qwen2_vl", AXES, llama_like(True)), ("qwen3_vl_text", TURNS, normed)):
        yield Case(family, "plain", dict(vl, rope_scaling=axes), tensors, {"base": THETA})
        yield Case(family, "yarn", dict(vl, rope_scaling={**axes, **YARN}, **SCALED), tensors,
                   {"no scaling": dict(rope_scaling=axes)}, far=BLENDED)
    minicpm = dict(RMS, tie_word_embeddings=True, scale_emb=3, scale_depth=0.9, dim_model_base=32)
    yield Case("minicpm", "plain", minicpm, llama_like(head=None),
               {"base": THETA, "scale_depth": dict(scale_depth=1.4), "scale_emb": dict(scale_emb=1),
                "dim_model_base": dict(dim_model_base=128)})
    small = dict(RMS, tie_word_embeddings=False, sliding_window=None)
    yield Case("phi3", "plain", small, phi3(), {"base": THETA})
    yield Case("phi3", "partial, tied", dict(small, partial_rotary_factor=0.5, tie_word_embeddings=True),
               phi3(None), {"base": THETA, "whole heads": dict(partial_rotary_factor=1.0)})
    yield Case("phi3", "longrope", dict(small, rope_scaling=longrope("type", pairs), **SCALED,
                                        original_max_position_embeddings=cases.ORIGINAL), phi3(),
               {"no scaling": dict(rope_scaling=None)}, far=BLENDED)
    yield Case("olmo", "clip_qkv", dict(tie_word_embeddings=False, clip_qkv=0.8), olmo,
               {"base": THETA, "no clip": dict(clip_qkv=None)})
    yield Case("olmo2", "tied", dict(RMS, tie_word_embeddings=True), olmo2(None), {"base": THETA})
    yield Case("olmo2", "yarn", dict(RMS, tie_word_embeddings=False, rope_scaling=YARN, **SCALED), olmo2(),
               {"no scaling": dict(rope_scaling=None)}, far=BLENDED)
    olmo3 = dict(RMS, tie_word_embeddings=False, sliding_window=WINDOW)
    yield Case("olmo3", "plain", olmo3, olmo2(), {"base": THETA, "no window": dict(sliding_window=4096)}, 4)
    yield Case("olmo3", "yarn", dict(olmo3, rope_scaling=YARN, **SCALED), olmo2(),
               {"no scaling": dict(rope_scaling=None)}, 4, far=BLENDED)
    command_r = dict(LAYER, tie_word_embeddings=True, logit_scale=0.25)
    yield Case("cohere", "plain", command_r, cohere(), {"base": THETA, "logit_scale": dict(logit_scale=1.0)})
    # llama.cpp has norms of q and k in models of 64 layers and more.
    yield Case("cohere", "norms of q and k", dict(command_r, use_qk_norm=True), cohere(True), {"base": THETA}, 64)
    cohere2 = dict(LAYER, tie_word_embeddings=True, logit_scale=0.25, sliding_window=WINDOW)
    yield Case("cohere2", "plain", cohere2, cohere(), {"base": THETA, "no window": dict(sliding_window=4096)}, 4)
    yield Case("cohere2", "another order", dict(cohere2, layer_types=[
        "full_attention", "sliding_attention", "full_attention", "sliding_attention"]), cohere(),
        {"usual order": dict(layer_types=["sliding_attention"] * 3 + ["full_attention"])}, 4)
    glm4 = dict(RMS, tie_word_embeddings=False, partial_rotary_factor=0.5)
    yield Case("glm4", "plain", glm4, glm(True), {"base": THETA, "whole heads": dict(partial_rotary_factor=1.0)})
    yield Case("glm4", "biases of q, k and v", dict(glm4, attention_bias=True), glm(True, True), {"base": THETA})
    yield Case("glm", "plain", dict(glm4, attention_bias=True), glm(bias=True), {"base": THETA})
    yield Case("chatglm", "plain", dict(
        num_layers=2, multi_query_attention=True, multi_query_group_num=cases.KV_HEADS, kv_channels=32,
        ffn_hidden_size=cases.FEED_FORWARD, padded_vocab_size=cases.VOCAB, seq_length=cases.ORIGINAL,
        layernorm_epsilon=cases.EPS, add_qkv_bias=True, add_bias_linear=False, rmsnorm=True, post_layer_norm=True,
        apply_residual_connection_post_layernorm=False, original_rope=True, rope_ratio=6.5536,
        tie_word_embeddings=False), chatglm, {"base": dict(rope_ratio=9.0)})
    yield Case("starcoder2", "plain", dict(norm_epsilon=cases.EPS, use_bias=True, tie_word_embeddings=True,
                                           hidden_act="gelu_pytorch_tanh"), starcoder2, {"base": THETA},
               floor=GELU, far=GELU)
    yield Case("internlm2", "plain", dict(RMS, bias=False, tie_word_embeddings=False), internlm2, {"base": THETA})
    yield Case("orion", "plain", dict(RMS, tie_word_embeddings=False), llama_like(norm_bias=True), {"base": THETA})
    partial = dict(LAYER, partial_rotary_factor=0.5, tie_word_embeddings=False)
    for parallel in (False, True):
        yield Case("stablelm", "parallel" if parallel else "plain", dict(
            partial, use_qkv_bias=True, use_parallel_residual=parallel), stablelm(parallel),
            {"base": THETA, "whole heads": dict(partial_rotary_factor=1.0)})
    yield Case("phi", "plain", dict(partial, hidden_act="gelu_new"), phi, {"base": THETA}, floor=GELU, far=GELU)
    all_heads = dict(num_key_value_heads=cases.HEADS, tie_word_embeddings=False)
    for parallel in (False, True):
        yield Case("gpt_neox", "parallel" if parallel else "one after the other", dict(
            all_heads, **LAYER, rotary_pct=0.5, rotary_emb_base=cases.EXACT.base, hidden_act="gelu",
            use_parallel_residual=parallel), fused("gpt_neox.", "layers.", NEOX),
            {"base": dict(rotary_emb_base=cases.EXACT.base * 1.5),
             "the other order": dict(use_parallel_residual=not parallel)}, floor=GELU, far=GELU)
    falcon = dict(layer_norm_epsilon=cases.EPS, tie_word_embeddings=True, activation="gelu", alibi=False, bias=False,
                  parallel_attn=True)
    yield Case("falcon", "one key head", dict(falcon, num_key_value_heads=1, multi_query=True,
                                              new_decoder_architecture=False),
               fused("transformer.", "h.", BLOOM, False, ("input_layernorm",)), {"base": THETA}, floor=GELU, far=GELU)
    yield Case("falcon", "two norms", dict(falcon, new_decoder_architecture=True, multi_query=True),
               fused("transformer.", "h.", BLOOM, False, ("ln_attn", "ln_mlp")), {"base": THETA}, floor=GELU, far=GELU)
    yield Case("gpt2", "plain", dict(layer_norm_epsilon=cases.EPS, num_key_value_heads=cases.HEADS,
                                     max_position_embeddings=2 * cases.ORIGINAL, activation_function="gelu_new"),
               fused("transformer.", "h.", GPT2, norms=("ln_1", "ln_2"), grouped=False, transposed=True,
                     extra=gpt2_positions), {"eps": dict(layer_norm_epsilon=0.5)}, floor=GELU, far=None)
    yield Case("bloom", "plain", dict(layer_norm_epsilon=cases.EPS, num_key_value_heads=cases.HEADS),
               fused("transformer.", "h.", BLOOM, extra=bloom_norm),
               {"residual": dict(apply_residual_connection_post_layernorm=True)}, floor=GELU, far=GELU, four=True)
    attention = dict(alibi=True, alibi_bias_max=16, clip_qkv=0.8)
    yield Case("mpt", "plain", dict(layer_norm_epsilon=cases.EPS, num_key_value_heads=cases.HEADS, no_bias=True,
                                    attn_config=attention),
               fused("transformer.", "blocks.", MPT, False, ("norm_1", "norm_2"), False, False),
               {"alibi_bias_max": dict(attn_config=dict(attention, alibi_bias_max=8)),
                "no clip": dict(attn_config=dict(attention, clip_qkv=None))}, floor=GELU, far=GELU, four=True)


def all_cases():
    yield from families()
    yield from llamacpp_mixtures.mixtures(Case, RMS, YARN, SCALED, THETA, WINDOW, BLENDED, TURNS)
    longrope_of = dict(longrope("rope_type", cases.EXACT.pairs), factor=4.0,
                       original_max_position_embeddings=cases.ORIGINAL)
    yield from llamacpp_mixtures.vendors(Case, RMS, longrope_of, YARN, SCALED, THETA, BLENDED, cases.ORIGINAL)


def write_folder(folder, case, change=None):
    folder.mkdir()
    maker = Maker(case)
    case.tensors(maker)
    safetensors.numpy.save_file(maker.out, folder / "model.safetensors")
    sizes = dict(
        model_type=case.family, vocab_size=cases.VOCAB, hidden_size=maker.hidden,
        intermediate_size=maker.ff, num_hidden_layers=case.layers, num_attention_heads=cases.HEADS,
        num_key_value_heads=cases.KV_HEADS, head_dim=maker.shape.head_dim, rope_theta=maker.shape.base,
        max_position_embeddings=cases.ORIGINAL)
    if case.four or case.family == "mpt":
        del sizes["intermediate_size"]
    if case.family in ("gpt2", "bloom", "mpt"):  # nothing rotates
        del sizes["rope_theta"]
    if case.family == "gpt_neox":
        del sizes["rope_theta"], sizes["head_dim"]
    if case.family == "chatglm":  # its own words for all of these
        sizes = dict(model_type="chatglm", hidden_size=maker.hidden, num_attention_heads=cases.HEADS)
    keys = {**sizes, **case.keys, **(change or {})}
    for key in ("rope_theta", "max_position_embeddings", "model_max_length", "z_loss_weight"):
        if keys.get(key, 0) is None:  # where absence says something
            del keys[key]
    (folder / "config.json").write_text(json.dumps(keys))


def check(report, ours, root, ids, decoded):
    """Converts every case, and returns [(name, file for llama.cpp, model for ropewalk, limit near, limit far)].
    The control: read otherwise, the files would give other logits."""
    files, controls, numbers = [], {}, {}
    for case in all_cases():
        label = f"convert {case.family} {case.name}"
        folder, path = root / f"hf {label}", root / f"{label}.gguf"
        write_folder(folder, case)
        code, _, error = ours.program("convert", folder, "-o", path, "--no-tokenizer")
        if code != 0:
            report.row(label, error.strip(), False)
            continue
        if case.packed:  # compared as float32, with what the file holds
            plain = root / f"{label} decoded.gguf"
            decoded(path, plain)
            files.append((f"{label} decoded", plain, folder, case.floor, case.far))
        else:
            files.append((label, path, folder, case.floor, case.far))
        # llama.cpp rounds activations to 8 bits as well, so that the file's numbers are compared as float32.
        rounded, plain = root / f"{label} q8_0.gguf", root / f"{label} q8_0 decoded.gguf"
        ours.program("convert", folder, "-o", rounded, "--no-tokenizer", "--type", "q8_0", "--no-verify")
        decoded(rounded, plain)
        files.append((f"{label} q8_0 decoded", plain, rounded, case.floor, None))
        numbers[label] = ours.ask(folder, ids, 0, 2 * cases.ORIGINAL)
        for name, change in case.wrong.items():
            wrong = root / f"hf {label} {name}"
            write_folder(wrong, case, change)
            controls[label, name] = case.floor, ours.ask(wrong, ids, 0, 2 * cases.ORIGINAL)
    answers = ours.run()
    for (label, name), (limit, number) in controls.items():
        effect = relative(answers[number], answers[numbers[label]])
        report.row(f"{label}, {name}, read otherwise", f"would be {effect:.1e}", effect > 50 * limit)
    return files
