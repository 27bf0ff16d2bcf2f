"""What a `positions` dictionary may say, as tables: every type, its settings, their defaults and what they may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ropewalk._core import Error

Shape = dict[str, Any]  # the numbers of a config.json, with defaults filled in


class Setting(NamedTuple):
    """A default, which may depend on the model, and what says whether a value is one: "" or what is expected."""

    default: Any
    expected: Callable[[Any], str]


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def whole(default: Any, least: int = 1, most: int = 2**31 - 1) -> Setting:
    """A whole number from `least` to `most`."""
    wanted = f"a whole number from {least} on" if most == 2**31 - 1 else f"a whole number from {least} to {most}"
    return Setting(default, lambda x: "" if type(x) is int and least <= x <= most else wanted)


def number(default: Any, above: float = -math.inf) -> Setting:
    """A finite number above `above`."""
    wanted = "a number" if above == -math.inf else f"a number above {above:g}"
    return Setting(default, lambda x: "" if _is_number(x) and x > above else wanted)


def flag(default: bool) -> Setting:
    """true or false."""
    return Setting(default, lambda x: "" if isinstance(x, bool) else "true or false")


def one_of(*names: str) -> Setting:
    """One of these names; the first is the default."""
    return Setting(names[0], lambda x: "" if isinstance(x, str) and x in names else f"one of {', '.join(names)}")


def _alpha(x: Any) -> str:
    return "" if _is_number(x) and 0 < x < 1 and x != 0.5 else "a number between 0 and 1, and not 1/2"


def _kernel(x: Any) -> str:
    return "" if type(x) is int and 1 <= x <= 1 << 16 else "a whole number from 1 to 65536"


def _divisor(x: Any) -> str:
    return "" if type(x) is int and x >= 1 else "a whole number from 1 on that divides hidden_size"


def _even(x: Any) -> str:
    return "" if type(x) is int and 2 <= x and x % 2 == 0 else "an even whole number from 2 on"


def _trained(shape: Shape) -> int:
    return shape["max_position_embeddings"]


_ROWS = {"rows": whole(_trained)}
_SHARED = one_of("none", "words", "dims")
_BUCKETS = {"buckets": whole(32, 2), "last_distance": whole(128, 2)}
_CELL = one_of("tanh", "gru")

ABSOLUTE: dict[str, dict[str, Setting]] = {
    "sinusoidal": {
        "layout": one_of("interleaved", "concatenated"),
        "base": number(10000.0, 0),
        "ladder": one_of("paper", "to-base"),
        "cosine_first": flag(False),
        "scale": number(1.0),
    },
    "learned": _ROWS,
    "hierarchical": {**_ROWS, "alpha": Setting(0.4, _alpha)},
    "multiplicative": _ROWS,
    "digits": {"base": whole(10, 2, 1 << 20), "digits": whole(3, 1, 53), "factor": number(1.0, 0)},
    "recurrent": {"cell": _CELL},
    "floater": {"hidden": whole(64), "spacing": number(0.1, 0), "substeps": Setting(10, _even)},
    "convolutional": {
        "kernel": Setting(3, _kernel),
        "groups": Setting(lambda shape: shape["hidden_size"], _divisor),
        "gelu": flag(False),
        "residual": flag(True),
        "border": one_of("zero", "circular"),
    },
    "complex_order": {"frequency_shared": _SHARED, "phase_shared": _SHARED},
}

RECURRENT_LAYER: dict[str, Setting] = {"cell": _CELL}

BIAS: dict[str, dict[str, Setting]] = {
    "alibi": {"learned": flag(False)},
    "t5": _BUCKETS,
    "kerple": {"kernel": one_of("log", "power")},
    "sandwich": {"dim": Setting(128, _even), "base": number(10000.0, 0)},
    "fire": {"width": whole(32)},
    "shaw": {
        "left": whole(32, 0),
        "right": whole(lambda shape: shape["positions"]["bias"].get("left", 32) if shape["bidirectional"] else 0, 0),
        "values": flag(True),
        "per_head": flag(False),
    },
    "transformer_xl": {"clamp_distance": whole(0, 0)},
    "deberta": {"buckets": whole(32, 0), "max_position": whole(_trained)},
    "tupe": {"positions": whole(_trained), "reset": flag(True), "relative": flag(False), **_BUCKETS},
    "cope": {"rows": whole(64), "per_head": flag(False)},
    "gate": {},
}

# Rotations beside those of a rope dictionary.
ROTATION: dict[str, dict[str, Setting]] = {
    "pope": {"rope_theta": number(10000.0, 0)},
    "fope": {"rope_theta": number(10000.0, 0), "frequencies": whole(0, 0)},
}
XPOS: dict[str, Setting] = {"scale_base": number(512, 0), "gamma": number(0.4, 0)}

TEMPERATURE: dict[str, dict[str, Setting]] = {
    kind: {"beta": number(0.1), "period": whole(8192, 2), "offset": whole(0, 0)} for kind in ("log-n", "step-log", "mscale")
}


def fill(where: str, given: dict[str, Any], settings: dict[str, Setting], shape: Shape, beside: tuple[str, ...] = ()) -> dict:
    """The settings with their defaults; Error for a key that none has, and for a value that is none."""
    known = (*beside, *settings)
    for key in given:
        if key not in known:
            raise Error(f"{where}.{key}: unknown setting; known are {', '.join(known)}")
    filled = {key: given[key] for key in beside if key in given}
    for key, setting in settings.items():
        value = given.get(key)
        if value is None:
            value = setting.default(shape) if callable(setting.default) else setting.default
        if wanted := setting.expected(value):
            raise Error(f"{where}.{key}: expected {wanted}, got {value!r}")
        filled[key] = value
    return filled


def typed(where: str, given: Any, types: dict[str, dict[str, Setting]], shape: Shape) -> dict:
    """A dictionary with a type, filled."""
    name = dictionary(where, given).get("type")
    if not isinstance(name, str) or name not in types:
        raise Error(f"{where}.type: expected one of {', '.join(types)}, got {name!r}")
    return fill(where, given, types[name], shape, ("type",))


def dictionary(where: str, given: Any) -> dict:
    """Refuses what is no dictionary."""
    if not isinstance(given, dict):
        raise Error(f"{where}: expected a dictionary, got {given!r}")
    return given
