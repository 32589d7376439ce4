"""A model after import: its Relax module and what it looks like from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anole.documents.build import TensorInfo

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True)
class Imported:
    """A model as a Relax module whose function ``main`` goes from all inputs to the output, or the tuple of them.

    Attributes:
        module: weights are constants in it.
        anchors: names of the layers that are convolutions or matrix products, in the order of execution.
    """

    module: tvm.IRModule
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    anchors: tuple[str, ...]
