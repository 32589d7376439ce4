"""Prints how long one iteration's search takes, without measuring: CSV, seconds of wall clock.

    PYTHONPATH=lib python benchmarks/search_seconds.py

The space is that of a 3x3 convolution on a CPU, with 4-way splits, constraints and the features of its loop
nest.
"""

from __future__ import annotations

import csv
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.presets import PRESETS
from anole.record import Measurement, Status
from anole.roles import History
from anole.space import Constraint, Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns

FLOP = 2 * 56 * 56 * 128 * 128 * 9
N_MEASURED = (64, 256, 1024)


def conv_space() -> Space:
    """Returns a space like that of ``conv2d 128->128 k3x3 s1 56x56``: ten knobs, about 10^9 configs."""
    knobs = [
        split_knob("tile_f", 128, 4),
        split_knob("tile_y", 56, 4),
        split_knob("tile_x", 56, 4),
        split_knob("tile_rc", 128, 2),
        split_knob("tile_ry", 3, 2),
        split_knob("tile_rx", 3, 2),
        option_knob("order", ["channels_first", "kernel_first"]),
        option_knob("auto_unroll_max_step", [0, 64, 512]),
        option_knob("unroll_explicit", [0, 1]),
        option_knob("pad", ["inline", "at_parallel", "once"]),
    ]
    constraints = [
        Constraint("the tile needs more registers than there are", lambda c: accumulators(c) <= 448),
        Constraint("the vector is not a multiple of 8 lanes", lambda c: c["tile_f"][:, 3] % 8 == 0),
    ]
    return Space(knobs, constraints, describe)


def accumulators(columns: Columns) -> NDArray[np.int64]:
    """Returns the numbers that the innermost tile keeps, shape (n,)."""
    return np.asarray(columns["tile_f"][:, 3] * columns["tile_y"][:, 3] * columns["tile_x"][:, 3])


def describe(columns: Columns) -> NDArray[np.float32]:
    """Returns the loop features of n configs."""
    f, y, x, rc, ry, rx = (columns[f"tile_{axis}"].T for axis in ("f", "y", "x", "rc", "ry", "rx"))
    kernel_first = columns["order"] == "kernel_first"
    unrolled = np.where(columns["auto_unroll_max_step"] > 0, Annotation.UNROLLED, Annotation.SERIAL)
    loops = [
        *(
            Loop(f"f{part}", "f", f[part], 3 * part, Annotation.PARALLEL if part == 0 else Annotation.SERIAL)
            for part in range(3)
        ),
        *(
            Loop(
                f"y{part}",
                "y",
                y[part],
                3 * part + 1,
                Annotation.PARALLEL if part == 0 else Annotation.SERIAL,
            )
            for part in range(3)
        ),
        *(Loop(f"x{part}", "x", x[part], 3 * part + 2) for part in range(3)),
        Loop("rc0", "rc", rc[0], np.where(kernel_first, 12, 10)),
        Loop("ry0", "ry", ry[0], np.where(kernel_first, 10, 11)),
        Loop("rx0", "rx", rx[0], np.where(kernel_first, 11, 12)),
        Loop("rc1", "rc", rc[1], 13),
        Loop("ry1", "ry", ry[1], 14),
        Loop("rx1", "rx", rx[1], 15),
        Loop("y3", "y", y[3], 16, unrolled),
        Loop("x3", "x", x[3], 17, unrolled),
        Loop("f3", "f", f[3], 18, Annotation.VECTORIZED),
    ]
    buffers = [
        Buffer("data", (58, 58, 128), ({"y": 1, "ry": 1}, {"x": 1, "rx": 1}, {"rc": 1})),
        Buffer("weight", (3, 3, 128, 128), ({"ry": 1}, {"rx": 1}, {"rc": 1}, {"f": 1})),
        Buffer("output", (56, 56, 128), ({"y": 1}, {"x": 1}, {"f": 1})),
    ]
    return LoopNest(tuple(loops), tuple(buffers)).features()


def latencies_s(space: Space, vectors: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns made-up but smooth latencies, shape (n,), with an optimum inside the space."""
    columns = space.columns(vectors)
    tile = np.log2(accumulators(columns))
    depth = np.log2(columns["tile_rc"][:, 1])
    cache = np.log2(columns["tile_y"][:, 1:].prod(axis=1) * columns["tile_x"][:, 1:].prod(axis=1))
    return np.asarray(1e-3 * (1 + 0.1 * (tile - 7) ** 2 + 0.05 * (depth - 4) ** 2 + 0.03 * (cache - 6) ** 2))


def search_seconds(preset: str, n_measured: int) -> dict[str, Any]:
    """Returns the seconds of one iteration's fit, proposal and choice after `n_measured` trials."""
    space, settings, rng = conv_space(), PRESETS[preset], np.random.default_rng(0)
    explorer, sampler = settings.explorer.start(space), settings.sampler.start(space)
    surrogate, history = settings.surrogate.start(space), History(space, FLOP)
    vectors = space.sample(n_measured, rng)
    history.add(vectors, [Measurement(Status.OK, latency_s=cost_s) for cost_s in latencies_s(space, vectors)])
    surrogate.fit(history)
    marks_s = [time.perf_counter()]
    surrogate.fit(history)
    marks_s.append(time.perf_counter())
    candidates = explorer.propose(surrogate, history, rng)
    marks_s.append(time.perf_counter())
    sampler.choose(candidates, history, settings.batch, rng)
    marks_s.append(time.perf_counter())
    fit_s, propose_s, choose_s = np.diff(marks_s)
    return {
        "preset": preset,
        "n_measured": n_measured,
        "space_size": space.size,
        "n_features": space.features(vectors[:1]).shape[1],
        "steps": candidates.log.get("steps", 0),
        "queries": candidates.log.get("queries", 0),
        "fit_s": f"{fit_s:.3f}",
        "propose_s": f"{propose_s:.3f}",
        "choose_s": f"{choose_s:.3f}",
        "search_s": f"{fit_s + propose_s + choose_s:.3f}",
    }


def main() -> None:
    """Prints one line for each preset and number of trials measured so far."""
    rows = [search_seconds(preset, n_measured) for preset in PRESETS for n_measured in N_MEASURED]
    writer = csv.DictWriter(sys.stdout, rows[0])
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
