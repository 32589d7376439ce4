"""Count a program's memory accesses and arithmetic operations from its instructions."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from anole_vta.geometry import INSTRUCTION_BYTES, Geometry, Memory
from anole_vta.isa import Alu, Gemm, Instruction, Load, Store
from anole_vta.simulator.streams import code_of
from anole_vta.templates.program import Program

READS = tuple(f"{memory.name.lower()}_reads" for memory in Memory)
WRITES = tuple(f"{memory.name.lower()}_writes" for memory in Memory)

COUNTED = (*READS, *WRITES, "products", "sums", "dram_bits", "instructions")
"""The counted events, in this order.

A read or write accesses one element of a memory. Products are 8-bit multiplications and sums 32-bit additions,
including the ALU's operations. DRAM bits count tiles and instructions, without the unused bytes of bursts.
"""


def accesses_of(program: Program) -> NDArray[np.int64]:
    """Return the number of times that each of `COUNTED` occurs in a program, shape (n_counted,)."""
    code = code_of(program.instructions)
    total: Counter[str] = Counter()
    for passage, n_times in zip(code.passages, np.bincount(code.order).tolist(), strict=True):
        for instruction, n_equal in Counter(map(_without_address, passage.instructions)).items():
            for event, count in _accesses(instruction, program.geometry).items():
                total[event] += n_times * n_equal * count
    total["instructions"] = len(program.instructions)
    total["dram_bits"] += 8 * INSTRUCTION_BYTES * len(program.instructions)
    return np.array([total[event] for event in COUNTED], dtype=np.int64)


def _without_address(instruction: Instruction) -> Instruction:
    """Return an instruction without its DRAM address, which does not affect the counts."""
    return instruction._replace(dram_base=0) if isinstance(instruction, (Load, Store)) else instruction


def _accesses(instruction: Instruction, g: Geometry) -> dict[str, int]:
    """Count the accesses of an instruction, except for its own fetch.

    A GEMM micro-operation reads a vector, a matrix and accumulators, and writes accumulators and 8-bit results. An
    ALU micro-operation reads one or two vectors of accumulators, and writes like GEMM.
    """
    if isinstance(instruction, (Gemm, Alu)):
        n = instruction.iter_out * instruction.iter_in * max(0, instruction.uop_end - instruction.uop_begin)
        writes = {"uop_reads": n, "acc_writes": n, "out_writes": n}
        lanes = g.batch * g.block_out
        if isinstance(instruction, Alu):
            return {**writes, "acc_reads": n * (1 if instruction.use_imm else 2), "sums": n * lanes}
        if instruction.reset:
            return writes
        products = n * lanes * g.block_in
        return {**writes, "inp_reads": n, "wgt_reads": n, "acc_reads": n, "products": products, "sums": products}
    if isinstance(instruction, Load):
        memory, data = instruction.memory, instruction.x_size * instruction.y_size
        rows = instruction.y_pad_0 + instruction.y_size + instruction.y_pad_1
        n_filled = rows * instruction.columns if instruction.x_size else 0
        return {f"{memory.name.lower()}_writes": n_filled, "dram_bits": 8 * data * g.element_bytes(memory)}
    if isinstance(instruction, Store):
        data = instruction.x_size * instruction.y_size
        return {"out_reads": data, "dram_bits": 8 * data * g.element_bytes(Memory.OUT)}
    return {}
