"""Tunes a model with RoPE at a longer length than it was trained at, with another rotation or its own, and measures the loss of
held-out text against steps. Every batch depends on the seed and the step alone, and the rate is constant after its warm-up: a run
that was ended goes on with the same bits, and a longer one goes on from a shorter one."""

from __future__ import annotations

import json
import math
import pathlib
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import ropewalk as rw
from ropewalk._core import Error
from ropewalk.zoo._config import read_config
from ropewalk.zoo._model import Model, read_tensors
from ropewalk.zoo._run import Run, matrices_and_others
from ropewalk.zoo._train import _ROOT, _batches, _loss, _sources, _tokenizer_files

WINDOWS, SCORED = 4, 512  # of held-out text: how many, and of each the last tokens, whose loss is measured
_WARM_UP = 10  # steps
_KEPT = 20  # steps between two states of a run that can go on
_LLAMA = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "mlp_bias": False}


def _start(folder: pathlib.Path) -> dict[str, Any]:
    """The config of a folder of this family, or of a LLaMA with plain RoPE, as one of this family."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") == "llama":
        for key, value in _LLAMA.items():
            if config.pop(key, value) != value:
                raise Error(f"config.{key}: expected {value!r}")
        for key in ("model_type", "torch_dtype", "dtype"):  # tensors are read as float32
            config.pop(key, None)
        config["positions"] = {"rotation": {"rope_type": "default", "rope_theta": config.pop("rope_theta", 10000.0)}}
    config = read_config(config)
    if set(config["positions"]) != {"rotation"} or config["bidirectional"]:
        raise Error(f"{folder}: expected a causal model whose positions are a rotation alone, got {config['positions']}")
    return config


def rotation_of(name: str, config: dict[str, Any], tokens: int) -> dict[str, Any]:
    """The rotation that tunes a model of this `config` at `tokens`: none (its own), linear, ntk, yarn (by the factor of the
    lengths), base:NUMBER, base:bound (ropewalk.base_bounds: equal tokens score above random ones up to there)."""
    own, trained = config["positions"]["rotation"], config["max_position_embeddings"]
    kept = {"rope_theta": own.get("rope_theta", 10000.0), "factor": tokens / trained}
    if name == "none":
        return own
    if name in ("linear", "ntk"):
        return {"rope_type": name, **kept}
    if name == "yarn":
        return {"rope_type": name, **kept, "original_max_position_embeddings": trained}
    kind, _, base = name.partition(":")
    if kind == "base" and base == "bound":
        return {"rope_type": "default", "rope_theta": float(math.ceil(rw.base_bounds(config["head_dim"], tokens)[-1][1]))}
    try:
        if kind == "base" and float(base) > 1:
            return {"rope_type": "default", "rope_theta": float(base)}
    except ValueError:
        pass
    raise Error(f"rotation: expected none, linear, ntk, yarn, base:NUMBER above 1, base:bound or a dictionary, got {name!r}")


def measured(step: int) -> bool:
    """Whether the loss is measured after so many steps: 0, 5, 10, 20, 40, 80, ..."""
    times = step // 5
    return step % 5 == 0 and times & (times - 1) == 0


@dataclass(frozen=True)
class HeldOut:
    """Windows of a text, evenly spaced, whose last `scored` tokens are predicted from a context of any length."""

    ids: Tensor
    bos: int | None
    windows: int
    scored: int

    @torch.no_grad()
    def loss(self, model: Model, tokens: int) -> float:
        """Mean loss in nats of the scored tokens, the last of `tokens` of context; the same ones at every length."""
        front = [] if self.bos is None else [self.bos]
        device, found = next(model.parameters()).device, []
        for n in range(1, self.windows + 1):
            end = n * len(self.ids) // self.windows
            given = self.ids[end - 1 - tokens + len(front) : end - 1].to(device)
            given = torch.cat((given.new_tensor(front), given))[None]
            logits = model(given)[0, -self.scored :]
            found.append(functional.cross_entropy(logits, self.ids[end - self.scored : end].to(device)).item())
        return sum(found) / len(found)


def _held_out(
    root: pathlib.Path, folder: pathlib.Path, config: dict[str, Any], tokens: int, windows: int, scored: int
) -> HeldOut:
    """The held-out books in tokens, which have to be those of training text."""
    from tokenizers import Tokenizer

    text = _sources(root)[0].read_text()
    own, theirs = (json.loads((at / "tokenizer.json").read_text(encoding="utf-8")) for at in (folder, root / "models"))
    if own != theirs:
        raise Error(f"{folder}/tokenizer.json: expected the tokenizer of {root}/models, in whose tokens the text is")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)
    if not 0 < scored <= config["max_position_embeddings"]:
        raise Error(f"scored: expected 1 to the trained length {config['max_position_embeddings']}, got {scored}")
    if tokens >= len(ids) // windows:
        raise Error(f"tokens: expected less than the {len(ids) // windows} of each of {windows} windows, got {tokens}")
    return HeldOut(ids, config["bos_token_id"], windows, scored)


def _optimizer(model: Model, rate: float) -> torch.optim.Optimizer:
    decayed, others = matrices_and_others(model)
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


def _measure(run: Run, held_out: HeldOut, lengths: list[int]) -> None:
    """Adds a line: step, processor time of the steps, training loss since the last line, loss at each length."""
    seen = run.held["seen"]
    training = sum(seen) / len(seen) if seen else math.nan
    found = [round(held_out.loss(run.model, n), 4) for n in lengths]
    run.log.append([run.done, round(run.held["seconds"], 1), round(training, 4), *found])
    run.held["seen"] = []
    losses = ", ".join(f"{loss:.4f} at {n}" for n, loss in zip(lengths, found))
    print(f"step {run.done}: held-out loss {losses} tokens", file=sys.stderr, flush=True)


def tune(
    rotation: str | dict[str, Any],
    out: str | pathlib.Path,
    *,
    start: str | pathlib.Path | None = None,
    tokens: int = 4096,
    steps: int = 80,
    rows: int = 1,
    seed: int = 1,
    rate: float = 1e-3,
    device: str = "cpu",
    source: str | pathlib.Path = _ROOT,
    windows: int = WINDOWS,
    scored: int = SCORED,
) -> Model:
    """Tunes the model of the folder `start` (default: the embedded one of `source`) at `tokens` with a rotation, into the folder
    `out`: config.json, model.safetensors, the tokenizer, and tuning.csv with the loss of held-out text against steps.

    rotation: a name of `rotation_of`, or a rope dictionary. Losses are in nats and of the same tokens, the last `scored` of each
    of `windows` windows, behind a context of `tokens` and of the length that the model was trained at. Steps are of `rows` rows
    of training text, AdamW at a constant rate after 10 steps of warm-up. With more `steps`, the run in `out` goes on.
    """
    root, out = pathlib.Path(source), pathlib.Path(out)
    folder = root / "models" if start is None else pathlib.Path(start)
    config = _start(folder)
    trained = config["max_position_embeddings"]
    if tokens <= trained:
        raise Error(f"tokens: expected more than the {trained} that the model was trained at, got {tokens}")
    chosen = rotation_of(rotation, config, tokens) if isinstance(rotation, str) else rotation
    model = Model({**config, "max_position_embeddings": tokens, "positions": {"rotation": chosen}})
    read_tensors(model, folder)
    held = _held_out(root, folder, config, tokens, windows, scored)
    out.mkdir(parents=True, exist_ok=True)
    recipe = {"config": model.config, "rows": rows, "seed": seed, "rate": rate, "windows": windows, "scored": scored}
    run = Run(model.to(device), [_optimizer(model, rate)], recipe, out, seconds=0.0, seen=[])
    batches, make_mix = _batches(root, seed)
    lengths = [trained, tokens]
    if not run.log:
        _measure(run, held, lengths)
    while run.done < steps:
        before = time.process_time()
        batch = batches.batch(run.done, rows, tokens, make_mix((1.0, 0.0, 0.0, 0.0)))
        loss, _ = _loss(model, batch, seed, run.done, device)
        run.descend(loss, min(1.0, (run.done + 1) / _WARM_UP))
        run.held["seen"].append(loss.item())
        run.held["seconds"] += time.process_time() - before
        due = measured(run.done)
        if due:
            _measure(run, held, lengths)
        if due or run.done % _KEPT == 0 or run.done == steps:
            run.keep()
    run.write_log("tuning.csv", ["step", "cpu_seconds", "training_loss", *(f"loss_{n}" for n in lengths)])
    _tokenizer_files(folder, out, tokens, twin=False)
    model.save_pretrained(out)
    return model
