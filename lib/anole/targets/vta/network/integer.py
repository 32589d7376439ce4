"""The integer reference of a quantised network, in NumPy; the accelerator must match it bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.targets.vta.network.network import AcceleratorLayer, Data, Pool, StepRunner, Sum


class IntegerReference(StepRunner):
    """Computes layers in integer arithmetic, directly by their definition."""

    def layer(self, layer: AcceleratorLayer, data: Data, residual: Sum | None) -> Data:
        """Returns the result of a layer, NHWC."""
        w = layer.workload
        windows = windows_of(data, w.kernel, w.strides, w.padding, 0)
        # Sums of this size are exact in float64, whose products are much faster than those of integers.
        products = np.tensordot(
            windows.astype(np.float64), layer.weight.astype(np.float64), axes=((4, 5, 3), (0, 1, 2))
        )
        total = products.astype(np.int64) + layer.bias
        if residual is not None:
            total = total + residual
        shifted = total >> layer.shift if layer.shift >= 0 else total << -layer.shift
        return np.asarray(np.clip(shifted, layer.low, layer.high), np.int8)

    def pool(self, pool: Pool, data: Data) -> Data:
        """Returns the maximum over windows, NHWC."""
        least = int(np.iinfo(np.int8).min)
        return np.asarray(windows_of(data, pool.kernel, pool.strides, pool.padding, least).max(axis=(4, 5)))


def windows_of(
    data: NDArray[Any],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    border: float,
) -> NDArray[Any]:
    """Returns the windows of NHWC data, shape (n, rows, columns, channels, kernel rows, kernel columns)."""
    top, left, bottom, right = padding
    padded = np.pad(data, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=border)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(1, 2))
    return np.asarray(windows[:, :: strides[0], :: strides[1]])
