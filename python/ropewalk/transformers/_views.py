"""The views of a position map in PyTorch: how each rotates queries and keys, and which pairs it scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ropewalk.transformers._pass import Attention, Pass


def _mapped(formula: dict, positions: torch.Tensor) -> torch.Tensor:
    """Without the formula's bound at 0, which only pairs of other views reach, and positions below 0."""
    if formula["modulus"] is not None:
        positions = positions % formula["modulus"]
    positions = formula["slope"] * (formula["multiplier"] * positions // formula["divisor"]) + formula["offset"]
    return positions if formula["limit"] is None else positions.clamp_max(formula["limit"])


def _cos_sin(info: Attention, positions: torch.Tensor, divisor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [batch or 1, 1, tokens, pairs], times the amplitude."""
    if torch.compiler.is_compiling():  # how many rows a table needs is in the positions, which are not known yet
        angles = positions[:, None, :, None] * (info.inv_freq.to(positions.device) / divisor)
        return (angles.cos() * info.amplitude).float(), (angles.sin() * info.amplitude).float()
    steps = positions.abs()  # what is below 0 rotates by as much, the other way
    rows = int(steps.max()) + 1
    key = (info.inv_freq.numpy().tobytes(), info.amplitude, divisor, positions.device)
    table = info.shared.tables.get(key)
    if table is None or table.shape[0] < rows:
        count = max(256, 1 << (rows - 1).bit_length())
        if divisor == 1:
            values = np.array(info.rotation.table(count).rows, dtype=np.float32)
        else:
            angles = np.arange(count, dtype=np.float64)[:, None] * info.inv_freq.numpy() / divisor
            values = np.stack((np.cos(angles), np.sin(angles)), axis=1) * info.amplitude
        with torch.inference_mode(False):  # it is kept, and gradients may go through it later
            table = torch.from_numpy(values.astype(np.float32)).to(positions.device)
        info.shared.tables[key] = table
    chosen = table[steps]
    cos, sin = chosen[:, None, :, 0], chosen[:, None, :, 1]
    return cos, torch.where((positions < 0)[:, None, :, None], -sin, sin)


def view_cos_sin(info: Attention, view: int, side: int, now: Pass) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the queries (side 0) or keys (1) of a view of the map; without one, of the positions as they are."""
    key = info.alike, view, side
    if key not in now.rows:
        chosen = None if info.map is None else info.map.views[view]
        now.rows[key] = mapped_cos_sin(info, chosen, side, (now.at, now.to)[side])
    return now.rows[key]


def mapped_cos_sin(info: Attention, view: Any, side: int, positions: torch.Tensor):
    if view is None:
        return _cos_sin(info, positions, 1)
    shares = [pair[side] for pair in view.shares] or [(view.query, view.key)[side]]
    each = [_cos_sin(info, _mapped(formula, positions), view.frequency_divisor) for formula in shares]
    if len(each) == 1:
        return each[0]
    pairs = each[0][0].shape[-1]
    share = [len(shares) * p // pairs for p in range(pairs)]
    return tuple(torch.stack([each[s][i][..., p] for p, s in enumerate(share)], dim=-1) for i in (0, 1))


def views_of(position_map: Any, s: dict[str, int], queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """The view that scores each pair, [batch or 1, tokens, keys]; -1: masked. Keys ahead of their query, which the
    causal mask hides, get the first."""
    q, k = queries[:, :, None], keys[:, None, :]
    if position_map.name == "dual-chunk":
        return (q // s["chunk"] - k // s["chunk"]).clamp(0, 2)
    if position_map.name == "lampe":
        if len(position_map.views) == 1:
            return (q - k).clamp(0, 0)
        far = max(s["head"], s["length"] - min(s["tail"], s["length"]))
        return (q - k >= s["head"]).long() + (q - k >= far).long()
    far = (q - k >= s["shift" if position_map.name == "string" else "window"]).long()
    if position_map.name == "sinks":
        return torch.where(k < s["sinks"], 1, -far)
    return far
