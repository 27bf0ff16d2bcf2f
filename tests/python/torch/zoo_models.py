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


def stirred(positions, seed=0, **more):
    """`made`, and what the encoding has learned is far from where it starts, so that it is seen."""
    model = made(positions, seed, **more)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in (".positions.", ".bias.", ".rotation.")):
                parameter += 0.2 * torch.rand_like(parameter)
    return model


def doubles(model):
    """The tensors of a model in float64, through which autograd may go: w of zoo_reference."""
    return {name: t.detach().double().requires_grad_() for name, t in model.tensors().items()}


def tokens(count, batch=2):
    return torch.randint(0, VOCAB, (batch, count), generator=torch.Generator().manual_seed(3))
