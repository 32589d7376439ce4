"""The experiment on local hardware: search methods on the papers' layers, in constrained and open spaces.

    python -m benchmarks.search.layers --target cuda --layers L6,L8 --trials 320 --file layers.csv

The configs that were the fastest at a checkpoint are measured again at the end of a run, in turns with the untuned
default config. Their ratios to it are compared, because latencies in a search are noisy, and machines have slower and
faster hours. The final configs of complete searches are confirmed once more, in turns in one process, because the
default config's latency differs between processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from anole.keys import canonical_json
from anole.measure.fault_filter import AnyMeasurer, FaultFilteringMeasurer, make_measurer
from anole.measure.options import MeasureOptions
from anole.record import Config, Status, Trial
from anole.search.loop import TUNER_VERSION
from anole.search.settings import TunerSettings
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.space import Space
from anole.targets import get_target
from anole.task import Conv2d, Task
from anole.testing.in_memory import tune_in_memory
from benchmarks.common.arguments import choose_names, log_progress, make_parser
from benchmarks.common.rows import read_rows
from benchmarks.search.experiment import FOLDER, Experiment, Job, Row, run_experiment, version_of
from benchmarks.search.variants import KNOWN_LAYERS, VARIANTS, Place, tuner_of
from kit.quality import batch_sizes, format_shares, incumbents

COMPARED = (
    *("random", "SA+greedy", "SA+AS", "PPO+greedy", "PPO+AS", "SA+diverse batch 16", "adatune", "XGB+SA+DE"),
    *("RFEI+SA+DE", "RFEI+CSA+DE", "anole cold"),
)
FULL = ("AutoTVM, 16 iterations", "Chameleon, 16 iterations")
_FULL_TRIALS = 16 * 64
"""Searches with the papers' 16 iterations, and the maximum trials of one; all others have equally many trials."""
_AUTOTVM = "AutoTVM's"
"""The part of an open space that AutoTVM's own template covers, see `_restriction`."""
SPACES: Mapping[str, Sequence[str]] = {
    "open": (*FULL, *COMPARED),
    "constrained": COMPARED,
    _AUTOTVM: ("random", "SA+greedy", "anole cold"),
}
"""The compared variants in each kind of space."""
CHECKPOINTS = (16, 64, 128, 192, 256)
"""Numbers of trials at which runs are compared; with batches of 64, only the last one follows three fits."""


