"""Trains a model of this family on the data of the embedded model (models/README.md): King James Bible, and passkeys in it.
Every batch depends on the seed and the step alone, so a run that was ended goes on with the same bits."""

from __future__ import annotations

import functools
import importlib
import json
import pathlib
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ropewalk._core import Error
from ropewalk.zoo._model import Model, read_tensors
from ropewalk.zoo._run import Run, matrices_and_others

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_MASK = "<|mask|>"
_SHORT, _WORDS = 64, 1024  # tokens of a short row; of the vocabulary
_REPEATS = 4  # a kind of row, behind those of models/rows.py
_ABOVE_ZERO = (".bias.c", ".bias.threshold")  # of FIRE


def _sources(root: pathlib.Path) -> tuple[Any, Any]:
    """The modules common and rows of the repository's models/, which prepare its text and prompts."""
    models = root / "models"
    if not (models / "rows.py").is_file():
        raise Error(f"source: {root} is no checkout of Ropewalk: models/rows.py and its text are needed for training")
    sys.path.insert(0, str(models))
    try:
        return importlib.import_module("common"), importlib.import_module("rows")
    finally:
        sys.path.remove(str(models))


@functools.lru_cache(maxsize=2)  # the text is long
def _batches(root: pathlib.Path, seed: int) -> tuple[Any, Any]:
    """The rows of a seed, and what makes a mix of them."""
    from tokenizers import Tokenizer

    common, data = _sources(root)
    texts = [common.read_text(verses) for verses in common.TRAIN_RANGES]
    return data.Rows(Tokenizer.from_file(str(root / "models" / "tokenizer.json")), texts, seed), data.Mix


