"""Named encodings: the `positions` of a config.json, each alone."""

from __future__ import annotations

from typing import Any

_ROPE = {"rope_type": "default"}

# What is compared where nothing else is asked for.
DEFAULT: dict[str, dict[str, Any]] = {
    "none": {},
    "sinusoidal": {"absolute": {"type": "sinusoidal", "scale": 0.1}},
    "learned": {"absolute": {"type": "learned"}},
    "recurrent-layer": {"recurrent_layer": {"cell": "gru"}},
    "floater": {"absolute": {"type": "floater"}},
    "digits": {"absolute": {"type": "digits", "digits": 4}},
    "convolutional": {"absolute": {"type": "convolutional", "kernel": 5}},
    "complex-order": {"absolute": {"type": "complex_order"}},
    "rope": {"rotation": _ROPE},
    "xpos": {"rotation": {**_ROPE, "xpos": {}}},
    "hope": {"rotation": {"rope_type": "hope"}},
    "p-rope": {"rotation": {"rope_type": "proportional", "partial_rotary_factor": 0.75}},
    "pope": {"rotation": {"rope_type": "pope"}},
    "fope": {"rotation": {"rope_type": "fope"}},
    "vo-rope": {"rotation": {**_ROPE, "values": True}},
    "alibi": {"bias": {"type": "alibi"}},
    "t5": {"bias": {"type": "t5"}},
    "kerple": {"bias": {"type": "kerple"}},
    "fire": {"bias": {"type": "fire"}},
    "shaw": {"bias": {"type": "shaw"}},
    "transformer-xl": {"bias": {"type": "transformer_xl"}},
    "cope": {"bias": {"type": "cope"}},
    "gate": {"bias": {"type": "gate"}},
    # The temperature acts within the trained length already, or it would not be trained.
    "rope+log-n": {"rotation": _ROPE, "temperature": {"type": "log-n", "period": 16}},
}

# Those that are close to one of the above, or reach no further than they were trained.
OTHERS: dict[str, dict[str, Any]] = {
    "multiplicative": {"absolute": {"type": "multiplicative"}},
    "hierarchical": {"absolute": {"type": "hierarchical", "rows": 64}},
    "recurrent-rows": {"absolute": {"type": "recurrent"}},
    "alibi-learned": {"bias": {"type": "alibi", "learned": True}},
    "sandwich": {"bias": {"type": "sandwich"}},
    "deberta": {"bias": {"type": "deberta"}},
    "tupe": {"bias": {"type": "tupe"}},
}

ENTRIES: dict[str, dict[str, Any]] = {**DEFAULT, **OTHERS}
