"""Read a lowered network as a sequence of kernel calls, with the memory of their operands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import prod
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import ir, relax, tirx

from anole.errors import ExportError
from anole.ir.nodes import collect
from anole.ir.symbols import largest, name_of, varying_texts

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
"""The element types that an exported network may have, and their sizes."""


class TensorPlace(IntEnum):
    """The memory that contains a tensor; the values equal those of `enum place` in network.c."""

    INPUT = 0
    OUTPUT = 1
    WEIGHTS = 2
    BUFFER = 3


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel reads or writes: a view of an input, output, constant or buffer, by its number.

    Attributes:
        shape: the shape, with the largest values of dynamic extents.
        varying: C expressions for the dynamic extents, and None for all others; None for a fixed shape.
    """

    place: TensorPlace
    number: int
    shape: tuple[int, ...]
    dtype: str
    varying: tuple[str | None, ...] | None = None

    @property
    def size_bytes(self) -> int:
        """The size, for the largest extents."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel; its arguments are tensors, and sizes by the names of their ranges."""

    kernel: str
    arguments: tuple[Operand | str, ...]

    @property
    def operands(self) -> list[Operand]:
        """The arguments that are tensors."""
        return [argument for argument in self.arguments if isinstance(argument, Operand)]


@dataclass
class KernelSequence:
    """A network as a sequence of kernel calls.

    Attributes:
        constants: the values of the operands in `TensorPlace.WEIGHTS`, without duplicates.
        buffers: the sizes of the intermediate tensors, in bytes; a buffer that was replaced by an output has size 0.
        copies: results that no kernel writes directly to the caller's memory, such as a constant or an input, each with
            the number of the output.
        inputs, outputs: the tensors in the caller's memory, in order.
    """

    steps: list[KernelCall] = field(default_factory=list)
    constants: list[NDArray[Any]] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    copies: list[tuple[Operand, int]] = field(default_factory=list)
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels, in the order of their first call."""
        return list(dict.fromkeys(step.kernel for step in self.steps))


def lower_calls(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Lower a module to kernel calls with explicit result arguments, the form before TVM plans memory."""
    transform = relax.transform
    steps = (
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    )
    with target:
        for step in steps:
            module = step(module)
    return module


def read_sequence(module: tvm.IRModule, outputs: int) -> KernelSequence:
    """Read the sequence of a module that `lower_calls` returned; `outputs` is its number of outputs.

    Raises:
        ExportError: the network cannot be exported to C.
    """
    reader = _Reader(module)
    main = module["main"]
    for number, variable in enumerate(main.params):
        reader.values[variable] = _operand(TensorPlace.INPUT, number, variable.ty)
        reader.sequence.inputs.append(reader.values[variable])
    for block in main.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                raise ExportError(f"the network has a {type(binding).__name__}, which cannot be exported to C")
            reader.values[binding.var] = reader.evaluate(binding.value)
    results = [result for result in _flatten(reader.evaluate(main.body.body)) if isinstance(result, Operand)]
    if len(results) != outputs:
        raise ExportError(f"the network has {len(results)} outputs, but the build describes {outputs}")
    return _with_outputs(reader.sequence, results)


