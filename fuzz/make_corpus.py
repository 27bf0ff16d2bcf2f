"""Writes the binary seeds of fuzz/corpus/: tiny files with every kind of value in them. The JSON seeds
there are written by hand.

    python3 fuzz/make_corpus.py
"""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q",
           I64: "q", F64: "d"}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def key(name, kind, value, items=None):
    head = string(name) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + scalar(kind, value)
    return head + struct.pack("<IQ", items, len(value)) + b"".join(scalar(items, v) for v in value)


def gguf(keys, tensors, version=3, alignment=32):
    """tensors: (name, dimensions inner first, ggml type, bytes)."""
    infos, data = b"", b""
    for name, dims, kind, size in tensors:
        data += bytes(-len(data) % alignment)
        infos += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        infos += struct.pack("<IQ", kind, len(data))
        data += bytes(i % 251 for i in range(size))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + infos
    return head + bytes(-len(head) % alignment) + data


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(target, name, data):
    """The writers are fuzzed with what both readers are."""
    for folder, file in ((CORPUS / target, name), (CORPUS / "writers", f"{target}_{name}")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)


config = [
    key("general.architecture", STRING, "llama"), key("llama.block_count", U32, 1),
    key("llama.context_length", U32, 64), key("llama.embedding_length", U32, 8),
    key("llama.feed_forward_length", U32, 16), key("llama.attention.head_count", U32, 2),
    key("llama.attention.head_count_kv", U32, 1), key("llama.rope.dimension_count", U32, 4),
    key("llama.rope.freq_base", F32, 10000.0), key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
    key("llama.vocab_size", U32, 8),
]
yarn = [
    key("llama.rope.scaling.type", STRING, "yarn"), key("llama.rope.scaling.factor", F32, 4.0),
    key("llama.rope.scaling.original_context_length", U32, 16),
]
spm = [
    key("tokenizer.ggml.model", STRING, "llama"),
    key("tokenizer.ggml.tokens", ARRAY,
        ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "t", "\u2581t", "he"], STRING),
    key("tokenizer.ggml.scores", ARRAY, [0.0, 0.0, 0.0, 0.0, -3.0, -2.0, -1.0, -4.0], F32),
    key("tokenizer.ggml.token_type", ARRAY, [2, 3, 3, 6, 1, 1, 1, 1], I32),
    key("tokenizer.ggml.bos_token_id", U32, 1), key("tokenizer.ggml.eos_token_id", U32, 2),
    key("tokenizer.ggml.add_bos_token", BOOL, True),
]
bpe = [
    key("tokenizer.ggml.model", STRING, "gpt2"), key("tokenizer.ggml.pre", STRING, "smollm"),
    key("tokenizer.ggml.tokens", ARRAY, ["<|end|>", "T", "h", "e", "\u0120", "he", "The", "r"], STRING),
    key("tokenizer.ggml.merges", ARRAY, ["h e", "T he"], STRING),
    key("tokenizer.ggml.token_type", ARRAY, [3, 1, 1, 1, 1, 1, 1, 1], I32),
    key("tokenizer.ggml.bos_token_id", U32, 0), key("tokenizer.ggml.eos_token_id", U32, 0),
]
every = [
    key("u8", U8, 1), key("i8", I8, -1), key("u16", U16, 1), key("i16", I16, -1), key("u64", U64, 1 << 63),
    key("i64", I64, -1), key("f64", F64, 0.5), key("bools", ARRAY, [True, False], BOOL),
    key("doubles", ARRAY, [0.5], F64), key("general.alignment", U32, 64),
]
SIZES = [("f32", 0, 4, 1), ("f16", 1, 2, 1), ("q4_0", 2, 18, 32), ("q4_1", 3, 20, 32), ("q5_0", 6, 22, 32),
         ("q5_1", 7, 24, 32), ("q8_0", 8, 34, 32), ("q4_k", 12, 144, 256), ("q5_k", 13, 176, 256),
         ("q6_k", 14, 210, 256), ("f64", 28, 8, 1), ("bf16", 30, 2, 1), ("q2_k", 10, 84, 256),
         ("q3_k", 11, 110, 256), ("iq4_nl", 20, 18, 32), ("iq4_xs", 23, 136, 256), ("iq2_xxs", 16, 66, 256), ("iq2_xs", 17, 74, 256),
         ("iq2_s", 22, 82, 256), ("iq3_xxs", 18, 98, 256), ("iq3_s", 21, 110, 256), ("iq1_s", 19, 50, 256),
         ("iq1_m", 29, 56, 256), ("tq1_0", 34, 54, 256), ("tq2_0", 35, 66, 256), ("mxfp4", 39, 17, 32)]
