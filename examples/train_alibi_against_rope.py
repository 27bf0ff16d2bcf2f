#!/usr/bin/env python3
"""Trains the same small decoder twice, with ALiBi and with rotary embeddings (RoPE), on the bytes of a text. Then the last 64
bytes of windows of the text's last tenth are predicted from the trained length, and from four times as many bytes.

usage: train_alibi_against_rope.py TEXT [STEPS]      about 2 minutes on 2 cores; needs ropewalk[torch]
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import ropewalk as rw

TRAINED, BATCH, DIM, HEADS, LAYERS = 128, 16, 128, 4, 2
rotary = rw.nn.RotaryEmbedding(rw.rotation(DIM // HEADS, layout="half"))
ATTENTIONS = {"ALiBi": rw.nn.Alibi(HEADS), "RoPE": lambda q, k, v: rw.torch.attention(*rotary(q, k), v)}


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention, self.out = attention, nn.Linear(DIM, DIM)
        self.qkv = nn.Sequential(nn.RMSNorm(DIM), nn.Linear(DIM, 3 * DIM))
        self.mlp = nn.Sequential(nn.RMSNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).unbind(2)  # each [batch, tokens, heads, head_dim]
        x = x + self.out(self.attention(q, k, v).flatten(2))
        return x + self.mlp(x)


def loss_of(model, windows, scored):
    logits = model(windows[:, :-1])[:, -scored:]
    return F.cross_entropy(logits.flatten(0, 1), windows[:, -scored:].flatten())  # nats per byte


ids = torch.tensor(list(open(sys.argv[1], "rb").read()))
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 700
split = len(ids) * 9 // 10
held_out = ids[split:].unfold(0, 4 * TRAINED + 1, 64)
for name, attention in ATTENTIONS.items():
    torch.manual_seed(1)
    blocks = [Block(attention) for _ in range(LAYERS)]
    model = nn.Sequential(nn.Embedding(256, DIM), *blocks, nn.RMSNorm(DIM), nn.Linear(DIM, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps)
    for _ in range(steps):
        starts = torch.randint(split - TRAINED, (BATCH,))
        loss_of(model, torch.stack([ids[i : i + TRAINED + 1] for i in starts]), TRAINED).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    with torch.no_grad():
        near, far = loss_of(model, held_out[:, -TRAINED - 1 :], 64), loss_of(model, held_out, 64)
    print(f"{name:5}  {near:.3f} nats per byte at {TRAINED} bytes, {far:.3f} at {4 * TRAINED}", flush=True)
