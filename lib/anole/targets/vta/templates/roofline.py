"""A roofline of the accelerator: the cycles that a config's arithmetic and its traffic take at least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anole.space.space import Columns
from anole.task import Conv2d

Traffic = dict[str, NDArray[np.float64]]
"""The cycles of the matrix unit, ``gemm``, and of the bus for each tensor: ``inp``, ``wgt`` and ``out``."""


def traffic(w: Conv2d, columns: Columns, tile_co: NDArray[np.int64], bus_bytes: int) -> Traffic:
    """Returns the cycles that computing and moving take in n configs, each of shape (n,).

    For each part of the output channels, a tile loads the pixels that it sees, halo included, and its weights.

    Args:
        w: the convolution.
        columns: the values of the knobs.
        tile_co: blocks of output channels of a tile, shape (n,).
        bus_bytes: bytes that the bus moves in a cycle.
    """
    of = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    pixels, taps = of["tile_h"] * of["tile_w"], w.kernel[0] * w.kernel[1]
    seen = ((of["tile_h"] - 1) * w.strides[0] + w.kernel[0]) * ((of["tile_w"] - 1) * w.strides[1] + w.kernel[1])
    blocks_ci, blocks_co = np.ceil(w.in_channels / of["tile_ci"]), np.ceil(w.out_channels / of["tile_co"])
    places = w.batch / of["tile_b"] * w.out_height * w.out_width / pixels
    loads = places * np.ceil(blocks_co / np.maximum(1, tile_co))
    return {
        "gemm": places * blocks_ci * blocks_co * pixels * taps,
        "inp": loads * blocks_ci * of["tile_b"] * of["tile_ci"] * seen / bus_bytes,
        "wgt": places * blocks_ci * blocks_co * of["tile_ci"] * of["tile_co"] * taps / bus_bytes,
        "out": places * pixels * blocks_co * of["tile_b"] * of["tile_co"] / bus_bytes,
    }


def least_cycles(w: Conv2d, columns: Columns, tile_co: NDArray[np.int64], bus_bytes: int) -> NDArray[np.float64]:
    """Returns the cycles that n configs take at least, shape (n,); the arguments are those of `traffic`.

    Two threads compute and move at the same time; with one, both take turns.
    """
    moved = traffic(w, columns, tile_co, bus_bytes)
    loading = moved["inp"] + moved["wgt"] + moved["out"]
    is_parallel = columns["h_threading"] * columns["oc_threading"] > 1
    return np.asarray(np.where(is_parallel, np.maximum(moved["gemm"], loading), moved["gemm"] + loading))
