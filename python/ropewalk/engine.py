"""Engines that score tokens: the interface, and PyTorch as one.

A sweep asks a ``ScoringEngine`` for log-probabilities of tokens of given sequences under a plan. The library's own
decoder is one; ``TorchEngine`` is any causal model of transformers on any device; a subclass of ``ScoringEngine`` is
whatever else answers:

    class Mine(ropewalk.engine.ScoringEngine):
        def facts(self):                    # EngineFacts: name, vocab, compute
        def memory_bytes(self, plan, length):            # of weights, cache and scratch for one sequence
        def do_score(self, call, requests):              # -> Scores
        def do_generate(self, call, requests):           # -> [(ids, stopped)]; may be left out

``call`` has the plan (resolved at ``final_length``), ``angles``, ``whole_reuse`` and ``tick(tokens)``, to be called now
and then; what it raises has to pass through. ``requests`` are valid and what is answered is checked. Users of an
engine call ``score(plan, requests, final_length=..)`` and ``generate``. Results have to depend on a call's arguments
alone.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._core import EngineCall, EngineFacts, Error, GenerateRequest, ScoreRequest, Scores, ScoringEngine

__all__ = [
    "EngineCall",
    "EngineFacts",
    "GenerateRequest",
    "ScoreRequest",
    "Scores",
    "ScoringEngine",
    "TorchEngine",
    "native_engine",
]


def native_engine(path: str | os.PathLike[str], dtype: str = "float32") -> ScoringEngine:
    """The library's decoder on the CPU: a Hugging Face folder, a GGUF or a llama2.c file. ``dtype`` "bfloat16" rounds
    weights and inputs of the linear layers to bf16."""
    from ropewalk._sweep import _native_engine

    return _native_engine(_core.ModelFiles(os.fspath(path)), None, dtype)


_FAST = 1 << 16  # tokens of a chunk on an accelerator where attention needs no mask
_REMAPPED = 1024  # tokens of a chunk there under a position map, whose attention has more intermediate results
_CPU = 512  # tokens of a chunk on a CPU
_LEAST = 64  # tokens of a chunk below which no memory is enough


class TorchEngine(ScoringEngine):
    """A causal model of transformers as an engine, on its device.

    model: a loaded model, or the path of one (a Hugging Face folder or a GGUF file).
    device: "cuda", "cpu", ...; "auto" spreads a model over all devices (``device_map="auto"``). By default that of a
        loaded model; for a path the CPU.
    dtype: "float32", "bfloat16", "float16"; by default that of a loaded model; for a path float32 on a CPU, else the
        files' own.

    A plan is put on the model for the time of a call (``ropewalk.transformers.applied``), with the frequencies of the
    declared final length before the first token. Sequences are fed in chunks with a key-value cache, logits are
    computed only where tokens are scored, and what neighbouring requests share is computed once, so that results
    differ by rounding from those of separate calls. Sequences of one length run together, as many as memory holds;
    when it runs out, fewer at a time, then smaller chunks. Angles are those of transformers, ``angles="float32"``; under
    a position map or log-n, exact ones. Entropy of attention is not measured.
    """

    angles = "float32"  # position times frequency in float32, as the modules of transformers compute them

    def __init__(self, model: Any, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        import torch

        self._torch = torch
        if isinstance(model, (str, os.PathLike)):
            model = _load(os.fspath(model), device, dtype)
        else:
            if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
                raise Error(f"model: expected a causal model of transformers or a path, got {type(model).__name__}")
            wanted = None if dtype is None else _dtype(dtype)
            if wanted not in (None, _dtype_of(model)):
                raise Error(f"dtype: the model was loaded as {_dtype_of(model)}; load it with dtype={wanted}")
            if device is not None and str(device) != "auto":
                model = model.to(device)
        if any(p.is_meta for p in model.parameters()):
            raise Error("model: it is on the meta device, which has no weights; load it first")
        self.model = model.eval()
        self.device = model.get_input_embeddings().weight.device
        self._config = model.config.get_text_config(decoder=True)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        # Over several devices an index has to be on the CPU, where it fits each of them.
        spread = len(set(getattr(model, "hf_device_map", {}).values())) > 1
        self._index_device = torch.device("cpu") if spread else self.device
        self._most_sequences = 1 << 20
        self._most_tokens = 1 << 30  # of a chunk
        self._lock = threading.Lock()
        self._hash: str | None = None

    # -- facts

    def facts(self) -> EngineFacts:
        import transformers

        torch, on_cpu = self._torch, self.device.type == "cpu"
        place = "cpu" if on_cpu else str(self.device.type)
        if self.device.type == "cuda":
            place += f" ({torch.cuda.get_device_name(self.device)})"
        dtype = str(_dtype_of(self.model)).removeprefix("torch.")
        compute = f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {place}, {dtype}"
        vocab = self._config.vocab_size
        heads = getattr(self._config, "num_attention_heads", 0)
        head_dim = getattr(self._config, "head_dim", None) or self._config.hidden_size // max(1, heads)
        embedded = self.model.get_input_embeddings().weight.numel()
        return EngineFacts(
            name="PyTorch",
            vocab=vocab,
            compute=compute,
            threads=torch.get_num_threads() if on_cpu else 1,
            token_flops=2.0 * max(0, sum(p.numel() for p in self.model.parameters()) - embedded),
            pair_flops=4.0 * heads * head_dim,
            head_flops=2.0 * self._config.hidden_size * vocab,
        )

    def memory_bytes(self, plan: Any, length: int) -> int:
        weights = sum(p.numel() * p.element_size() for p in self.model.parameters())
        return weights + length * self._cache_bytes() + (256 << 20)

    def _cache_bytes(self) -> int:
        """Of keys and values of one token."""
        config = self._config
        heads = getattr(config, "num_attention_heads", 1)
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        return 2 * config.num_hidden_layers * kv_heads * head_dim * _dtype_of(self.model).itemsize

    def model_hash(self) -> str:
        """Of the configuration and all weights, for the rows of a sweep."""
        if self._hash is None:
            hasher, torch = _core.Hasher(), self._torch
            hasher.update(self.model.config.to_json_string().encode())
            for name, tensor in sorted(self.model.state_dict().items()):
                hasher.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
                hasher.update(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy())
            self._hash = hasher.hex()
        return self._hash

    # -- the interface

    def score(self, plan: Any, requests: list[ScoreRequest], **options: Any) -> Scores:
        """Scores of requests under a plan: options are final_length (default: the plan's) and tick."""
        return super().score(plan, requests, **{"angles": self.angles, **options})

    def generate(self, plan: Any, requests: list[GenerateRequest], **options: Any) -> list[tuple[np.ndarray, bool]]:
        """Greedy continuations, (ids, stopped) for each request; options as of `score`."""
        return super().generate(plan, requests, **{"angles": self.angles, **options})

    def do_score(self, call: EngineCall, requests: list[ScoreRequest]) -> Scores:
        tokens: list[Any] = [None] * len(requests)
        with self._ready(call):
            feeder = _Feeder(self, call)
            for group in _groups(requests):
                for i, row in zip(group, self._with_room(call, feeder, [requests[i] for i in group])):
                    tokens[i] = row
        return Scores(tokens)

    def do_generate(self, call: EngineCall, requests: list[GenerateRequest]) -> list[tuple[np.ndarray, bool]]:
        made = []
        with self._ready(call):
            feeder = _Feeder(self, call)
            for request in requests:
                made.append(feeder.continue_greedily(request))
        return made

    @contextlib.contextmanager
    def _ready(self, call: EngineCall) -> Iterator[None]:
        """The model with the call's plan, for this thread alone."""
        if call.angles != self.angles:
            raise Error("angles: transformers computes angles in float32, so this engine has angles=\"float32\" alone")
        plan = call.plan
        with self._lock, contextlib.ExitStack() as stack:
            if any(layer.rotation is not None or layer.map is not None for layer in plan.layers):
                from ropewalk import transformers

                stack.enter_context(transformers.applied(self.model, plan))
            stack.enter_context(self._torch.inference_mode())
            yield

    # -- memory

    def _with_room(self, call: EngineCall, feeder: _Feeder, group: list[ScoreRequest]) -> list[Any]:
        """Scores of a group; with fewer sequences at a time, then smaller chunks, where memory runs out."""
        rows: list[Any] = []
        while len(rows) < len(group):
            sequences = min(len(group) - len(rows), self._sequences(feeder, group[0]))
            some = group[len(rows) : len(rows) + sequences]
            try:
                rows += feeder.score(some)
                continue
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(self._torch, error):
                    raise
                ticked = feeder.ticked
                chunk, reason = feeder.chunk, str(error).split("\n")[0]
            # Outside of the handler, whose traceback holds the tensors that are in the way.
            call.tick(-ticked)
            feeder.forget()
            if self.device.type == "cuda":
                self._torch.cuda.empty_cache()
            if sequences > 1:
                self._most_sequences = sequences // 2
            elif chunk > _LEAST:
                self._most_tokens = max(_LEAST, min(chunk, feeder.longest_chunk) // 2)
            else:
                raise Error(
                    f"not enough memory on {self.device} for one sequence of {len(some[0].prefix) + len(some[0].ids)} "
                    f"tokens in chunks of {chunk}: {reason}"
                )
        return rows

    def _sequences(self, feeder: _Feeder, request: ScoreRequest) -> int:
        """How many sequences like this one run together."""
        length = len(request.prefix) + len(request.ids)
        if not feeder.cached:
            return 1
        if self.device.type == "cuda":
            free, _ = self._torch.cuda.mem_get_info(self.device)
            free += self._torch.cuda.memory_reserved(self.device) - self._torch.cuda.memory_allocated(self.device)
            fit = free // 4 // max(1, length * self._cache_bytes())
        else:
            fit = 4096 // length
        return int(max(1, min(fit, 64, self._most_sequences)))


def _groups(requests: list[ScoreRequest]) -> list[list[int]]:
    """Neighbours with the same prefix, length and positions, which can run together."""
    groups: list[list[int]] = []
    last = None
    for i, request in enumerate(requests):
        key = (request.prefix.tobytes(), len(request.ids), request.positions.tobytes())
        if key != last:
            groups.append([])
        groups[-1].append(i)
        last = key
    return groups


class _Feeder:
    """Feeds sequences to the model, and keeps the cache of the prefix that the next ones may begin with."""

    def __init__(self, engine: TorchEngine, call: EngineCall) -> None:
        layers = call.plan.layers
        self._engine, self._call, self._torch = engine, call, engine._torch
        # States of recurrent layers cannot be cut, and their caches are of other kinds: whole sequences then.
        self.cached = not any(layer.recurrent for layer in layers)
        self._remapped = any(layer.map is not None or layer.temperature is not None for layer in layers)
        self.ticked = self.longest_chunk = 0
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
            tokens = _REMAPPED if self._remapped else _FAST
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
            cache = self._new_cache()
        elif len(requests) == 1:
            cache = self._cache
        else:
            cache = _fork(self._cache, len(requests), self._call.final_length)
        self._tick(shared * len(requests))
        scores = list(self._forward(ids, cache, shared, int(positions[-1]), rows))
        if shared > 0 and cache is self._cache:
            _cut(cache, shared)
        log_probs = np.concatenate([s[0] for s in scores], axis=1)
        top = np.concatenate([s[1] for s in scores], axis=1)
        return list(zip(log_probs, top))

    def _new_cache(self) -> Any:
        return _new_cache(self._call.final_length) if self.cached else None

    def _feed_prefix(self, prefix: np.ndarray) -> int:
        """Makes the cache that of `prefix`; what it begins with is there already."""
        if len(prefix) == 0:
            return 0
        n = min(len(prefix), len(self._kept))
        differ = np.nonzero(prefix[:n] != self._kept[:n])[0]
        begin = int(differ[0]) if len(differ) else n
        cache = self._cache if begin > 0 else self._new_cache()
        self.forget()  # until it is whole
        if begin > 0:
            _cut(cache, begin)
        for _ in self._forward(prefix[None], cache, begin, len(prefix), np.zeros(0, np.int64), quiet=True):
            pass
        self._kept, self._cache = prefix, cache
        return len(prefix)

    def _forward(
        self, ids: np.ndarray, cache: Any, begin: int, end: int, rows: np.ndarray, quiet: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Feeds ids[:, begin:end] in chunks. Yields (log_probs, top), [sequences, rows], for the tokens behind `rows`."""
        torch, engine = self._torch, self._engine
        sequences = len(ids)
        on_cpu = engine.device.type == "cpu"
        vocab = engine._config.vocab_size
        most_rows = max(1, ((64 if on_cpu else 256) << 20) // (vocab * sequences))  # logits of a chunk
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
            fed = torch.from_numpy(ids[:, at:until].astype(np.int64)).to(engine.device)
            logits = self._logits(fed, cache, wanted - at)
            if len(wanted):
                targets = torch.from_numpy(ids[:, wanted + 1].astype(np.int64)).to(logits.device)
                yield self._scores(logits, targets)
            del logits
            if not quiet:
                self._tick((until - at) * sequences)
            at = until

    def _logits(self, fed: Any, cache: Any, rows: np.ndarray) -> Any:
        """[sequences, rows, vocab] of the tokens fed."""
        torch, engine = self._torch, self._engine
        keep = torch.from_numpy(np.ascontiguousarray(rows)).to(engine._index_device)
        options: dict[str, Any] = {}
        if engine._keeps_logits:
            options["logits_to_keep"] = keep if len(rows) else 1
        out = engine.model(input_ids=fed, past_key_values=cache, use_cache=cache is not None, **options)
        return out.logits if engine._keeps_logits else out.logits[:, keep.to(out.logits.device)]

    def _scores(self, logits: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
        torch = self._torch
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

    def continue_greedily(self, request: GenerateRequest) -> tuple[np.ndarray, bool]:
        prompt = np.concatenate([request.prefix, request.ids])
        cache, made, begin = self._new_cache(), [], 0
        while len(made) < request.max_tokens:
            ids = np.concatenate([prompt, np.asarray(made, np.int32)])
            padded = np.append(ids, ids[-1])[None]  # with any target: only the most probable token is asked for
            (_, top), = self._forward(padded, cache, begin, len(ids), np.asarray([len(ids) - 1]))
            best = int(top[0, 0])
            if best in request.stop:
                return np.asarray(made, np.int32), True
            made.append(best)
            begin = len(ids) if self.cached else 0
        return np.asarray(made, np.int32), False


# ---- The cache: keys and values in buffers that grow by doubling. transformers' own copies itself with each chunk.


@functools.cache
def _layer_type() -> Any:
    import torch
    from transformers.cache_utils import DynamicLayer

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

        def fork(self, sequences: int, most: int) -> Any:
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

    return _Layer


def _new_cache(most: int) -> Any:
    from transformers.cache_utils import DynamicCache

    cache = DynamicCache()
    cache.layer_class_to_replicate = functools.partial(_layer_type(), most)
    return cache


def _fork(cache: Any, sequences: int, most: int) -> Any:
    new = _new_cache(most)
    new.layers = [layer.fork(sequences, most) for layer in cache.layers]
    return new


def _cut(cache: Any, tokens: int) -> None:
    for layer in cache.layers:
        layer.cut(min(tokens, layer.tokens))


# ---- Loading


def _dtype(given: Any) -> Any:
    import torch

    name = {"bf16": "bfloat16", "f32": "float32", "f16": "float16", "fp16": "float16"}.get(str(given), str(given))
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise Error(f"dtype: expected \"float32\", \"bfloat16\" or \"float16\", got {given!r}")
    return dtype


def _dtype_of(model: Any) -> Any:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), None)


def _load(path: str, device: Any, dtype: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    place = "cpu" if device is None else str(device)
    options: dict[str, Any] = {}
    if dtype is not None:
        options["dtype"] = _dtype(dtype)
    else:
        options["dtype"] = torch.float32 if place == "cpu" else "auto"
    if place == "auto":
        options["device_map"] = "auto"
    elif place.startswith("cuda") and not torch.cuda.is_available():
        raise Error(f"device: PyTorch sees no GPU here, got {device!r}")
    folder = path
    if path.endswith(".gguf"):
        folder, options["gguf_file"] = os.path.split(path)
    if not os.path.isdir(folder or "."):
        raise Error(f"{path}: expected a folder with config.json and weights, or a GGUF file")
    model = AutoModelForCausalLM.from_pretrained(folder or ".", local_files_only=True, **options)
    return model if place == "auto" else model.to(place)


def load_tokenizer(path: str) -> Any:
    """The tokenizer of transformers for a model's path."""
    from transformers import AutoTokenizer

    if path.endswith(".gguf"):
        return AutoTokenizer.from_pretrained(os.path.dirname(path) or ".", gguf_file=os.path.basename(path))
    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def _out_of_memory(torch: Any, error: BaseException) -> bool:
    if isinstance(error, Error):
        return False
    known = getattr(torch, "OutOfMemoryError", MemoryError)
    said = any(text in str(error) for text in ("can't allocate memory", "backend out of memory"))  # of the CPU, of MPS
    return isinstance(error, (known, MemoryError)) or said
