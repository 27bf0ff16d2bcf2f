"""Whole models of the zoo against their formulas, typed again in float64 from the papers: at the trained length and three
times it, within 2e-5 of the largest logit.

A case is the `positions` of a config.json, and what they put in the place of the parts of `zoo_reference.plain`. Without any one of
these the logits are others, so that each is seen.
"""

import math

import pytest
import torch
import zoo_reference as ref
from zoo_models import TRAINED, WIDTH, doubles, stirred, tokens
from zoo_reference import LOG_N, MSCALE, STEP_LOG, D, N, plain

ROPE = {"rope_type": "default"}


def absolute(embed, **settings):
    return {"absolute": settings}, {"embed": embed}


def rotation(product, **settings):
    return {"rotation": {**ROPE, **settings}}, {"product": product}


def remapped(distance, **settings):
    return {"rotation": ROPE, "map": settings}, {"product": ref.relative(ref.frequencies(), distance)}


def scores(values, **settings):
    return {"bias": settings}, {"bias": ref.by_distance(values)}


def both(*cases):
    return {key: value for positions, _ in cases for key, value in positions.items()}, {k: v for _, own in cases for k, v in own.items()}


def with_terms(terms, case):
    return case[0], {**case[1], "terms": terms}


def contents(content, **settings):
    return {"bias": settings}, {"content": content}


def tempered(factors, kind, case, **settings):
    return {**case[0], "temperature": {"type": kind, "period": 16, **settings}}, {**case[1], "temperature": factors}


SINUSOIDAL = absolute(ref.adds(lambda w: ref.sinusoids(ref.AT, WIDTH, True)), type="sinusoidal")
KERPLE = scores(ref.kerple, type="kerple")
PLAIN_ROPE = rotation(ref.relative(ref.frequencies()))
SHAW = {"bias": {"type": "shaw", "left": 9}}, ref.shaw(9)
VALUES = both(rotation(ref.relative(ref.frequencies()), values=True), ({}, {"back": ref.turned}))
YARN = 0.1 * math.log(4) + 1  # amplitude of queries and of keys
DEBERTA = with_terms(3, contents(ref.deberta(8, TRAINED), type="deberta", buckets=8))

