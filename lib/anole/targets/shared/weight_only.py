"""Weight-only quantization of dense layers: 4- or 8-bit integers in packed 32-bit words, with scales and zero points.

The weight of such a workload is a matrix of packed 32-bit words with one column per output feature. A block of rows
holds the packed integers, the first input features in the lowest bits; then a row of float32 scales; then, depending on
the scheme, a row of zero points, which are integers stored as float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from anole.targets.base import Target
from anole.task import Bits, Dense, WeightScheme, weight_scheme

_Floats = NDArray[np.float32]

_BITS: tuple[Bits, ...] = (4, 8)


def packed_rows_per_block(scheme: WeightScheme) -> int:
    """Return the number of rows of packed integers in a block."""
    return scheme.block // scheme.numbers


def rows_per_block(scheme: WeightScheme) -> int:
    """Return the number of rows of a block."""
    return packed_rows_per_block(scheme) + 1 + scheme.zeros


@dataclass(frozen=True, eq=False)
class StoredWeights:
    """Weights of shape (in, out) as integers minus their zero point, with one scale per block of rows.

    Attributes:
        centered: the integers minus their zero point, shape (in, out).
        scales: shape (blocks, out).
    """

    centered: NDArray[np.int16]
    scales: _Floats

    @classmethod
    def quantize(cls, weight: NDArray[Any], scheme: WeightScheme) -> Self:
        """Quantize weights by a scheme without zero points; the weight of largest magnitude in each block is exact."""
        blocks = weight.reshape(-1, scheme.block, weight.shape[-1])
        largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1, keepdims=True), 1)
        half = 1 << scheme.bits - 1
        scales = (largest / -half).astype(np.float32)
        integers = np.rint(blocks / np.where(scales == 0, 1, scales)).clip(-half, half - 1)
        return cls(integers.astype(np.int16).reshape(weight.shape), scales[:, 0])

    @property
    def scheme(self) -> WeightScheme | None:
        """The scheme with the smallest number of bits that represents the weights exactly, or None."""
        inputs, blocks = len(self.centered), len(self.scales)
        if inputs % blocks:
            return None
        integers = self.centered.reshape(blocks, -1, self.centered.shape[-1])
        lowest, highest = integers.min(1), integers.max(1)
        for bits in _BITS:
            half = 1 << bits - 1
            has_zero_points = bool(lowest.min() < -half or highest.max() >= half)
            scheme = WeightScheme(bits, inputs // blocks, has_zero_points)
            if (highest - lowest).max() < 2 * half and scheme.divides(inputs):
                return scheme
        return None

    def values(self) -> _Floats:
        """Return the weights in float32."""
        return self.centered.astype(np.float32) * np.repeat(self.scales, len(self.centered) // len(self.scales), 0)

    def words(self, scheme: WeightScheme) -> NDArray[np.int32]:
        """Pack the weights into a scheme's matrix of 32-bit words."""
        blocks = self.centered.reshape(len(self.scales), scheme.block, -1)
        middle = np.full(self.scales.shape, 1 << scheme.bits - 1, np.float32)
        zero_points = -blocks.min(1).astype(np.float32) if scheme.zeros else middle
        integers = (blocks + zero_points[:, None]).astype(np.uint32)
        integers = integers.reshape(len(blocks), -1, scheme.numbers, blocks.shape[-1])
        words = np.bitwise_or.reduce(integers << _shifts(scheme), axis=2).view(np.int32)
        rows = [words, self.scales[:, None].view(np.int32), zero_points[:, None].view(np.int32)[:, : scheme.zeros]]
        return np.concatenate(rows, 1).reshape(-1, blocks.shape[-1])

    @classmethod
    def read(cls, words: NDArray[np.int32], scheme: WeightScheme) -> Self:
        """Unpack the weights from a scheme's matrix of 32-bit words."""
        n_rows, columns = packed_rows_per_block(scheme), words.shape[-1]
        blocks = words.reshape(-1, rows_per_block(scheme), columns)
        mask = np.uint32((1 << scheme.bits) - 1)
        integers = blocks[:, :n_rows, None].view(np.uint32) >> _shifts(scheme) & mask
        zero_points = blocks[:, n_rows + 1 :].view(np.float32) if scheme.zeros else np.float32(1 << scheme.bits - 1)
        centered = integers.reshape(len(blocks), scheme.block, columns) - zero_points
        return cls(centered.astype(np.int16).reshape(-1, columns), blocks[:, n_rows].view(np.float32))


def _shifts(scheme: WeightScheme) -> NDArray[np.uint32]:
    """Return the bit offset of each integer in a packed word, shape (integers, 1)."""
    return (scheme.bits * np.arange(scheme.numbers, dtype=np.uint32))[:, None]


def quantize_for_target(target: Target, rows: int, weight: NDArray[Any]) -> NDArray[Any]:
    """Return a dense layer's weight, of shape (in, out), as quantized by the target's scheme."""
    scheme = weight_scheme(target.in_target_precision(Dense(rows, *weight.shape)))
    return weight if scheme is None else StoredWeights.quantize(weight, scheme).values()
