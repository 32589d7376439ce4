"""The converter interface: an ONNX operator with imported inputs, and helpers that converters share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax, runtime, te
from tvm.relax.frontend.onnx import onnx_frontend

_TVM_CONVERTERS: dict[str, Any] = dict(onnx_frontend._get_convert_map())


class Unsupported(Exception):
    """An operator that cannot be converted; the message names it and the reason."""


@dataclass(frozen=True)
class Call:
    """An operator of an ONNX graph with imported inputs.

    Methods raise `Unsupported` where the operator cannot be converted.

    Attributes:
        operator: the type, such as ``Conv``.
        name: the name in the file; may be empty.
        inputs: None for an omitted optional input; omitted trailing inputs are missing.
        attributes: numbers, strings, arrays for tensors, tuples for lists; defaults may be missing.
        n_outputs: the number of outputs in the file, including omitted ones between others.
    """

    operator: str
    name: str
    builder: relax.BlockBuilder
    inputs: tuple[relax.Expr | None, ...]
    attributes: dict[str, Any]
    n_outputs: int
    opset: int

    def has(self, index: int) -> bool:
        """Whether an input is present."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> relax.Expr:
        """Return an input that is required or present."""
        return self.inputs[index]

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an input."""
        return shape_of(self.input(index))

    def constant(self, index: int) -> NDArray[Any] | None:
        """Return the value of an input, or None if it is omitted or not constant."""
        value: Any = self.inputs[index] if self.has(index) else None
        is_constant = isinstance(value, ir.GenericConst) and isinstance(value.value, runtime.Tensor)
        return value.value.numpy() if is_constant else None

    def require_constant(self, index: int, name: str) -> NDArray[Any]:
        """Return the value of an input that must be constant, since a shape depends on it."""
        value = self.constant(index)
        if value is None:
            raise self.refuse(f"input {name} must be constant")
        return value

    def integer(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        return int(self.attributes.get(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an attribute that is 0 or 1 as a bool."""
        return bool(self.attributes.get(name, default))

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return a string attribute, which must be one of the allowed values."""
        value = str(self.attributes.get(name, default))
        if value not in allowed:
            raise self.refuse(f"{name}: found {value!r}; allowed: {', '.join(allowed)}")
        return value

    def dtype(self, name: str, default: str) -> str:
        """Return the dtype that an attribute specifies as an ONNX enum value."""
        from onnx.helper import tensor_dtype_to_np_dtype

        number = self.integer(name, 0)
        return str(np.dtype(tensor_dtype_to_np_dtype(number)).name) if number else default

    def axis(self, rank: int, default: int) -> int:
        """Return the attribute ``axis``, counted from 0."""
        return self.normal_axis(self.integer("axis", default), rank)

    def normal_axis(self, axis: int, rank: int) -> int:
        """Convert a negative axis to one counted from 0."""
        if not -rank <= axis < max(rank, 1):
            raise self.refuse(f"axis: found {axis}; the tensor has {rank} axes")
        return axis % rank if rank else 0

    def refuse(self, reason: str) -> Unsupported:
        """Return an error for this operator, to be raised."""
        return Unsupported(f"{self.operator}{f' {self.name!r}' if self.name else ''}: {reason}")

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind an expression to a variable, which gives it a type and computes it only once."""
        return self.builder.emit(expr)

    def cast(self, expr: relax.Expr, dtype: str) -> relax.Expr:
        """Cast an expression, unless it already has the dtype."""
        return expr if dtype_of(expr) == dtype else self.emit(relax.op.astype(expr, dtype))

    def widen(self, expr: relax.Expr) -> relax.Expr:
        """Cast an expression to float32, unless it is float64."""
        return self.cast(expr, compute_dtype(dtype_of(expr)))

    def gather(self, data: relax.Expr, indices: NDArray[Any], axis: int) -> relax.Expr:
        """Gather elements at constant, valid indices along an axis."""
        # TVM's default mode warns of indices that may be out of bounds.
        return self.emit(relax.op.take(data, const(indices, "int64"), axis, mode="clip"))

    def fields(self, tuple_: relax.Expr, count: int) -> list[relax.Expr]:
        """Return the fields of a tuple."""
        return [self.emit(relax.TupleGetItem(tuple_, index)) for index in range(count)]

    def kernel(self, compute: Callable[..., te.Tensor], *operands: relax.Expr) -> relax.Expr:
        """Emit a kernel, given as a function from the operands' tensors to one or several tensors."""
        variables = [operand if isinstance(operand, relax.Var) else self.emit(operand) for operand in operands]
        return self.builder.emit_te(compute, *variables, primfunc_name_hint=self.operator.lower())

    def by_tvm(self, **changes: Any) -> relax.Expr:
        """Convert the operator with TVM's converter, with some fields of this call replaced.

        Raises:
            Exception: any class; TVM cannot import the operator.
        """
        call = replace(self, **changes)
        attributes = {name: _encode_strings(value) for name, value in call.attributes.items()}
        attributes["tvm_custom"] = {"name": call.name, "num_outputs": call.n_outputs}
        convert = _TVM_CONVERTERS[call.operator].get_converter(call.opset)
        result = convert(call.builder, onnx_frontend.onnx_input(call.inputs), attributes, [{}, {}])
        return call.builder.normalize(result)


Converter = Callable[[Call], relax.Expr | Sequence[relax.Expr]]
"""A function that returns the Relax expression of the output, or of each output, even if omitted, in ONNX's order."""


def _encode_strings(value: Any) -> Any:
    """Encode an attribute's strings as bytes."""
    if isinstance(value, str):
        return value.encode()
    return tuple(map(_encode_strings, value)) if isinstance(value, tuple) else value


def shape_of(expr: relax.Expr) -> tuple[int, ...]:
    """Return the shape of an expression, which is always static."""
    return tuple(int(extent) for extent in expr.ty.shape.values)


def dtype_of(expr: relax.Expr) -> str:
    """Return the dtype of an expression."""
    return str(expr.ty.dtype)


def compute_dtype(dtype: str) -> str:
    """Return the dtype to compute in: float64 for float64, else float32."""
    return "float64" if dtype == "float64" else "float32"


def const(values: NDArray[Any] | Sequence[float] | float, dtype: str) -> relax.Expr:
    """Return a constant expression."""
    return relax.const(np.asarray(values, dtype, order="C"), dtype)


def along(axis: int, rank: int, extent: int = -1) -> list[int]:
    """Return the shape that broadcasts values along one axis to a tensor."""
    return [extent if axis_ == axis % rank else 1 for axis_ in range(rank)]


def replace_index(indices: Sequence[Any], axis: int, index: Any) -> list[Any]:
    """Replace the index of one axis."""
    return [*indices[:axis], index, *indices[axis + 1 :]]