tensors = [(name, [block, 2], kind, 2 * size) for name, kind, size, block in SIZES]

write("gguf", "spm", gguf(config + spm, [("token_embd.weight", [8, 8], 0, 256)]))
write("gguf", "bpe", gguf(config + yarn + bpe, [("token_embd.weight", [8, 8], 1, 128)], version=2))
write("gguf", "types", gguf(every, tensors, alignment=64))
write("gguf", "empty", gguf([], []))
split = [key("split.no", U16, 0), key("split.count", U16, 2), key("split.tensors.count", I32, 2)]
write("gguf", "split", gguf(config + split, [("token_embd.weight", [8, 8], 0, 256)]))


def of(architecture, *more, layers=2):
    """Keys of a model of another family, without a tokenizer."""
    sizes = [("block_count", U32, layers), ("context_length", U32, 64), ("embedding_length", U32, 8),
             ("feed_forward_length", U32, 16), ("attention.head_count", U32, 2), ("vocab_size", U32, 8),
             ("attention.layer_norm_rms_epsilon", F32, 1e-5), ("attention.layer_norm_epsilon", F32, 1e-5)]
    return [key("general.architecture", STRING, architecture)] + [
        key(f"{architecture}.{name}", *rest) for name, *rest in [*sizes, *more]]


def floats(*shapes):
    """name -> dimensions, inner first, of float32."""
    out = []
    for name, *dims in shapes:
        size = 4
        for d in dims:
            size *= d
        out.append((name, dims, 0, size))
    return out


# What the layers of the families are read from: multipliers, windows, tensors that are there.
write("gguf", "granite", gguf(
    of("granite", ("logit_scale", F32, 4.0), ("embedding_scale", F32, 12.0), ("residual_scale", F32, 0.25),
       ("attention.scale", F32, 0.5), ("rope.scaling.finetuned", BOOL, False)),
    floats(("blk.0.attn_qkv.weight", 8, 24), ("blk.0.attn_qkv.bias", 24), ("blk.0.ffn_up.bias", 16))))
write("gguf", "minicpm", gguf(of("minicpm"), floats(("token_embd.weight", 8, 8))))
write("gguf", "cohere2", gguf(
    of("cohere2", ("logit_scale", F32, 0.25), ("attention.sliding_window", U32, 16),
       ("attention.sliding_window_pattern", ARRAY, [True, False], BOOL)), floats(("token_embd.weight", 8, 8))))
write("gguf", "phi3", gguf(
    of("phi3", ("rope.scaling.type", STRING, "longrope"), ("rope.scaling.attn_factor", F32, 1.25),
       ("rope.scaling.original_context_length", U32, 16), ("attention.sliding_window", U32, 32),
       ("rope.dimension_count", U32, 4)),
    floats(("rope_factors_long.weight", 2), ("rope_factors_short.weight", 2), ("blk.0.attn_qkv.weight", 8, 24))))
write("gguf", "gptneox", gguf(of("gptneox", ("use_parallel_residual", BOOL, False), ("rope.dimension_count", U32, 2)),
                              floats(("blk.0.attn_qkv.bias", 24), ("output.weight", 8, 8))))
