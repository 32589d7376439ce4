"""Lower maximum pooling for VTA++, whose loads can pad a tile with the minimum of the type."""

from __future__ import annotations

import itertools

from anole.errors import ConfigError
from anole_vta.geometry import Geometry, Memory
from anole_vta.isa import Alu, AluOpcode, Load, Store, alu_uop
from anole_vta.network.network import Pool
from anole_vta.simulator.activity import Module
from anole_vta.templates.conv2d import MAX_BORDER, n_outside
from anole_vta.templates.program import Program, ProgramWriter

_COMPUTE, _STORE = Module.COMPUTE, Module.STORE


def lower_pool(pool: Pool, shape: tuple[int, ...], geometry: Geometry) -> Program:
    """Return the program of a maximum pool, with the buffers ``data`` and ``out``.

    A tile has complete rows of one block of channels, as many as fit. The data is NHWC; batch and channels are
    multiples of the block.

    Raises:
        ConfigError: the accelerator cannot run the pool; the message gives the reason.
    """
    if geometry.variant != "vta++":
        raise ConfigError(f"{geometry.variant} cannot pad a tile with the minimum of the type")
    images, height, width, channels = shape
    rows, columns = pooled_size(pool, height, width)
    columns_in = (columns - 1) * pool.strides[1] + pool.kernel[1]
    tile = _rows_that_fit(pool, columns, columns_in, geometry)
    blocks = images // geometry.batch * (channels // geometry.block_out)
    sizes = {
        "data": blocks * height * width * geometry.element_bytes(Memory.ACC),
        "out": blocks * rows * columns * geometry.element_bytes(Memory.OUT),
    }
    writer = ProgramWriter(geometry, sizes)
    writer.signal(_STORE, _COMPUTE)
    before, after = n_outside(-pool.padding[1], columns_in, width)
    for block, row in itertools.product(range(blocks), range(0, rows, tile)):
        n = min(tile, rows - row)
        rows_in = (n - 1) * pool.strides[0] + pool.kernel[0]
        first = row * pool.strides[0] - pool.padding[0]
        above, below = n_outside(first, rows_in, height)
        if max(above, below, before, after) > MAX_BORDER:
            raise ConfigError(f"a border of more than {MAX_BORDER} does not fit a load")
        at = tile * columns
        base = writer.base("data", Memory.ACC) + (block * height + first + above) * width
        y, x = rows_in - above - below, columns_in - before - after
        writer.wait(_COMPUTE, _STORE)
        writer.add(Load(Memory.ACC, at, base, y, x, width, above, below, before, after, pad_min=True))
        for number, (i, j) in enumerate(itertools.product(*map(range, pool.kernel))):
            begin, end = writer.kernel((i, j), [alu_uop(0, at + i * columns_in + j, geometry)])
            opcode = AluOpcode.MAX if number else AluOpcode.MOV
            steps = (columns, 1, pool.strides[0] * columns_in, pool.strides[1])
            writer.add(Alu(opcode, begin, end, n, columns, *steps))
        writer.signal(_COMPUTE, _STORE)
        writer.wait(_STORE, _COMPUTE)
        writer.add(
            Store(0, writer.base("out", Memory.OUT) + (block * rows + row) * columns, 1, n * columns, n * columns)
        )
        writer.signal(_STORE, _COMPUTE)
    writer.wait(_COMPUTE, _STORE)
    return writer.finish()


def pooled_size(pool: Pool, height: int, width: int) -> tuple[int, int]:
    """Return the height and width of the result."""
    top, left, bottom, right = pool.padding
    return (
        (height + top + bottom - pool.kernel[0]) // pool.strides[0] + 1,
        (width + left + right - pool.kernel[1]) // pool.strides[1] + 1,
    )


def _rows_that_fit(pool: Pool, columns: int, columns_in: int, geometry: Geometry) -> int:
    """Return the maximum number of result rows that fit the accumulators together with their inputs."""
    depth = geometry.depth(Memory.ACC)
    step = columns + pool.strides[0] * columns_in
    rows = (depth - max(0, pool.kernel[0] - pool.strides[0]) * columns_in) // step
    if rows < 1:
        raise ConfigError(f"scratchpad overflow: a row of {columns} results does not fit {depth} accumulators")
    # The index increments of an instruction are as wide as an index into INP.
    if pool.strides[0] * columns_in >= 1 << geometry.index_bits(Memory.INP):
        raise ConfigError("a row is too long for the fields of an instruction")
    return rows
