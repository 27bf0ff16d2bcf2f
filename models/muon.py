"""Muon (Jordan et al. 2024) for matrices with AdamW beside it for embeddings and norms."""

import torch

from common import PRODUCTS


def orthogonal(update):
    """Newton-Schulz iteration towards singular values of one; [n, rows, columns]."""
    x = update.to(PRODUCTS)
    wide = x.shape[-2] > x.shape[-1]
    x = x.mT if wide else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.mT if wide else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum that is made orthogonal; matrices of one shape go through the products together."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for shape, matrices in shapes.items():
                updates = []
                for p in matrices:
                    buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    buffer.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(buffer, group["momentum"]))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for p, update in zip(matrices, orthogonal(torch.stack(updates))):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)
