"""Named encodings: the `positions` of a config.json, each alone."""

from __future__ import annotations

from typing import Any

_ROPE = {"rope_type": "default"}

# What is compared where nothing else is asked for.
DEFAULT: dict[str, dict[str, Any]] = {
    "none": {},
    "sinusoidal": {"absolute": {"type": "sinusoidal", "scale": 0.1}},
    "learned": {"absolute": {"type": "learned"}},
    "multiplicative": {"absolute": {"type": "multiplicative"}},
    "recurrent-layer": {"recurrent_layer": {"cell": "gru"}},
    "floater": {"absolute": {"type": "floater"}},
    "rope": {"rotation": _ROPE},
    "xpos": {"rotation": {**_ROPE, "xpos": {}}},
    "hope": {"rotation": {"rope_type": "hope"}},
    "p-rope": {"rotation": {"rope_type": "proportional", "partial_rotary_factor": 0.75}},
    "pope": {"rotation": {"rope_type": "pope"}},
    "fope": {"rotation": {"rope_type": "fope"}},
    # The temperature acts within the trained length already, or it would not be trained.
    "rope+log-n": {"rotation": _ROPE, "temperature": {"type": "log-n", "period": 16}},
    "alibi": {"bias": {"type": "alibi"}},
    "alibi-learned": {"bias": {"type": "alibi", "learned": True}},
    "t5": {"bias": {"type": "t5"}},
    "kerple": {"bias": {"type": "kerple"}},
    "fire": {"bias": {"type": "fire"}},
    "shaw": {"bias": {"type": "shaw"}},
    "transformer-xl": {"bias": {"type": "transformer_xl"}},
    "deberta": {"bias": {"type": "deberta"}},
    "tupe": {"bias": {"type": "tupe"}},
    "cope": {"bias": {"type": "cope"}},
    "gate": {"bias": {"type": "gate"}},
}

# Close to one of the above, or one of its settings.
OTHERS: dict[str, dict[str, Any]] = {
    "hierarchical": {"absolute": {"type": "hierarchical", "rows": 64}},
    "digits": {"absolute": {"type": "digits", "digits": 4}},
    "recurrent-rows": {"absolute": {"type": "recurrent"}},
    "convolutional": {"absolute": {"type": "convolutional", "kernel": 5}},
    "complex-order": {"absolute": {"type": "complex_order"}},
    "vo-rope": {"rotation": {**_ROPE, "values": True}},
    "sandwich": {"bias": {"type": "sandwich"}},
    "shaw-2": {"bias": {"type": "shaw", "left": 2}},
    "shaw-8": {"bias": {"type": "shaw", "left": 8}},
    # A bucket for each distance within the trained length.
    "t5-full": {"bias": {"type": "t5", "buckets": 512, "last_distance": 511}},
    "tupe-tied": {"bias": {"type": "tupe", "reset": False}},
}

ENTRIES: dict[str, dict[str, Any]] = {**DEFAULT, **OTHERS}
