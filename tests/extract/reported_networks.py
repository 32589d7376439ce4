"""Minimal networks for public reports of wrong results; `test_reports` has the numbers of the reports."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RemainderOfLargeQuotients(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.remainder(x * 1e20, torch.tensor([3.0, 0.7, -3.0, float("inf"), -float("inf"), 0.1, 1.0, 7.0]))


class Fmod(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fmod(x * 10, 2.3)


class Copysign(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.copysign(x, -0.0), torch.copysign(x, torch.tensor(-2.0))


class LeftShift(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.bitwise_left_shift(x, 33), torch.bitwise_right_shift(x, 1)


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


class LargeMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x).mean()


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


class Unbind(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.unbind(x, dim=0)


class MatrixProduct(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(x, x.t())


class ByteExtremes(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.amin(1), x.amax(0)


class ProjectedMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).mean(dim=(1, 2, 3))


class CumulativeSums(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.cumsum(-1), x.cumprod(0)


class ReducedCondition(nn.Module):
    """A sign of values near 0, after an activation that is exact at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sign(F.gelu(torch.clamp(x, min=0)))
