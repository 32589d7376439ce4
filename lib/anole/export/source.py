"""Generate the C code of a network: the memory plan, the list of kernels, and the tables of tensors and steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from anole.documents.build import TensorInfo
from anole.errors import ExportError
from anole.export.kernels import Workspaces
from anole.export.levels import Level
from anole.export.memory import ArenaPlan, Weights, align, plan_buffers
from anole.export.sequence import ITEM_BYTES, KernelSequence, Operand, TensorPlace
from anole.ir.ranges import SizeRange

_TYPE_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}

_INSTANCE_BYTES, _TENSOR_BYTES, _ARGUMENT_BYTES, _EXTENT_BYTES = 192, 48, 16, 8
"""Bytes of an instance without its tensors, arguments and extents, and of one of each; network.c checks the sum."""

_C_EXPRESSION = re.compile(r"(sizes\[\d+\]|\d+|min|max|floordiv|floormod|[-+*(), ])*")
"""The expressions that may compute an extent."""


@dataclass(frozen=True)
class Network:
    """The contents of a library, apart from the kernels' code.

    Attributes:
        inputs, outputs: described with the largest values of dynamic sizes.
        weights_inside: whether the weights are in the library instead of in a file.
        ranges: the dynamic sizes that the network supports, by name.
    """

    title: str
    model: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    kernels: KernelSequence
    weights: Weights
    weights_inside: bool
    workspaces: Workspaces
    levels: Sequence[Level]
    threads: int
    ranges: Mapping[str, SizeRange]

    @cached_property
    def buffers(self) -> ArenaPlan:
        """The offsets of the intermediate tensors."""
        return plan_buffers(self.kernels)

    @cached_property
    def operands(self) -> list[Operand]:
        """The distinct operands: inputs and outputs, which are in the caller's memory, then all others."""
        used = [*self.kernels.inputs, *self.kernels.outputs]
        used += [operand for step in self.kernels.steps for operand in step.operands]
        used += [operand for operand, _ in self.kernels.copies]
        return sorted(dict.fromkeys(used), key=lambda operand: operand.place > TensorPlace.OUTPUT)

    @cached_property
    def layout(self) -> Layout:
        """The layout of the arena."""
        arguments = sum(len(step.arguments) for step in self.kernels.steps)
        extents = sum(len(operand.shape) for operand in self.operands)
        instance = _TENSOR_BYTES * (len(self.operands) + 1) + _ARGUMENT_BYTES * (arguments + 1)
        offset = align(_INSTANCE_BYTES + instance + _EXTENT_BYTES * (extents + len(self.ranges) + 2))
        buffers_offset = offset
        offset += self.buffers.size_bytes
        caller_offsets: list[int] = []
        for info in (*self.inputs, *self.outputs):
            caller_offsets.append(offset)
            offset += align(size_bytes(info))
        serial_offset = offset
        chunks_offset = serial_offset + self.workspaces.serial_bytes
        total = chunks_offset + self.threads * self.workspaces.chunk_bytes
        return Layout(buffers_offset, caller_offsets, serial_offset, chunks_offset, total)


@dataclass(frozen=True)
class Layout:
    """Offsets in the arena, in bytes, and its size.

    Attributes:
        callers: the offsets of the copies of inputs and outputs that are not aligned.
    """

    buffers: int
    callers: Sequence[int]
    serial: int
    chunks: int
    size_bytes: int


def size_bytes(info: TensorInfo) -> int:
    """Return the size of an input or output."""
    return Operand(TensorPlace.INPUT, 0, info.shape, info.dtype).size_bytes


def plan_text(network: Network) -> str:
    """Return the header with the counts, sizes and offsets that the library is compiled with."""
    layout, kernels = network.layout, network.kernels
    n_caller_tensors = sum(operand.place <= TensorPlace.OUTPUT for operand in network.operands)
    counts = {
        "LEVELS": len(network.levels),
        "STEPS": len(kernels.steps),
        "TENSORS": len(network.operands),
        "CALLER_TENSORS": n_caller_tensors,
        "ARGUMENTS": sum(len(step.arguments) for step in kernels.steps),
        "EXTENTS": sum(len(operand.shape) for operand in network.operands),
        "COPIES": len(kernels.copies),
    }
    offsets = {
        "INSTANCE_BYTES": layout.buffers,
        "BUFFERS_OFFSET": layout.buffers,
        "SERIAL_OFFSET": layout.serial,
        "SERIAL_BYTES": network.workspaces.serial_bytes,
        "CHUNKS_OFFSET": layout.chunks,
        "CHUNK_BYTES": network.workspaces.chunk_bytes,
    }
    return "".join(
        [
            "/* The network's counts, and the layout of its arena. */\n",
            *(f"#define {name} {number}\n" for name, number in counts.items()),
            *(f"#define {name} ((size_t){number})\n" for name, number in offsets.items()),
            f"#define WEIGHTS_CHECKSUM UINT64_C({network.weights.checksum})\n",
            f"#define WEIGHTS_DIGEST {{{', '.join(map(str, network.weights.digest))}}}\n",
        ]
    )