write("gguf", "falcon", gguf(of("falcon", ("attention.head_count_kv", U32, 1)), floats(("blk.0.attn_norm_2.weight", 8))))
write("gguf", "gpt2", gguf(of("gpt2"), floats(("position_embd.weight", 8, 64))))
write("gguf", "mpt", gguf(of("mpt", ("attention.max_alibi_bias", F32, 16.0), ("attention.clamp_kqv", F32, 0.5)), []))
# Experts and latent attention.
experts = (("expert_count", U32, 4), ("expert_used_count", U32, 2), ("expert_feed_forward_length", U32, 8))
write("gguf", "mixtral", gguf(of("llama", *experts), floats(("blk.0.ffn_gate_exps.weight", 8, 16, 4))))
write("gguf", "qwen2moe", gguf(of("qwen2moe", *experts, ("expert_shared_feed_forward_length", U32, 4)),
                               floats(("blk.0.ffn_gate_inp_shexp.weight", 8))))
write("gguf", "gpt_oss", gguf(
    of("gpt-oss", *experts, ("attention.sliding_window", U32, 16), ("rope.scaling.type", STRING, "yarn"),
       ("rope.scaling.factor", F32, 4.0)),
    [*floats(("blk.0.attn_sinks.weight", 2)), ("blk.0.ffn_gate_exps.weight", [32, 2, 4], 39, 136)]))
write("gguf", "deepseek2", gguf(
    of("deepseek2", *experts, ("attention.head_count_kv", U32, 1), ("attention.kv_lora_rank", U32, 4),
       ("attention.key_length_mla", U32, 6), ("attention.value_length_mla", U32, 4), ("rope.dimension_count", U32, 2),
       ("leading_dense_block_count", U32, 1), ("expert_shared_count", U32, 1), ("expert_gating_func", U32, 2),
       ("expert_group_count", U32, 2), ("expert_group_used_count", U32, 1), ("expert_weights_norm", BOOL, True),
       ("rope.scaling.type", STRING, "yarn"), ("rope.scaling.yarn_log_multiplier", F32, 0.1)),
    floats(("blk.0.attn_k_b.weight", 4, 4, 2), ("blk.0.attn_v_b.weight", 4, 4, 2), ("blk.1.exp_probs_b.bias", 4))))
write("gguf", "llama4", gguf(of("llama4", *experts, ("interleave_moe_layer_step", U32, 2)), []))
# An encoder-decoder model, whose tokenizer is one of probabilities with rules.
t5 = [spm_key if b"tokenizer.ggml.model" not in spm_key else key("tokenizer.ggml.model", STRING, "t5") for spm_key in spm]
write("gguf", "t5", gguf(
    of("t5", ("decoder_block_count", U32, 1), ("attention.key_length", U32, 4), ("attention.value_length", U32, 4),
       ("attention.relative_buckets_count", U32, 8), ("decoder_start_token_id", U32, 0))
    + t5 + [key("tokenizer.ggml.precompiled_charsmap", ARRAY, [4, 0, 0, 0, 0, 0, 0, 0], U8)],
    floats(("token_embd.weight", 8, 8), ("enc.blk.0.ffn_gate.weight", 8, 16), ("output.weight", 8, 8))))
write("gguf", "minicpm3", gguf(of("minicpm3", ("attention.kv_lora_rank", U32, 4), ("attention.q_lora_rank", U32, 4),
                                  ("rope.dimension_count", U32, 2)), []))
write("gguf", "mistral3", gguf(of("mistral3", ("attention.temperature_scale", F32, 0.1)), []))
write("gguf", "qwen", gguf(of("qwen"), floats(("blk.0.attn_qkv.weight", 8, 24))))
write("gguf", "baichuan", gguf(of("baichuan", layers=40), []))

plain = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
half = {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}
write("safetensors", "two", safetensors({"__metadata__": {"format": "pt"}, "a": plain, "b": half}, bytes(22)))
write("safetensors", "scalar", safetensors({"s": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]}}, bytes(8)))
write("safetensors", "mxfp4",
      safetensors({"x_blocks": {"dtype": "U8", "shape": [1, 2, 1, 16], "data_offsets": [0, 32]},
                   "x_scales": {"dtype": "U8", "shape": [1, 2, 1], "data_offsets": [32, 34]}}, bytes(range(100, 134))))
write("safetensors", "empty", safetensors({}, b""))
write("safetensors", "length", struct.pack("<Q", 2 ** 64 - 1) + b"{}")
