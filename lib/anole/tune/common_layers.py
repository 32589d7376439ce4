"""Layers that are common in networks, for calibrating a target."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from anole.task import BatchMatmul, Conv2d, Dense, Workload

_MAX_FLOP = 1_300_000_000
"""Larger layers are omitted: they take longer to measure, and the same configs are best for them."""

_INVERSE_GOLDEN_RATIO = 0.6180339887498949
"""Multiples of the inverse golden ratio modulo 1 are a low-discrepancy sequence."""

_SIZES = (7, 14, 28, 56)
_CHANNELS = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024)


def common_layers() -> list[Workload]:
    """Return about 200 layers, in an order whose prefixes contain layers of all kinds."""
    kinds: list[list[Workload]] = [
        _convolutions(64, _SIZES, 1, 1),
        _convolutions(8, _SIZES[1:], 1, 2),
        _convolutions(40, _SIZES, 3, 1),
        _convolutions(18, _SIZES[1:], 3, 2),
        _convolutions(6, _SIZES[:3], 5, 1),
        [_convolution(224, 3, outputs, kernel, 2) for outputs, kernel in _spread(6, _CHANNELS[:5], (3, 5, 7))],
        [_convolution(h, n, n, k, s, n) for h, n, k, s in _spread(40, (*_SIZES, 112), _CHANNELS[:15], (3, 5), (1, 2))],
        [Dense(n, k, m) for n, k, m in _spread(24, (1, 4, 16, 64, 128, 197), _CHANNELS[10:], (256, 384, 1000, 3072))],
        [BatchMatmul(b, n, k, m) for b, n, k, m in _spread(10, (4, 8, 12), (64, 128, 197), (32, 64, 197), (64, 128))],
    ]
    positioned = [((index + 0.5) / len(kind), layer) for kind in kinds for index, layer in enumerate(kind)]
    ordered = (layer for _, layer in sorted(positioned, key=lambda pair: pair[0]))
    return [layer for layer in dict.fromkeys(ordered) if layer.flop <= _MAX_FLOP]


def _convolutions(n: int, sizes: Sequence[int], kernel: int, stride: int) -> list[Workload]:
    combinations = _spread(n, sizes, _CHANNELS, _CHANNELS)
    return [_convolution(size, inputs, outputs, kernel, stride) for size, inputs, outputs in combinations]


def _convolution(size: int, inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1) -> Conv2d:
    square, padding = (kernel, kernel), (kernel // 2,) * 4
    return Conv2d(1, size, size, inputs, outputs, square, (stride, stride), padding, groups=groups)


def _spread(n: int, *axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return n combinations of values, evenly spread over all combinations."""
    combinations = list(product(*axes))
    return [combinations[int((index + 0.5) * _INVERSE_GOLDEN_RATIO % 1 * len(combinations))] for index in range(n)]