@dataclass(frozen=True)
class Live:
    """Compared searches on a local target.

    Attributes:
        layers: for the papers' claims, the layers with trials of less than a second even in open spaces.
        spaces: the variants in each kind of space.
        trials: the trials of each run; also a checkpoint if above the others.
    """

    target: str = "cpu"
    layers: Sequence[str] = ("L8", "L7", "L6", "L2", "L1", "L3")
    spaces: Mapping[str, Sequence[str]] = field(default_factory=lambda: SPACES)
    seeds: int = 10
    trials: int = 256

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Numbers of trials after which the fastest config is measured again."""
        return (*CHECKPOINTS, *((self.trials,) if self.trials > CHECKPOINTS[-1] else ()))

    @property
    def experiment(self) -> Experiment:
        """The experiment that runs the searches."""
        figures = ("trials", "failed", "seconds", "search_s", "build_s", "run_s", "batches", "repeats")
        columns = (*figures, *(f"ratio_at_{n}" for n in self.checkpoints), "ratio_at_end", "default_ms", "final")
        keys = ("layer", "space", "variant", "seed", "version")
        return Experiment("layers", keys, columns, self.jobs, self.run, is_timed=True)

    def jobs(self) -> Iterator[Job]:
        """Yield layer, space, variant, seed and version; seeds are the outer loop."""
        for seed in range(self.seeds):
            for layer in self.layers:
                for space, variants in self.spaces.items():
                    task, values = _task(self.target, layer, space), _restriction(self.target, layer, space)
                    for variant in variants:
                        settings = _settings(variant).to_json()
                        budget = self._budget(variant)
                        more = (values, "final" if variant in FULL else "")
                        version = version_of(task.key, settings, TUNER_VERSION, budget, *filter(None, more))
                        yield layer, space, variant, str(seed), version

    def _budget(self, variant: str) -> int:
        return _FULL_TRIALS if variant in FULL else self.trials

    def run(self, job: Job) -> Sequence[Row]:
        """Tune a layer, and measure the found configs again."""
        layer, space, variant, seed, _ = job
        task, settings = _task(self.target, layer, space), _settings(variant)
        target = get_target(task.target)
        trials: list[Trial] = []
        logs: list[Mapping[str, float]] = []
        subject = Subject(space_of(self.target, layer, space), task.workload.flop, task.key)
        watch = Watch(lambda _, log: logs.append(log), trials.append)
        with make_measurer(task, MeasureOptions(settings.evaluator)) as measurer:
            began_s = time.perf_counter()
            tune_in_memory(subject, settings, measurer.measure, self._budget(variant), seed=int(seed), watch=watch)
            seconds = time.perf_counter() - began_s
            ratios = self._confirm(measurer, trials, target.default_config(task.workload))
        measured = [trial.measurement for trial in trials]
        found = {
            **{"trials": len(trials), "failed": sum(each.status is not Status.OK for each in measured)},
            **{"seconds": f"{seconds:.1f}", "search_s": f"{sum(log['search_s'] for log in logs):.2f}"},
            "build_s": f"{sum(each.build_s or 0.0 for each in measured):.1f}",
            "run_s": f"{sum(each.run_s or 0.0 for each in measured):.1f}",
            "batches": format_shares(batch_sizes(trials)),
            "repeats": format_shares(each.repeats for each in measured if each.latency_s),
        }
        return [{**found, **ratios}]

    def _confirm(self, measurer: AnyMeasurer, trials: Sequence[Trial], default: Config) -> Row:
        """Return the latencies at each checkpoint and at the end relative to the default config, and its latency."""
        fastest = incumbents([trial.measurement.latency_s or float("nan") for trial in trials])
        at = {str(n): int(fastest[min(n, len(trials)) - 1]) for n in self.checkpoints} | {"end": int(fastest[-1])}
        found = {name: trials[place].config for name, place in at.items() if place >= 0}
        rivals = {canonical_json(dict(config)): config for config in (default, *found.values())}
        assert isinstance(measurer, FaultFilteringMeasurer)
        confirmed = measurer.confirm(list(rivals.values()))
        latencies_s = dict(zip(rivals, (each.latency_s for each in confirmed), strict=True))
        base_s = latencies_s[canonical_json(dict(default))]
        own = {name: latencies_s[canonical_json(dict(config))] for name, config in found.items()}
        row = {f"ratio_at_{name}": f"{own_s / base_s:.4f}" if base_s and own_s else "" for name, own_s in own.items()}
        final = canonical_json(dict(found["end"])) if "end" in found else ""
        return {**row, "default_ms": "" if base_s is None else f"{1e3 * base_s:.4f}", "final": final}


LIVE = Live().experiment


@dataclass(frozen=True)
class Confirmations:
    """The final configs of complete searches, measured in turns in one process: a job for each layer and seed.

    Attributes:
        file: the file of the searches.
        seconds: how long each config runs.
    """

    file: Path
    target: str = "cpu"
    seconds: float = 3.0

    @property
    def experiment(self) -> Experiment:
        """The experiment that measures the configs."""
        columns = ("variant", "latency_ms", "cv")
        return Experiment("confirmed", ("layer", "seed", "version"), columns, self.jobs, self.run, is_timed=True)

    def jobs(self) -> Iterator[Job]:
        """Yield layer, seed and version of all searches whose rivals have ended."""
        for (layer, seed), finals in self._finals().items():
            if len(finals) == len(FULL):
                yield layer, seed, version_of(_task(self.target, layer, "open").key, finals, self.seconds)

    def run(self, job: Job) -> Sequence[Row]:
        """Measure the final configs of a layer and seed."""
        layer, seed, _ = job
        finals = self._finals()[layer, seed]
        task = _task(self.target, layer, "open")
        space = space_of(self.target, layer, "open")
        configs = [space.config(space.vector(json.loads(final))) for final in finals.values()]
        with make_measurer(task, MeasureOptions(_settings(FULL[0]).evaluator)) as measurer:
            assert isinstance(measurer, FaultFilteringMeasurer)
            measured = measurer.confirm(configs, self.seconds)
        return [
            {"variant": variant, "latency_ms": f"{1e3 * each.latency_s:.5f}", "cv": f"{each.cv or 0:.4f}"}
            for variant, each in zip(finals, measured, strict=True)
            if each.latency_s
        ]

    def _finals(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the final configs by layer and seed, then by variant."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for row in read_rows(self.file):
            if row["space"] == "open" and row["variant"] in FULL and row.get("final"):
                found.setdefault((row["layer"], row["seed"]), {})[row["variant"]] = row["final"]
        return found


CONFIRMED = Confirmations(FOLDER / f"{LIVE.name}{LIVE.suffix}").experiment


def main() -> None:
    """Run the searches that are missing in a file until the time is up."""
    parser = make_parser(__doc__)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu", help="local target")
    parser.add_argument("--layers", default="L6,L8", help="comma-separated")
    parser.add_argument("--variants", default=",".join(COMPARED), help="comma-separated")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this time")
    parser.add_argument("--file", type=Path, required=True, help="file of the runs")
    given = parser.parse_args()
    log_progress()
    layers, variants = choose_names(given.layers, KNOWN_LAYERS), choose_names(given.variants, VARIANTS)
    live = Live(given.target, layers, {"constrained": variants}, 1, given.trials)
    run_experiment(live.experiment, given.file, time.monotonic() + 60 * given.minutes)


def space_of(target: str, layer: str, space: str) -> Space:
    """Return the searched space of a layer."""
    task = _task(target, layer, space)
    return get_target(task.target).space(task.workload).restrict(_restriction(target, layer, space))


def _restriction(target: str, layer: str, space: str) -> Mapping[str, Sequence[Any]]:
    """Return the allowed values of restricted knobs; empty unless the space is one of AutoTVM's.

    These spaces are as small as the space of AutoTVM's x86 template (`conv2d_NCHWc`, without Winograd). It splits input
    channels, output channels and columns in two; for 1x1 kernels, it computes one or two rows together; for others, it
    may unroll the columns of the kernel. The corresponding knobs are ``tile_rc``, ``tile_f`` and ``tile_x``, and one of
    ``tile_y`` or ``tile_rx``.
    """
    if space != _AUTOTVM:
        return {}
    task = _task(target, layer, space)
    w = task.workload
    assert isinstance(w, Conv2d)
    known = {knob.name: knob.values for knob in get_target(task.target).space(w).knobs}
    rows = (1, 2) if w.kernel == (1, 1) else (1,)
    fixed = dict(auto_unroll_max_step=64, unroll_explicit=1, parallel_order="fy", tile_order="fyx", prefetch=0)
    return {
        "tile_f": [each for each in known["tile_f"] if each[1] == 1 and each[0] * each[2] == w.out_channels],
        "tile_y": [each for each in known["tile_y"] if each[1] == 1 and each[2] in rows],
        "tile_x": [each for each in known["tile_x"] if each[1] <= 64],
        "tile_ry": [(w.kernel[0], 1)],
        "pad_at": [each for each in known["pad_at"] if each in ("none", "parallel")],
        **{name: [value] for name, value in fixed.items() if name in known},
    }


@cache
def _task(target: str, layer: str, space: str) -> Task:
    return Place(target, "constrained" if space == "constrained" else "open").task_of(layer)


def _settings(variant: str) -> TunerSettings:
    return replace(tuner_of(variant), n_confirm=0)


if __name__ == "__main__":
    main()
