"""Spaces of which every config was measured: a convolution on a GPU, by others, and some layers on a CPU, by us.

The convolution is one of 15x15 over 4096x4096 values on an RTX 2080 Ti. The Kernel Tuner project measured it, and
published it in the package ``autotuning-methodology``; the file has the licence. Nothing is known of its configs
beforehand: it has no merit, and its knobs are its only features.
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
BY_OTHERS = FOLDER / "by_others"

_AGENTS = {"block_size": "threads", "tile_size": "tiles"}
"""The agents of DCOC that move the knobs whose names begin like this; a third one moves the others."""


def measured_tables() -> dict[str, Path]:
    """Return the files of all tables by their names, those that others measured first."""
    return {path.stem: path for folder in (BY_OTHERS, FOLDER) for path in sorted(folder.glob("*.json"))}


def measured_table(name: str) -> Table:
    """Read a table."""
    path = measured_tables()[name]
    return read_others(path) if path.parent == BY_OTHERS else read_table(path)


def read_others(path: Path) -> Table:
    """Read a table of others: knobs, a bit for each config that was tried, and the latencies of these."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    whole = Space([option_knob(name, values, agent=_agent(name)) for name, values in plain["knobs"].items()])
    bits = np.frombuffer(bytes.fromhex(plain["tried"]), dtype=np.uint8)
    tried = np.unpackbits(bits, count=whole.size).astype(bool)
    space = Space(whole.knobs, [Constraint("its authors did not try it", partial(_among, whole, tried))])
    workload = Conv2d(**plain["workload"] | {"kernel": tuple(plain["workload"]["kernel"])})
    return Table(workload, space, np.array(plain["latency_us"], dtype=np.float64) / 1e6)


def _agent(knob: str) -> str:
    return next((agent for beginning, agent in _AGENTS.items() if knob.startswith(beginning)), "memory")


def _among(space: Space, chosen: NDArray[np.bool_], columns: Columns) -> NDArray[np.bool_]:
    """Return which configs are among the chosen ones, given for each index of a space, shape (size,)."""
    places = [np.searchsorted(knob.table, columns[knob.name]) for knob in space.knobs]
    return chosen[space.indices(np.stack(places, axis=1))]
