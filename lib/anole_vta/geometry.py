"""The geometry of an accelerator: GEMM block (batch x in x out), buffers and bus, and the derived sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, Self

from anole.errors import TargetError

INSTRUCTION_BYTES = 16

_MAX_ELEMENT_BYTES = 4096
"""The page size of VTA's runtime; no element may be larger."""

_MAX_LOG2 = 62
"""Limit on the binary logarithm of a buffer's bytes in a name; no instruction can address such a buffer."""

_WORD_BITS = 64

_NEST_BITS = 36
"""Bits of a GEMM or ALU instruction for opcode, dependences, reset and the two loops."""

_ALU_BITS = 20
"""Bits of an ALU instruction for its opcode and immediate."""


_NAME = re.compile(
    r"(?P<batch>\d+)x(?P<block_in>\d+)x(?P<block_out>\d+)_i8w8a32"
    r"_(?P<uop>\d+)_(?P<inp>\d+)_(?P<wgt>\d+)_(?P<acc>\d+)"
    r"(?:_bus(?P<bus>\d+))?(?:_burst(?P<burst>\d+))?(?:_queue(?P<queue>\d+))?(?P<variant>_vta\+\+)?"
)
"""VTA's name of a configuration, followed by the settings that VTA's names do not cover, where they differ from VTA."""


class Memory(IntEnum):
    """The on-chip memories, by their numbers in LOAD and STORE."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4


@dataclass(frozen=True)
class Geometry:
    """The shape of an accelerator, by default VTA's shape.

    Attributes:
        batch, block_in, block_out: one GEMM operation multiplies (batch, block_in) by (block_in, block_out).
        uop_bytes, inp_bytes, wgt_bytes, acc_bytes: sizes of the buffers; all powers of two. OUT is a quarter of ACC.
        bus_bytes: bytes that the memory bus carries in one beat.
        queue_entries: instructions that each of the three queues holds.
    """

    batch: int = 1
    block_in: int = 16
    block_out: int = 16
    uop_bytes: int = 1 << 15
    inp_bytes: int = 1 << 15
    wgt_bytes: int = 1 << 18
    acc_bytes: int = 1 << 17
    bus_bytes: int = 8
    burst_beats: int = 16
    queue_entries: int = 512
    variant: Literal["vta", "vta++"] = "vta"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "variant":
                if value not in ("vta", "vta++"):
                    raise TargetError(f"geometry.variant: found {value!r}; allowed are vta, vta++")
            elif type(value) is not int or value < 1 or value & (value - 1):
                raise TargetError(f"geometry.{field.name}: found {value!r}; allowed is a power of two")
        for memory in (Memory.INP, Memory.WGT, Memory.ACC):
            size_bytes = self.element_bytes(memory)
            if size_bytes > _MAX_ELEMENT_BYTES:
                raise TargetError(
                    f"geometry: an element of {memory.name} has {size_bytes} bytes; at most {_MAX_ELEMENT_BYTES} are "
                    "allowed"
                )
        for memory in Memory:
            if self.depth(memory) < 1:
                raise TargetError(f"geometry: the {memory.name} buffer cannot hold a single element")
        if not 8 <= self.bus_bytes <= 64:
            raise TargetError(f"geometry.bus_bytes: found {self.bus_bytes}; allowed are 8, 16, 32 and 64")
        if not self._indices_fit():
            raise TargetError("geometry: the buffers are too deep for the fields of an instruction")

    def _indices_fit(self) -> bool:
        """Whether the fields of an instruction fit into two words, and a micro-operation's into one."""
        uop, acc, inp, wgt = (self.index_bits(memory) for memory in (Memory.UOP, Memory.ACC, Memory.INP, Memory.WGT))
        alu_source = inp if self.variant == "vta++" else acc
        words = (_NEST_BITS + 2 * uop + 1, 2 * (acc + inp + wgt), 2 * (acc + alu_source) + _ALU_BITS)
        return max(words) <= _WORD_BITS and acc + inp + wgt <= 8 * self.element_bytes(Memory.UOP)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the geometry that a mapping describes, by default VTA's values; raise TargetError if it is invalid."""
        allowed = [field.name for field in fields(cls)]
        for name in plain:
            if name not in allowed:
                raise TargetError(f"geometry.{name}: is unknown; allowed are {', '.join(allowed)}")
        return cls(**plain)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a mapping for `from_json`."""
        return asdict(self)

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Return the geometry with a name; raise TargetError if the name is invalid."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise TargetError(f"geometry: found {name!r}; use a name such as {DEFAULT.name}")
        plain = {key: int(text) for key, text in match.groupdict().items() if text and text.isdecimal()}
        buffers = {f"{key}_bytes": 1 << min(plain.pop(key), _MAX_LOG2) for key in ("uop", "inp", "wgt", "acc")}
        options = {"bus": ("bus_bytes", 8), "burst": ("burst_beats", 1), "queue": ("queue_entries", 1)}
        settings = {field: plain.pop(key) // unit for key, (field, unit) in options.items() if key in plain}
        return cls(**plain, **buffers, **settings, variant="vta++" if match["variant"] else "vta")

    @property
    def name(self) -> str:
        """VTA's name of the configuration, such as 1x16x16_i8w8a32_15_15_18_17: the block, and logarithms of bytes.

        VTA's names do not cover the bus in bits, bursts, queues and variant; these follow where they differ from VTA.
        """
        logs = (size.bit_length() - 1 for size in (self.uop_bytes, self.inp_bytes, self.wgt_bytes, self.acc_bytes))
        options = (("bus", 8 * self.bus_bytes, 64), ("burst", self.burst_beats, 16), ("queue", self.queue_entries, 512))
        suffix = "".join(f"_{name}{value}" for name, value, default in options if value != default)
        block, buffers = "x".join(map(str, self.block)), "_".join(map(str, logs))
        return f"{block}_i8w8a32_{buffers}{suffix}" + ("_vta++" if self.variant == "vta++" else "")

    @property
    def block(self) -> tuple[int, int, int]:
        """The GEMM block: batch, input channels and output channels."""
        return self.batch, self.block_in, self.block_out

    def element_bytes(self, memory: Memory) -> int:
        """Return the size of one element of a memory."""
        return self._element_bytes[memory]

    def depth(self, memory: Memory) -> int:
        """Return the number of elements in a memory."""
        return self._depths[memory]

    @cached_property
    def _element_bytes(self) -> dict[Memory, int]:
        return {
            Memory.UOP: 4,
            Memory.WGT: self.block_out * self.block_in,
            Memory.INP: self.batch * self.block_in,
            Memory.ACC: 4 * self.batch * self.block_out,
            Memory.OUT: self.batch * self.block_out,
        }

    @cached_property
    def _depths(self) -> dict[Memory, int]:
        sizes = (self.uop_bytes, self.wgt_bytes, self.inp_bytes, self.acc_bytes, self.acc_bytes // 4)
        return {memory: size // self._element_bytes[memory] for memory, size in zip(Memory, sizes, strict=True)}

    def index_bits(self, memory: Memory) -> int:
        """Return the width of an index into a memory."""
        return self.depth(memory).bit_length() - 1

    @property
    def sram_bits(self) -> int:
        """The bits of all on-chip memory, including the instruction queues."""
        buffers = self.uop_bytes + self.inp_bytes + self.wgt_bytes + self.acc_bytes + self.acc_bytes // 4
        return 8 * (buffers + 3 * self.queue_entries * INSTRUCTION_BYTES)


DEFAULT = Geometry()
"""VTA's geometry: a block of 1x16x16."""


