"""The tuning job of one task: its search, its measurer, and the shard that records its trials."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from anole.documents.receipt import MeasuredConfig, TuningReceipt
from anole.errors import MeasureError, TargetError
from anole.host.machine import host_facts, software_versions
from anole.host.process import prepare
from anole.measure.device_access import DeviceAccess
from anole.measure.fault_filter import AnyMeasurer, make_measurer
from anole.measure.measurer import SimulatedMeasurer
from anole.measure.options import MeasureOptions
from anole.record import Config, Confirmation, Measurement, Remeasurement, Run, SpaceFacts, Status, Trial, utc_now
from anole.search.confirm import diversify, fastest, fastest_of_each, settle
from anole.search.loop import TUNER_VERSION, tune
from anole.search.settings import TunerSettings
from anole.search.state import Search, Subject
from anole.search.ties import prefer_merit
from anole.search.watch import NO_WATCH, Watch
from anole.store.shard import Shard, shard_path
from anole.targets import get_target
from anole.targets.base import DeviceLocation
from anole.targets.rpc.address import Remote
from anole.task import Task
from anole.tune.measurers import Measurers
from anole.tune.transfer import find_sources, read_prior

logger = logging.getLogger(__name__)

_MAX_RECEIPT_CONFIGS = 8
"""Maximum number of rivals in a receipt, one of each kind first: kinds differ in cache behavior within a network."""

SUSPECT = frozenset({Status.BUILD_ERROR, Status.BUILD_TIMEOUT, Status.RUN_ERROR, Status.RUN_TIMEOUT})
"""Statuses that a faulty machine can cause. Rejections and wrong answers are not among them."""

_N_SAMPLES = 4096
"""Number of sampled configs for estimating the share of invalid configs in a space."""


@dataclass(frozen=True)
class TuneOptions:
    """Options for tuning a task, or all tasks of a model with a shared budget.

    `n_trials` includes recorded trials. Candidates run on this machine unless `remote` is given.
    """

    settings: TunerSettings
    seed: int
    n_trials: int
    shards_dir: Path
    remote: Remote | None = None
    n_builders: int | None = None

    @property
    def measuring(self) -> MeasureOptions:
        """The options for measuring candidates."""
        return MeasureOptions(self.settings.evaluator, self.n_builders)


class TaskTuning:
    """A search of one task that runs and records trials in steps, at the request of its caller.

    A context manager; entering it opens the shard, and waits while another process has the shard open. On a machine
    that is not the target, only recorded trials are used; if more are needed, TargetError is raised.

    Args:
        measurers: the open measurers of all tasks that are tuned together.
        limit: maximum number of recorded trials to use; by default all.
        access: where candidates run; None for simulated targets.
        watch: called for each event after it is recorded.
    """

    def __init__(
        self,
        task: Task,
        options: TuneOptions,
        measurers: Measurers,
        *,
        limit: int | None = None,
        access: DeviceAccess | None = None,
        watch: Watch = NO_WATCH,
    ) -> None:
        self.task = task
        self._options, self._settings, self._limit = options, options.settings, limit
        self._target, self._access, self._remote = get_target(task.target), access, access.remote if access else None
        self._measurers, self._caller_watch = measurers, watch
        self._stack = ExitStack()
        self._search: Search | None = None

    def __enter__(self) -> Self:
        run = Run(
            self.task.key,
            self._settings.preset,
            self._options.seed,
            TUNER_VERSION,
            self._settings.to_json(),
            threads=1 if self._target.location is DeviceLocation.SIMULATOR else self._target.threads,
            host={**host_facts(), **({"measured_at": self._remote.to_json()} if self._remote else {})},
            versions=software_versions(),
        )
        if not shard_path(self._options.shards_dir, run).exists():
            self._check_absence()  # before the new shard's first line says that this machine measured it
        self._shard = self._stack.enter_context(Shard.open(self._options.shards_dir, run, self.task, wait=True))
        recording = Watch(self._shard.append_iteration, self._shard.append_trial, self._shard.append_confirmation)
        self._watch = recording.then(self._caller_watch)
        self._recorded = self._shard.trials[: self._limit]
        self._is_complete = self._limit is not None and len(self._recorded) >= self._limit
        if not self._is_complete and self._target.location is not DeviceLocation.SIMULATOR:
            prepare(self._target.preload)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials so far: replayed and new ones, or the recorded ones if these reach the limit."""
        if self._search is not None:
            return self._search.trials
        return self._recorded if self._is_complete else ()

    @property
    def elapsed_s(self) -> float:
        """Time spent on searching and measuring until the last trial."""
        return self.trials[-1].elapsed_s if self.trials else 0.0

    @property
    def done(self) -> bool:
        """Whether further trials would be useless."""
        return self._is_complete or (self._search is not None and self._search.done)

    @property
    def n_programs(self) -> float:
        """Number of distinct programs in the space if the search has enumerated them; otherwise infinity."""
        return math.inf if self._search is None else self._search.subject.space.n_programs

    @property
    def expected_gain(self) -> float:
        """Expected saving of the next iteration as a share of the best latency; 1 before the first iteration."""
        return 1.0 if self._search is None else self._search.expected_gain

    def advance(self, n_trials: int) -> None:
        """Tune until the task has `n_trials` trials in total or is done."""
        if self._is_complete:
            return
        if self._limit is not None:
            self._check_absence()
        if self._search is None:
            self._search = Search(self._subject(), self._settings, seed=self._options.seed, recorded=self._recorded)
        with self._add_resume_hint():
            tune(self._search, self._measure, n_trials, self._watch)

    def measure_failures_again(self) -> None:
        """Measure all recorded trials again whose failures the machine may have caused; call it before `advance`.

        Each new measurement is stored immediately and replaces the earlier one.
        """
        suspects = [trial for trial in self._shard.trials if trial.measurement.status in SUSPECT]
        if not suspects:
            logger.info("%s: no trial has failed in a way that the machine may have caused", self.task.label)
            return
        n_working = 0
        with self._add_resume_hint():
            for trial, measurement in zip(suspects, self._measure([trial.config for trial in suspects]), strict=True):
                gflops = self.task.workload.flop / measurement.latency_s / 1e9 if measurement.latency_s else None
                self._shard.append_remeasurement(Remeasurement(trial.number, measurement, gflops, utc_now()))
                n_working += measurement.status is Status.OK
        self._recorded = self._shard.trials[: self._limit]
        logger.info("%s: %d of %d failed trials work now", self.task.label, n_working, len(suspects))

    def receipt(self, n_trials: int) -> TuningReceipt:
        """Return the receipt; first confirm the fastest trials if they can be measured and none exceeds the budget."""
        trials, run = self.trials, self._shard.run
        uses_all_trials = len(self._shard.trials) == len(trials)
        can_measure = self._target.location is not DeviceLocation.SIMULATOR and self._absence is None
        confirm = self._confirm if uses_all_trials and can_measure else None
        space, default = self._target.space(self.task.workload), self._target.default_config(self.task.workload)
        with self._add_resume_hint():
            ranking = settle(
                trials,
                self._settings,
                self._shard.confirmations,
                confirm,
                space.worth,
                self._watch,
                default,
                prefer_merit(space, default),
            )
        best = next(iter(ranking), None)
        latency_s = best.measurement.latency_s if best is not None else None
        return TuningReceipt(
            task_key=self.task.key,
            label=self.task.label,
            run_key=run.key,
            preset=run.preset,
            seed=run.seed,
            trials=n_trials,
            measured=len(trials),
            status="failed" if best is None else "tuned",
            config=None if best is None else best.config,
            confirmed=isinstance(best, Confirmation) or self._target.location is DeviceLocation.SIMULATOR,
            latency_s=latency_s,
            gflops=self.task.workload.flop / latency_s / 1e9 if latency_s else None,
            statuses=dict(sorted(Counter(trial.measurement.status.value for trial in trials).items())),
            elapsed_s=self.elapsed_s,
            designs=_measured_configs(fastest_of_each(trials, space.names_of("hardware"))),
            rivals=_measured_configs(diversify(ranking, space.kinds, _MAX_RECEIPT_CONFIGS)),
        )

    @contextmanager
    def _add_resume_hint(self) -> Iterator[None]:
        """Extend the message of a MeasureError with the number of trials after which the next run continues."""
        try:
            yield
        except MeasureError as error:
            n = len(self.trials) or len(self._recorded)
            raise type(error)(f"{error}; running again continues after {n} trials") from error

    @property
    def _absence(self) -> str | None:
        """The reason that candidates cannot be measured; None if they can, on this machine or a remote one."""
        return None if self._remote is not None else self._target.absence()

    def _check_absence(self) -> None:
        """Raise TargetError unless candidates can be measured."""
        if (absence := self._absence) is not None:
            raise TargetError(f"{self.task.label}: cannot be measured here: {absence}")

    def _subject(self) -> Subject:
        workload = self.task.workload
        space = self._target.space(workload)
        if self._shard.space is None:
            vectors = space.vectors(space.draw(_N_SAMPLES, np.random.default_rng(0)))
            self._shard.append_space(SpaceFacts(space.size, _N_SAMPLES, space.rejections(vectors)))
        is_new = self._shard.sources is None and not self._shard.trials
        if is_new and self._settings.learns_from_others(space):
            self._shard.append_sources(find_sources(self._options.shards_dir, self.task))
        prior = read_prior(self._options.shards_dir, self._shard.sources or (), space)
        if prior is not None:
            logger.info("%s: learning from %d trials of similar tasks", self.task.label, len(prior))
        return Subject(space, workload.flop, self.task.key, prior, self._target.default_config(workload))

    def _measure(self, configs: Sequence[Config]) -> Iterable[Measurement]:
        self._check_absence()
        return self._measurer().measure(configs)

    def _confirm(self, configs: Sequence[Config]) -> Iterable[Measurement]:
        measurer = self._measurer()
        assert not isinstance(measurer, SimulatedMeasurer), "simulated trials need no confirmation"
        return measurer.confirm(configs)

    def _measurer(self) -> AnyMeasurer:
        def start() -> AnyMeasurer:
            best = next(iter(fastest(self.trials or self._recorded, lambda *_: 1.0)), None)
            return make_measurer(self.task, self._options.measuring, self._access, best)

        return self._measurers.of(self.task.key, start)


def _measured_configs(ranking: Iterable[Trial | Confirmation]) -> tuple[MeasuredConfig, ...]:
    """Return the configs that have a latency, with their latencies."""
    latencies = ((record.config, record.measurement.latency_s) for record in ranking)
    return tuple(MeasuredConfig(config, latency_s) for config, latency_s in latencies if latency_s is not None)
