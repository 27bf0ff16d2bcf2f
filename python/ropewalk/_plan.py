"""The position encoding of every layer of a model, as data."""

from __future__ import annotations

import json
import os
import warnings
from typing import Any

import numpy as np

from ropewalk import _core
from ropewalk._arrays import int64, number, whole
from ropewalk._bias import Bias
from ropewalk._bias_content import _bias_of
from ropewalk._core import Error
from ropewalk._maps import PositionMap, _map_of
from ropewalk._rotary import Rotation

__all__ = ["Layer", "Plan", "Temperature", "plan"]


class Temperature:
    """A factor of the scores of a query that depends on its position n.

    Attributes:
        kind: "log-n": max(1, ln(n + 1) / ln(period)) (Su 2021, kexue.fm/archives/8823; Qwen 1). "step-log":
            1 + beta ln(1 + floor((n + offset) / period)), 1 where n + offset is below 0 (Llama 4, Ministral 3). "mscale":
            (1 + beta ln(period))^2, as if cos and sin were multiplied by its root (STRING's and LaMPE's code: 0.1 and 2).
        beta, period, offset: of the formula; period in tokens.
    """

    __slots__ = ("beta", "kind", "offset", "period")

    def __init__(self, kind: str, beta: float = 0.1, period: int = 8192, offset: int = 0):
        self.kind, self.beta = str(kind), number("beta", beta)
        self.period, self.offset = whole("period", period), whole("offset", offset)
        self(0)

    def __call__(self, positions: Any) -> np.ndarray:
        """The factor at each position, float64 of their shape."""
        p = int64("positions", positions)
        return _core.temperatures(self.kind, self.beta, self.period, self.offset, p).reshape(p.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Temperature) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.kind, self.beta, self.period, self.offset

    def __repr__(self) -> str:
        return f"Temperature({self.kind!r}, beta={self.beta:g}, period={self.period}, offset={self.offset})"


class Layer:
    """What a layer does with positions.

    Attributes:
        rotation: Rotation of its queries and keys; None: it rotates nothing.
        bias: added to its scores (Alibi, T5Bias, ...; learned values are in the model, so those of a plan have none);
            None: none. Neither rotation, bias nor encoding: no position information (NoPE).
        window: it attends to the last n tokens; 0: all.
        chunk: it attends only within its own chunk of n tokens (Llama 4); 0: all.
        temperature: Temperature of its queries, or None.
        map: PositionMap of the relative positions that it rotates by, or None.
        recurrent: linear attention or a state-space layer: it rotates nothing and caches no keys.
        encoding: what encodes its queries and keys in the place of a rotation, as a sentence (PoPE, FoPE), or None.
        rotates_values: its values are rotated as keys are, and what attention finds back by the query's position.
    """

    __slots__ = ("bias", "chunk", "encoding", "map", "recurrent", "rotates_values", "rotation", "temperature", "window")

    def __init__(
        self,
        rotation: Rotation | None,
        bias: Bias | None,
        window: int,
        chunk: int,
        temperature: Temperature | None,
        map: PositionMap | None,
        recurrent: bool,
        encoding: str | None = None,
        rotates_values: bool = False,
    ):
        self.rotation, self.bias, self.window, self.chunk = rotation, bias, window, chunk
        self.temperature, self.map, self.recurrent = temperature, map, recurrent
        self.encoding, self.rotates_values = encoding, rotates_values

    def __repr__(self) -> str:
        return f"Layer({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


