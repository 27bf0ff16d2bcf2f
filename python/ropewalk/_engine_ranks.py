"""The PyTorch engine over the processes that torchrun started: each has a shard of every layer (the tensor parallel plan of
transformers). Rank 0 decides what is computed and when; the others follow it step by step."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from ropewalk import _engine_load
from ropewalk._core import Error

_FOREVER = datetime.timedelta(days=300)  # that a rank waits for the next step
_mine: Ranks | None = None
_alone = False


def launched() -> bool:
    """Whether torchrun, or what sets the same variables, started this process as one of several that work together."""
    known = all(os.environ.get(name) for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    return not _alone and known and os.environ.get("WORLD_SIZE", "1") not in ("", "1")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Meanwhile the processes of this launch are no ranks of one model, but each a shard of a sweep, say."""
    global _alone
    before, _alone = _alone, True
    try:
        yield
    finally:
        _alone = before


def ranks() -> Ranks:
    """Of this process, which torch.distributed knows from here on."""
    global _mine
    if _mine is None:
        _mine = Ranks()
    return _mine


def over_ranks(model: Any) -> bool:
    """Whether a model, by its path or loaded, is or will be dealt over the ranks of this launch."""
    if isinstance(model, (str, os.PathLike)):
        return launched()
    return (getattr(model, "tp_size", None) or 1) > 1


