"""What blocks and threads of a convolution read through its kernel's window, for n configs; needs no compiler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anole.targets.cuda.templates.tiling import window
from anole.targets.cuda.templates.usage import FLOAT_BYTES, Counts
from anole.task import Conv2d

PADDING = 8
"""Instructions that find out whether a copied value is padding."""


def windows(w: Conv2d, y: NDArray[np.int64], x: NDArray[np.int64], ry: Counts, rx: Counts) -> tuple[Counts, Counts]:
    """Returns the rows and columns of data that a block stages at once, shape (n,) each.

    Rows and columns are split four ways, shape (n, 4); `ry` and `rx` of the kernel's are multiplied with in a stage.
    """
    rows = window(y[:, 1:].prod(axis=1), w.strides[0], ry, w.dilation[0])
    return rows, window(x[:, 1:].prod(axis=1), w.strides[1], rx, w.dilation[1])


def window_reads(w: Conv2d, y: NDArray[np.int64], x: NDArray[np.int64], ry: Counts, rx: Counts) -> Counts:
    """Returns how many pixels a thread reads in a stage without loops, where windows share them; as for `windows`."""
    rows = np.minimum(window(y[:, 3], w.strides[0], ry, w.dilation[0]), y[:, 3] * ry)
    row_columns = np.minimum(window(x[:, 3], w.strides[1], rx, w.dilation[1]), x[:, 3] * rx)
    return np.asarray(y[:, 1] * rows * x[:, 1] * row_columns)


def convolution_bytes(w: Conv2d) -> int:
    """Returns the bytes of the data, the weights and the outputs."""
    data = w.batch * w.height * w.width * w.in_channels
    weights = w.kernel[0] * w.kernel[1] * w.in_channels // w.groups * w.out_channels
    return FLOAT_BYTES * (data + weights + w.batch * w.out_height * w.out_width * w.out_channels)
