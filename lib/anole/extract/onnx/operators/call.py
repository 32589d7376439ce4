"""An operator of an ONNX graph as a converter sees it, and what converters share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax, runtime, te
from tvm.relax.frontend.onnx import onnx_frontend

_BY_TVM: dict[str, Any] = dict(onnx_frontend._get_convert_map())


class Unsupported(Exception):
    """An operator's use that cannot be converted; the message names the operator and what is wrong with it."""


@dataclass(frozen=True)
class Call:
    """An operator of an ONNX graph, whose inputs are imported.

    Its methods raise `Unsupported` where the operator cannot be converted.

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
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> relax.Expr:
        """Return an input that the format requires, or that `has` found."""
        return self.inputs[index]

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an input."""
        return shape_of(self.input(index))

    def constant(self, index: int) -> NDArray[Any] | None:
        """Return the value of an input, or None if it is left out or not constant."""
        value: Any = self.inputs[index] if self.has(index) else None
        is_constant = isinstance(value, ir.GenericConst) and isinstance(value.value, runtime.Tensor)
        return value.value.numpy() if is_constant else None

    def required(self, index: int, name: str) -> NDArray[Any]:
        """Return the value of an input that decides a shape, and therefore must be constant."""
        value = self.constant(index)
        if value is None:
            raise self.refuse(f"its input {name} must be constant")
        return value

    def integer(self, name: str, default: int) -> int:
        """Return an attribute that is a number."""
        return int(self.attributes.get(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an attribute that is 0 or 1."""
        return bool(self.attributes.get(name, default))

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return an attribute that is one of some words."""
        found = str(self.attributes.get(name, default))
        if found not in allowed:
            raise self.refuse(f"{name}: found {found!r}; allowed: {', '.join(allowed)}")
        return found

    def dtype(self, name: str, default: str) -> str:
        """Return the type of elements that an attribute names by ONNX's number."""
        from onnx.helper import tensor_dtype_to_np_dtype

        number = self.integer(name, 0)
        return str(np.dtype(tensor_dtype_to_np_dtype(number)).name) if number else default

    def axis(self, rank: int, default: int) -> int:
        """Return the attribute ``axis`` as a number from 0."""
        return self.normal_axis(self.integer("axis", default), rank)

    def normal_axis(self, axis: int, rank: int) -> int:
        """Return an axis as a number from 0."""
        if not -rank <= axis < max(rank, 1):
            raise self.refuse(f"axis: found {axis}; the tensor has {rank} axes")
        return axis % rank if rank else 0

    def refuse(self, why: str) -> Unsupported:
        """Return the error of an operator that cannot be converted."""
        return Unsupported(f"{self.operator}{f' {self.name!r}' if self.name else ''}: {why}")

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Return a variable bound to an expression; its type is known then, and it is computed once."""
        return self.builder.emit(expr)

    def cast(self, expr: relax.Expr, dtype: str) -> relax.Expr:
        """Return an expression with elements of a type."""
        return expr if dtype_of(expr) == dtype else self.emit(relax.op.astype(expr, dtype))

    def widened(self, expr: relax.Expr) -> relax.Expr:
        """Return numbers in float64 if they are, and otherwise in float32."""
        return self.cast(expr, wide_of(dtype_of(expr)))

    def taken(self, data: relax.Expr, places: NDArray[Any], axis: int) -> relax.Expr:
        """Return the elements at known places along an axis; all of them exist."""
        # TVM's default mode warns of places that might not exist.
        return self.emit(relax.op.take(data, const(places, "int64"), axis, mode="clip"))

    def fields(self, whole: relax.Expr, count: int) -> list[relax.Expr]:
        """Return the fields of a tuple."""
        return [self.emit(relax.TupleGetItem(whole, index)) for index in range(count)]

    def kernel(self, compute: Callable[..., te.Tensor], *operands: relax.Expr) -> relax.Expr:
        """Return the result of a kernel that maps the tensors of its operands to one tensor, or to several."""
        bound = [operand if isinstance(operand, relax.Var) else self.emit(operand) for operand in operands]
        return self.builder.emit_te(compute, *bound, primfunc_name_hint=self.operator.lower())

    def by_tvm(self, **changed: Any) -> relax.Expr:
        """Return what TVM's importer makes of the operator, with some fields of this call changed.

        Raises:
            Exception: TVM cannot import it; of any class.
        """
        call = replace(self, **changed)
        attributes = {name: _as_tvm_reads(value) for name, value in call.attributes.items()}
        attributes["tvm_custom"] = {"name": call.name, "num_outputs": call.n_outputs}
        convert = _BY_TVM[call.operator].get_converter(call.opset)
        found = convert(call.builder, onnx_frontend.onnx_input(call.inputs), attributes, [{}, {}])
        return call.builder.normalize(found)


Converter = Callable[[Call], relax.Expr | Sequence[relax.Expr]]
"""Returns the Relax expression of the output, or of each output in the order of the format, with those left out."""


def _as_tvm_reads(value: Any) -> Any:
    """Return an attribute with strings as bytes."""
    if isinstance(value, str):
        return value.encode()
    return tuple(map(_as_tvm_reads, value)) if isinstance(value, tuple) else value


def shape_of(expr: relax.Expr) -> tuple[int, ...]:
    """Return the shape of an expression; all shapes are fixed."""
    return tuple(int(extent) for extent in expr.ty.shape.values)


def dtype_of(expr: relax.Expr) -> str:
    """Return the type of an expression's elements."""
    return str(expr.ty.dtype)


def wide_of(dtype: str) -> str:
    """Return the type in which numbers of a type are computed."""
    return "float64" if dtype == "float64" else "float32"


def const(values: NDArray[Any] | Sequence[float] | float, dtype: str) -> relax.Expr:
    """Return a constant."""
    return relax.const(np.asarray(values, dtype, order="C"), dtype)


def along(axis: int, rank: int, extent: int = -1) -> list[int]:
    """Return the shape in which values along one axis broadcast to a tensor."""
    return [extent if each == axis % rank else 1 for each in range(rank)]


def replaced(indices: Sequence[Any], axis: int, index: Any) -> list[Any]:
    """Return indices with one along an axis replaced."""
    return [*indices[:axis], index, *indices[axis + 1 :]]
