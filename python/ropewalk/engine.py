"""Engines that score tokens: the interface, and PyTorch as one.

A sweep asks a ``ScoringEngine`` for log-probabilities of tokens of given sequences under a plan. The library's own
decoder is one; ``TorchEngine`` is any causal model of transformers on any device; a subclass of ``ScoringEngine`` is
whatever else answers:

    class Mine(ropewalk.engine.ScoringEngine):
        def facts(self):                    # EngineFacts: name, vocab, compute
        def memory_bytes(self, plan, length):            # of weights, cache and scratch for one sequence
        def do_score(self, call, requests):              # -> Scores
        def do_generate(self, call, requests):           # -> [(ids, stopped)]; may be left out. Also asked for the
                                                         # continuations that do_score leaves out of its Scores

``call`` has the plan (resolved at ``final_length``), ``angles``, ``whole_reuse`` and ``tick(tokens)``, to be called now
and then; what it raises has to pass through. ``requests`` are valid and what is answered is checked. Users of an
engine call ``score(plan, requests, final_length=..)`` and ``generate``. Results have to depend on a call's arguments
alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ropewalk import _core
from ropewalk._core import EngineCall, EngineFacts, Error, GenerateRequest, ScoreRequest, Scores, ScoringEngine
from ropewalk._engine_load import check_device, dtype_named, dtype_of, load, out_of_memory
from ropewalk._engine_ranks import over_ranks
from ropewalk._engine_ranks import ranks as ranks_here
from ropewalk._engine_ranks import shard

if TYPE_CHECKING:
    from ropewalk._engine_feeder import Begun, Feeder

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


def native_engine(path: str | os.PathLike[str], dtype: str = "float32", weights: str | None = None) -> ScoringEngine:
    """The library's decoder on the CPU: a Hugging Face folder, a GGUF or a llama2.c file. ``dtype`` "bfloat16" rounds
    weights and inputs of the linear layers to bf16; ``weights`` is "packed", "unpacked" or "auto", the default, as in
    ``sweep``."""
    from ropewalk._sweep import _native_engine

    return _native_engine(_core.ModelFiles(os.fspath(path)), None, dtype, weights)


_LEAST = 64  # tokens of a chunk below which no memory is enough
# Position times frequency in float32, as the modules of transformers compute them; where the attention of
# ropewalk.transformers rotates, its tables are exact. Rows say both.
_ANGLES = "float32; under position maps and log-n exact"


class TorchEngine(ScoringEngine):
    """A causal model of transformers as an engine, on its device.

    model: a loaded model, or the path of one (a Hugging Face folder or a GGUF file).
    device: "cuda", "cpu", ...; for a path also "auto", which spreads the model over all devices
        (``device_map="auto"`` of transformers, with accelerate). By default that of a loaded model; for a path the CPU,
        over ranks each rank's own device.
    dtype: "float32", "bfloat16", "float16" or "float64"; by default that of a loaded model; for a path float32 on a
        CPU, else the files' own.
    ranks: whether the model of a path is dealt over the processes of this launch, by the tensor parallel plan of
        transformers; by default where torchrun started several, as a loaded model that is dealt already. All ranks then
        make the same calls, and have the same answers; rank 0 decides (docs/python-sweep.md).

    A plan is put on the model for the time of a call (``ropewalk.transformers.applied``), with the frequencies of the
    declared final length before the first token. Sequences are fed in chunks with a key-value cache, logits are
    computed only where tokens are scored, and what neighbouring requests share is computed once, so that results
    differ by rounding from those of separate calls. Sequences of one length run together, as many as memory holds, and
    greedy continuations of any; when it runs out, fewer at a time, then smaller chunks. Angles are those of
    transformers, ``angles="float32"``; under a position map or log-n, exact ones. Entropy of attention is not measured.
    Models without a cache of keys and values that can be cut (Mamba, RWKV, hybrids) are fed whole sequences.
    """

    angles = "float32"  # that a call may ask for

    def __init__(self, model: Any, *, device: Any = None, dtype: Any = None, ranks: bool | None = None) -> None:
        super().__init__()
        import torch

        self._torch = torch
        from ropewalk._engine_part import Part, Steps

        self._ranks = _ranks_of(model, ranks)
        if isinstance(model, (str, os.PathLike)):
            path = os.fspath(model)
            model = load(path, device, dtype) if self._ranks is None else self._ranks.load(path, device, dtype)
        else:
            model = _given(model, device, dtype)
        if any(p.is_meta for p in model.parameters()):
            raise Error("model: it is on the meta device, which has no weights; load it first")
        part = Part(model)
        self.model, self.device, self._config = part.model, part.device, part.config
        self._number = 0 if self._ranks is None else self._ranks.new_engine(part)
        self._steps = Steps(part, self._ranks, self._number)
        self._most_together = 1 << 40  # tokens of sequences that run together
        self._most_tokens = 1 << 30  # of a chunk
        self._lock = threading.Lock()
        self._hash: str | None = None

    # -- facts

    def facts(self) -> EngineFacts:
        import transformers

        torch, on_cpu = self._torch, self.device.type == "cpu"
        part, config, ranks = self._steps.part, self._config, self._size
        dtype = str(dtype_of(self.model)).removeprefix("torch.")
        compute = f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {self._place()}, {dtype}"
        heads = getattr(config, "num_attention_heads", 0)
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // max(1, heads)
        # Embeddings are looked up, and the head, where it is not the same weights, is head_flops. Of one rank.
        outside = {id(w): shard(w).numel() for w in (self.model.get_input_embeddings().weight, self._head())}
        return EngineFacts(
            name="PyTorch" if ranks == 1 else f"PyTorch over {ranks} ranks",
            vocab=config.vocab_size,
            compute=compute,
            threads=ranks * torch.get_num_threads() if on_cpu else 1,
            token_flops=2.0 * max(0, part.numel() - sum(outside.values())),
            pair_flops=4.0 * heads * head_dim / ranks,
            head_flops=2.0 * config.hidden_size * config.vocab_size / ranks,
            angles=_ANGLES,
        )

    @property
    def _size(self) -> int:
        return 1 if self._ranks is None else self._ranks.size

    def _head(self) -> Any:
        """The weights that make logits."""
        head = self.model.get_output_embeddings()
        return self.model.get_input_embeddings().weight if head is None else head.weight

    def _place(self) -> str:
        """The devices of the weights: "cpu", "2 cuda (NVIDIA H100)", "2 ranks of cuda (NVIDIA H100)"."""
        names: dict[str, int] = {}
        for device in sorted({p.device for p in self.model.parameters()}, key=str):
            name = device.type
            if name == "cuda":
                name += f" ({self._torch.cuda.get_device_name(device)})"
            names[name] = names.get(name, 0) + 1
        places = " and ".join(name if count == 1 else f"{count} {name}" for name, count in names.items())
        return places if self._ranks is None else f"{self._size} ranks of {places}"

    def memory_bytes(self, plan: Any, length: int) -> int:
        """Over ranks, of one."""
        part = self._steps.part
        return part.weight_bytes() + length * part.cache_bytes(self._size) + (256 << 20)

    def model_hash(self) -> str:
        """Of the configuration and all weights, for the rows of a sweep."""
        if self._hash is None:
            self._hash = self._together("hash", lambda: self._steps.agreed("hash"))
        return self._hash

    def model_plan(self, allow_unknown: bool = False) -> Any:
        """The plan of the loaded model."""
        return self._together("read_plan", lambda: self._steps.agreed("read_plan", allow_unknown), allow_unknown)

    def _together(self, name: str, work: Callable[[], Any], *arguments: Any) -> Any:
        """What `work` returns on rank 0, where it is called by all ranks, or by it alone while they serve."""
        if self._ranks is None:
            return work()
        if self._ranks.rank > 0:
            return self._ranks.follow(self._number, name, *arguments)
        with self._ranks.call(self._number, name, *arguments) as answer:
            answer.append(work())
        return answer[0]

    # -- the interface

    def score(self, plan: Any, requests: list[ScoreRequest], **options: Any) -> Scores:
        """Scores of requests under a plan: options are final_length (default: the plan's) and tick."""
        return super().score(plan, requests, **{"angles": self.angles, **options})

    def generate(self, plan: Any, requests: list[GenerateRequest], **options: Any) -> list[tuple[np.ndarray, bool]]:
        """Greedy continuations, (ids, stopped) for each request; options as of `score`."""
        return super().generate(plan, requests, **{"angles": self.angles, **options})

    def do_score(self, call: EngineCall, requests: list[ScoreRequest]) -> Scores:
        asked = call.plan.hash, call.final_length, requests
        tokens, continued, fed = self._together("score", lambda: self._score(call, requests), *asked)
        return Scores(tokens, continuations=continued, fed_tokens=fed)

    def _score(self, call: EngineCall, requests: list[ScoreRequest]) -> tuple[list[Any], list[Any], int]:
        from ropewalk._engine_feeder import Feeder, groups

        tokens: list[Any] = [None] * len(requests)
        with self._ready(call):
            feeder = Feeder(self, call)
            greedy = _Greedy(self, call, feeder, requests)
            for group in groups(requests):
                done = 0
                while done < len(group):
                    here = [requests[i] for i in group[done:]]
                    scores = self._with_room(call, feeder, here[0], lambda some, here=here: feeder.score(here[:some]), len(here))
                    for i, row in zip(group[done:], scores):
                        tokens[i] = row
                    done += len(scores)
                for i in group:
                    if requests[i].continue_tokens > 0:
                        greedy.begin(i, requests[i].continue_tokens)
            continued = greedy.end()
        if not any(request.continue_tokens > 0 for request in requests):
            continued = []
        return tokens, continued, feeder.fed_tokens

    def do_generate(self, call: EngineCall, requests: list[GenerateRequest]) -> list[tuple[np.ndarray, bool]]:
        asked = call.plan.hash, call.final_length, requests
        return self._together("generate", lambda: self._generate(call, requests), *asked)

    def _generate(self, call: EngineCall, requests: list[GenerateRequest]) -> list[tuple[np.ndarray, bool]]:
        from ropewalk._engine_feeder import Feeder

        with self._ready(call):
            greedy = _Greedy(self, call, Feeder(self, call), requests)
            for i, request in enumerate(requests):
                greedy.begin(i, request.max_tokens)
            return greedy.end()

    @contextlib.contextmanager
    def _ready(self, call: EngineCall) -> Iterator[None]:
        """The model with the call's plan, for this thread alone."""
        if call.angles != self.angles:
            raise Error('angles: transformers computes angles in float32, so this engine has angles="float32" alone')
        plan = call.plan
        puts = any(layer.rotation is not None or layer.map is not None for layer in plan.layers)
        with self._lock, self._steps.applied(plan if puts else None):
            yield

    # -- memory

    def _with_room(self, call: EngineCall, feeder: Feeder, request: Any, work: Callable[[int], Any], sequences: int = 1) -> Any:
        """What `work(n)` returns, n sequences like `request` at a time: where memory runs out fewer, then in smaller
        chunks."""
        length = len(request.prefix) + len(request.ids)
        while True:
            some = min(sequences, self._sequences(feeder, length))
            try:
                return work(some)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                reason = str(error).split("\n")[0]
                if self._ranks is not None:  # the others are in the middle of it
                    raise Error(
                        f"not enough memory on {self.device} of rank 0 for {some} sequences of {length} tokens: {reason}; "
                        "start more ranks, or measure shorter lengths"
                    ) from None
            # Outside of the handler, whose traceback holds the tensors that are in the way.
            chunk = feeder.chunk if feeder.cached else length
            self._undo(call, feeder)
            if some > 1:
                self._most_together = some // 2 * length
            elif feeder.cached and chunk > _LEAST:
                self._most_tokens = max(_LEAST, min(chunk, feeder.longest_chunk) // 2)
            else:
                raise Error(
                    f"not enough memory on {self.device} for one sequence of {length} tokens in chunks of {chunk}: {reason}"
                )

    def _undo(self, call: EngineCall, feeder: Feeder) -> None:
        """What memory ran out of."""
        call.tick(-feeder.ticked)
        feeder.forget()
        if self.device.type == "cuda":
            self._torch.cuda.empty_cache()

    def _sequences(self, feeder: Feeder, length: int) -> int:
        """How many sequences of this length run together."""
        if not feeder.cached:
            return 1
        free = self._free_bytes()
        each = length * self._steps.part.cache_bytes(self._size)
        fit = 4096 // length if free is None else free // 4 // max(1, each)
        return int(max(1, min(fit, 64, self._most_together // length)))

    def _free_bytes(self) -> int | None:
        """Of the GPU, or of the rank that has least; None: not known."""
        return self._steps.free_bytes()


class _Greedy:
    """The continuations of a call. Each begins behind its own prompt, while the keys and values of what these have in common
    are there; the tokens that follow are made side by side, since a pass of one token takes as long as one of several."""

    def __init__(self, engine: TorchEngine, call: EngineCall, feeder: Feeder, requests: list[Any]) -> None:
        self._engine, self._call, self._feeder, self._requests = engine, call, feeder, requests
        self._made: list[tuple[np.ndarray, bool]] = [(np.zeros(0, np.int32), False)] * len(requests)
        self._begun: list[Begun] = []

    def begin(self, i: int, most: int) -> None:
        """Request `i`, at most `most` tokens."""
        request, feeder = self._requests[i], self._feeder
        # Twice in memory for a moment: each for itself, and side by side.
        room = self._engine._sequences(feeder, 2 * (len(request.prefix) + len(request.ids) + most))
        if most == 0 or not feeder.side_by_side or (room < 2 and not self._begun):
            self._alone(i, most)
            return
        prompt = (request.prefix, request.ids, most, request.stop)
        self._begun.append(self._engine._with_room(self._call, feeder, request, lambda _: feeder.begin(i, *prompt)))
        if len(self._begun) >= room:
            self._continue()

    def end(self) -> list[tuple[np.ndarray, bool]]:
        """All of them, in the order of the requests."""
        self._continue()
        return self._made

    def _alone(self, i: int, most: int) -> None:
        request, feeder = self._requests[i], self._feeder
        prompt = (request.prefix, request.ids, most, request.stop)
        self._made[i] = self._engine._with_room(self._call, feeder, request, lambda _: feeder.continue_greedily(*prompt))

    def _continue(self) -> None:
        begun, self._begun = self._begun, []
        try:
            self._feeder.continue_begun(begun)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        else:
            for b in begun:
                self._made[b.request] = b.answer()
            return
        alone = [(b.request, b.most) for b in begun]
        self._call.tick(-sum(b.tokens for b in begun))
        begun.clear()
        self._engine._undo(self._call, self._feeder)
        for i, most in alone:
            self._alone(i, most)


def _ranks_of(model: Any, wanted: bool | None) -> Any:
    """The ranks that a model is dealt over, or None."""
    dealt = over_ranks(model)
    if wanted and not dealt:
        raise Error(
            "ranks: expected torchrun to have started several processes, and a path or a model that from_pretrained has dealt "
            'over them (tp_plan="auto")'
        )
    if not dealt or wanted is False:
        return None
    ranks = ranks_here()
    if not isinstance(model, (str, os.PathLike)) and model.tp_size != ranks.size:
        raise Error(f"model: expected one that is dealt over all {ranks.size} ranks, got one over {model.tp_size}")
    return ranks


def _given(model: Any, device: Any, dtype: Any) -> Any:
    """A loaded model, on `device`."""
    import torch

    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise Error(f"model: expected a causal model of transformers or a path, got {type(model).__name__}")
    wanted = None if dtype is None else dtype_named(dtype)
    if wanted not in (None, dtype_of(model)):
        raise Error(f"dtype: the model was loaded as {dtype_of(model)}; load it with dtype={wanted}")
    if device is None:
        return model
    if str(device) == "auto":
        raise Error('device: "auto" is for paths; this model is loaded already, from_pretrained takes device_map="auto"')
    if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
        raise Error(f"device: this model is spread over several by its device_map, got {str(device)!r}")
    check_device(device)
    return model.to(device)
