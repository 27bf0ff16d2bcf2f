"""The config.json of a model of this family: its keys, with defaults, and what does not go together."""

from __future__ import annotations

import copy
from typing import Any

from ropewalk._core import Error
from ropewalk._maps import _MAPS
from ropewalk.zoo import _settings as tables
from ropewalk.zoo._settings import Setting, Shape, dictionary, fill, flag, number, typed, whole

# Keys with their defaults, in the order in which they are read; None: the key is required.
_KEYS: dict[str, Setting] = {
    "bidirectional": flag(False),
    "vocab_size": whole(1024),
    "hidden_size": whole(128),
    "num_hidden_layers": whole(4),
    "num_attention_heads": whole(4),
    "num_key_value_heads": whole(lambda shape: shape["num_attention_heads"]),
    "head_dim": whole(lambda shape: max(1, shape["hidden_size"] // shape["num_attention_heads"])),
    "intermediate_size": whole(lambda shape: 5 * shape["hidden_size"] // 2),
    "rms_norm_eps": number(1e-5, 0),
    "tie_word_embeddings": flag(True),
    "max_position_embeddings": whole(256),
}
_FIXED = {"model_type": "ropewalk", "hidden_act": "silu", "torch_dtype": "float32", "dtype": "float32"}
_TOKENS = ("bos_token_id", "eos_token_id", "mask_token_id")
_ARCHITECTURES = {False: "RopewalkForCausalLM", True: "RopewalkForMaskedLM"}
_POSITIONS = ("absolute", "recurrent_layer", "rotation", "bias", "map", "temperature")
# Of q and k as they are: PoPE makes them twice as wide.
_READ_QUERIES = ("shaw", "transformer_xl", "deberta", "tupe", "cope")


def read_config(given: dict[str, Any]) -> dict[str, Any]:
    """The config with every default filled in, positions too. ropewalk.Error names the key that is wrong and its choices.

    Sizes that are left out are those of the models that `train` makes: width 128, 4 layers, 4 heads, 256 positions.
    """
    given = copy.deepcopy(dictionary("config", given))
    known = (*_FIXED, "architectures", *_KEYS, *_TOKENS, "positions")
    shape: Shape = {key: given.pop(key) for key in (*_TOKENS, "architectures", "positions") if key in given}
    for key, value in _FIXED.items():
        if given.pop(key, value) != value:
            raise Error(f"config.{key}: expected {value!r}")
    for key in given:
        if key not in _KEYS:
            raise Error(f"config.{key}: unknown key; known are {', '.join(known)}")
    if "positions" not in shape:
        raise Error(f"config.positions: expected a dictionary with any of {', '.join(_POSITIONS)}; {{}} is no encoding at all")
    for key, setting in _KEYS.items():  # a default may read what stands before it
        shape |= fill("config", {key: given[key]} if key in given else {}, {key: setting}, shape)
    architecture = [_ARCHITECTURES[shape["bidirectional"]]]
    if shape.setdefault("architectures", architecture) != architecture:
        raise Error(f"config.architectures: expected {architecture} where bidirectional is {shape['bidirectional']}")
    for key in _TOKENS:
        token = shape.setdefault(key, None)
        if token is not None and not (type(token) is int and 0 <= token < shape["vocab_size"]):
            raise Error(f"config.{key}: expected a token below vocab_size {shape['vocab_size']}, got {token!r}")
    if shape["num_attention_heads"] % shape["num_key_value_heads"]:
        raise Error(f"config.num_key_value_heads: expected a divisor of {shape['num_attention_heads']} heads")
    shape["positions"] = _read_positions(shape)
    return {**_FIXED, **shape}


def _read_positions(shape: Shape) -> dict[str, Any]:
    given = dictionary("config.positions", shape["positions"])
    for key in given:
        if key not in _POSITIONS:
            raise Error(f"config.positions.{key}: unknown key; known are {', '.join(_POSITIONS)}")
    given = {key: value for key, value in given.items() if value is not None}
    readers = {
        "absolute": lambda at, x: typed(at, x, tables.ABSOLUTE, shape),
        "recurrent_layer": lambda at, x: fill(at, dictionary(at, x), tables.RECURRENT_LAYER, shape),
        "rotation": lambda at, x: _read_rotation(at, x, shape),
        "bias": lambda at, x: typed(at, x, tables.BIAS, shape),
        "map": lambda at, x: _read_map(at, x, shape),
        "temperature": lambda at, x: typed(at, x, tables.TEMPERATURE, shape),
    }
    shape = {**shape, "positions": given}
    positions = {key: readers[key](f"config.positions.{key}", value) for key, value in given.items()}
    _check_together(positions, shape)
    return positions


def _read_rotation(where: str, given: Any, shape: Shape) -> dict[str, Any]:
    name = dictionary(where, given).get("rope_type", "default")
    if name in tables.ROTATION:
        return fill(where, given, tables.ROTATION[name], shape, ("rope_type",))
    if shape["head_dim"] % 2:
        raise Error(f"{where}: a rotation needs an even head_dim, got {shape['head_dim']}")
    read = {"rope_type": name, "rope_theta": 10000.0, **given}  # what else it says is read with the rope dictionary
    if read.get("xpos") is not None:
        read["xpos"] = fill(f"{where}.xpos", dictionary(f"{where}.xpos", read["xpos"]), tables.XPOS, shape)
    if not isinstance(read.setdefault("values", False), bool):
        raise Error(f"{where}.values: expected true or false, got {read['values']!r}")
    return read


def _read_map(where: str, given: Any, shape: Shape) -> dict[str, Any]:
    # What a map's settings may be, it says itself.
    types = {name: dict.fromkeys(kind._fields, whole(None, 0)) for name, kind in _MAPS.items()}
    name = dictionary(where, given).get("type")
    if name in types:
        given = {"type": name, **_MAPS[name]().settings, **{k: v for k, v in given.items() if k != "type"}}
    return typed(where, given, types, shape)


def _check_together(positions: dict[str, Any], shape: Shape) -> None:
    """What is not defined together is refused."""
    at, twin = "config.positions", shape["bidirectional"]
    absolute, rotation, bias = (positions.get(key, {}) for key in ("absolute", "rotation", "bias"))
    kind, width = absolute.get("type"), shape["hidden_size"]
    if kind == "complex_order" and (width % 2 or shape["tie_word_embeddings"]):
        raise Error(f"{at}.absolute: complex_order needs an even hidden_size and tie_word_embeddings false")
    if kind == "convolutional" and width % absolute["groups"]:
        raise Error(f"{at}.absolute.groups: expected a divisor of hidden_size {width}, got {absolute['groups']}")
    if kind == "convolutional" and absolute["border"] == "circular" and not twin:
        raise Error(f"{at}.absolute.border: circular reads what comes later; a causal decoder has zero alone")
    if twin and bias.get("type") in ("cope", "gate"):
        raise Error(f"{at}.bias.type: {bias['type']} sums over the tokens between, so it is causal; not with bidirectional")
    if rotation.get("rope_type") == "pope" and bias.get("type") in _READ_QUERIES:
        raise Error(
            f"{at}.bias.type: {bias['type']} has rows of head_dim elements for queries and keys, which pope makes twice as wide; "
            f"beside pope there are {', '.join(name for name in tables.BIAS if name not in _READ_QUERIES)}"
        )
    if "map" in positions:
        if "rope_type" not in rotation or rotation["rope_type"] in tables.ROTATION or rotation.get("xpos") or rotation["values"]:
            raise Error(f"{at}.map: expected a rope dictionary as rotation, without xpos and values; got {rotation or None}")
        if twin:
            raise Error(f"{at}.map: position maps are causal; not with bidirectional")
