"""The experiment on learning across tasks: pretrained surrogates and policies on exact tables of the accelerator.

They learned from random trials on layers of other networks (`benchmarks/search/sources.py`). Beside them are random
search, annealing, today's warm start, the default config, and a merit, which counts what a config computes and moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.keys import content_key
from anole.record import Config, Measurement, Status, Trial
from anole.search.explore.guided_annealing import GuidedAnnealing
from anole.search.loop import TUNER_VERSION
from anole.search.presets import PRESETS
from anole.search.roles import Examples
from anole.search.settings import TunerSettings
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.space.space import Space, Vectors
from anole.targets.vta.area import unit_speed
from anole.task import Conv2d
from anole.testing.in_memory import tune_in_memory
from anole.tune.transfer import N_SOURCES, _distance
from benchmarks.accelerator.tables import OWN_BUFFERS, buffer_table, buffer_tables
from benchmarks.search.experiment import Experiment, Job, Row
from benchmarks.search.pretrained import Context, PretrainedPPO, PretrainedTrees, SpeedModel, train_policy
from benchmarks.search.sources import (
    PATH,
    Trials,
    extents,
    relative,
    roofline_s,
    source_trials,
    target,
    with_merit,
)

TRIALS, SEEDS, ROUNDS = 64, 10, 12
CHECKPOINTS = (1, 8, 16, 64)
"""Trials after which the gap is noted; the first trial is what would be taken without measuring."""

_WRONG = 2
"""By how much the bus of a wrong merit is faster than the accelerator's."""

VERSION = 3


@dataclass(frozen=True)
class Variant:
    """What a search begins with.

    Attributes:
        trees: a pretrained surrogate: ``plain``, on the ``roofline`` or on one that is ``wrong``; empty for none.
        learns: whether the task's own trials correct it.
        policy: ``new`` or ``pretrained`` PPO instead of annealing; empty for none.
        merit: by how much the merit's bus is faster than the accelerator's; None for no merit.
        as_margin: whether the surrogate begins from the merit, as in `anole`.
        warm: whether today's warm start is on.
        only: the fixed choice that needs no search: ``default`` or ``random``; empty for a search.
    """

    trees: str = ""
    learns: bool = True
    policy: str = ""
    merit: int | None = None
    as_margin: bool = False
    warm: bool = False
    only: str = ""

    @property
    def in_open(self) -> bool:
        """Whether it knows nothing of what can be run."""
        return self.merit is None and self.trees in ("", "plain")


VARIANTS = {
    "default config": Variant(only="default"),
    "random": Variant(only="random"),
    "annealing": Variant(),
    "warm start": Variant(warm=True),
    "merit": Variant(merit=1),
    "wrong merit": Variant(merit=_WRONG),
    "merit as margin": Variant(merit=1, as_margin=True),
    "wrong merit as margin": Variant(merit=_WRONG, as_margin=True),
    "pretrained": Variant(trees="plain"),
    "pretrained fixed": Variant(trees="plain", learns=False),
    "pretrained on merit": Variant(trees="roofline"),
    "pretrained on wrong merit": Variant(trees="wrong"),
    "PPO": Variant(policy="new"),
    "policy": Variant(policy="pretrained"),
    "policy and pretrained": Variant(policy="pretrained", trees="plain"),
}


def jobs() -> Iterator[Job]:
    """Yields kind, layer, variant, seed and version; seeds are the outer loop."""
    for seed in range(SEEDS):
        for kind in ("constrained", "open"):
            for layer in buffer_tables():
                for name, variant in VARIANTS.items():
                    if kind == "constrained" or variant.in_open:
                        yield kind, layer, name, str(seed), _version(layer)


def run(job: Job) -> Sequence[Row]:
    """Replays a search on a table."""
    kind, layer, name, seed, _ = job
    variant, place = VARIANTS[name], Place(kind, layer)
    if variant.only == "default":
        configs = [place.default]
    else:
        trials: list[Trial] = []
        tune_in_memory(
            *(place.subject(variant), _settings(place, variant), place.measure, TRIALS),
            seed=int(seed),
            watch=Watch(trial=trials.append),
        )
        configs = [trial.config for trial in trials]
    gaps = np.minimum.accumulate(place.gaps(configs))
    failed = int(np.isinf(place.gaps(configs)).sum())
    figures = {f"gap_at_{n}": f"{gaps[min(n, len(gaps)) - 1]:.5f}" for n in CHECKPOINTS}
    return [{"trials": len(configs), "failed": failed, **figures}]