class Plan:
    """The position encoding of every layer of a model, resolved at a length. Made by `plan`; it does not change.

    ``print(plan)`` says what each group of layers computes, and the hash.
    """

    __slots__ = ("_core", "_layers", "_rotations")

    def __init__(self, core: _core.Plan):
        self._core = core
        self._layers: list[Layer] | None = None
        self._rotations: list[Rotation] | None = None

    @property
    def hash(self) -> str:
        """32 hexadecimal digits: of the float32 frequencies, amplitudes, windows, maps, temperatures and biases, layer by
        layer, at `length`. What `ropewalk inspect --json` prints as plan_hash."""
        return self._core.hash

    @property
    def length(self) -> int:
        """The declared final length of a sequence in tokens, which length-dependent methods read."""
        return self._core.length

    @property
    def trained_length(self) -> int:
        """Tokens, before any extension; 0: the model does not say."""
        return self._core.trained_length

    @property
    def configured_length(self) -> int:
        """Tokens that the file declares, after its own extension; 0: it does not say."""
        return self._core.configured_length

    @property
    def rotations(self) -> list[Rotation]:
        """The distinct rotations, in the order of the layers."""
        if self._rotations is None:
            self._rotations = [Rotation(r) for r in self._core.rotations]
        return list(self._rotations)

    @property
    def layers(self) -> list[Layer]:
        """What each layer does with positions."""
        if self._layers is None:
            rotations = self.rotations
            biases = [_bias_of(kind, fields) for kind, fields in self._core.biases]
            self._layers = [
                Layer(
                    rotations[row["rotation"]] if row["rotation"] >= 0 else None,
                    biases[row["bias"]] if row["bias"] >= 0 else None,
                    row["window"],
                    row["chunk"],
                    None if row["temperature"] is None else Temperature(*row["temperature"]),
                    _map_of(row["map"]),
                    row["recurrent"],
                    row["encoding"],
                    row["rotates_values"],
                )
                for row in self._core.layers
            ]
        return list(self._layers)

    @property
    def learned_positions(self) -> int:
        """The number of learned position vectors that are added to the token embeddings; 0: none."""
        learned = self._core.learned
        return 0 if learned is None else learned[0]

    @property
    def absolute(self) -> str | None:
        """What else encodes positions in the embeddings, as a sentence: "sinusoidal(interleaved, base 10000)"; None: nothing."""
        return self._core.absolute

    @property
    def recurrent_layer(self) -> str | None:
        """The recurrent layer in front of the layers, as a sentence; None: there is none."""
        return self._core.recurrent_layer

    @property
    def notes(self) -> list[str]:
        """What the reader of the file has to say."""
        return self._core.notes

    @property
    def not_honoured(self) -> list[str]:
        """Keys of the file that have no effect, as sentences."""
        return self._core.not_honoured

    def at(self, length: int) -> Plan:
        """The plan resolved at another length."""
        return Plan(self._core.at(whole("length", length, 1)))

    def with_method(self, method: str, factor: float | None = None, trained_length: int = 0, length: int | None = None) -> Plan:
        """The plan with a context extension method in place of the model's scaling.

        Args:
            method: "none", "yarn", "ntk:4", "rerope:window=512", "rerope+log-n", "self-extend:window=1024,group=8": parts
                joined by +, each a scaling, a map or "log-n". "as-shipped" is the plan itself.
            factor: target length over trained length; without one it is `length` over the trained length.
            trained_length: tokens, in place of the model's.
            length: tokens that the plan is resolved at; default: factor times trained length.

        Raises:
            Error: an unknown name or setting (all are listed), or a method that does not fit the model.
        """
        if method == "as-shipped":
            made = self._core.with_trained(whole("trained_length", trained_length, 0)) if trained_length else self._core
            return Plan(made if length is None else made.at(whole("length", length, 1)))
        trained = whole("trained_length", trained_length, 0)
        factor = None if factor is None else number("factor", factor)
        if factor is not None and not 0 < factor * max(trained or self.trained_length, 1) < 2**62:
            raise Error(f"factor: expected a number above 0 (target length over trained length), got {factor:g}")
        return Plan(
            self._core.with_method(
                str(method),
                factor,
                None if length is None else whole("length", length, 1),
                trained,
            )
        )

    def with_rope(
        self, rope: dict[str, Any], trained_length: int = 0, length: int | None = None, allow_unknown: bool = False
    ) -> Plan:
        """The plan with a rope dictionary of Hugging Face (`rope_scaling`, `rope_parameters`) in place of the model's:
        {"rope_type": "yarn", "factor": 4.0, ...}. A rope_theta in it replaces the base."""
        return Plan(
            self._core.with_rope(
                _json(rope),
                "rope dictionary",
                None if length is None else whole("length", length, 1),
                whole("trained_length", trained_length, 0),
                bool(allow_unknown),
            )
        )

    def can_rerotate(self, old_length: int | None = None, new_length: int | None = None) -> str:
        """Whether cached keys can be moved by a pure rotation (`rerotate`): empty if those of every layer can, else the reason
        why not. With both lengths: keys that were cached under one declared length and move under another."""
        if (old_length is None) != (new_length is None):
            raise Error("old_length and new_length: expected both or neither")
        lengths = [None if n is None else whole("length", n, 1) for n in (old_length, new_length)]
        return _core.can_rerotate(self._core, *lengths)

    def warnings(self, engines: Any = ()) -> list[dict[str, Any]]:
        """Where engines compute something else than the plan says, or its own settings do harm.

        Args:
            engines: ("vllm", "llama.cpp=2026-08-30", "transformers=5.1"): these alone; none: all.

        Returns:
            dicts of "id", "engine", "versions", "text"; "value" with "unit" at "position", where the effect is measured;
            "rotation", an index into `rotations`, or None.
        """
        return _core.engine_warnings(self._core, _names("engines", engines))

    def engine_settings(
        self,
        method: str | dict[str, Any] = "as-shipped",
        factor: float | None = None,
        *,
        length: int | None = None,
        engines: Any = (),
    ) -> list[dict[str, Any]]:
        """A method on this model as the text to paste into the configuration of serving engines.

        Args:
            method: as of `with_method`, or a rope dictionary as of `with_rope`.
            factor: as of `with_method`.
            length: tokens to serve; default: factor times the trained length, or the plan's.
            engines: as in `warnings`.

        Returns:
            dicts of "engine", "setting" (JSON for config.json, or flags; None where the engine has none) and "note" (where it
            goes, or why there is none).
        """
        f = 1.0 if factor is None else number("factor", factor)
        if not f >= 1:
            raise Error(f"factor: expected 1 or more, got {f:g}")
        if length is None:
            length = self.length if factor is None else round(min(max(f, 1.0), 1e9) * self.trained_length)
        given = _json(method) if isinstance(method, dict) else str(method), f, whole("length", length, 1)
        return _core.engine_settings(self._core, *given, _names("engines", engines))

    def compare_engines(self, position: int | None = None) -> list[list[dict[str, Any]]]:
        """For each of `rotations`, how Hugging Face, vLLM and llama.cpp compute it against the documented formula: dicts of
        "engine", "expressible" (else "reason"), "same" (to float32 rounding), "angle_rad" (the largest difference of an angle at
        `position`, by default the last one), "frequency_ratio" (the farthest from 1) and "amplitude"."""
        at = self.length - 1 if position is None else whole("position", position, 0)
        return [_core.compare_engines(r._core, self.length, at) for r in self.rotations]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._core == other._core

    def __hash__(self) -> int:
        return hash((self.hash, self.length))

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_parts, self._core.parts()

    def __str__(self) -> str:
        return str(self._core)

    def __repr__(self) -> str:
        return f"<ropewalk.Plan of {len(self._core.layers)} layers at {self.length} tokens, {self.hash}>"