def vta_config(geometry: Geometry) -> dict[str, Any]:
    """Return the content of VTA's own description, ``vta_config.json``.

    It has binary logarithms of sizes in bytes and of widths in bits. VTA has one block size for input and output
    channels (``LOG_BLOCK``); VTA++ has one for each, and the width of its memory bus. Queues and VTA's bus are omitted.
    """
    blocks = {"LOG_BLOCK_IN": _log2(geometry.block_in), "LOG_BLOCK_OUT": _log2(geometry.block_out)}
    if geometry.variant == "vta" and geometry.block_in == geometry.block_out:
        blocks = {"LOG_BLOCK": _log2(geometry.block_in)}
    bus = {name: 8 * geometry.bus_bytes for name in ("SHL_MEM_AXI_DATA_BITS", "DPI_DATA_BITS")}
    return {
        "TARGET": "sim",
        "HW_VER": "0.0.2",
        "LOG_INP_WIDTH": 3,
        "LOG_WGT_WIDTH": 3,
        "LOG_ACC_WIDTH": 5,
        "LOG_BATCH": _log2(geometry.batch),
        **blocks,
        "LOG_UOP_BUFF_SIZE": _log2(geometry.uop_bytes),
        "LOG_INP_BUFF_SIZE": _log2(geometry.inp_bytes),
        "LOG_WGT_BUFF_SIZE": _log2(geometry.wgt_bytes),
        "LOG_ACC_BUFF_SIZE": _log2(geometry.acc_bytes),
        **(bus if geometry.variant == "vta++" else {}),
    }


def _log2(number: int) -> int:
    """Return the binary logarithm of a power of two."""
    return number.bit_length() - 1
