"""Tiny networks like those of users; tests copy this file into a project as ``tiny.py``."""

from __future__ import annotations

import torch
from torch import nn


class ConvNorm(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int, **settings: int) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **settings)
        super().__init__(conv, nn.BatchNorm2d(outputs))
        norm = self[1]
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)


class Residual(nn.Module):
    """A network with two equal convolutions, a residual connection, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 16, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.first = ConvNorm(16, 16, 3)
        self.second = ConvNorm(16, 16, 3)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.stem(x)))
        x = torch.relu(self.second(torch.relu(self.first(x))) + x)
        return self.head(x.mean((2, 3)))


class Branches(nn.Module):
    """A network with concatenations whose operands are used once or twice, are the input, or concatenations."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(3, 8, 1)
        self.one = nn.Conv2d(8, 16, 1)
        self.three = nn.Conv2d(8, 24, 3, padding=1)
        self.after = nn.Conv2d(40 + 8 + 3, 20, 3, stride=2)
        self.pooled = nn.AvgPool2d(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squeezed = torch.relu(self.squeeze(x))
        fire = torch.cat([torch.relu(self.one(squeezed)), torch.relu(self.three(squeezed))], 1)
        dense = torch.cat([fire, squeezed, x], 1)
        twice = torch.cat([squeezed, squeezed], 1)
        return torch.cat([self.after(dense), self.pooled(twice), self.pooled(x)], 1)


class Joined(nn.Module):
    """A network with two concatenations as outputs; one is also an operand of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 5), nn.Linear(6, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.cat([torch.relu(self.left(x)), self.right(x)], 1)
        return both, torch.cat([torch.exp(both), x], 1)


class Varied(nn.Module):
    """A network with groups, dilation, odd channels, activations, attention and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.grouped = nn.Conv2d(6, 10, (3, 1), groups=2, stride=(2, 1))
        self.dilated = nn.Conv2d(10, 7, 3, padding=2, dilation=2)
        self.norm = nn.LayerNorm(7)
        self.query = nn.Linear(7, 7)
        self.value = nn.Linear(7, 5, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = nn.functional.silu(self.depthwise(x))
        x = torch.sigmoid(self.grouped(x))
        x = nn.functional.gelu(self.dilated(x))
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        weights = torch.softmax(self.query(tokens) @ tokens.transpose(1, 2), -1)
        return x, torch.tanh(weights @ self.value(tokens))


class Gated(nn.Module):
    """A squeeze-and-excitation block with a prime width."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Conv2d(4, 24, 1)
        self.squeeze = nn.Conv2d(24, 3, 1)
        self.excite = nn.Conv2d(3, 24, 1)
        self.narrow = nn.Conv2d(24, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = nn.functional.silu(self.widen(x))
        gate = torch.sigmoid(self.excite(nn.functional.silu(self.squeeze(wide.mean((2, 3), keepdim=True)))))
        return x + self.narrow(gate * wide)


class Summed(nn.Module):
    """A network with sums after layers of each kind; the other operand is scaled, gated, enlarged or an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Conv2d(4, 32, 1)
        self.gate = nn.Conv2d(32, 32, 1)
        self.mix = nn.Conv2d(32, 32, 3, padding=1)
        self.shrink = nn.Conv2d(32, 32, 2, stride=2)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.grouped = nn.Conv2d(32, 32, 1, groups=8)
        self.scale = nn.Parameter(torch.rand(32))
        self.head = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = torch.relu(self.widen(x))
        x = self.mix(wide) + torch.sigmoid(self.gate(wide.mean((2, 3), keepdim=True))) * wide
        x = self.depthwise(x) + self.scale[:, None, None] * nn.functional.gelu(x)
        x = self.grouped(x) + nn.functional.interpolate(self.shrink(x), scale_factor=2)
        tokens = x.flatten(2).transpose(1, 2)
        queries = self.head(tokens) + self.scale * tokens
        return queries @ tokens.transpose(1, 2) + torch.tanh(tokens @ queries.transpose(1, 2))


class Enlarged(nn.Module):
    """A network with a transposed convolution, zero padding, leaky activations and one-dimensional layers."""

    def __init__(self) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(4, 6, 4, 2, 1)
        self.around = nn.ZeroPad2d((1, 0, 2, 1))
        self.mix = nn.Conv2d(6, 5, 3, bias=False)
        self.along = nn.Conv1d(5, 7, 3, padding=1)
        self.norm = nn.BatchNorm1d(7)
        self.slope = nn.PReLU(7, init=0.3)
        self.shorten = nn.Conv1d(7, 3, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.leaky_relu(self.enlarge(x), 0.2)
        rows = nn.functional.leaky_relu(self.mix(self.around(x)), 0.1)
        return self.shorten(nn.functional.max_pool1d(self.slope(self.norm(self.along(rows.mean(2)))), 2))


class Tokens(nn.Module):
    """An embedding of integers, with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.mix = nn.Linear(8, 5)

    def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return self.mix(self.embed(ids)).masked_fill(~keep.unsqueeze(-1), -1.0)


def norm_last() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)


def norm_first() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, activation="gelu")


def twins() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 96, bias=False), nn.Tanh(), nn.Linear(96, 10))


def clipped_perceptron() -> nn.Module:
    return nn.Sequential(nn.Hardtanh(-6, 6), perceptron())


def perceptron_with_noise() -> nn.Module:
    return _with_noise(perceptron(), "2")


def residual_of_other_weights() -> nn.Module:
    torch.manual_seed(1)
    return Residual()


def residual_with_noise_in_stem() -> nn.Module:
    return _with_noise(Residual(), "stem.0")


def residual_with_noise_in_head() -> nn.Module:
    return _with_noise(Residual(), "head")


def _with_noise(network: nn.Module, layer: str) -> nn.Module:
    """Add one percent of noise to the weights of a layer."""
    weight = network.get_submodule(layer).weight.data
    weight *= 1 + 0.01 * torch.randn(weight.shape)
    return network


class Mixed(nn.Module):
    """A network with several types; its outputs include an input, a constant, and a result with its view."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.arange(6.0))
        self.table = nn.Embedding(10, 8)

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.erf(torch.sin(x)) + x
        return y.argmax(-1), y > 0, x, self.scale * 2, y, y.reshape(-1), self.table(rows)[:, 0], torch.cumsum(y, -1)


class Ordered(nn.Module):
    """A network computed by a function of TVM's runtime."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x, -1)[0]


class Nothing(nn.Module):
    """A network without kernels, which returns a view of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 12)


class Shy(nn.Module):
    """A network whose activations are scaled by almost zero, as in some untrained networks."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, 16, 3, padding=1)
        self.scale = nn.Parameter(torch.full((16,), 1e-9))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.scale * torch.relu(self.mix(x)).mean((2, 3)))


def mixed() -> nn.Module:
    torch.manual_seed(0)
    return Mixed()


class Delicate(nn.Module):
    """A network with errors above 1e-4 in single precision: adding and subtracting a large number rounds its values.

    Only single additions round, which makes the result the same on every CPU.

    Args:
        large: the number to add and subtract; with the opposite sign, the same values are rounded differently.
        shift: added to the bias of its layer.
    """

    def __init__(self, large: float, shift: float = 0.0) -> None:
        super().__init__()
        self.layer, self.large = nn.Linear(64, 1024), large
        self.layer.bias.data += shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.large - self.large


def delicate() -> nn.Module:
    return Delicate(8192.0)


def delicate_rounded_otherwise() -> nn.Module:
    return Delicate(-8192.0)


def delicate_with_noise() -> nn.Module:
    return Delicate(8192.0, shift=0.1)


class Masked(nn.Module):
    """Attention with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found, _ = self.attention(x, x, x, key_padding_mask=mask.abs() > 1.5, need_weights=False)
        return x + found


class Pooled(nn.Module):
    """An encoder of tokens with positional embeddings and mean pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 48), nn.Embedding(64, 48)
        self.dense, self.norm = nn.Linear(48, 48), nn.LayerNorm(48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.words(x % 50) + self.places(torch.arange(x.shape[1]))
        weights = torch.softmax(self.dense(found) @ found.transpose(1, 2) / 7, -1)
        return self.norm(torch.relu(self.dense(weights @ found))).mean(1)


class Attended(nn.Module):
    """Attention-like products of activations, with the tokens as rows, columns or inner dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.query(x) @ x.transpose(1, 2) / 6, -1)
        return weights @ x + torch.sigmoid(x.transpose(1, 2) @ x).sum(1, keepdim=True) / 32


class Windowed(nn.Module):
    """Attention within the parts of each token, and then among all tokens and a copy of the first one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.reshape(-1, 4, 8)
        tokens = nn.functional.scaled_dot_product_attention(parts, parts, parts).reshape(x.shape)
        tokens = tokens[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])]
        tokens = torch.cat([tokens[:, :1], tokens], 1)
        return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)


class Reduced(nn.Module):
    """Reductions along an axis of variable extent."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.mean(-1, keepdim=True), x.amax(-1, keepdim=True), x.cumsum(-1)[..., -1:]], -1)


class Listened(nn.Module):
    """Stacked and bidirectional recurrent layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(24, 40, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(80, 33, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found, (_, cells) = self.lstm(x)
        return self.gru(found)[0].softmax(-1), cells


def number() -> int:
    return 3


def broken() -> nn.Module:
    raise RuntimeError("no weights today")


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x)


class DataDependent(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


residual = Residual
ordered = Ordered
nothing = Nothing
shy = Shy
branches = Branches
joined = Joined
varied = Varied
gated = Gated
summed = Summed
enlarged = Enlarged
tokens = Tokens
unsupported = Unsupported
data_dependent = DataDependent
masked = Masked
pooled = Pooled
attended = Attended
windowed = Windowed
reduced = Reduced
listened = Listened
