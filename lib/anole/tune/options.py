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

    The budget of trials includes those that are recorded already. Candidates run on this machine or on a remote one.
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
