"""Losses of every token against the library's own decoder."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import tiny_models
import torch
import transformers
from tiny_models import IDS, logits

import ropewalk.transformers as rt

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
MAPS = [
    "rerope:12",
    "self-extend:window=12,group=4",
    "dual-chunk:chunk=12,limit=20",
    "leaky-rerope:window=12,factor=4",
    "log-n:8",
]
PROGRAM = os.environ.get("ROPEWALK_PROGRAM")


@pytest.mark.skipif(not PROGRAM, reason="ROPEWALK_PROGRAM is not set")
@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2", "phi", "smollm3", "gpt_neox"])
@pytest.mark.parametrize("method", ["yarn", "ntk", *MAPS, "rerope:12+log-n:40", "yarn+rerope:12"])
def test_losses_equal_the_native_decoder(name, method, tmp_path):
    settings = {"gemma2": {"sliding_window": 512}}.get(name, {})
    model = tiny_models.build(name, max_position_embeddings=32, **settings)
    model.set_attn_implementation("eager")  # SDPA has no soft cap
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "ids.json").write_text(json.dumps(IDS[0].tolist()))
    with rt.applied(model, method, 2):
        losses = -logits(model)[0].double().log_softmax(-1)[torch.arange(59), IDS[0, 1:]]
    run = subprocess.run(
        [
            PROGRAM,
            "perplexity",
            tmp_path / "model",
            "--ids",
            tmp_path / "ids.json",
            "--length",
            "60",
            "--method",
            method,
            "--factor",
            "2",
            "--protocol",
            "windows",
            "--no-bos",
            "--per-token",
            tmp_path / "losses.jsonl",
            "--threads",
            "1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in pathlib.Path(tmp_path / "losses.jsonl").read_text().splitlines()]
    theirs = {row["position"]: row["nll"] for row in rows if "nll" in row}
    assert len(theirs) == 59
    ours = np.array([losses[position - 1] for position in sorted(theirs)])
    assert np.abs(ours - np.array([theirs[p] for p in sorted(theirs)])).max() <= 1e-4
