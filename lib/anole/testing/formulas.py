"""Synthetic tuning problems: spaces whose latencies are formulas, for tests of searches without hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anole.record import Config, Measurement, Status
from anole.search.roles import History
from anole.space import ALGORITHM, Constraint, Space, option_knob, split_knob, union
from anole.space.space import Columns, Vectors


@dataclass
class Formula:
    """A space and the latencies of its configs.

    Attributes:
        cost_s: maps columns to latencies in seconds, shape (n,); NaN is a config that fails.
        flop: floating-point operations of one run.
        asked: all configs passed to `measure`, in order.
    """

    space: Space
    cost_s: Callable[[Columns], NDArray[np.float64]]
    flop: int = 10**9
    asked: list[Config] = field(default_factory=list)

    def measurements(self, vectors: Vectors) -> list[Measurement]:
        """Return the measurements of n index vectors, shape (n, n_knobs), without recording them in `asked`."""
        costs_s = self.cost_s(self.space.columns(vectors))
        return [
            Measurement(Status.RUN_ERROR, error="no result")
            if np.isnan(cost_s)
            else Measurement(Status.OK, latency_s=cost_s)
            for cost_s in map(float, costs_s)
        ]

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Measure configs, one by one."""
        for config in configs:
            self.asked.append(config)
            yield self.measurements(self.space.vector(config)[None])[0]

    def history(self, n: int, seed: int = 0) -> History:
        """Return a history of n random configs."""
        history = History(self.space, self.flop)
        vectors = self.space.sample(n, np.random.default_rng(seed))
        history.add(vectors, self.measurements(vectors))
        return history

    @property
    def optimum_s(self) -> float:
        """The lowest latency of the space in seconds, computed from all of its configs."""
        assert self.space.valid_indices is not None, "the space is too large to enumerate"
        vectors = self.space.vectors(self.space.valid_indices)
        return float(np.nanmin(self.cost_s(self.space.columns(vectors))))


def bowl(extent_f: int = 128, extent_x: int = 56) -> Formula:
    """Return a tiling formula with one optimum, interacting knobs, invalid configs and configs that fail."""
    space = Space(
        [
            split_knob("tile_f", extent_f, 4),
            split_knob("tile_x", extent_x, 4),
            split_knob("tile_rc", 64, 2),
            option_knob("order", ["channels_first", "kernel_first", "mixed"]),
            option_knob("unroll", [0, 64, 512]),
        ],
        [Constraint("the tile is too large", lambda c: c["tile_f"][:, 3] * c["tile_x"][:, 3] <= 128)],
    )

    def cost_s(columns: Columns) -> NDArray[np.float64]:
        f, x, rc = (np.log2(columns[name]) for name in ("tile_f", "tile_x", "tile_rc"))
        cost = 1 + 0.1 * (f[:, 3] + x[:, 3] - 6) ** 2 + 0.05 * (f[:, 3] - 4) ** 2 + 0.05 * (f[:, 1] - x[:, 1]) ** 2
        cost += 0.05 * (rc[:, 1] - 3) ** 2 + 0.02 * f[:, 0] + 0.02 * x[:, 2]
        cost += 0.2 * (columns["order"] != "kernel_first") + 0.1 * (columns["unroll"] == 512)
        fails = (columns["unroll"] == 512) & (columns["tile_rc"][:, 1] > 16)
        return np.where(fails, np.nan, 1e-3 * cost)

    return Formula(space, cost_s)


def handful() -> Formula:
    """Return a formula over 12 configs, 8 of them valid."""
    space = Space(
        [option_knob("a", [0, 1, 2, 3]), option_knob("b", [0, 1, 2])],
        [Constraint("a and b are too far apart", lambda c: np.abs(c["a"] - c["b"]) < 2)],
    )
    return Formula(space, lambda c: 1e-3 * (1.0 + c["a"] + 2 * c["b"]))


def rivals() -> Formula:
    """Return a formula with a choice of two algorithms; the second is faster at its optimum, and slower elsewhere."""
    direct = bowl()
    space = union(
        {
            "direct": direct.space,
            "winograd": Space([option_knob("tile_size", [2, 4, 6]), split_knob("tile_p", 3 << 8, 4)]),
        }
    )

    def cost_s(columns: Columns) -> NDArray[np.float64]:
        p = np.log2(columns["tile_p"])
        winograd_s = 4e-4 * (1 + 0.3 * (p[:, 1] - 3) ** 2 + 0.2 * (p[:, 3] - 2) ** 2 + (columns["tile_size"] != 4))
        return np.where(columns[ALGORITHM] == "winograd", winograd_s, direct.cost_s(columns))

    return Formula(space, cost_s)


def islands(n: int, extent: int = 64) -> Formula:
    """Return a formula over two knobs whose fast configs lie on n distant islands; all others are slower.

    The fastest 64 configs are distributed about equally over the islands. The fastest config takes 1 ms.
    """
    rows = int(np.ceil(np.sqrt(n)))
    exact_centers = (np.stack(np.unravel_index(np.arange(n), (rows, rows)), axis=1) + 0.5) * extent / rows
    centers = np.floor(exact_centers)

    def cost_s(columns: Columns) -> NDArray[np.float64]:
        points = np.stack([columns["a"], columns["b"]], axis=1)
        distances = np.linalg.norm(points[:, None] - centers[None], axis=2).min(axis=1)
        return np.asarray(1e-3 * (1 + distances))

    return Formula(Space([option_knob(name, list(range(extent))) for name in "ab"]), cost_s)


def ridge(n_pairs: int = 3, n_values: int = 32) -> Formula:
    """Return a formula in which the two knobs of each agent must move together, in a space too large to enumerate.

    A step off a pair's diagonal loses two thirds of the pair's speed, and the best config, which takes 1 ms, is at the
    far end of all diagonals: only an explorer that has learned to follow a ridge finds it.
    """
    knobs = [
        option_knob(f"{side}{pair}", list(range(n_values)), agent=f"agent {pair}")
        for pair in range(n_pairs)
        for side in "ab"
    ]

    def cost_s(columns: Columns) -> NDArray[np.float64]:
        pairs = [(columns[f"a{pair}"], columns[f"b{pair}"]) for pair in range(n_pairs)]
        speeds = [(a + b) / (2 * (n_values - 1)) * np.exp(-np.abs(a - b)) for a, b in pairs]
        return np.asarray(1e-3 / np.maximum(np.mean(speeds, axis=0), 1e-9))

    return Formula(Space(knobs), cost_s)
