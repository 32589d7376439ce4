"""An operator of an ONNX graph as a converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tvm import ir, relax, runtime


@dataclass(frozen=True)
class Call:
    """An operator of an ONNX graph, whose inputs are imported.

    Attributes:
        operator: its type, such as ``Conv``.
        name: its name in the file; may be empty.
        builder: emits Relax expressions.
        inputs: None for an optional input that is left out; those after the last one given are missing.
        attributes: numbers, strings, arrays for tensors, tuples for lists; those with default values may be missing.
        n_outputs: how many outputs the file names, with those that it leaves out between others.
        opset: the version of ONNX's operators.
    """

    operator: str
    name: str
    builder: relax.BlockBuilder
    inputs: tuple[relax.Expr | None, ...]
    attributes: dict[str, Any]
    n_outputs: int
    opset: int

    def has(self, index: int) -> bool:
        """Returns whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> relax.Expr:
        """Returns an input that the format requires, or that `has` found."""
        return self.inputs[index]

    def constant(self, index: int) -> NDArray[Any] | None:
        """Returns the value of an input, or None if it is left out or not constant."""
        value: Any = self.inputs[index] if self.has(index) else None
        is_constant = isinstance(value, ir.GenericConst) and isinstance(value.value, runtime.Tensor)
        return value.value.numpy() if is_constant else None

    def shape(self, index: int) -> tuple[int, ...]:
        """Returns the shape of an input; all shapes are fixed."""
        return tuple(int(extent) for extent in self.input(index).ty.shape.values)


Converter = Callable[[Call], relax.Expr | Sequence[relax.Expr]]
"""Returns the Relax expression of the output, or of each output in the order of the format, with those left out."""