class Place:
    """A layer, in a kind of space, whose exact table is known."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name, self.table = kind, name, buffer_table(name)
        self.layer: Conv2d = self.table.workload  # type: ignore[assignment]
        self.space = target(kind).space(self.layer) if kind == "open" else self.table.space

    @property
    def default(self) -> Config:
        """The config that is built without tuning."""
        return {**_own_buffers(), **target().default_config(self.layer)}

    def subject(self, variant: Variant) -> Subject:
        """Returns what is searched."""
        space = self.space.with_merit(None)
        if variant.merit is not None:
            space = with_merit(self.layer, space, variant.merit, variant.as_margin)
        prior = _prior(self.kind, self.layer) if variant.warm else None
        return Subject(space, self.layer.flop, self.layer.label, prior)

    def gaps(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Returns by how much more than the optimum each config costs, shape (n,); infinity for a failure."""
        costs_s = _costs_s(self.table)
        rows = [self._row(config) for config in configs]
        found = np.array([np.inf if row is None else costs_s[row] for row in rows])
        return np.asarray(found / costs_s.min() - 1)

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Looks configs up; those that cannot be run fail."""
        for config in configs:
            row = self._row(config)
            latency_s = np.nan if row is None else float(self.table.latencies_s[row])
            if np.isnan(latency_s):
                yield Measurement(Status.BUILD_ERROR, error="the accelerator cannot run it so")
            else:
                yield Measurement(Status.OK, latency_s=latency_s)

    def predict(self, model: str, vectors: Vectors) -> NDArray[np.float64]:
        """Returns the speeds that a pretrained model expects in GFLOP/s, discounts included."""
        return _speeds(self.kind, self.name, model)[self._at(vectors)]

    def features(self, vectors: Vectors) -> NDArray[np.float32]:
        """Returns the features of index vectors that have one meaning for all shapes."""
        return _features(self.kind, self.name)[self._at(vectors)]

    def _at(self, vectors: Vectors) -> NDArray[np.int64]:
        """Returns the places of index vectors among all of the space."""
        indices = self.space.indices(vectors)
        return indices if self.kind == "open" else np.searchsorted(self.space.every_valid_index, indices)

    @property
    def parts(self) -> Iterator[Vectors]:
        """All index vectors, in parts that fit the memory."""
        whole = np.arange(self.space.size) if self.kind == "open" else self.space.every_valid_index
        return (self.space.vectors(whole[at : at + 2**16]) for at in range(0, len(whole), 2**16))

    def _row(self, config: Config) -> int | None:
        """Returns a config's place in the table; None if it cannot be run."""
        space = self.table.space
        try:
            vector = space.vector(config)[None, :]
        except ConfigError:
            return None
        index = int(space.indices(vector)[0])
        row = int(np.searchsorted(space.every_valid_index, index))
        return row if row < len(space.every_valid_index) and space.every_valid_index[row] == index else None


def _settings(place: Place, variant: Variant) -> TunerSettings:
    """Returns a variant's settings: those of `anole`, with other parts."""
    settings = replace(PRESETS["anole"], min_gain=None, warm_start=variant.warm)
    if variant.only == "random":
        return replace(PRESETS["random"], batch=settings.batch)
    if variant.trees:
        predict = partial(place.predict, variant.trees)
        trees = PretrainedTrees(
            max_depth=6, learning_rate=0.1, predict=predict, features=place.features, learns=variant.learns
        )
        settings = replace(settings, surrogate=trees)
    if variant.policy:
        weights = _policy(place.kind) if variant.policy == "pretrained" else None
        context = Context(_numbers(place.layer), weights)
        settings = replace(settings, explorer=replace(_PPO, context=context))
    assert variant.policy or isinstance(settings.explorer, GuidedAnnealing)
    return settings


_PPO = PretrainedPPO(n_steps=100, converged_share=None, n_candidates=128)


