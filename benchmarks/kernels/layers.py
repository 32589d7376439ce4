"""Constructors of the layers that the kernel benchmarks compare."""

from __future__ import annotations

from anole.task import Conv2d


def conv2d(size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Conv2d:
    """Return a convolution of a square image with "same" padding for odd kernels."""
    square, padding = (kernel, kernel), (kernel // 2,) * 4
    return Conv2d(1, size, size, inputs, outputs, square, (stride, stride), padding, groups=groups)
