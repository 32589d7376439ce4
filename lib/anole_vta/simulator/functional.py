"""The functional simulator: the bit-exact results of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole_vta.geometry import Geometry, Memory
from anole_vta.isa import (
    Alu,
    AluOpcode,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    StreamError,
    alu_source,
    check,
    decode_uop,
)


class FunctionalSimulator:
    """An accelerator with its memories and DRAM; running a program modifies both in place.

    Instructions run in program order, one of the orders that the tokens allow.

    Attributes:
        inp, wgt, acc, out: the buffers, shape (depth, rows, columns) of their elements.
        uop: the micro-operations, encoded, shape (depth,).
    """

    def __init__(self, geometry: Geometry, dram: NDArray[np.uint8]) -> None:
        self.geometry, self.dram = geometry, dram
        g = geometry
        self.inp = np.zeros((g.depth(Memory.INP), g.batch, g.block_in), np.int8)
        self.wgt = np.zeros((g.depth(Memory.WGT), g.block_out, g.block_in), np.int8)
        self.acc = np.zeros((g.depth(Memory.ACC), g.batch, g.block_out), np.int32)
        self.out = np.zeros((g.depth(Memory.OUT), g.batch, g.block_out), np.int8)
        self.uop = np.zeros(g.depth(Memory.UOP), np.uint32)

    def run(self, program: Iterable[Instruction]) -> None:
        """Run a program to its FINISH; raise StreamError if an access is out of bounds, or FINISH is missing."""
        for number, instruction in enumerate(program):
            if isinstance(instruction, Finish):
                return
            try:
                self.step(instruction)
            except StreamError as error:
                kind = type(instruction).__name__.upper()
                raise StreamError(f"instruction {number} ({kind}): {error}") from None
        raise StreamError("the program does not end with FINISH")

    def step(self, instruction: Instruction) -> None:
        """Run one instruction, ignoring its tokens; raise StreamError if an access is out of bounds."""
        check(instruction, self.geometry)
        match instruction:
            case Load():
                self._load(instruction)
            case Store():
                self._store(instruction)
            case Gemm():
                self._gemm(instruction)
            case Alu():
                self._alu(instruction)

    def _load(self, load: Load) -> None:
        if not load.x_size:
            return
        tile = slice(load.sram_base, load.sram_base + load.rows * load.columns)
        buffer: NDArray[Any] = getattr(self, load.memory.name.lower())
        elements = self.dram[self._addresses(load, load.memory)]
        element, border = buffer.shape[1:], np.iinfo(buffer.dtype).min if load.pad_min else 0
        filled = np.full((load.rows, load.columns, *element), border, buffer.dtype)
        rows = slice(load.y_pad_0, load.y_pad_0 + load.y_size)
        columns = slice(load.x_pad_0, load.x_pad_0 + load.x_size)
        filled[rows, columns] = elements.view(buffer.dtype).reshape(load.y_size, load.x_size, *element)
        buffer[tile] = filled.reshape(-1, *element)

    def _store(self, store: Store) -> None:
        if not store.x_size:
            return
        tile = store.y_size * store.x_size
        addresses = self._addresses(store, Memory.OUT)
        elements = self.out[store.sram_base : store.sram_base + tile]
        self.dram[addresses] = elements.reshape(tile, -1).view(np.uint8).reshape(addresses.shape)

    def _addresses(self, tile: Load | Store, memory: Memory) -> NDArray[np.int64]:
        """Return the DRAM address of every byte of a tile, shape (rows, bytes of a row)."""
        size = self.geometry.element_bytes(memory)
        starts = (tile.dram_base + np.arange(tile.y_size) * tile.x_stride) * size
        end = int(starts[-1]) + tile.x_size * size if len(starts) else 0
        if end > len(self.dram):
            raise StreamError(f"DRAM ends at byte {len(self.dram)}; bytes up to {end} are accessed")
        return np.asarray(starts[:, None] + np.arange(tile.x_size * size))

    def _gemm(self, gemm: Gemm) -> None:
        dst, src, wgt = self._uops(gemm)
        dst = self._indices(gemm, dst, gemm.dst_out, gemm.dst_in, Memory.ACC)
        if gemm.reset:
            self.acc[dst] = 0
            return
        src = self._indices(gemm, src, gemm.src_out, gemm.src_in, Memory.INP)
        wgt = self._indices(gemm, wgt, gemm.wgt_out, gemm.wgt_in, Memory.WGT)
        # Sums of this size are exact in float64, and floating-point matrix products are much faster.
        inp, weights = self.inp[src].astype(np.float64), self.wgt[wgt].astype(np.float64)
        products = np.matmul(inp, weights.transpose(0, 2, 1))
        order = np.argsort(dst, kind="stable")
        targets, first = np.unique(dst[order], return_index=True)
        sums = np.add.reduceat(products[order].astype(np.int64), first, axis=0)
        self.acc[targets] += sums.astype(np.int32)
        self.out[targets] = self.acc[targets].astype(np.int8)

    def _alu(self, alu: Alu) -> None:
        dst, src, wgt = self._uops(alu)
        dst = self._indices(alu, dst, alu.dst_out, alu.dst_in, Memory.ACC)
        src = self._indices(alu, alu_source(src, wgt, self.geometry), alu.src_out, alu.src_in, Memory.ACC)
        compute = _OPERATIONS.get((alu.opcode, self.geometry.variant)) or _OPERATIONS.get((alu.opcode, ""))
        if compute is None:
            raise StreamError(f"{self.geometry.variant} has no ALU opcode {alu.opcode}")
        self._alu_steps(alu, compute, dst, src)

    def _alu_steps(self, alu: Alu, compute: Operation, dst: NDArray[np.int64], src: NDArray[np.int64]) -> None:
        """Compute all steps in one operation if they are independent; otherwise, split them in half."""
        is_independent = len(np.unique(dst)) == len(dst) and not np.isin(src[src != dst], dst).any()
        if len(dst) > 1 and not is_independent:
            half = len(dst) // 2
            self._alu_steps(alu, compute, dst[:half], src[:half])
            self._alu_steps(alu, compute, dst[half:], src[half:])
            return
        if alu.use_imm:
            result = compute(self.acc[src], np.int32(alu.imm))
        else:
            result = compute(self.acc[dst], self.acc[src])
        self.acc[dst] = result
        self.out[dst] = result.astype(np.int8)

    def _uops(self, nest: Gemm | Alu) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return dst, src and wgt of an instruction's micro-operations, shape (n,) each."""
        return decode_uop(self.uop[nest.uop_begin : nest.uop_end].astype(np.int64), self.geometry)

    def _indices(
        self, nest: Gemm | Alu, start: NDArray[np.int64], outer: int, inner: int, memory: Memory
    ) -> NDArray[np.int64]:
        """Return the index into a memory for every step of a loop nest, in order, shape (n,)."""
        loops = np.arange(nest.iter_out)[:, None] * outer + np.arange(nest.iter_in) * inner
        indices = (loops[:, :, None] + start).ravel()
        depth = self.geometry.depth(memory)
        if len(indices) and (largest := int(indices.max())) >= depth:
            raise StreamError(f"{memory.name} holds {depth} elements; index {largest} is accessed")
        return np.asarray(indices)


