"""What the tests of the torch engine share: the embedded model at 256 tokens, a text, requests, and how far scores are apart."""

import numpy as np
import torch
import transformers

import ropewalk as rw
from ropewalk.engine import ScoreRequest
from short_model import short_model

TRAINED = 256
MODEL = short_model(TRAINED)

NOUNS = "king man house people land city son day word hand priest field river stone".split()
VERBS = "went spake came saw took gave made said built heard sent found kept brought".split()


def make_text(words):
    draw = np.random.default_rng(1)
    return "".join(
        f"And the {NOUNS[draw.integers(14)]} {VERBS[draw.integers(14)]} unto the {NOUNS[draw.integers(14)]}"
        + (".\n" if i % 3 == 0 else ", ")
        for i in range(words // 6)
    )


TEXT = make_text(6000)


def embedded_ids():
    return rw._core.ModelFiles(str(MODEL)).tokenizer.encode(TEXT)


def loaded(**options):
    return transformers.AutoModelForCausalLM.from_pretrained(MODEL, **{"dtype": torch.float32, **options})


def plan_of(method, length):
    factor = max(1.0, length / TRAINED)
    return rw.plan(MODEL).with_method(method, None if method == "none" else factor, length=length)


def requests_of(ids, length):
    """Windows that run together, and sequences that share a prefix: twice the same, then a part of it."""
    half = length // 2
    requests = [ScoreRequest(ids=ids[100 * i : 100 * i + length], positions=np.arange(1, length)) for i in range(3)]
    for first in (700, 900):
        requests.append(
            ScoreRequest(prefix=ids[:half], ids=ids[first : first + length - half], positions=np.arange(half, length))
        )
    third = length // 3
    requests.append(ScoreRequest(prefix=ids[:third], ids=ids[50 : 60 + third], positions=[third + 3, third + 9]))
    requests.append(ScoreRequest(ids=ids[:5], positions=[]))
    return requests


def fed_tokens(requests):
    """That a call reports by its ticks."""
    return sum(int(r.positions[-1]) for r in requests if len(r.positions))


def difference(a, b):
    assert [len(x[0]) for x in a.tokens] == [len(x[0]) for x in b.tokens]
    return max(float(np.abs(x[0] - y[0]).max()) for x, y in zip(a.tokens, b.tokens) if len(x[0]))
