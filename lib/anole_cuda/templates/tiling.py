"""The four-way tiled loop nest of the CUDA templates: its knobs, resource usage and loops; needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.space import Knob, option_knob, split_knob
from anole.space.loops import Annotation, Ints, Loop
from anole_cuda.templates.usage import Counts, Usage

_SPLIT_LEVELS = ("block", "virtual", "thread", "inner")
_BLOCK_AXES = (Annotation.BLOCK_X, Annotation.BLOCK_Y)
_THREAD_AXES = (Annotation.THREAD_Z, Annotation.THREAD_Y, Annotation.THREAD_X)

ADDRESSING = 8
"""Registers of each thread for addresses and counters."""


def panel_width(split: Sequence[int]) -> int:
    """Return the outputs of a thread block along an axis that is split into four; also the width of a weight panel."""
    return prod(split[1:])


def tile_knobs(spatial: Mapping[str, int], reduction: Mapping[str, int], unrolled_steps: int = 512) -> list[Knob]:
    """Return the knobs of a nest whose axes have these lengths.

    Spatial axes are split into (block, virtual thread, thread, inner), reduction axes into (outer, inner).
    """
    tiles = [split_knob(name, length, 4, agent="spatial") for name, length in spatial.items()]
    tiles += [split_knob(name, length, 2, agent="reduction") for name, length in reduction.items()]
    return [*tiles, *unroll_knobs(unrolled_steps)]


def unroll_knobs(steps: int = 512) -> list[Knob]:
    """Return the unrolling knobs: the maximum length of the unrolled body, and whether TVM unrolls it itself."""
    return [option_knob("auto_unroll_max_step", (0, steps, 1500)), option_knob("unroll_explicit", (0, 1))]


def usage(spatial: Sequence[NDArray[np.int64]], leading: Ints, shared_bytes: Counts) -> Usage:
    """Return the resource usage of nests whose axes are split into (block, virtual thread, thread, inner).

    Args:
        spatial: two or three axes, each of shape (n, 4), in the nest's order.
        leading: number of steps of the axes that only blocks iterate over.
        shared_bytes: shared memory of one block.
    """
    accumulators = np.prod([axis[:, 1] * axis[:, 3] for axis in spatial], axis=0)
    return Usage(
        threads=np.prod([axis[:, 2] for axis in spatial], axis=0),
        threads_z=spatial[0][:, 2] if len(spatial) == 3 else np.ones_like(shared_bytes),
        virtual_threads=np.stack([axis[:, 1] for axis in spatial]).max(axis=0),
        shared_bytes=shared_bytes,
        registers=accumulators + ADDRESSING,
        grid_x=leading * np.prod([axis[:, 0] for axis in spatial[:-1]], axis=0),
        grid_y=spatial[-1][:, 0],
    )


def loops(
    leading: Sequence[tuple[str, Ints]],
    spatial: Sequence[tuple[str, NDArray[np.int64]]],
    reduction: Sequence[tuple[str, NDArray[np.int64]]],
    max_step: Counts,
) -> tuple[Loop, ...]:
    """Return the loops of such nests, outermost first.

    Args:
        leading: names and lengths of the axes that only blocks iterate over.
        spatial: names and four-way splits, shape (n, 4) each.
        reduction: names and splits into (outer, inner), shape (n, 2) each.
        max_step: maximum number of steps of an unrolled body, shape (n,).
    """
    nest: list[tuple[str, str, Ints, Ints]] = [(name, name, length, Annotation.BLOCK_X) for name, length in leading]
    for part, kind in enumerate(_SPLIT_LEVELS[:3]):
        for position, (name, split) in enumerate(spatial):
            nest.append((f"{name}_{kind}", name, split[:, part], _annotation(part, position, len(spatial))))
    nest += [(f"{name}_outer", name, split[:, 0], Annotation.SERIAL) for name, split in reduction]
    body = [(f"{name}_inner", name, split[:, 1]) for name, split in reduction]
    body += [(f"{name}_inner", name, split[:, 3]) for name, split in spatial]
    return tuple(
        Loop(name, axis, extent, level, annotation)
        for level, (name, axis, extent, annotation) in enumerate([*nest, *unroll_body(body, max_step)])
    )


def unroll_body(body: Sequence[tuple[str, str, Counts]], max_step: Counts) -> list[tuple[str, str, Ints, Ints]]:
    """Return the loops of a body, unrolled from the innermost loop outward up to `max_step` steps."""
    steps = np.ones_like(max_step)
    loops_: list[tuple[str, str, Ints, Ints]] = []
    for name, axis, extent in reversed(body):
        steps = steps * extent
        loops_.append((name, axis, extent, np.where(steps <= max_step, Annotation.UNROLLED, Annotation.SERIAL)))
    return loops_[::-1]


def _annotation(part: int, position: int, axes: int) -> Annotation:
    """Return the annotation of one part of one spatial axis."""
    if part == 0:
        return _BLOCK_AXES[position == axes - 1]
    return Annotation.VIRTUAL_THREAD if part == 1 else _THREAD_AXES[position - axes]
