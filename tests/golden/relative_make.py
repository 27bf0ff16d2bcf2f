#!/usr/bin/env python3
"""Writes relative.json: relative positions as transformers computes them.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 transformers==4.57.6
    venv/bin/python tests/golden/relative_make.py tests/golden/relative.json

Weights and inputs are no part of the file: number k of a tensor is scale sin(12.9898 (k + 1) + seed), in Python and in the test.
"""

import json
import math
import sys

import torch
from transformers import DebertaV2Config, Swinv2Config, XLNetConfig, XLNetModel
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention, make_log_bucket_position
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as build_falcon_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention

FAR = [301, 511, 512, 513, 1023, 4095, 4096, 4097, 16384, 131071, 1048575]


def det(shape, seed, scale=1.0):
    n = math.prod(shape)
    return torch.tensor([scale * math.sin(12.9898 * (k + 1) + seed) for k in range(n)]).reshape(shape)


def floats(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def alibi():
    rows = []
    for heads in (1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 25, 32, 40, 71):
        bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        rows.append({"heads": heads, "max_bias": 8, "slopes": floats(bloom)})
        mpt = build_mpt_alibi_tensor(heads, 2, alibi_bias_max=16)[:, 0, 0]
        rows.append({"heads": heads, "max_bias": 16, "slopes": floats(-mpt)})
    return rows


def falcon_alibi():
    """Slopes times positions of keys, in bfloat16."""
    rows = []
    positions = [0, 1, 2, 3, 7, 100, 200, 255, 256, 257, 258, 259, 300] + FAR
    mask = torch.ones(1, positions[-1] + 1, dtype=torch.long)
    for heads in (1, 5, 8, 12, 16, 32, 71, 112):
        chosen = sorted({0, 1, heads // 2, heads - 1} & set(range(heads)))
        product = build_falcon_alibi_tensor(mask, heads, torch.float32)[:, 0]
        rows.append({"heads": heads, "positions": positions, "chosen": chosen,
                     "slopes": floats(product[:, 1]),
                     "products": floats(product[chosen][:, positions])})
    return rows


def t5():
    rows = []
    distances = list(range(-300, 301)) + FAR + [-d for d in FAR]
    for buckets, last in ((32, 128), (16, 64), (64, 256), (32, 100), (8, 20)):
        for bidirectional in (True, False):
            # transformers' relative position is that of the key minus that of the query.
            got = T5Attention._relative_position_bucket(-torch.tensor(distances), bidirectional, buckets, last)
            rows.append({"buckets": buckets, "last": last, "bidirectional": bidirectional,
                         "distances": distances, "bucket": got.tolist()})
    return rows


def deberta_buckets():
    rows = []
    distances = list(range(-300, 301)) + FAR + [-d for d in FAR]
    for bucket_size, max_position in ((256, 512), (32, 512), (8, 16), (64, 128)):
        got = make_log_bucket_position(torch.tensor(distances), bucket_size, max_position)
        rows.append({"buckets": bucket_size, "max_position": max_position, "distances": distances,
                     "bucket": [int(b) for b in got]})
    return rows


def deberta():
    rows = []
    heads, head_dim, tokens = 2, 4, 24
    hidden = heads * head_dim
    for buckets, max_position, share, kinds in ((4, 12, True, ["c2p", "p2c"]), (-1, 10, False, ["c2p", "p2c"]),
                                                (4, 12, True, ["c2p"]), (-1, 10, False, ["p2c"])):
        config = DebertaV2Config(hidden_size=hidden, num_attention_heads=heads, relative_attention=True,
                                 position_buckets=buckets, max_relative_positions=max_position, share_att_key=share,
                                 pos_att_type=kinds, max_position_embeddings=64)
        layer = DisentangledSelfAttention(config).eval()
        span = buckets if buckets > 0 else max_position
        key, query = (layer.key_proj, layer.query_proj) if share else (
            getattr(layer, "pos_key_proj", None), getattr(layer, "pos_query_proj", None))
        with torch.no_grad():
            for seed, projection in ((1, key), (3, query)):
                if projection is not None:
                    projection.weight.copy_(det((hidden, hidden), seed))
                    projection.bias.copy_(det((hidden,), seed + 1))
            q, k = det((heads, tokens, head_dim), 5), det((heads, tokens, head_dim), 6)
            bias = layer.disentangled_attention_bias(q, k, None, det((2 * span, hidden), 7), 1 + len(kinds))
        rows.append({"heads": heads, "head_dim": head_dim, "tokens": tokens, "buckets": buckets,
                     "max_position": max_position, "kinds": kinds, "bias": floats(bias)})
    return rows


def xlnet():
    rows = []
    heads, head_dim, hidden, queries, keys = 2, 4, 12, 5, 9
    for kind, clamp in (("bi", -1), ("uni", -1), ("bi", 3)):
        model = XLNetModel(XLNetConfig(vocab_size=8, d_model=hidden, n_layer=1, n_head=heads, d_inner=8,
                                       attn_type=kind, clamp_len=clamp))
        layer = model.layer[0].rel_attn
        layer.d_head, layer.scale = head_dim, head_dim**-0.5
        layer.dropout.p = model.dropout.p = 0
        # transformers ties the head to hidden / heads; the method does not.
        layer.r_w_bias.data, layer.r_r_bias.data = det((heads, head_dim), 1), det((heads, head_dim), 2)
        w_r = det((heads * head_dim, hidden), 3, 0.3)
        positions = model.relative_positional_encoding(queries, keys, bsz=1)
        k_r = torch.einsum("ibh,oh->ibo", positions, w_r).reshape(-1, 1, heads, head_dim)
        q, k = det((queries, 1, heads, head_dim), 4), det((keys, 1, heads, head_dim), 5)
        mask = None
        if kind == "uni":
            ahead = torch.arange(keys)[None, :] > torch.arange(queries)[:, None] + keys - queries
            mask = ahead.float()[:, :, None, None]
        _, probabilities = layer.rel_attn_core(q, k, k, k_r, attn_mask=mask, output_attentions=True)
        rows.append({"heads": heads, "head_dim": head_dim, "hidden": hidden, "queries": queries, "keys": keys,
                     "causal": kind == "uni", "clamp": max(clamp, 0),
                     "probabilities": floats(probabilities.permute(3, 0, 1, 2))})  # [heads, queries, keys]
    return rows


def swin():
    rows = []
    heads, dim, window = 2, 8, 4
    for pretrained in ((0, 0), (3, 6)):
        layer = Swinv2SelfAttention(Swinv2Config(attention_probs_dropout_prob=0), dim, heads, window, list(pretrained))
        with torch.no_grad():
            mlp = layer.continuous_position_bias_mlp
            mlp[0].weight.copy_(det((512, 2), 1))
            mlp[0].bias.copy_(det((512,), 2))
            mlp[2].weight.copy_(det((heads, 512), 3, 0.05))
            layer.query.weight.zero_()
            layer.query.bias.zero_()
            # No query: the scores are the bias, and these are its softmax.
            _, probabilities = layer.eval()(det((1, window * window, dim), 4), output_attentions=True)
        rows.append({"heads": heads, "window": window, "pretrained": list(pretrained),
                     "probabilities": floats(probabilities)})
    return rows


def main():
    golden = {"alibi": alibi(), "falcon_alibi": falcon_alibi(), "t5": t5(), "deberta_buckets": deberta_buckets(), "deberta": deberta(),
              "xlnet": xlnet(), "swin": swin()}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
