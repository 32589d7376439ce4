"""Calls of recurrent layers in exported torch programs."""

from __future__ import annotations

from typing import Any

import torch

RECURRENT = tuple(getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
"""Recurrent operators, which are converted as a whole if possible."""


def is_convertible(node: Any) -> bool:
    """Returns whether a call, a node of a `torch.fx` graph, can be converted: in float32 and without projections."""
    data, _, weights, has_biases, n_layers, _, is_training, is_bidirectional, _ = node.args
    n_own = n_layers * (2 if is_bidirectional else 1) * (4 if has_biases else 2)
    return data.meta["val"].dtype == torch.float32 and len(weights) == n_own and not is_training


def count_layers(node: Any) -> int:
    """Returns how many layers a call of a recurrent operator has; each is one product of all inputs."""
    return int(node.args[4])
