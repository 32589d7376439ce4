"""How a task, or all tasks of a model together, are tuned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anole.measure.options import MeasureOptions
from anole.search.settings import TunerSettings
from anole.targets.rpc.address import Remote


@dataclass(frozen=True)
class TuneOptions:
    """How a task, or all tasks of a model together, are tuned.

    Attributes:
        settings: the tuner's settings.
        seed: the seed of all randomness.
        n_trials: the budget, which includes the trials that are recorded already.
        shards_dir: the folder of all shards.
        remote: the other machine that runs candidates; this machine when None.
        n_builders: see `MeasureOptions`.
    """

    settings: TunerSettings
    seed: int
    n_trials: int
    shards_dir: Path
    remote: Remote | None = None
    n_builders: int | None = None

    @property
    def measuring(self) -> MeasureOptions:
        """How candidates are measured."""
        return MeasureOptions(self.settings.evaluator, self.n_builders)
