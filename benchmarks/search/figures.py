"""Figures of searches that claims compare: costs, trials and seconds, also at equal trials, seconds or costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.common.rows import Row
from benchmarks.search.evidence import Logs, Rows, pairs_of

PRICE_S = 0.1
"""The assumed seconds of a trial, where seconds are compared: as on our processor, whose trials take 0.12 to 0.16."""

_WORST = 100.0
"""The cap on costs relative to the optimum."""


def cost_at(column: str) -> Callable[[Row], float]:
    """Return a reader of the cost relative to the optimum after some trials, or at the end of a shorter run."""
    return lambda row: min(1 + float(row[column] or row["gap_at_end"] or "nan"), _WORST)


@dataclass(frozen=True)
class Curve:
    """The best cost of a run by trials, and its seconds; between two checkpoints, the logarithm is interpolated."""

    trials: tuple[float, ...]
    log_costs: tuple[float, ...]
    trial_s: float

    @classmethod
    def of(cls, row: Row) -> Curve:
        """Return the curve of a row of the experiment on tables; the search's seconds are spread over its trials."""
        end = float(row["trials"])
        points = {
            float(name.removeprefix("gap_at_")): cost_at(name)(row)
            for name, gap in row.items()
            if name.startswith("gap_at_") and name != "gap_at_end" and gap
        }
        points = {n: cost for n, cost in points.items() if n < end} | {end: cost_at("gap_at_end")(row)}
        return cls(tuple(points), tuple(np.log(list(points.values())).tolist()), PRICE_S + float(row["search_s"]) / end)

    @property
    def seconds(self) -> float:
        """The seconds of the entire run."""
        return self.trial_s * self.trials[-1]

    def log_cost_after(self, seconds: float) -> float:
        """Return the logarithm of the best cost after some seconds."""
        return float(np.interp(seconds / self.trial_s, self.trials, self.log_costs))

    def trials_to(self, log_cost: float) -> float:
        """Return the trials until a cost that the run reaches."""
        at = int(np.argmax(np.array(self.log_costs) <= log_cost + 1e-9))
        if at == 0:
            return self.trials[0]
        (before, cost_before), (after, cost) = ((self.trials[i], self.log_costs[i]) for i in (at - 1, at))
        return before + (after - before) * (cost_before - log_cost) / (cost_before - cost)


def _cost_after_equal_seconds(over: Row, under: Row) -> float:
    """Return the ratio of two runs' costs when the first of both ends."""
    curves = Curve.of(over), Curve.of(under)
    seconds = min(curve.seconds for curve in curves)
    one, other = (curve.log_cost_after(seconds) for curve in curves)
    return float(np.exp(one - other))


def _to_common_cost(over: Row, under: Row, in_seconds: bool) -> float:
    """Return the ratio of two runs' trials or seconds to the worse one of their final costs, which both reach."""
    curves = Curve.of(over), Curve.of(under)
    common = max(curve.log_costs[-1] for curve in curves)
    one, other = (curve.trials_to(common) * (curve.trial_s if in_seconds else 1) for curve in curves)
    return one / other


def _similarity(row: Row) -> float:
    """Return the ratio of how often configs are similar within a cluster and across clusters."""
    return max(1e-3, float(row["near_own"])) / max(1e-3, float(row["near_other"]))


def whole_batches(row: Row) -> list[int]:
    """Return the sizes of a run's batches except the last one, which may be incomplete; of a single batch, its size."""
    sizes = list(map(int, row["batches"].split()))
    return sizes[:-1] or sizes


def _not_of_16(row: Row) -> float:
    """Return the share of a run's batches whose size is not 16."""
    return max(1e-3, float(np.mean([each != 16 for each in whole_batches(row)])))


@dataclass(frozen=True)
class Measure:
    """A figure of a row, or a ratio of two rows, and how a claim's number reads.

    Attributes:
        read: the figure of a row, for the ratio of two rows' figures.
        paired: the ratio of two rows, for figures that depend on both.
        better, worse: the ratio in words if it is above 1, and the inverse one if it is below.
    """

    better: str
    worse: str
    read: Callable[[Row], float] | None = None
    paired: Callable[[Row, Row], float] | None = None

    def logs(self, rows: Rows, over: str, under: str, variant: str, block: str) -> Logs:
        """Return the logarithms of the ratio, or without `under` of the figure, by block and pair."""
        if not under:
            assert self.read is not None
            variant_rows = [row for row in rows if row[variant] == over]
            return {(row[block], row["seed"]): float(np.log(self.read(row))) for row in variant_rows}
        pairs = pairs_of(rows, over, under, variant=variant, block=block)
        return {key: float(np.log(self._ratio(*pair))) for key, pair in pairs.items()}

    def _ratio(self, over: Row, under: Row) -> float:
        if self.read is None:
            assert self.paired is not None
            return self.paired(over, under)
        return self.read(over) / self.read(under)


def _column(name: str) -> Callable[[Row], float]:
    return lambda row: float(row[name] or "nan")


_steps = partial(Measure, "{}x fewer steps", "{}x as many steps")
_speed = partial(Measure, "{}x as fast", "{}x as slow")
_trials = partial(Measure, "{}x fewer trials", "{}x as many trials")
_time = partial(Measure, "{}x less time", "{}x as long")

MEASURES: Mapping[str, Measure] = {
    "how much closer": Measure("{}x as close", "{}x as far", _column("loss_ratio")),
    "similarity": Measure("{}x as often", "{}x as rarely", _similarity),
    "steps to the score": _steps(lambda row: 1 + float(row["steps"])),
    "steps to a new score": _steps(lambda row: 1 + float(row["new_steps"])),
    "batch": Measure("{}x fewer configs", "{}x as many configs", lambda row: float(np.mean(whole_batches(row)))),
    "batches not of 16": Measure("{share:.0f} %", "{share:.0f} %", _not_of_16),
    "trials": _trials(_column("trials")),
    # All trials if a run never comes within 1 %.
    "trials to 1 %": _trials(lambda row: float(row["trials_to_1%"] or row["trials"])),
    "trials to a common cost": _trials(paired=partial(_to_common_cost, in_seconds=False)),
    "seconds to a common cost": _time(paired=partial(_to_common_cost, in_seconds=True)),
    **{f"cost at {n}": _speed(cost_at(f"gap_at_{n}")) for n in (64, 128, 256)},
    "cost at the end": _speed(cost_at("gap_at_end")),
    "cost after equal seconds": _speed(paired=_cost_after_equal_seconds),
    # In milliseconds: the default config's latency differs between processes.
    "latency at the end": _speed(lambda row: _column("ratio_at_end")(row) * _column("default_ms")(row)),
    **{name: _speed(_column(name)) for name in ("latency_s", "latency_ms", "ratio_at_256")},
    **{name: _time(_column(name)) for name in ("seconds", "run_s")},
    # At least one failure, so ratios exist; the first trials of a search fail most often.
    "failures of 128": Measure(
        "{}x fewer", "{}x as many", lambda row: max(1.0, _column("failed_at_128")(row)) / min(128, int(row["trials"]))
    ),
}
"""The figures of claims by name."""
