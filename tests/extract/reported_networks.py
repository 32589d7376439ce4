"""Minimal networks for public reports of wrong results; `test_reports` has the reports, and smaller networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GreaterWithItsOperand(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x.argmax(0).to(torch.float32)
        return torch.gt(x[0], y), y, torch.gt(y, x[1]), x.sum()


class ArgmaxWithItsOperand(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(x * 20).round()
        return y.argmax(1), y


class ConvTransposeLinearArgmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(3, 8, 3, stride=2)
        self.linear = nn.Linear(8 * 17 * 17, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.conv(x).flatten(1)).argmax(1)


class ViewMutation(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        y.view(3, 2, -1).add_(2.0)
        y[1:3].mul_(3.0)
        return y, x + 1


class CopyMutation(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.to(torch.float64, copy=True)
        y.mul_(2)
        return y.float(), x + 1


class DropoutAliasMutation(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x * 1.5
        y = F.dropout(x, 0.5, False)
        y += y
        return y, x


class MaskedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        mask = tokens.eq(0).unsqueeze(1).expand(2, 6, 6)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 8**0.5
        scores.masked_fill_(mask, -1e9)
        return scores.softmax(-1) @ self.value(x)


class IndexedWrite(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        lower = torch.zeros(5, 5, dtype=x.dtype)
        at = torch.arange(5)
        lower[at, at] = x[0]
        lower[at[1:], at[:-1]] += 1
        return lower @ x.T, lower


class BufferOutsideTheState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.register_buffer("positions", torch.arange(8).expand(1, -1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(self.positions[:, : x.shape[1]]) + x


class ProjectedMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).mean(dim=(1, 2, 3))
