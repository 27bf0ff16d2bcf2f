"""A model of transformers, or one rank's part of it, and the steps of which the calls of an engine consist."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import numpy as np
import torch

from ropewalk import _core
from ropewalk import _engine_cache as caches
from ropewalk._engine_load import dtype_of
from ropewalk._engine_ranks import shard


@contextlib.contextmanager
def _evaluating(model: Any) -> Any:
    """Without dropout; then each module is in the mode that it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


class Part:
    """What a process computes. Over ranks all of them make the same steps in the same order, since the layers of a sharded
    model exchange what they compute."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.device = model.get_input_embeddings().weight.device
        self.config = model.config.get_text_config(decoder=True)
        takes = inspect.signature(model.forward).parameters
        self.keeps_logits = "logits_to_keep" in takes
        # States of recurrent layers cannot be cut, and their caches are of other kinds: whole sequences then.
        self.takes_cache = "past_key_values" in takes and not getattr(model, "_is_stateful", False)
        self.takes_padding = {"attention_mask", "position_ids"} <= set(takes)
        # Qwen2-VL and its successors count from 0 in each call of transformers 4.57 that names no positions.
        self.counts_itself = any(hasattr(part, "rope_deltas") for part in (model, getattr(model, "model", None)))
        # Over several devices an index has to be on the CPU, where it fits each of them.
        spread = len(set(getattr(model, "hf_device_map", {}).values())) > 1
        self.index_device = torch.device("cpu") if spread else self.device
        self.caches: dict[int, Any] = {}
        self._applied: contextlib.ExitStack | None = None

    def apply(self, plan: Any) -> None:
        """Puts a plan on the model (None: as it is) until `restore`, and the model in the mode of evaluation."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(_evaluating(self.model))
            if plan is not None:
                from ropewalk import transformers

                stack.enter_context(transformers.applied(self.model, plan))
            stack.enter_context(torch.inference_mode())
            self._applied = stack.pop_all()

    def restore(self) -> None:
        applied, self._applied = self._applied, None
        if applied is not None:
            applied.close()

    def new_cache(self, key: int, most: int) -> None:
        self.caches[key] = caches.new_cache(most)

    def fork(self, key: int, of: int, sequences: int, most: int) -> None:
        self.caches[key] = caches.fork(self.caches[of], sequences, most)

    def cut(self, key: int, tokens: int) -> None:
        caches.cut(self.caches[key], tokens)

    def drop(self, key: int) -> None:
        self.caches.pop(key, None)

    def copy(self, key: int) -> Any:
        return caches.copy(self.caches[key])

    def side_by_side(self, key: int, copies: list[Any], more: int) -> None:
        self.caches[key] = caches.side_by_side(copies, more)

    def forward(self, ids: np.ndarray, key: int | None, rows: np.ndarray, lengths: np.ndarray | None = None) -> Any:
        """Logits [sequences, rows, vocab] of the tokens that are fed. `lengths`: tokens of each sequence so far, with these;
        those that are shorter than the longest have padding in front."""
        cache = None if key is None else self.caches[key]
        fed = torch.from_numpy(ids.astype(np.int64)).to(self.device)
        keep = torch.from_numpy(np.ascontiguousarray(rows)).to(self.index_device)
        options: dict[str, Any] = {}
        if self.keeps_logits:
            options["logits_to_keep"] = keep if len(rows) else 1
        if cache is not None:
            options["past_key_values"] = cache
        if cache is not None and self.counts_itself:
            first = caches.holds(cache)
            positions = torch.arange(first, first + ids.shape[1], device=self.device)
            options["position_ids"] = positions.expand(len(ids), -1)
        if lengths is not None and (lengths < lengths.max()).any():
            slots = np.arange(lengths.max())
            real = slots >= (lengths.max() - lengths)[:, None]
            options["attention_mask"] = torch.from_numpy(real.astype(np.int64)).to(self.device)
            positions = lengths[:, None] - np.arange(ids.shape[1], 0, -1)
            options["position_ids"] = torch.from_numpy(positions.astype(np.int64)).to(self.device)
        out = self.model(input_ids=fed, use_cache=cache is not None, **options)
        return out.logits if self.keeps_logits else out.logits[:, keep.to(out.logits.device)]

    def free_bytes(self) -> int | None:
        """Of the GPU, what PyTorch keeps for itself with it; None: not known."""
        if self.device.type != "cuda":
            return None
        cuda = torch.cuda
        free, _ = cuda.mem_get_info(self.device)
        return free + cuda.memory_reserved(self.device) - cuda.memory_allocated(self.device)

    def hash(self) -> str:
        """Of the configuration and all weights, whole ones also where this part has some of them."""
        hasher = _core.Hasher()
        hasher.update(self.model.config.to_json_string().encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            if hasattr(tensor, "full_tensor"):
                tensor = tensor.full_tensor()
            hasher.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            hasher.update(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy())
        return hasher.hex()

    def read_plan(self, allow_unknown: bool) -> Any:
        from ropewalk._sweep import _plan_of

        return _plan_of(self.model, allow_unknown)

    # -- sizes of what is here

    def numel(self) -> int:
        """Of all parameters."""
        return sum(shard(p).numel() for p in self.model.parameters())

    def weight_bytes(self) -> int:
        return sum(shard(p).numel() * p.element_size() for p in self.model.parameters())

    def cache_bytes(self, ranks: int) -> int:
        """Of keys and values of one token."""
        config = self.config
        heads = getattr(config, "num_attention_heads", 1)
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        return 2 * config.num_hidden_layers * -(-kv_heads // ranks) * head_dim * dtype_of(self.model).itemsize


class Cache:
    """A key-value cache of the steps; it goes with its last reference."""

    def __init__(self, steps: Steps, key: int) -> None:
        self._steps, self.key = steps, key

    def __del__(self) -> None:
        self._steps.drop(self.key)


class Steps:
    """The steps as rank 0 makes them, which tells the others of each (`ranks`), or one process for itself (None)."""

    def __init__(self, part: Part, ranks: Any = None, engine: int = 0) -> None:
        self.part, self.ranks, self._engine = part, ranks, engine
        self._made = 0

    def __del__(self) -> None:
        if self.ranks is not None and self.ranks.rank == 0:
            self.ranks.forget(self._engine, None)

    def _tell(self, name: str, *arguments: Any) -> None:
        if self.ranks is not None:
            self.ranks.tell(self._engine, name, *arguments)

    @contextlib.contextmanager
    def applied(self, plan: Any) -> Any:
        """The plan on the model; where a rank cannot put it there, none has it and all know why."""
        self.agreed("apply", plan)
        try:
            yield
        finally:
            if self.ranks is None or not self.ranks.broken:
                self._tell("restore")
            self.part.restore()

    def agreed(self, name: str, *arguments: Any) -> Any:
        """A step that may be refused, on all ranks or on none."""
        if self.ranks is None:
            return getattr(self.part, name)(*arguments)
        self._tell(name, *arguments)
        return self.ranks.agree(self.part, name, *arguments)

    def new_cache(self, most: int) -> Cache:
        return self._cache("new_cache", most)

    def fork(self, cache: Cache, sequences: int, most: int) -> Cache:
        return self._cache("fork", cache.key, sequences, most)

    def _cache(self, name: str, *arguments: Any) -> Cache:
        self._made += 1
        made = Cache(self, self._made)
        self._tell(name, made.key, *arguments)
        getattr(self.part, name)(made.key, *arguments)
        return made

    def copy(self, cache: Cache) -> Any:
        """Keys and values, of one process that works for itself."""
        return self.part.copy(cache.key)

    def side_by_side(self, copies: list[Any], more: int) -> Cache:
        return self._cache("side_by_side", copies, more)

    def cut(self, cache: Cache, tokens: int) -> None:
        self._tell("cut", cache.key, tokens)
        self.part.cut(cache.key, tokens)

    def drop(self, key: int) -> None:
        self.part.drop(key)
        if self.ranks is not None:
            self.ranks.forget(self._engine, key)

    def holds(self, cache: Cache) -> int:
        """Tokens that every layer has; 0 where the model does not fill it."""
        return caches.holds(self.part.caches[cache.key])

    def free_bytes(self) -> int | None:
        """Of the GPU of each rank, the least; None: not known."""
        if self.ranks is None:
            return self.part.free_bytes()
        self._tell("free_bytes")
        free = self.ranks.gather(self.part.free_bytes())
        return None if None in free else min(free)

    def forward(self, ids: np.ndarray, cache: Cache | None, rows: np.ndarray, lengths: np.ndarray | None = None) -> Any:
        arguments = ids, None if cache is None else cache.key, rows, lengths
        if self.ranks is None:
            return self.part.forward(*arguments)
        self._tell("forward", *arguments)
        with self.ranks.together():
            return self.part.forward(*arguments)
