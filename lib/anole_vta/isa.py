"""The instructions of VTA and VTA++, and their encoding in 128 bits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from anole.errors import AnoleError
from anole_vta.geometry import INSTRUCTION_BYTES, Geometry, Memory

_WORD_BITS = 64


class StreamError(AnoleError):
    """An error for a malformed program or a deadlock; the message names the instruction."""


class AluOpcode(IntEnum):
    """The operation of an ALU instruction; VTA has the first five, and its fifth, CLP here, is MUL."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    CLP = 4
    MOV = 5
    MUL = 6


class Dependence(NamedTuple):
    """The tokens that an instruction pops from and pushes to the modules before and after its own."""

    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False


FREE = Dependence()
"""The dependence of an instruction that pops and pushes no token."""


class Load(NamedTuple):
    """An instruction that copies a tile from DRAM and pads it; with a width of 0, it only moves tokens.

    Attributes:
        memory: the memory that is written.
        sram_base, dram_base: offsets of the tile, in elements of that memory.
        x_stride: the distance between rows in DRAM.
        y_pad_0, y_pad_1, x_pad_0, x_pad_1: border rows and columns before and after the tile.
        pad_min: whether to pad with the minimum of the type instead of 0 (VTA++).
    """

    memory: Memory
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0
    pad_min: bool = False
    dependence: Dependence = FREE

    @property
    def rows(self) -> int:
        """Rows of the tile with its border."""
        return self.y_pad_0 + self.y_size + self.y_pad_1

    @property
    def columns(self) -> int:
        """Columns of the tile with its border."""
        return self.x_pad_0 + self.x_size + self.x_pad_1


class Store(NamedTuple):
    """An instruction that copies a tile from OUT to DRAM; with a width of 0, it only moves tokens."""

    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    dependence: Dependence = FREE


class Gemm(NamedTuple):
    """An instruction that multiplies and accumulates, or zeroes: two loops around a range of micro-operations.

    Each step of a loop increments the indices of destination, source and weight.
    """

    reset: bool
    uop_begin: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_out: int = 0
    dst_in: int = 0
    src_out: int = 0
    src_in: int = 0
    wgt_out: int = 0
    wgt_in: int = 0
    dependence: Dependence = FREE


class Alu(NamedTuple):
    """An instruction on accumulators and other accumulators or an immediate, in two loops as in `Gemm`."""

    opcode: AluOpcode
    uop_begin: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_out: int = 0
    dst_in: int = 0
    src_out: int = 0
    src_in: int = 0
    use_imm: bool = False
    imm: int = 0
    reset: bool = False
    dependence: Dependence = FREE


class Finish(NamedTuple):
    """The instruction that ends a program."""

    dependence: Dependence = FREE


Instruction: TypeAlias = Load | Store | Gemm | Alu | Finish


class Uop(NamedTuple):
    """One micro-operation: the start indices for the loops around it."""

    dst: int = 0
    src: int = 0
    wgt: int = 0


Word = TypeVar("Word", int, NDArray[np.int64])
"""A word of bits, or an array of words."""

_INSTRUCTIONS: tuple[type[Instruction], ...] = (Load, Store, Gemm, Finish, Alu)
"""The instructions by opcode, the lowest three bits."""

_TYPES = {"memory": Memory, "opcode": AluOpcode, "reset": bool, "use_imm": bool, "pad_min": bool}
"""The types of the fields that are not integers."""


def encode(instruction: Instruction, geometry: Geometry) -> int:
    """Encode an instruction in 128 bits; raise StreamError if a value does not fit its field."""
    values = {name: int(value) for name, value in instruction._asdict().items() if name != "dependence"}
    values |= {name: int(flag) for name, flag in instruction.dependence._asdict().items()}
    kind = type(instruction)
    values["op"] = opcode = _INSTRUCTIONS.index(kind)
    if kind is Store:
        values["memory"] = Memory.OUT & _memory_mask(geometry)
    word = 0
    for name, offset, bits in _layout(opcode, geometry):
        value = values.get(name, 0)
        low, high = (-(1 << bits - 1), 1 << bits - 1) if name == "imm" else (0, 1 << bits)
        if not low <= value < high:
            raise StreamError(f"{kind.__name__.upper()}: {name} is {value}; {low} to {high - 1} fit")
        word |= (value & (1 << bits) - 1) << offset
    return word


def decode(word: int, geometry: Geometry) -> Instruction:
    """Decode an instruction from 128 bits; raise StreamError if they are invalid."""
    if not 0 <= word < 1 << 2 * _WORD_BITS:
        raise StreamError(f"an instruction has {2 * _WORD_BITS} bits; found {word:#x}")
    opcode = word & 7
    if opcode >= len(_INSTRUCTIONS):
        raise StreamError(f"unknown opcode {opcode}; allowed are 0 to {len(_INSTRUCTIONS) - 1}")
    kind = _INSTRUCTIONS[opcode]
    values = {name: word >> offset & (1 << bits) - 1 for name, offset, bits in _layout(opcode, geometry)}
    flags = Dependence(*(bool(values[name]) for name in Dependence._fields))
    memory_type = values.get("memory")
    if kind is Store and memory_type != Memory.OUT & _memory_mask(geometry):
        raise StreamError(f"STORE from memory type {memory_type}; only OUT can be stored")
    if kind is Load and memory_type not in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC):
        raise StreamError(f"LOAD of memory type {memory_type}; allowed are 0 to 3")
    if kind is Alu:
        if values["opcode"] not in list(AluOpcode):
            raise StreamError(f"unknown ALU opcode {values['opcode']}; allowed are 0 to {max(AluOpcode)}")
        values["imm"] -= (values["imm"] & 1 << 15) << 1
    fields: dict[str, Any] = {name: _TYPES.get(name, int)(values[name]) for name in kind._fields if name in values}
    return kind(**fields, dependence=flags)