class _Reader:
    """An interpreter that evaluates the network's bindings to operands and collects the calls."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.values: dict[Any, Any] = {}
        self.sequence = KernelSequence()
        self._module = module
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def evaluate(self, expression: ir.Expr) -> Any:
        """Return an operand, the name of a size, a tuple of values, or None for the result of a kernel call."""
        if isinstance(expression, relax.Var) and expression in self.values:
            return self.values[expression]
        if isinstance(expression, tirx.Var):
            return name_of(expression)
        if isinstance(expression, ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
            return self._constant(expression.value.numpy(), expression.ty)
        if isinstance(expression, relax.Tuple):
            return tuple(map(self.evaluate, expression.fields))
        if isinstance(expression, relax.TupleGetItem):
            return self.evaluate(expression.tuple_value)[expression.index]
        if isinstance(expression, ir.Call):
            return self._call(expression)
        raise ExportError(f"the network has a {type(expression).__name__}, which cannot be exported to C")

    def _call(self, call: ir.Call) -> Any:
        if isinstance(call.op, ir.GlobalVar) and isinstance(self._module[call.op], tirx.PrimFunc):
            kernel = KernelCall(str(call.op.name_hint), tuple(_flatten(tuple(map(self.evaluate, call.args)))))
            if not kernel.operands or kernel.operands[-1].place in (TensorPlace.INPUT, TensorPlace.WEIGHTS):
                raise ExportError(
                    f"kernel {call.op.name_hint} writes to an input or a constant, which is not allowed in C"
                )
            self.sequence.steps.append(kernel)
            return None
        name = call.op.name if isinstance(call.op, ir.Op) else f"function {getattr(call.op, 'name_hint', call.op)}"
        if name == "relax.builtin.alloc_tensor":
            operand = _operand(TensorPlace.BUFFER, len(self.sequence.buffers), call.ty)
            self.sequence.buffers.append(operand.size_bytes)
            return operand
        if name == "relax.reshape":
            shape, varying = _extents(call.ty)
            return replace(self.evaluate(call.args[0]), shape=shape, varying=varying)
        raise ExportError(f"the network calls {name}, which cannot be exported to C")

    def _constant(self, array: NDArray[Any], ty: Any) -> Operand:
        key = str(ty.dtype), tuple(array.shape), hashlib.sha256(array.tobytes()).digest()
        number = self._numbers.setdefault(key, len(self.sequence.constants))
        if number == len(self.sequence.constants):
            self.sequence.constants.append(array)
        return _operand(TensorPlace.WEIGHTS, number, ty)


def check_kernels(module: tvm.IRModule, names: list[str]) -> None:
    """Check that kernels do not call packed functions of TVM's runtime.

    Raises:
        ExportError: a kernel calls one; the message names the kernel and the function.
    """
    for name in names:
        for call in collect(module[name].body, ir.Call):
            if isinstance(call.op, ir.Op) and "packed" in call.op.name and call.args:
                callee = getattr(call.args[0], "value", call.args[0])
                raise ExportError(f"kernel {name} calls {callee} of TVM's runtime, which cannot be exported to C")


def _with_outputs(sequence: KernelSequence, results: list[Operand]) -> KernelSequence:
    """Make kernels write results directly to the caller's memory where possible."""
    output_numbers: dict[int, int] = {}
    for number, result in enumerate(results):
        if result.place is TensorPlace.BUFFER and result.number not in output_numbers:
            output_numbers[result.number] = number
        else:
            sequence.copies.append((result, number))

    def place(operand: Operand) -> Operand:
        if operand.place is TensorPlace.BUFFER and operand.number in output_numbers:
            return replace(operand, place=TensorPlace.OUTPUT, number=output_numbers[operand.number])
        return operand

    def place_argument(argument: Operand | str) -> Operand | str:
        return place(argument) if isinstance(argument, Operand) else argument

    return KernelSequence(
        [KernelCall(step.kernel, tuple(map(place_argument, step.arguments))) for step in sequence.steps],
        sequence.constants,
        [0 if number in output_numbers else size for number, size in enumerate(sequence.buffers)],
        [(place(result), number) for result, number in sequence.copies],
        sequence.inputs,
        [replace(result, place=TensorPlace.OUTPUT, number=number) for number, result in enumerate(results)],
    )


def _flatten(value: Any) -> Iterator[Operand | str]:
    if isinstance(value, tuple):
        for element in value:
            yield from _flatten(element)
    elif isinstance(value, (Operand, str)):
        yield value
    else:
        raise ExportError("the network passes a value that is not a tensor, which cannot be exported to C")


def _operand(place: TensorPlace, number: int, ty: Any) -> Operand:
    if str(ty.dtype) not in ITEM_BYTES:
        raise ExportError(f"the network has a tensor of {ty.dtype}, which cannot be exported to C")
    shape, varying = _extents(ty)
    return Operand(place, number, shape, str(ty.dtype), varying)


def _extents(ty: Any) -> tuple[tuple[int, ...], tuple[str | None, ...] | None]:
    """Return a shape, and its dynamic extents as C expressions."""
    extents = [largest(extent) for extent in ty.shape]
    shape = tuple(extent for extent in extents if extent is not None)
    if len(shape) < len(extents):
        raise ExportError(f"the network has a tensor whose shape {ty.shape} is not known")
    return shape, varying_texts(ty.shape, calls=True)