Operation = Callable[[NDArray[np.int32], "NDArray[np.int32] | np.int32"], NDArray[np.int32]]
"""An ALU operation on two operands."""


def _shift(x: NDArray[np.int32], y: NDArray[np.int32] | np.int32) -> NDArray[np.int32]:
    """Shift right arithmetically; a negative distance shifts left."""
    y = np.asarray(y, np.int32)
    return np.where(y >= 0, x >> np.clip(y, 0, 31), np.left_shift(x, np.clip(-y, 0, 31))).astype(np.int32)


def _low_product(x: NDArray[np.int32], y: NDArray[np.int32] | np.int32) -> NDArray[np.int32]:
    """Multiply the low bytes as int8."""
    return np.multiply(x.astype(np.int8).astype(np.int32), np.asarray(y).astype(np.int8).astype(np.int32))


_OPERATIONS: dict[tuple[AluOpcode, str], Operation] = {
    (AluOpcode.MIN, ""): lambda x, y: np.minimum(x, y),
    (AluOpcode.MAX, ""): lambda x, y: np.maximum(x, y),
    (AluOpcode.ADD, ""): lambda x, y: np.add(x, y, dtype=np.int32),
    (AluOpcode.SHR, ""): _shift,
    (AluOpcode.CLP, "vta"): lambda x, y: np.multiply(x, y, dtype=np.int32),
    (AluOpcode.CLP, "vta++"): lambda x, y: np.clip(x, np.negative(y), y),
    (AluOpcode.MOV, "vta++"): lambda x, y: np.broadcast_to(y, x.shape).astype(np.int32),
    (AluOpcode.MUL, "vta++"): _low_product,
}
"""Operations by opcode and variant; the variant is empty for operations of both. The fifth opcode multiplies on VTA."""