def encode_stream(program: Sequence[Instruction], geometry: Geometry) -> bytes:
    """Encode a program as in memory: one instruction after the other, little-endian."""
    return b"".join(encode(instruction, geometry).to_bytes(INSTRUCTION_BYTES, "little") for instruction in program)


def decode_stream(stream: bytes, geometry: Geometry) -> tuple[Instruction, ...]:
    """Decode a program from `encode_stream`; raise StreamError if an instruction is invalid."""
    words = (stream[at : at + INSTRUCTION_BYTES] for at in range(0, len(stream), INSTRUCTION_BYTES))
    return tuple(decode(int.from_bytes(word, "little"), geometry) for word in words)


def check(instruction: Instruction, geometry: Geometry) -> None:
    """Raise StreamError if an address range in the fields of an instruction exceeds its buffer."""
    match instruction:
        case Load(x_size=size) if size:
            tile = instruction.rows * instruction.columns
            _check_range(instruction.memory, instruction.sram_base, instruction.sram_base + tile, geometry)
        case Store(x_size=size) if size:
            tile = instruction.y_size * instruction.x_size
            _check_range(Memory.OUT, instruction.sram_base, instruction.sram_base + tile, geometry)
        case Gemm() | Alu():
            _check_range(Memory.UOP, instruction.uop_begin, instruction.uop_end, geometry)


def _check_range(memory: Memory, begin: int, end: int, geometry: Geometry) -> None:
    depth = geometry.depth(memory)
    if not 0 <= begin <= end <= depth:
        raise StreamError(f"{memory.name} holds {depth} elements; {begin} to {end} are accessed")


def encode_uop(uop: Uop, geometry: Geometry) -> int:
    """Encode a micro-operation in 32 bits; raise StreamError if a value does not fit its field."""
    word = offset = 0
    for value, memory in zip(uop, (Memory.ACC, Memory.INP, Memory.WGT), strict=True):
        bits = geometry.index_bits(memory)
        if not 0 <= value < 1 << bits:
            raise StreamError(f"micro-operation {tuple(uop)}: the index into {memory.name} must be below {1 << bits}")
        word |= value << offset
        offset += bits
    return word


def decode_uop(word: Word, geometry: Geometry) -> tuple[Word, Word, Word]:
    """Decode dst, src and wgt from a micro-operation, or from an array of micro-operations."""
    acc, inp, wgt = (geometry.index_bits(memory) for memory in (Memory.ACC, Memory.INP, Memory.WGT))
    return word & (1 << acc) - 1, word >> acc & (1 << inp) - 1, word >> acc + inp & (1 << wgt) - 1


def alu_uop(dst: int, src: int, geometry: Geometry) -> Uop:
    """Return an ALU micro-operation; the index of its source accumulator extends into the bits for the weight."""
    bits = geometry.index_bits(Memory.INP)
    return Uop(dst, src & (1 << bits) - 1, src >> bits)


def alu_source(src: Word, wgt: Word, geometry: Geometry) -> Word:
    """Return the source accumulator of an ALU micro-operation, or of arrays of micro-operations."""
    index = src | wgt << geometry.index_bits(Memory.INP)
    return index & (1 << geometry.index_bits(Memory.ACC)) - 1


def _memory_mask(geometry: Geometry) -> int:
    return 3 if geometry.variant == "vta++" else 7


@cache
def _layout(opcode: int, geometry: Geometry) -> tuple[tuple[str, int, int], ...]:
    """Return the name, offset and width in bits of every field of an instruction."""
    kind, extended = _INSTRUCTIONS[opcode], geometry.variant == "vta++"
    uop, acc, inp, wgt = (geometry.index_bits(m) for m in (Memory.UOP, Memory.ACC, Memory.INP, Memory.WGT))
    first = [("op", 3), *((name, 1) for name in Dependence._fields)]
    second: list[tuple[str, int]] = []
    if kind in (Load, Store):
        first += [("memory", 2 if extended else 3), ("sram_base", 16), ("dram_base", 32)]
        first += [("pad_min", 1)] if extended else []
        second += [(name, 16) for name in ("y_size", "x_size", "x_stride")]
        second += [(name, 4) for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")]
    if kind in (Gemm, Alu):
        first += [("reset", 1), ("uop_begin", uop), ("uop_end", uop + 1), ("iter_out", 14), ("iter_in", 14)]
        src = inp if kind is Gemm or extended else acc
        second += [("dst_out", acc), ("dst_in", acc), ("src_out", src), ("src_in", src)]
        second += [("wgt_out", wgt), ("wgt_in", wgt)] if kind is Gemm else [("opcode", 3), ("use_imm", 1), ("imm", 16)]
    layout = []
    for offset, fields in ((0, first), (_WORD_BITS, second)):
        for name, bits in fields:
            layout.append((name, offset, bits))
            offset += bits
    return tuple(layout)
