"""Exhaustively measured spaces: a published convolution on a GPU, and some layers measured here on a CPU.

The convolution has a kernel of 15x15 over 4096x4096 values, on an RTX 2080 Ti. The Kernel Tuner project measured it,
and published it in the package ``autotuning-methodology``; the file has the license. Its space has no merit, and the
knobs are its only features.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anole.space import Constraint, Space, option_knob
from anole.space.space import Columns
from anole.task import Conv2d
from kit.tables import Table, read_table

FOLDER = Path(__file__).parents[1] / "tables"
PUBLISHED = FOLDER / "by_others"

_AGENTS = {"block_size": "threads", "tile_size": "tiles"}
"""The DCOC agents by prefix of their knobs; a third agent has the remaining knobs."""


def measured_tables() -> dict[str, Path]:
    """Return the files of all tables by name, published ones first."""
    return {path.stem: path for folder in (PUBLISHED, FOLDER) for path in sorted(folder.glob("*.json"))}


def measured_table(name: str) -> Table:
    """Read a table."""
    path = measured_tables()[name]
    return read_published(path) if path.parent == PUBLISHED else read_table(path)


def read_published(path: Path) -> Table:
    """Read a published table: knobs, a bit for each tried config, and the latencies of these configs."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    full = Space([option_knob(name, values, agent=_agent(name)) for name, values in plain["knobs"].items()])
    bits = np.frombuffer(bytes.fromhex(plain["tried"]), dtype=np.uint8)
    tried = np.unpackbits(bits, count=full.size).astype(bool)
    space = Space(full.knobs, [Constraint("its authors did not try it", partial(_among, full, tried))])
    workload = Conv2d(**plain["workload"] | {"kernel": tuple(plain["workload"]["kernel"])})
    return Table(workload, space, np.array(plain["latency_us"], dtype=np.float64) / 1e6)


def _agent(knob: str) -> str:
    return next((agent for beginning, agent in _AGENTS.items() if knob.startswith(beginning)), "memory")


def _among(space: Space, chosen: NDArray[np.bool_], columns: Columns) -> NDArray[np.bool_]:
    """Return a mask of the configs among the chosen ones, which are given as a mask of the space, shape (size,)."""
    indices = [np.searchsorted(knob.table, columns[knob.name]) for knob in space.knobs]
    return chosen[space.indices(np.stack(indices, axis=1))]
