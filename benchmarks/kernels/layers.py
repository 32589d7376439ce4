"""Layers of known networks, whose kernels are compared."""

from __future__ import annotations

from anole.task import Conv2d, Dense, Workload


def conv2d(size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Conv2d:
    """Returns a convolution of a square picture, padded so that an odd kernel has an output for every stride."""
    square, padding = (kernel, kernel), (kernel // 2,) * 4
    return Conv2d(1, size, size, inputs, outputs, square, (stride, stride), padding, groups=groups)


RESNET18: tuple[Workload, ...] = (
    *(conv2d(224, 3, 64, 7, 2), conv2d(56, 64, 64)),
    *(conv2d(56, 64, 128, 3, 2), conv2d(56, 64, 128, 1, 2), conv2d(28, 128, 128)),
    *(conv2d(28, 128, 256, 3, 2), conv2d(28, 128, 256, 1, 2), conv2d(14, 256, 256)),
    *(conv2d(14, 256, 512, 3, 2), conv2d(14, 256, 512, 1, 2), conv2d(7, 512, 512)),
    Dense(1, 512, 1000),
)
"""All layers of ResNet-18, first to last."""