SELF_EXTEND = remapped(ref.mapped(lambda i, j: i - j if i - j < 12 else i // 4 + 9 - j // 4), type="self-extend", window=12, group=4)

CASES = {
    "none": ({}, {}),
    "learned": absolute(ref.adds(ref.table), type="learned", rows=N),
    "multiplicative": absolute(lambda w, x, ids: x * ref.table(w)[: x.shape[1]], type="multiplicative", rows=N),
    "sinusoidal": SINUSOIDAL,
    "hierarchical": absolute(ref.adds(ref.hierarchical), type="hierarchical", rows=10, alpha=0.3),
    "digits": absolute(ref.adds(ref.digits(10, 3, 1)), type="digits"),
    "digits, squeezed": absolute(ref.adds(ref.digits(4, 3, 2.5)), type="digits", base=4, factor=2.5),
    "floater": absolute(ref.adds(ref.floater(0.8, 2)), type="floater", hidden=6, spacing=0.8, substeps=2),
    "recurrent, tanh": absolute(ref.adds(ref.recurrent_rows), type="recurrent"),
    "recurrent, gru": absolute(ref.adds(ref.recurrent_rows), type="recurrent", cell="gru"),
    "convolutional": absolute(ref.convolution(WIDTH), type="convolutional"),
    "convolutional, groups": absolute(
        ref.convolution(16, gelu=True, residual=False), type="convolutional", kernel=4, groups=16, gelu=True, residual=False
    ),
    "complex_order": absolute(ref.complex_order, type="complex_order"),
    "recurrent layer, tanh": ({"recurrent_layer": {"cell": "tanh"}}, {"embed": ref.recurrent_layer}),
    "recurrent layer, gru": ({"recurrent_layer": {"cell": "gru"}}, {"embed": ref.recurrent_layer}),
    "rope": PLAIN_ROPE,
    "linear": rotation(ref.relative(ref.frequencies(factor=4)), rope_type="linear", factor=4.0),
    "dynamic": rotation(ref.dynamic(2.0), rope_type="dynamic", factor=2.0),
    "whole heads": rotation(ref.relative(ref.frequencies()), partial_rotary_factor=1),
    "half of each head": rotation(ref.partial([1.0, 0.01]), partial_rotary_factor=0.5),
    "linear, half of each head": rotation(ref.partial([0.25, 0.0025]), rope_type="linear", factor=4.0, partial_rotary_factor=0.5),
    "hope, half of each head": rotation(ref.partial([1.0, 0.0]), rope_type="hope", partial_rotary_factor=0.5),
    "yarn": rotation(ref.times(YARN**2, ref.relative(ref.yarn(4))), rope_type="yarn", factor=4.0),
    "xpos": rotation(ref.relative(ref.frequencies(), decay=ref.xpos(64, 0.5)), xpos={"scale_base": 64, "gamma": 0.5}),
    "hope": rotation(ref.relative(ref.frequencies(10.0, kept=3)), rope_type="hope", rope_theta=10.0),
    "proportional": rotation(ref.relative(ref.frequencies(10.0, kept=2)), rope_type="proportional", rope_theta=10.0, partial_rotary_factor=0.5),
    "pope": rotation(ref.pope, rope_type="pope"),
    "fope": rotation(ref.fope(10.0), rope_type="fope", rope_theta=10.0),
    "values": VALUES,
    "values and xpos": both(VALUES, rotation(ref.relative(ref.frequencies(), decay=ref.xpos(64, 0.4)), values=True, xpos={"scale_base": 64})),
    "values and yarn": both(
        rotation(ref.times(YARN**2, ref.relative(ref.yarn(4))), rope_type="yarn", factor=4.0, values=True),
        ({}, {"back": ref.turned_by(ref.yarn(4))}),
    ),
    "rerope": remapped(D.clamp(max=9), type="rerope", window=9),
    "leaky-rerope": remapped(ref.mapped(lambda i, j: i - j if i - j < 9 else 9 + (i - j - 9) / 4), type="leaky-rerope", window=9, factor=4),
    "self-extend": SELF_EXTEND,
    "dual-chunk": remapped(ref.mapped(ref.chunked), type="dual-chunk", chunk=16, limit=24),
    "string": remapped(ref.mapped(lambda i, j: i - j if i - j < 12 else i - j - 9), type="string", shift=12, window=3),
    "alibi": scores(ref.alibi, type="alibi"),
    "alibi, learned": scores(ref.alibi, type="alibi", learned=True),
    "t5": scores(ref.t5(ref.t5_buckets(D.clamp(min=0), 8, 24)), type="t5", buckets=8, last_distance=24),
    "kerple": KERPLE,
    "kerple, power": scores(ref.kerple_power, type="kerple", kernel="power"),
    "sandwich": scores(ref.sandwich(12), type="sandwich", dim=12),
    "fire": scores(ref.fire, type="fire"),
    "gate": ({"bias": {"type": "gate"}}, {"bias": ref.gate}),
    "cope": ({"bias": {"type": "cope", "rows": 7}}, {"bias": ref.cope}),
    "cope, rows of each head": ({"bias": {"type": "cope", "rows": 7, "per_head": True}}, {"bias": ref.cope}),
    "shaw": SHAW,
    "shaw, keys alone": contents(ref.shaw(9)["content"], type="shaw", left=9, values=False),
    "shaw, rows of each head": ({"bias": {"type": "shaw", "left": 9, "per_head": True}}, ref.shaw(9)),
    "transformer_xl": contents(ref.transformer_xl(0), type="transformer_xl"),
    "transformer_xl, clamped": contents(ref.transformer_xl(20), type="transformer_xl", clamp_distance=20),
    "deberta": DEBERTA,
    "deberta, version 1": with_terms(3, contents(ref.deberta(0, 24), type="deberta", buckets=0, max_position=24)),
    "tupe-a": with_terms(2, scores(ref.tupe(reset=False), type="tupe", positions=N, reset=False)),
    "tupe-a, reset": with_terms(2, scores(ref.tupe(), type="tupe", positions=N)),
    "tupe-r": with_terms(2, scores(ref.tupe(True, ref.t5_both(8, 24)), type="tupe", positions=N, relative=True, buckets=8, last_distance=24)),
    "log-n": tempered(LOG_N, "log-n", PLAIN_ROPE),
    "step-log": tempered(STEP_LOG, "step-log", PLAIN_ROPE, beta=0.3, offset=5),
    "mscale": tempered(MSCALE, "mscale", PLAIN_ROPE, beta=0.3),
    "kerple and rope": both(PLAIN_ROPE, KERPLE),
    "shaw and rope": both(PLAIN_ROPE, SHAW, ({}, {"content": ref.reads_turned(SHAW[1]["content"])})),
    "shaw and values": both(VALUES, SHAW, ({}, {"content": ref.reads_turned(SHAW[1]["content"])})),
    "deberta and rope": both(PLAIN_ROPE, DEBERTA, ({}, {"content": ref.reads_turned(DEBERTA[1]["content"])})),
    "sinusoidal, recurrent layer and alibi": both(
        SINUSOIDAL,
        scores(ref.alibi, type="alibi"),
        ({"recurrent_layer": {"cell": "gru"}}, {"embed": lambda w, x, ids: ref.recurrent_layer(w, SINUSOIDAL[1]["embed"](w, x, ids), ids)}),
    ),
    "log-n and shaw": tempered(LOG_N, "log-n", SHAW),
    "step-log, self-extend and kerple": tempered(STEP_LOG, "step-log", both(SELF_EXTEND, KERPLE), beta=0.3, offset=5),
}

TWINS = {
    "rope": PLAIN_ROPE,
    "alibi": scores(ref.alibi, type="alibi"),
    "t5": scores(ref.t5(ref.t5_both(8, 24)), type="t5", buckets=8, last_distance=24),
    "kerple": KERPLE,
    "sandwich": scores(ref.sandwich(12), type="sandwich", dim=12),
    "fire": scores(ref.fire, type="fire"),
    "transformer_xl": CASES["transformer_xl"],
    "shaw": ({"bias": {"type": "shaw", "left": 9, "right": 4}}, ref.shaw(9, 4)),
    "deberta": DEBERTA,
    "tupe-r": CASES["tupe-r"],
    "convolutional": absolute(ref.convolution(WIDTH, centred=True), type="convolutional"),
}

ALL = [(name, False, *case) for name, case in CASES.items()] + [(name, True, *case) for name, case in TWINS.items()]


@pytest.mark.parametrize(("positions", "own", "twin"), [pytest.param(p, o, t, id=n + " twin" * t) for n, t, p, o in ALL])
def test_formulas_typed_again(positions, own, twin):
    model = stirred(positions, bidirectional=twin)
    with torch.no_grad():
        w = doubles(model)
        for count in (TRAINED, N):
            ids = tokens(count)
            expected = plain(w, ids, twin, **own)
            assert (model(ids) - expected).abs().max() <= 2e-5 * expected.abs().max()
            for part in own if own.get("embed") is not ref.complex_order else ():
                without = {key: value for key, value in own.items() if key != part}
                assert (plain(w, ids, twin, **without) - expected).abs().max() > 1e-3 * expected.abs().max(), part
