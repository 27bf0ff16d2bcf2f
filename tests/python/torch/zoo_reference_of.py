"""What `zoo_reference.plain` takes in the place of its parts for the `positions` of a model of the zoo, as its config.json has them
with all defaults: each kind alone or with others."""

import math

import zoo_reference as ref
from zoo_models import TRAINED, WIDTH
from zoo_reference import AT, DIM, LOG_N


def absolute(own, twin):
    match own["type"]:
        case "sinusoidal":
            return ref.adds(lambda w: own["scale"] * ref.sinusoids(AT, WIDTH, own["layout"] == "interleaved"))
        case "learned":
            return ref.adds(ref.table)
        case "multiplicative":
            return lambda w, x, ids: x * ref.table(w)[: x.shape[1]]
        case "hierarchical":
            return ref.adds(lambda w: ref.hierarchical(w, own["alpha"]))
        case "digits":
            return ref.adds(ref.digits(own["base"], own["digits"], own["factor"]))
        case "floater":
            return ref.adds(ref.floater(own["spacing"], own["substeps"]))
        case "recurrent":
            return ref.adds(ref.recurrent_rows)
        case "convolutional":
            return ref.convolution(own["groups"], own["gelu"], own["residual"], centred=twin)
    return {"complex_order": ref.complex_order}[own["type"]]


def frequencies(own):
    base = own["rope_theta"]
    match own["rope_type"]:
        case "yarn":
            return ref.yarn(own["factor"], base)
        case "hope":  # pairs that make no full turn keep still
            f = ref.frequencies(base)
            return f * (f * TRAINED >= 2 * math.pi)
        case "proportional":
            return ref.frequencies(base, kept=int(own["partial_rotary_factor"] * DIM / 2))
    return ref.frequencies(base)


def turner(own):
    """Queries (side 1) and keys (side -1) as they are rotated."""
    if own["rope_type"] == "fope":
        turn = ref.fope_turned(own["rope_theta"])
        return lambda w, at, x, side: turn(w, at, x)
    turn = ref.turned_by(frequencies(own))(1)
    amplitude = 0.1 * math.log(own["factor"]) + 1 if own["rope_type"] == "yarn" else 1.0

    def turned(w, at, x, side):
        x = amplitude * turn(x)
        if "xpos" not in own:
            return x
        decay = ref.xpos(own["xpos"]["scale_base"], own["xpos"]["gamma"])[: x.shape[2], 0] ** side
        return x * decay.repeat(1, 2)

    return turned


def rotation(own):
    if own["rope_type"] == "pope":
        return {"product": ref.pope}
    turned = turner(own)

    def product(w, at, q, k):
        return turned(w, at, q, 1) @ turned(w, at, k, -1).transpose(-1, -2)

    return {"product": product, **({"back": ref.turned_by(frequencies(own))} if own.get("values") else {})}


def bias(own, twin):
    """Parts of `plain`."""
    buckets = ref.t5_both if twin else lambda buckets, last: ref.t5_buckets(ref.D.clamp(min=0), buckets, last)
    of_distance = {
        "alibi": lambda: ref.alibi,
        "kerple": lambda: ref.kerple,
        "fire": lambda: ref.fire,
        "sandwich": lambda: ref.sandwich(own["dim"]),
        "t5": lambda: ref.t5(buckets(own["buckets"], own["last_distance"])),
        "tupe": lambda: ref.tupe(own["reset"]),
    }
    if own["type"] in of_distance:
        return {"bias": ref.by_distance(of_distance[own["type"]]())}
    match own["type"]:
        case "shaw":
            return ref.shaw(own["left"], own["right"])
        case "transformer_xl":
            return {"content": ref.transformer_xl(own["clamp_distance"])}
        case "deberta":
            return {"content": ref.deberta(own["buckets"], own["max_position"])}
    return {"bias": {"gate": ref.gate, "cope": ref.cope}[own["type"]]}


def embedding(positions, twin):
    """In front of the layers: the absolute encoding, then the recurrent layer."""
    steps = [absolute(positions["absolute"], twin)] if "absolute" in positions else []
    steps += [ref.recurrent_layer] if "recurrent_layer" in positions else []

    def embed(w, x, ids):
        for step in steps:
            x = step(w, x, ids)
        return x

    return {"embed": embed} if steps else {}


def parts(positions, twin):
    out = embedding(positions, twin)
    if "bias" in positions:
        out |= bias(positions["bias"], twin) | {"terms": {"deberta": 3, "tupe": 2}.get(positions["bias"]["type"], 1)}
    if "rotation" in positions:
        out |= rotation(positions["rotation"])
        if content := out.get("content"):
            turned = turner(positions["rotation"])
            out["content"] = lambda w, at, q, k: content(w, at, turned(w, at, q, 1), turned(w, at, k, -1))
    if "temperature" in positions:
        assert positions["temperature"] == {"type": "log-n", "beta": 0.1, "period": 16, "offset": 0}
        out["temperature"] = LOG_N
    return out
