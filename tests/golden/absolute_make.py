#!/usr/bin/env python3
"""Writes absolute.json: what PyTorch and transformers compute for absolute position encodings.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 transformers==4.57.6
    venv/bin/python tests/golden/absolute_make.py tests/golden/absolute.json

Everything in double, of float32 inputs that are made by formula (`values`), so that the file holds results alone.
Gradients are PyTorch's own, of the sum of result * values(result).
"""

import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_dtype(torch.float64)


def values(*shape, seed=1):
    """((i + seed) * 7919 mod 257) / 128 - 1: in the test as well, and exact in float32."""
    n = torch.Size(shape).numel()
    i = torch.arange(n, dtype=torch.int64) + seed
    return ((i * 7919 % 257).to(torch.float64) / 128 - 1).reshape(shape)


def rounded(tensor):
    return [float(f"{x:.10g}") for x in tensor.detach().reshape(-1).tolist()]


def backward(out, *parameters):
    return [rounded(g) for g in torch.autograd.grad((out * values(*out.shape, seed=5)).sum(), parameters)]


def resize(mode, source, target, antialias=False, dim=2):
    """table: [source..., dim] as a model keeps it."""
    table = values(*source, dim).requires_grad_()
    channels_first = table.movedim(-1, 0).unsqueeze(0)
    out = F.interpolate(channels_first, size=target, mode=mode, align_corners=False, antialias=antialias)
    out = out.squeeze(0).movedim(0, -1)
    return {"mode": mode, "from": source, "to": target, "antialias": antialias, "dim": dim, "out": rounded(out),
            "d_table": backward(out, table)[0]}


def resizes():
    yield resize("linear", [16], [37])
    yield resize("linear", [16], [5])
    yield resize("linear", [7], [7])
    for mode in ("bilinear", "bicubic"):
        for antialias in (False, True):
            yield resize(mode, [7, 7], [12, 9], antialias)
            yield resize(mode, [8, 6], [3, 5], antialias)
            yield resize(mode, [5, 9], [8, 4], antialias)
            yield resize(mode, [1, 3], [2, 7], antialias)
    yield resize("trilinear", [4, 3, 5], [7, 2, 6])


def vit():
    """ViT's own function on a square of 4 patches a side, to 6 x 3 patches, class token kept."""
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    model = ViTEmbeddings(ViTConfig(hidden_size=3, image_size=16, patch_size=4))
    model.position_embeddings.data = values(1, 17, 3)
    return {"out": rounded(model.interpolate_pos_encoding(torch.zeros(1, 19, 3), 24, 12))}


def vit_mae():
    """A 5 x 5 grid in 12 channels."""
    from transformers.models.vit_mae.modeling_vit_mae import get_2d_sincos_pos_embed

    return {"out": rounded(torch.from_numpy(get_2d_sincos_pos_embed(12, 5)))}


def wav2vec2(taps):
    """y = x + its positional convolution, channels 6 in 3 groups; gradients of x, v, g and bias."""
    from transformers import Wav2Vec2Config
    from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2PositionalConvEmbedding

    config = Wav2Vec2Config(hidden_size=6, num_conv_pos_embeddings=taps, num_conv_pos_embedding_groups=3)
    module = Wav2Vec2PositionalConvEmbedding(config)
    weight = module.conv.parametrizations.weight
    weight.original0.data = values(1, 1, taps, seed=2)
    weight.original1.data = values(6, 2, taps, seed=3)
    module.conv.bias.data = values(6, seed=4)
    x = values(2, 9, 6).requires_grad_()
    out = x + module(x)
    d_x, d_v, d_g, d_bias = backward(out, x, weight.original1, weight.original0, module.conv.bias)
    return {"taps": taps, "out": rounded(out), "d_x": d_x, "d_v": d_v, "d_g": d_g, "d_bias": d_bias}


def conditional():
    """CPE: x + depthwise 3 x 3 convolution of a 4 x 5 grid of 3 channels behind a class token."""
    conv = nn.Conv2d(3, 3, 3, padding=1, groups=3)
    conv.weight.data = values(3, 1, 3, 3, seed=2)
    conv.bias.data = values(3, seed=3)
    x = values(2, 21, 3).requires_grad_()
    grid = x[:, 1:].transpose(1, 2).reshape(2, 3, 4, 5)
    out = torch.cat([x[:, :1], (grid + conv(grid)).flatten(2).transpose(1, 2)], dim=1)
    d_x, d_weight, d_bias = backward(out, x, conv.weight, conv.bias)
    return {"out": rounded(out), "d_x": d_x, "d_weight": d_weight, "d_bias": d_bias}


def recurrent(cell, gates):
    """7 rows of 3 elements; a cell without input is one whose input is 0."""
    module = cell(1, 3)
    module.weight_hh.data = values(gates * 3, 3, seed=2)
    module.bias_ih.data = values(gates * 3, seed=3)
    module.bias_hh.data = values(gates * 3, seed=4)
    start = values(3).requires_grad_()
    rows = [start]
    for _ in range(6):
        rows.append(module(torch.zeros(1, 1), rows[-1].unsqueeze(0)).squeeze(0))
    out = torch.stack(rows)
    d = backward(out, start, module.weight_hh, module.bias_ih, module.bias_hh)
    return {"out": rounded(out), "d_start": d[0], "d_weight": d[1], "d_input_bias": d[2], "d_hidden_bias": d[3]}


def main():
    golden = {
        "vit_mae": vit_mae(),
        "resize": list(resizes()),
        "vit": vit(),
        "wav2vec2": [wav2vec2(4), wav2vec2(5)],
        "conditional": conditional(),
        "tanh": recurrent(nn.RNNCell, 1),
        "gru": recurrent(nn.GRUCell, 3),
    }
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
