"""Configs of the zoo, which need no PyTorch."""

import subprocess
import sys

import pytest

import ropewalk as rw
from ropewalk.zoo import DEFAULT, ENTRIES, read_config


def test_entries_are_read_and_nothing_imports_torch():
    code = "import sys, ropewalk.zoo as z; [z.read_config({'positions': p, 'tie_word_embeddings': n != 'complex-order'}) for n, p in z.ENTRIES.items()]; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    assert 20 <= len(DEFAULT) <= 25 and set(DEFAULT) < set(ENTRIES)


def test_defaults_follow_the_model():
    read = read_config({"positions": {"absolute": {"type": "learned"}, "bias": {"type": "shaw", "left": 7}}, "bidirectional": True, "max_position_embeddings": 99})
    assert read["positions"]["absolute"]["rows"] == 99
    assert read["positions"]["bias"]["right"] == 7
    assert read["architectures"] == ["RopewalkForMaskedLM"]
    assert read_config({"positions": {"bias": {"type": "shaw"}}})["positions"]["bias"]["right"] == 0
    assert read_config(read) == read


BAD = [
    ({}, "config.positions: expected"),
    ({"positions": {"biases": {}}}, "config.positions.biases: unknown key; known are absolute, recurrent_layer, rotation, bias, map, temperature"),
    ({"positions": {"bias": {"type": "alibi2"}}}, "config.positions.bias.type: expected one of alibi, t5, kerple, .*got 'alibi2'"),
    ({"positions": {"bias": {"type": "t5", "bucket": 3}}}, "config.positions.bias.bucket: unknown setting; known are type, buckets, last_distance"),
    ({"positions": {"bias": {"type": "kerple", "kernel": "sine"}}}, "kernel: expected one of log, power, got 'sine'"),
    ({"positions": {"absolute": {"type": "hierarchical", "alpha": 0.5}}}, "alpha: expected a number between 0 and 1, and not 1/2, got 0.5"),
    ({"positions": {"absolute": {"type": "complex_order"}}}, "tie_word_embeddings false"),
    ({"positions": {"absolute": {"type": "convolutional", "border": "circular"}}}, "circular reads what comes later"),
    ({"positions": {"bias": {"type": "gate"}}, "bidirectional": True}, "gate sums over the tokens"),
    ({"positions": {"map": {"type": "rerope"}}}, "config.positions.map: expected a rope dictionary"),
    ({"positions": {"rotation": {"rope_type": "pope"}, "bias": {"type": "shaw"}}}, "pope makes twice as wide; beside pope there are alibi, "),
    ({"positions": {}, "hidden": 3}, "config.hidden: unknown key"),
    ({"positions": {}, "hidden_act": "gelu"}, "config.hidden_act: expected 'silu'"),
    ({"positions": {}, "mask_token_id": 1024}, "config.mask_token_id: expected a token below vocab_size 1024, got 1024"),
    ({"positions": {}, "num_key_value_heads": 3}, "config.num_key_value_heads: expected a divisor of 4 heads"),
]


@pytest.mark.parametrize(("config", "message"), BAD)
def test_refusals_name_the_key_and_its_choices(config, message):
    with pytest.raises(rw.Error, match=message):
        read_config(config)


def test_plans_show_what_positions_say():
    for name, positions in ENTRIES.items():
        config = read_config({"positions": positions, "tie_word_embeddings": name != "complex-order"})
        plan, layer = rw.plan(config), rw.plan(config).layers[0]
        said = config["positions"]
        absolute = said.get("absolute", {}).get("type")
        assert bool(plan.learned_positions) == (absolute == "learned"), name
        assert (plan.absolute is not None) == (absolute not in (None, "learned")), name
        assert (plan.recurrent_layer is not None) == ("recurrent_layer" in said), name
        assert (layer.bias is not None) == ("bias" in said), name
        encoded = said.get("rotation", {}).get("rope_type") in ("pope", "fope")
        assert (layer.encoding is not None) == encoded and (layer.rotation is not None) == ("rotation" in said and not encoded), name
        assert layer.rotates_values == bool(said.get("rotation", {}).get("values")), name
    assert rw.plan(read_config({"positions": ENTRIES["pope"]})).layers[3].encoding.startswith("PoPE, base 10000")
    assert rw.plan(read_config({"positions": ENTRIES["sinusoidal"]})).absolute == "sinusoidal(interleaved, base 10000, scale 0.1)"
