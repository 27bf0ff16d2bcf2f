"""Draws of CPython's random and of numpy's legacy np.random, for tests/eval/python_random_test.cc; and words of wonderwords.

    python_random_make.py > python_random.json      needs numpy and wonderwords==3.0.1
"""

import json
import random
import string
import sys
import uuid

import numpy as np
import wonderwords

FAR = 10**6
SAMPLES = [(1, 1), (5, 5), (21, 5), (22, 5), (40, 4), (84, 6), (85, 6), (86, 6), (277, 22), (278, 22), (8166, 60),
           (100000, 70), (2**31, 30), (6, 0)]


def draws(rng):
    numbers = list(range(50))
    rng.shuffle(numbers)
    return {
        "bits": [rng.getrandbits(k) for k in (1, 5, 17, 31, 32)],
        "random": [rng.random() for _ in range(3)],
        "int": [rng.randint(1000000, 9999999) for _ in range(3)],
        "below": [rng.randrange(n) for n in (1, 2, 16, 17, 6171620, 2**32 - 1)],
        "letters": ["".join(rng.choices(string.ascii_uppercase, k=5)), "".join(rng.choices(string.ascii_lowercase, k=6))],
        "uuid": [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(2)],
        "samples": [rng.sample(range(n), k) for n, k in SAMPLES],
        "choice": rng.choice("abcdefg"),
        "shuffled": numbers,
    }


def python(seed):
    rng = random.Random(seed)
    near = draws(rng)
    for _ in range(FAR):
        rng.getrandbits(32)
    return {"seed": seed, "near": near, "far": draws(rng)}


def numpy(seed):
    np.random.seed(seed)
    ranges = [(10000, 99999), (0, 1), (0, 2), (-5, 4), (0, 2**31), (0, 2**32), (10000, 99999)]
    near = [int(np.random.randint(*r)) for r in ranges]
    for _ in range(FAR):
        np.random.randint(10000, 99999)
    return {"seed": seed, "near": near, "far": [int(np.random.randint(*r)) for r in ranges]}


def words():
    nouns, adjectives, verbs = (wonderwords.random_word._get_words_from_text_file(f"{name}list.txt")
                                for name in ("noun", "adjective", "verb"))
    pairs = sorted({f"{a}-{n}" for a in adjectives for n in nouns})
    every = sorted({*nouns, *adjectives, *verbs})
    at = sorted({0, 1, len(pairs) - 1, *random.Random(3).sample(range(len(pairs)), 40),
                 *(i + d for i, p in enumerate(pairs) if p in ("high-pitched-ATM", "old-fashioned-zucchini") for d in (-1, 0, 1))})
    return {"pairs": len(pairs), "at": {str(i): pairs[i] for i in at}, "words": len(every), "first": every[:5],
            "last": every[-5:]}


json.dump({"sample_arguments": SAMPLES, "python": [python(s) for s in (0, 1, 42, 2**32 - 1, 2**32 + 5, 2**63 + 1)],
           "numpy": [numpy(s) for s in (0, 42, 2**32 - 1)], "words": words()}, sys.stdout, separators=(",", ":"))
sys.stdout.write("\n")