def _of_parts(*parts: Any) -> Plan:
    return Plan(_core.plan_of_parts(*parts))


def _json(content: Any) -> str:
    try:
        return json.dumps(content, default=str)
    except (TypeError, ValueError) as e:
        raise Error(f"expected a dictionary as in a JSON file: {e}") from None


def _read(source: Any, allow_unknown: bool) -> _core.Plan:
    if isinstance(source, Plan):
        return source._core
    if isinstance(source, (str, os.PathLike)):
        return _core.open_plan(os.fspath(source), allow_unknown)
    name = "config"
    config = source
    if not isinstance(source, dict):
        config = source if hasattr(source, "to_dict") else getattr(source, "config", None)
        if not hasattr(config, "to_dict"):
            raise Error(
                "plan: expected a path (config.json, folder, GGUF, params.json), the content of a config.json as a dict, a "
                f"Plan, or a config or model of transformers, got {type(source).__name__}"
            )
        name = type(config).__name__
        # As save_pretrained would write it; keys that begin with _ are the object's own.
        content = json.loads(config.to_json_string()) if hasattr(config, "to_json_string") else config.to_dict()
        config = {key: value for key, value in content.items() if not key.startswith("_")}
    return _core.parse_plan(_json(config), name, allow_unknown)


def _names(what: str, given: Any) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise Error(f"{what}: expected names, got {given!r}")
    return names


def plan(
    source: Any,
    method: str | dict[str, Any] | Plan | None = None,
    factor: float | None = None,
    *,
    trained_length: int = 0,
    length: int | None = None,
    allow_unknown: bool = False,
) -> Plan:
    """The position encoding of a model, with a context extension method or as shipped.

    Args:
        source: the path of a config.json, a folder, a GGUF file, a params.json, arguments of Megatron-LM or a
            llama2.c .bin; the content of a config.json, a params.json or Megatron's arguments as a dict; a Plan; a config
            of transformers, or a model of it, whose config is read (not its buffers).
        method: None: as the model ships. A name such as "yarn", "rerope+log-n", "self-extend:window=1024,group=8"
            (`Plan.with_method`), or a rope dictionary {"rope_type": "yarn", "factor": 4} (`Plan.with_rope`).
        factor: target length over trained length.
        trained_length: tokens, in place of the model's.
        length: tokens that the plan is resolved at. Default: factor times trained length with a factor, else the configured
            length (4096 where the model states none).
        allow_unknown: read a file although it has keys about positions that the reader does not know.

    Raises:
        Error: for a file that is none, keys that contradict each other, methods that do not fit the model.

    Warns for keys of the file that have no effect.
    """
    core = _read(source, bool(allow_unknown))
    if not isinstance(source, Plan):
        for line in core.not_honoured:
            warnings.warn(line, UserWarning, stacklevel=2)
    shipped = Plan(core)
    if isinstance(method, Plan):
        if factor is not None or trained_length:
            raise Error("factor and trained_length: expected none, because the method is a plan already")
        return method if length is None else method.at(length)
    if isinstance(method, dict):
        if factor is not None:
            raise Error("factor: expected none, because the rope dictionary has its own")
        return shipped.with_rope(method, trained_length, length, allow_unknown)
    if method is None and factor is not None:
        raise Error("factor: expected a method that it is for")
    return shipped.with_method("as-shipped" if method is None else method, factor, trained_length, length)
