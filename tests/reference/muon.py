# SPDX-License-Identifier: Apache-2.0
"""Muon: the momentum of a matrix with all its singular values brought near one, so that every
direction of it moves at the same rate. Of stacks, each matrix by itself."""
import torch


def even_out(x):
    """Five steps of an odd polynomial that lifts small singular values of [n, rows, cols]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2) if tall else x
    x = x / (x.flatten(1).norm(dim=1).reshape(-1, 1, 1) + 1e-12)
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, weight_decay, momentum=0.95):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            alike = {}
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                alike.setdefault(tuple(p.shape[-2:]), []).append(p)
            for (rows, cols), params in alike.items():
                moved = [p.grad.lerp(self.state[p]["momentum"], group["momentum"]) for p in params]
                update = even_out(torch.cat([m.reshape(-1, rows, cols) for m in moved]))
                # As large, by element, as what Adam would do.
                update *= 0.2 * max(rows, cols) ** 0.5
                parts = update.split([p.numel() // (rows * cols) for p in params])
                for p, part in zip(params, parts):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(part.reshape(p.shape), alpha=-group["lr"])
