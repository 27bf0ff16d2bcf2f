"""A key-value cache for chunks: keys and values in buffers that grow by doubling and can be cut and copied. The one of
transformers copies itself with each chunk."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer


class _Layer(DynamicLayer):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most  # tokens
        self.tokens = 0
        self.buffers: list[Any] = []

    def lazy_initialization(self, key_states: Any, *_: Any) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def _reserve(self, like: tuple[Any, ...], tokens: int) -> None:
        if self.buffers and tokens <= self.buffers[0].shape[2]:
            return
        room = max(tokens, min(2 * tokens, self.most))
        grown = [torch.empty((*x.shape[:2], room, x.shape[3]), dtype=x.dtype, device=x.device) for x in like]
        for new, old in zip(grown, self.buffers):
            new[:, :, : self.tokens] = old[:, :, : self.tokens]
        self.buffers = grown

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        if not self.is_initialized:
            self.lazy_initialization(key_states)
        tokens = self.tokens + key_states.shape[2]
        self._reserve((key_states, value_states), tokens)
        for buffer, new in zip(self.buffers, (key_states, value_states)):
            buffer[:, :, self.tokens : tokens] = new
        self.cut(tokens)
        return self.keys, self.values

    def cut(self, tokens: int) -> None:
        self.tokens = tokens
        if self.buffers:
            self.keys, self.values = (b[:, :, :tokens] for b in self.buffers)

    def get_seq_length(self, *_: Any) -> int:
        return self.tokens

    def fork(self, sequences: int, most: int) -> _Layer:
        """A copy for several sequences."""
        new = _Layer(most)
        if self.buffers:
            like = tuple(b[:1].expand(sequences, -1, -1, -1) for b in self.buffers)
            new.lazy_initialization(self.keys)
            new._reserve(like, min(most, self.tokens + 1))
            for ours, theirs in zip(new.buffers, like):
                ours[:, :, : self.tokens] = theirs[:, :, : self.tokens]
            new.cut(self.tokens)
        return new


def new_cache(most: int) -> Any:
    """An empty one for at most `most` tokens."""
    cache = DynamicCache()
    cache.layer_class_to_replicate = functools.partial(_Layer, most)
    return cache


def fork(cache: Any, sequences: int, most: int) -> Any:
    new = new_cache(most)
    new.layers = [layer.fork(sequences, most) for layer in cache.layers]
    return new


def copy(cache: Any) -> list[tuple[Any, Any]]:
    """Keys and values of each layer."""
    return [(layer.keys.clone(), layer.values.clone()) for layer in cache.layers]


def side_by_side(copies: list[list[tuple[Any, Any]]], more: int) -> Any:
    """One cache of sequences that end together, shorter ones behind padding, with room for `more` tokens."""
    tokens = max(layers[0][0].shape[2] for layers in copies)
    cache = new_cache(tokens + more)
    for parts in zip(*copies):
        layer = _Layer(tokens + more)
        layer.lazy_initialization(parts[0][0])
        for like in parts[0]:
            shape = len(copies), like.shape[1], tokens + more, like.shape[3]
            layer.buffers.append(torch.zeros(shape, dtype=like.dtype, device=like.device))
        for i, part in enumerate(parts):
            for buffer, x in zip(layer.buffers, part):
                buffer[i, :, tokens - x.shape[2] : tokens] = x[0]
        layer.cut(tokens)
        cache.layers.append(layer)
    return cache


def cut(cache: Any, tokens: int) -> None:
    for layer in cache.layers:
        layer.cut(min(tokens, layer.tokens))


def holds(cache: Any) -> int:
    """Tokens that every layer has; 0 where the model does not fill it."""
    return min((layer.tokens for layer in cache.layers), default=0)
