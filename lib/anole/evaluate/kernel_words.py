"""What people call a kernel: the layers that it holds, and without any, the operators in the compiler's name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anole.words import named_few

_NUMBER = re.compile(r"\d+(?=_|$)")
"""What the compiler adds to a name that another kernel has, too: `add1`, `conv2d17`; the `2d` in `conv2d` is none."""


def kernel_words(kernel: str, layers: Sequence[str]) -> str:
    """Returns a short name for a kernel, such as ``layer1.0.conv1, layer1.1.conv1`` or ``max_pool2d``."""
    return named_few(layers) if layers else _NUMBER.sub("", kernel.removeprefix("fused_"))