def shard(tensor: Any) -> Any:
    """What this rank has of a tensor that is dealt over ranks; any other as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class RankError(Error):
    """A rank has failed in a way that leaves the others waiting."""


def _error_of(told: tuple[str, str, str]) -> BaseException:
    kind, code, text = told
    if kind == "KeyboardInterrupt":
        return KeyboardInterrupt(text)
    error = Error(text if kind == "Error" else f"{kind}: {text}")
    error.code = code
    return error


def _told(error: BaseException) -> tuple[str, str, str]:
    kind = "Error" if isinstance(error, Error) else type(error).__name__
    return kind, getattr(error, "code", "unsupported") if kind == "Error" else "unsupported", str(error)


class Ranks:
    """The channel between rank 0 and the others: every step is a broadcast of a small message."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._dist = dist
        if not dist.is_initialized():
            backend = "gloo"
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ["RANK"])))
                backend = "cpu:gloo,cuda:nccl"
            dist.init_process_group(backend)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # Of its own, since rank 0 may think for longer than a computation may wait.
        self._control = dist.new_group(backend="gloo", timeout=_FOREVER)
        self.broken = ""  # why the others can no longer be reached
        self._lock = threading.RLock()
        self._forgotten: list[tuple[int, int | None]] = []
        self._engines = 0
        self.parts: dict[int, Any] = {}  # of the engines, by number
        atexit.register(self._end)
        if self.rank > 0:
            _quiet()

    def _end(self) -> None:
        if self.broken and self.rank == 0:
            print(f"ropewalk: error: {self.broken}", file=sys.stderr, flush=True)
            os._exit(1)  # so that the launcher ends the others, who wait for what will not come
        if not self.broken and self._dist.is_initialized():
            self.close()

    # -- messages

    def tell(self, engine: int, name: str, *arguments: Any) -> None:
        """Rank 0 to all others."""
        with self._lock:
            if self.broken:
                raise RankError(f"{self.broken}; start the job again")
            forgotten, self._forgotten = self._forgotten, []
            with self.together():
                self._dist.broadcast_object_list([(engine, name, arguments, forgotten)], 0, group=self._control)

    def hear(self) -> tuple[int, str, tuple[Any, ...]]:
        """What rank 0 tells."""
        message: list[Any] = [None]
        try:
            self._dist.broadcast_object_list(message, 0, group=self._control)
        except RuntimeError as error:
            raise RankError(f"rank 0 is gone: {_first_line(error)}") from None
        engine, name, arguments, forgotten = message[0]
        for of, key in forgotten:
            if key is None:
                self.parts.pop(of, None)
            elif of in self.parts:
                self.parts[of].drop(key)
        return engine, name, arguments

    def forget(self, engine: int, key: int | None) -> None:
        """A cache, or the engine (None), that is no longer needed: the next message says so."""
        self._forgotten.append((engine, key))

    def gather(self, mine: Any) -> list[Any]:
        """Of each rank, on all of them."""
        parts: list[Any] = [None] * self.size
        with self.together():
            self._dist.all_gather_object(parts, mine, group=self._control)
        return parts

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What all ranks do at once: where one fails in it, the others wait."""
        try:
            yield
        except BaseException as error:
            self.broken = self.broken or f"rank {self.rank}: {type(error).__name__}: {_first_line(error)}"
            raise

    def agree(self, part: Any, name: str, *arguments: Any) -> Any:
        """Makes a step of `part` on every rank; what any of them raises all raise, after `restore`."""
        made, mine = None, None
        try:
            made = getattr(part, name)(*arguments)
        except Exception as error:
            mine = error
        errors = self.gather(None if mine is None else _told(mine))
        wrong = next((rank for rank, told in enumerate(errors) if told is not None), None)
        if wrong is None:
            return made
        if hasattr(part, "restore"):
            part.restore()
        if mine is not None:
            raise mine
        kind, code, text = errors[wrong]
        raise _error_of((kind, code, f"rank {wrong}: {text}"))

    # -- engines

    def new_engine(self, part: Any) -> int:
        """Its number, the same on all ranks."""
        self._engines += 1
        if self.rank > 0:
            self.parts[self._engines] = part
        return self._engines

    def load(self, path: str, device: Any, dtype: Any) -> Any:
        """This rank's part of a model, from a path."""
        given = path, None if device is None else str(device), None if dtype is None else str(dtype)
        if self.rank == 0:
            self.tell(0, "load", *given)
        else:
            _, step, arguments = self.hear()
            if step != "load" or arguments != given:
                raise RankError(f"rank {self.rank} loads {path}, and rank 0 does not: all ranks make the same calls")
        return self._load_all(*given)

    def _load_all(self, path: str, device: Any, dtype: Any) -> Any:
        self.agree(_engine_load, "check_sharded", path, device, dtype, self.size)  # before any waits for another
        return self.agree(_engine_load, "load_sharded", path, dtype)

    # -- calls: what rank 0 asks, and what the others do meanwhile

    @contextlib.contextmanager
    def call(self, engine: int, name: str, *arguments: Any) -> Iterator[list[Any]]:
        """On rank 0: a call of an engine, whose answer (`answer.append`) or error all ranks have in the end."""
        with self._lock:
            self.tell(engine, "begin", name, digest(arguments))
            answer: list[Any] = []
            try:
                yield answer
            except BaseException as error:
                if not self.broken:
                    self.tell(engine, "end", None, _told(error))
                raise
            self.tell(engine, "end", answer[0] if answer else None, None)

    def follow(self, engine: int, name: str, *arguments: Any) -> Any:
        """On another rank, which makes the same call: does what rank 0 says, and returns or raises what that call does."""
        of, step, (asked, *rest) = self.hear()
        if (of, step, asked) != (engine, "begin", name) or rest != [digest(arguments)]:
            raise RankError(
                f"rank {self.rank} calls {name}, and rank 0 {asked if step == 'begin' else step} or with other arguments: all "
                "ranks make the same calls; ranks=False is for processes that work each for itself"
            )
        return self._until(("end",))

    def serve(self) -> Any:
        """On another rank: does what rank 0 says until it is over."""
        return self._until(("over",))

    def _until(self, ends: tuple[str, ...]) -> Any:
        while True:
            engine, name, arguments = self.hear()
            if name in ends:
                answer, error = arguments
                if error is not None:
                    raise _error_of(error)
                return answer
            if name == "load":
                with contextlib.suppress(Exception):  # rank 0 raises it too
                    self._load(*arguments)
            elif name not in ("begin", "end"):
                self._step(self.parts[engine], name, arguments)

    def _load(self, *arguments: Any) -> None:
        from ropewalk._engine_part import Part

        self.new_engine(Part(self._load_all(*arguments)))

    def _step(self, part: Any, name: str, arguments: tuple[Any, ...]) -> None:
        if name in ("apply", "hash", "read_plan"):
            with contextlib.suppress(Exception):
                self.agree(part, name, *arguments)
        elif name == "free_bytes":
            self.gather(part.free_bytes())
        else:
            getattr(part, name)(*arguments)

    def close(self) -> None:
        """Where all ranks are done with each other. Threads of gloo that still hold a tensor when the interpreter ends abort the
        process ("terminate called without an active exception"), so this ends them: as the last owner of the group."""
        global _mine
        _mine = None
        del self._control
        self._dist.destroy_process_group()

    def over(self, answer: Any = None, error: BaseException | None = None) -> None:
        """On rank 0: lets the others go who serve."""
        if not self.broken:
            self.tell(0, "over", answer, None if error is None else _told(error))


def digest(arguments: tuple[Any, ...]) -> str:
    """By which ranks see that they were asked the same."""
    hasher = hashlib.blake2b(digest_size=16)
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            hasher.update(digest(tuple(argument)).encode())
        elif hasattr(argument, "ids"):  # a request
            for name in ("prefix", "ids", "positions", "stop"):
                hasher.update(np.asarray(getattr(argument, name, ())).tobytes() + b"\0")
            hasher.update(f"{getattr(argument, 'continue_tokens', 0)} {getattr(argument, 'max_tokens', 0)}".encode())
        else:
            hasher.update(repr(argument).encode())
        hasher.update(b"\0")
    return hasher.hexdigest()


def _quiet() -> None:
    """Ranks that follow show no progress."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