def tables_text(network: Network) -> str:
    """Return the C source of the tables, such as instruction-set levels, tensors, steps, inputs and outputs."""
    layout, operands = network.layout, network.operands
    indices: dict[Operand | str, int] = {operand: number for number, operand in enumerate(operands)}
    indices |= {symbol: number for number, symbol in enumerate(network.ranges, len(operands))}
    kernels = {name: number for number, name in enumerate(network.kernels.kernels)}
    extents: list[int] = []
    rows = [_tensor_row(network, operand, extents) for operand in operands]
    steps: list[str] = []
    arguments: list[str] = []
    for step in network.kernels.steps:
        steps.append(f"{{{kernels[step.kernel]}, {len(arguments)}, {len(step.arguments)}}}, /* {step.kernel} */")
        arguments += [f"{indices[argument]}," for argument in step.arguments]
    public = (*network.kernels.inputs, *network.kernels.outputs)
    callers = [f"{{{indices[operand]}, {offset}}}," for operand, offset in zip(public, layout.callers, strict=True)]
    copies = [f"{{{indices[operand]}, {output}}}," for operand, output in network.kernels.copies]
    count = len(network.inputs)
    return "\n".join(
        [
            "/* The network: its instruction-set levels, its tensors, and its kernel calls in order. */",
            *(line for level in network.levels for line in _level_lines(level)),
            _table("instruction_set", "levels", map(_level_row, network.levels)),
            _table("int64_t", "extents", (f"{extent}," for extent in extents)),
            _table("tensor_row", "tensor_rows", rows),
            _table("uint32_t", "argument_rows", arguments),
            _table("step_row", "step_rows", steps),
            _table("caller_row", "input_rows", callers[:count]),
            _table("caller_row", "output_rows", callers[count:]),
            _table("copy_row", "copy_rows", copies),
            _table("range_row", "range_rows", (f"{{{r.min}, {r.max}}}," for r in network.ranges.values())),
            "/* Computes the dynamic extents. */",
            "static void set_extents(const int64_t* sizes, int64_t* extents) {",
            "  (void)sizes, (void)extents;",
            *extent_lines(network),
            "}\n",
        ]
    )


def extent_lines(network: Network) -> Iterator[str]:
    """Yield the C statements that compute dynamic extents from sizes; raise ExportError for unsupported expressions."""
    texts = [text for operand in network.operands for text in operand.varying or (None,) * len(operand.shape)]
    sizes = {name: f"sizes[{number}]" for number, name in enumerate(network.ranges)}
    # A range may have the name of a function.
    pattern = re.compile("|".join(rf"\b{name}\b(?!\()" for name in sizes))
    for number, text in enumerate(texts):
        if text is not None:
            value = pattern.sub(lambda match: sizes[match[0]], text)
            if not _C_EXPRESSION.fullmatch(value):
                raise ExportError(
                    f"the network has a tensor with {text} elements along an axis, which cannot be exported to C"
                )
            yield f"  extents[{number}] = {value};"


def kernel_list_text(names: Iterable[str]) -> str:
    """Return the header with the list of kernels, in the order of their numbers."""
    return "".join(f"KERNEL({name})\n" for name in names)


def table_name(level: Level) -> str:
    """Return the name of the table with a level's kernels."""
    return f"kernels_{level.identifier}"


def _tensor_row(network: Network, operand: Operand, extents: list[int]) -> str:
    kind = operand.dtype.rstrip("0123456789")
    bits = 8 * ITEM_BYTES[operand.dtype]
    offset = operand.number
    if operand.place is TensorPlace.WEIGHTS:
        offset = network.weights.offsets[operand.number]
    elif operand.place is TensorPlace.BUFFER:
        offset = network.buffers.offsets[operand.number]
    first_extent = len(extents)
    extents += operand.shape
    return f"{{{operand.place.name}, {_TYPE_CODES[kind]}, {bits}, {len(operand.shape)}, {first_extent}, {offset}}},"


def _level_lines(level: Level) -> list[str]:
    bits = [f"{{{leaf:#x}, {subleaf}, {register}, {bit}}}," for leaf, subleaf, register, bit in level.bits]
    return [f"extern const kernel {table_name(level)}[];", _table("cpu_bit", f"bits_{level.identifier}", bits)]


def _level_row(level: Level) -> str:
    avx, avx_512 = (int(feature in level.features) for feature in ("avx", "avx512f"))
    name = level.identifier
    return f'{{"{level.name}", {table_name(level)}, bits_{name}, {len(level.bits)}, {avx}, {avx_512}}},'


def _table(kind: str, name: str, rows: Iterable[str]) -> str:
    """Return a C array, which always has an element, since standard C has no empty arrays."""
    return f"static const {kind} {name}[] = {{\n" + "".join(f"  {row}\n" for row in [*rows] or ["{0},"]) + "};\n"
