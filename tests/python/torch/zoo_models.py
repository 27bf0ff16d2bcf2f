"""Tiny models of the zoo for its tests."""

import torch

from ropewalk import zoo

TRAINED, VOCAB, HEADS, DIM, WIDTH, LAYERS = 32, 40, 4, 8, 32, 2


def made(positions, seed=0, **more):
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2}
    tied = positions.get("absolute", {}).get("type") != "complex_order"
    model = zoo.Model({"positions": positions, "max_position_embeddings": TRAINED, "tie_word_embeddings": tied, **sizes, **more})
    with torch.no_grad():  # nothing stays at zero, which would hide it
        for parameter in model.parameters():
            parameter += 0.02 * torch.rand_like(parameter)
    return model


def tokens(count, batch=2):
    return torch.randint(0, VOCAB, (batch, count), generator=torch.Generator().manual_seed(3))
