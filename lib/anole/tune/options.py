"""Options for tuning a task, or all tasks of a model with a shared budget."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anole.measure.options import MeasureOptions
from anole.search.settings import TunerSettings
from anole.targets.rpc.address import Remote


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
