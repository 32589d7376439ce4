"""A model after import: its Relax module and its interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anole.documents.tensor_info import TensorInfo

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True)
class Imported:
    """A model as a Relax module whose function ``main`` maps all inputs to the output, or to the tuple of outputs.

    Attributes:
        module: the Relax module; weights are constants in it.
        anchors: names of the convolution and matrix-product layers, in the order of execution.
        prepared: how the preparation of a file changed its operators, such as ``Shape: 12 before, 0 after``.
    """

    module: tvm.IRModule
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    anchors: tuple[str, ...]
    prepared: tuple[str, ...] = ()