@cache
def _policy(kind: str) -> dict[str, Any]:
    """Returns the weights of a policy that was trained on all source layers, with the pretrained surrogate's word."""
    tasks = []
    for trials in source_trials(kind):
        space = target(kind).space(trials.layer)
        tasks.append((space, _numbers(trials.layer), partial(_predict, kind, trials.layer, space, "plain")))
    return train_policy(_PPO, tasks, ROUNDS, np.random.default_rng(0))


def _numbers(layer: Conv2d) -> list[float]:
    """Returns a layer's extents as a policy sees them."""
    return (extents(layer) / 8 - 0.5).tolist()


@cache
def _features(kind: str, name: str) -> NDArray[np.float32]:
    """Returns the features of a whole space, once for all runs."""
    place = Place(kind, name)
    found = [relative(place.layer, place.space.columns(vectors), kind=kind) for vectors in place.parts]
    return np.concatenate(found)


@cache
def _speeds(kind: str, name: str, model: str) -> NDArray[np.float64]:
    """Returns the predictions for a whole space, once for all runs."""
    place = Place(kind, name)
    return np.concatenate([_predict(kind, place.layer, place.space, model, vectors) for vectors in place.parts])


def _predict(kind: str, layer: Conv2d, space: Space, model: str, vectors: Vectors) -> NDArray[np.float64]:
    if not len(vectors):
        return np.empty(0)
    columns = space.columns(vectors)
    speeds = _unit(model, layer, columns) * _model(kind, model)(relative(layer, columns, kind=kind))
    return speeds * space.worths(vectors, layer.flop / 1e9 / speeds)


def _unit(model: str, layer: Conv2d, columns: Any) -> NDArray[np.float64]:
    """Returns the speed that a model counts in, in GFLOP/s, of n configs."""
    if model == "plain":
        runs = np.full(len(columns["tile_b"]), unit_speed(layer, target().frequency_hz))
    else:
        runs = 1 / roofline_s(layer, columns, bus=_WRONG if model == "wrong" else 1)
    return runs * layer.flop / 1e9


@cache
def _model(kind: str, model: str) -> SpeedModel:
    """Returns a model that was trained on the trials of all source layers."""
    all_trials = source_trials(kind)
    features = [relative(each.layer, each.columns, kind=kind) for each in all_trials]
    units = [_unit(model, each.layer, each.columns) for each in all_trials]
    pairs = zip(all_trials, units, strict=True)
    logs = [np.log2(each.layer.flop / each.latencies_s / 1e9 / unit) for each, unit in pairs]
    return SpeedModel(np.concatenate(features), np.concatenate(logs))


def _prior(kind: str, layer: Conv2d) -> Examples:
    """Returns the examples of today's warm start: trials of the most similar layers, with the space's features."""
    nearest = sorted(source_trials(kind), key=lambda trials: _distance(layer, trials.layer))[:N_SOURCES]
    found = [_examples(kind, trials) for trials in nearest]
    return Examples(*(np.concatenate([getattr(each, name) for each in found]) for name in ("features", "scores")))


def _examples(kind: str, trials: Trials) -> Examples:
    space = target(kind).space(trials.layer)
    vectors = np.stack([np.searchsorted(knob.table, trials.columns[knob.name]) for knob in space.knobs], axis=1)
    worths = space.worths(vectors, np.nan_to_num(trials.latencies_s))
    gflops = np.nan_to_num(trials.layer.flop / trials.latencies_s / 1e9) * worths
    return Examples(space.features(vectors), gflops / gflops.max())


def _own_buffers() -> dict[str, int]:
    return {name: values[0] for name, values in OWN_BUFFERS.items()}


def _costs_s(table: Any) -> NDArray[np.float64]:
    return np.asarray(np.nan_to_num(table.costs_s, nan=np.inf, posinf=np.inf))


@cache
def _version(layer: str) -> str:
    """Returns the version of a run: that of the table, of the sources and of the search's code."""
    files = [path.read_bytes().hex() for path in (buffer_tables()[layer], PATH)]
    return content_key([*files, TUNER_VERSION, VERSION, TRIALS])[:12]


PRETRAINED = Experiment(
    "pretrained",
    ("kind", "layer", "variant", "seed", "version"),
    ("trials", "failed", *(f"gap_at_{n}" for n in CHECKPOINTS)),
    jobs,
    run,
)