def _tokenizer_files(models: pathlib.Path, out: pathlib.Path, length: int, twin: bool) -> int:
    """Writes the tokenizer's files, with a mask token for the twin; returns the size of the vocabulary."""
    tokens = json.loads((models / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((models / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["model_max_length"] = length
    size = len(tokens["model"]["vocab"])
    if twin:
        tokens["added_tokens"].append({**tokens["added_tokens"][0], "id": size, "content": _MASK})
        settings["mask_token"] = _MASK
    (out / "tokenizer.json").write_text(json.dumps(tokens, ensure_ascii=False), encoding="utf-8")
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return size + twin


def _masked(ids: Tensor, mask: int, seed: int, step: int, share: float = 0.15) -> tuple[Tensor, Tensor]:
    """BERT's masking: of a share of the tokens four fifths become the mask, a tenth any token; and which those are."""
    draw = torch.Generator().manual_seed(seed * 1_000_003 + step)
    chosen, way = torch.rand(ids.shape, generator=draw) < share, torch.rand(ids.shape, generator=draw)
    others = torch.randint(1, mask, ids.shape, generator=draw)
    return torch.where(chosen & (way < 0.8), mask, torch.where(chosen & (way >= 0.9), others, ids)), chosen


def _loss(
    model: Model, batch: tuple[Tensor, ...], seed: int, step: int, device: str, masked: float = 0.15
) -> tuple[Tensor, Tensor]:
    """The loss that is descended, and that of text alone."""
    ids, weights, kinds = batch
    if model.config["bidirectional"]:
        targets = ids[:, :-1]
        given, chosen = _masked(targets, model.config["mask_token_id"], seed, step, masked)
        weights = chosen.float()
    else:
        given, targets = ids[:, :-1], ids[:, 1:]
    given, targets, weights = given.to(device), targets.to(device), weights.to(device)
    nll = functional.cross_entropy(model(given).flatten(0, 1), targets.flatten(), reduction="none").view(weights.shape)
    text = (kinds == 0).to(device)[:, None] * (weights > 0)
    return (nll * weights).sum() / weights.sum(), (nll * text).sum().detach() / text.sum().clamp(min=1)


def _batch(data: Any, mix: Any, step: int, short: int, rows: int, length: int, twin: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(ids, weights, kinds) of a step. The first `short` steps have twice as many rows of 64 tokens, of which every third one
    repeats a segment: models learn to look back there, and in so few steps at no greater length."""
    mixed = mix((1.0, 0.0, 0.0, 0.0) if twin else (0.5, 0.5, 0.0, 0.0))
    if step >= short:
        return data.batch(step, rows, length, mixed)
    tokens = min(_SHORT, length)
    ids, weights, kinds = data.batch(step, 2 * rows, tokens, mixed)
    if twin:
        return ids, weights, kinds
    draw = np.random.default_rng([data.seed, step, 1])
    for row in range(0, 2 * rows, 3):
        n = int(draw.integers(8, tokens // 2 + 1))
        segment = data.text(draw, n) if draw.random() < 0.5 else draw.integers(1, _WORDS, n).tolist()
        ids[row] = torch.tensor((segment * (tokens // n + 2))[: tokens + 1])
        weights[row], kinds[row] = 1, _REPEATS
    return ids, weights, kinds


def _optimizers(model: Model, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of layers, AdamW for all else."""
    matrices, others = matrices_and_others(model)
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.1),
        torch.optim.AdamW(others, lr=0.15 * rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _share(step: int, steps: int) -> float:
    """Of the learning rate: 20 steps of warm-up; over the last 40 % it falls in a line."""
    return min(1.0, (step + 1) / 20, max(0.02, (steps - step) / (0.4 * steps)))


class _Progress:
    """tqdm's bar over steps where that is installed, else a line every 50 steps."""

    def __init__(self, done: int, steps: int) -> None:
        self._steps = steps
        try:
            from tqdm.auto import tqdm

            self._bar = tqdm(initial=done, total=steps, unit="step", mininterval=1, dynamic_ncols=True)
        except ImportError:
            self._bar = None

    def step(self, done: int, loss: float, text: float) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.3f}, text {text:.3f}", refresh=False)
            self._bar.update()
        elif done % 50 == 0 or done == self._steps:
            print(f"step {done} of {self._steps}: loss {loss:.3f}, text {text:.3f}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def train(
    positions: dict[str, Any],
    out: str | pathlib.Path,
    *,
    bidirectional: bool = False,
    steps: int = 900,
    rows: int = 16,
    seed: int = 1,
    rate: float = 0.02,
    device: str = "cpu",
    source: str | pathlib.Path = _ROOT,
    stop: int | None = None,
    start: str | pathlib.Path | None = None,
    masked: float = 0.15,
    **sizes: Any,
) -> Model:
    """Trains a model with these `positions` into the folder `out`: config.json, model.safetensors, the tokenizer and loss.csv.

    A run that was ended goes on from `out`/state.pt, which is written every 50 steps. The twin (`bidirectional`) learns masked
    tokens of text. rows: of a batch, each as long as the trained length (shorter in the first two thirds). source: a checkout of
    Ropewalk, whose text is read. stop: end after that many steps, to go on later. start: a folder of this family, whose tensors
    are tuned, at the trained length in all steps; they have to be those of `positions` and `sizes`. masked: share of the tokens
    that the twin has to predict. sizes: keys of config.json, such as max_position_embeddings.
    """
    root, out = pathlib.Path(source), pathlib.Path(out)
    batches, make_mix = _batches(root, seed)
    out.mkdir(parents=True, exist_ok=True)
    length = sizes.get("max_position_embeddings", 256)
    vocab = _tokenizer_files(root / "models", out, length, bidirectional)
    tied = positions.get("absolute", {}).get("type") != "complex_order"
    own = {"bidirectional": bidirectional, "vocab_size": vocab, "bos_token_id": 0, "tie_word_embeddings": tied}
    own |= {"mask_token_id": vocab - 1} if bidirectional else {}
    torch.manual_seed(seed)
    model = Model({**own, **sizes, "positions": positions}).to(device)
    recipe = {"config": model.config, "steps": steps, "rows": rows, "seed": seed, "rate": rate}
    short = 2 * steps // 3
    if start is not None:
        read_tensors(model, start)
        recipe, short = {**recipe, "start": str(pathlib.Path(start).resolve())}, 0
    if masked != 0.15:
        recipe = {**recipe, "masked": masked}
    run = Run(model, _optimizers(model, rate), recipe, out)
    last = min(steps, steps if stop is None else stop)
    progress = _Progress(run.done, steps)
    for step in range(run.done, last):
        batch = _batch(batches, make_mix, step, short, rows, length, bidirectional)
        loss, text = _loss(model, batch, seed, step, device, masked)
        run.descend(loss, _share(step, steps))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(_ABOVE_ZERO):
                    parameter.clamp_(min=1e-3)
        run.log.append([run.done, f"{rate * _share(step, steps):.3e}", f"{loss.item():.4f}", f"{text.item():.4f}"])
        progress.step(run.done, loss.item(), text.item())
        if run.done % 50 == 0 or run.done == last:
            run.keep()
    progress.close()
    run.write_log("loss.csv", ["step", "learning_rate", "loss", "text_loss"])
    model.save_pretrained(out)
    return model
