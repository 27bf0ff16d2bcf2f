"""Feeds sequences to a model of transformers in chunks, and reads log-probabilities where they are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ropewalk._core import EngineCall, Error, ScoreRequest

if TYPE_CHECKING:
    from ropewalk.engine import TorchEngine

_FAST = 1 << 16  # tokens of a chunk on an accelerator where attention needs no mask
_MASKED = 1024  # tokens of a chunk there where the attention of maps has windows, and with them masks
_RANKED = 1 << 14  # and over ranks
_LEAST = 64  # tokens of a chunk behind a cache
_CPU = 512  # tokens of a chunk on a CPU


def groups(requests: list[ScoreRequest]) -> list[list[int]]:
    """Neighbours with the same prefix, length and positions, which can run together."""
    found: list[list[int]] = []
    last = None
    for i, request in enumerate(requests):
        key = (request.prefix.tobytes(), len(request.ids), request.positions.tobytes(), request.continue_tokens > 0)
        if key != last:
            found.append([])
        found[-1].append(i)
        last = key
    return found


@dataclasses.dataclass
class Begun:
    """A continuation whose first token is there."""

    request: int  # of the call
    most: int  # tokens
    stop: np.ndarray
    tokens: int  # of its prompt
    made: list[int]
    keys_values: Any  # of its prompt

    @property
    def stopped(self) -> bool:
        return self.made[-1] in self.stop

    @property
    def done(self) -> bool:
        return self.stopped or len(self.made) == self.most

    def answer(self) -> tuple[np.ndarray, bool]:
        return np.asarray(self.made[:-1] if self.stopped else self.made, np.int32), self.stopped


class Feeder:
    """Feeds sequences to the model, and keeps the cache of the prefix that the next ones may begin with."""

    def __init__(self, engine: TorchEngine, call: EngineCall) -> None:
        layers = call.plan.layers
        self._engine, self._call = engine, call
        self._steps = engine._steps
        self.cached = engine._steps.part.takes_cache and not any(layer.recurrent for layer in layers)
        remapped = any(layer.map is not None or layer.temperature is not None for layer in layers)
        # Where continuations of several prompts can be computed side by side.
        self.side_by_side = self.cached and engine._steps.part.takes_padding and engine._steps.ranks is None
        self._masked = remapped and any(layer.window or layer.chunk for layer in layers)
        self.ticked = self.longest_chunk = 0
        self.fed_tokens = 0  # in all
        self.forget()

    def forget(self) -> None:
        self._kept = np.zeros(0, np.int32)  # the tokens in the cache
        self._cache: Any = None

    @property
    def chunk(self) -> int:
        """Tokens of one sequence at a time."""
        if self._engine.device.type == "cpu":
            tokens = _CPU
        else:
            tokens = _MASKED if self._masked else _FAST
            if self._steps.ranks is not None:  # where nothing can be tried again when memory runs out
                tokens = min(tokens, _RANKED)
        return min(tokens, self._engine._most_tokens)

    def _tick(self, tokens: int) -> None:
        self.ticked += tokens
        self._call.tick(tokens)

    def score(self, requests: list[ScoreRequest]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of requests of one group: (log_probs, top) for each."""
        self.ticked = self.longest_chunk = 0
        positions = requests[0].positions
        if len(positions) == 0:
            return [(np.zeros(0, np.float32), np.zeros(0, np.int32)) for _ in requests]
        ids = np.stack([np.concatenate([r.prefix, r.ids]) for r in requests])
        rows = positions - 1  # whose states predict them
        shared = self._feed_prefix(requests[0].prefix[: rows[0]]) if self.cached else 0
        if shared == 0:
            self.forget()  # before there is another
            cache = self._new_cache()
        elif len(requests) == 1:
            cache = self._cache
        else:
            cache = self._steps.fork(self._cache, len(requests), self._call.final_length)
        self._tick(shared * len(requests))
        scores = list(self._forward(ids, cache, shared, int(positions[-1]), rows))
        if self.cached and len(requests) == 1:
            self._keep(ids[0, : positions[-1]], cache)
        log_probs = np.concatenate([s[0] for s in scores], axis=1)
        top = np.concatenate([s[1] for s in scores], axis=1)
        return list(zip(log_probs, top))

    def _keep(self, ids: np.ndarray, cache: Any) -> None:
        """What the next sequence may begin with."""
        self._kept, self._cache = ids, cache

    def _new_cache(self) -> Any:
        return self._steps.new_cache(self._call.final_length) if self.cached else None

    def _feed_prefix(self, prefix: np.ndarray) -> int:
        """Makes the cache that of `prefix`; what it begins with is there already."""
        if len(prefix) == 0:
            return 0
        n = min(len(prefix), len(self._kept))
        differ = np.nonzero(prefix[:n] != self._kept[:n])[0]
        begin = int(differ[0]) if len(differ) else n
        if begin < len(prefix) // 8 and self._engine.device.type != "cpu":
            begin = 0  # behind a cache attention is slower than what these few tokens save
        cache = self._cache if begin > 0 else self._new_cache()
        self.forget()  # until it is whole
        if begin > 0:
            self._steps.cut(cache, begin)
        for _ in self._forward(prefix[None], cache, begin, len(prefix), np.zeros(0, np.int64), quiet=True):
            pass
        self._keep(prefix, cache)
        return len(prefix)

    def _forward(
        self, ids: np.ndarray, cache: Any, begin: int, end: int, rows: np.ndarray, quiet: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Feeds ids[:, begin:end] in chunks. Yields (log_probs, top), [sequences, rows], of tokens behind `rows`."""
        engine = self._engine
        sequences = len(ids)
        on_cpu = engine.device.type == "cpu"
        vocab = engine._config.vocab_size
        most_rows = max(1, self._most_logits(len(rows) * vocab * sequences) // (vocab * sequences))
        chunk = self.chunk if self.cached else end
        if begin > 0 and not on_cpu:
            chunk = min(chunk, max(_LEAST, (1 << 31) // end))  # behind a cache there is a mask, tokens x keys
        if sequences > 1:
            chunk = max(_LEAST, min(chunk, (_CPU * 8 if on_cpu else _FAST) // sequences))
        at = begin
        while at < end:
            until = min(end, at + chunk)
            wanted = rows[(rows >= at) & (rows < until)]
            if len(wanted) > most_rows and self.cached:
                wanted = wanted[:most_rows]
                until = int(wanted[-1]) + 1
            self.longest_chunk = max(self.longest_chunk, until - at)
            logits = self._steps.forward(ids[:, at:until], cache, wanted - at)
            self.fed_tokens += (until - at) * sequences
            if cache is not None and self._steps.holds(cache) != until:
                raise Error(
                    f"{type(engine.model).__name__} does not keep its keys and values in the cache that it is given, "
                    "so that it cannot be fed in chunks"
                )
            if len(wanted):
                targets = torch.from_numpy(ids[:, wanted + 1].astype(np.int64)).to(logits.device)
                yield self._scores(logits, targets)
            del logits
            if not quiet:
                self._tick((until - at) * sequences)
            at = until

    def _most_logits(self, wanted: int) -> int:
        """Logits of a chunk. They are its end, and behind a cache attention is slower."""
        most = (64 if self._engine.device.type == "cpu" else 256) << 20
        if wanted > most and self._steps.ranks is None:
            most = max(most, (self._steps.free_bytes() or 0) // 16)  # a model may have copies, in float32
        return most

    def _scores(self, logits: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
        vocab = self._engine._config.vocab_size
        log_probs, top = [], []
        step = max(1, (64 << 20) // (vocab * len(logits)))
        ids = torch.arange(vocab, device=logits.device)
        for first in range(0, logits.shape[1], step):
            x = logits[:, first : first + step, :vocab].float()
            chosen = x.gather(-1, targets[:, first : first + step, None])[..., 0]
            log_probs.append((chosen - x.logsumexp(-1)).cpu())
            # Of equal ones the lowest id, which argmax does not promise; bf16 has many that are equal.
            most = x.amax(-1, keepdim=True)
            top.append(torch.where(x == most, ids, vocab).amin(-1).clamp(max=vocab - 1).to(torch.int32).cpu())
        return torch.cat(log_probs, 1).numpy(), torch.cat(top, 1).numpy()

    def _behind(self, prefix: np.ndarray, ids: np.ndarray) -> tuple[int, Any]:
        """The most probable token behind `prefix` and `ids`, and the cache with both."""
        self.ticked = self.longest_chunk = 0
        prompt = np.concatenate([prefix, ids])
        begin = self._feed_prefix(prefix[: len(prompt) - 1]) if self.cached else 0
        if begin == 0:
            self.forget()
        cache = self._cache if begin > 0 else self._new_cache()
        self._tick(begin)
        return self._best(prompt, cache, begin), cache

    def _best(self, ids: np.ndarray, cache: Any, begin: int) -> int:
        """The most probable token behind `ids`, of which `begin` are in the cache."""
        padded = np.append(ids, ids[-1])[None]  # with any target: only the most probable token is asked for
        ((_, top),) = self._forward(padded, cache, begin, len(ids), np.asarray([len(ids) - 1]))
        return int(top[0, 0])

    def continue_greedily(self, prefix: np.ndarray, ids: np.ndarray, most: int, stop: np.ndarray) -> tuple[np.ndarray, bool]:
        """At most `most` tokens behind `prefix` and `ids`."""
        if most == 0:
            return np.zeros(0, np.int32), False
        best, cache = self._behind(prefix, ids)
        here = Begun(0, most, stop, len(prefix) + len(ids), [best], None)
        prompt = np.concatenate([prefix, ids])
        fed = prompt
        while not here.done:
            begin = len(fed) if self.cached else 0
            fed = np.concatenate([prompt, np.asarray(here.made, np.int32)])
            here.made.append(self._best(fed, cache, begin))
        if self.cached:
            self._keep(fed, cache)
        return here.answer()

    def begin(self, request: int, prefix: np.ndarray, ids: np.ndarray, most: int, stop: np.ndarray) -> Begun:
        """The first token behind `prefix` and `ids`; `continue_begun` makes the others, of several side by side."""
        best, cache = self._behind(prefix, ids)
        prompt = np.concatenate([prefix, ids])
        self._keep(prompt, cache)
        here = Begun(request, most, stop, len(prompt), [best], None)
        if not here.done:
            here.keys_values = self._steps.copy(cache)
        return here

    def continue_begun(self, begun: list[Begun]) -> None:
        """Each to its end, as many tokens at a time as there are continuations."""
        self.ticked = self.longest_chunk = 0
        begun = [b for b in begun if not b.done]
        if not begun:
            return
        cache = self._steps.side_by_side([b.keys_values for b in begun], max(b.most for b in begun))
        lengths = np.asarray([b.tokens for b in begun])
        for b in begun:
            b.keys_values = None
        no_target = torch.zeros((len(begun), 1), dtype=torch.int64, device=self._engine.device)
        while any(not b.done for b in begun):
            lengths += 1
            ids = np.asarray([[b.made[-1]] for b in begun], np.int32)
            logits = self._steps.forward(ids, cache, np.zeros(1, np.int64), lengths)
            _, top = self._scores(logits, no_target.to(logits.device))
            left = 0
            for b, best in zip(begun, top[:, 0]):
                if not b.done:
                    b.made.append(int(best))
                    left += 1
            self.fed_tokens += left
            self._tick(left)
