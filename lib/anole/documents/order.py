"""The order of a build: all that compiling it depends on, beside its receipts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from anole.declared.entries import ModelSpec
from anole.documents.manifest import Origin
from anole.keys import Key
from anole.plain import LATER


@dataclass(frozen=True)
class Order:
    """What a build is compiled from.

    Attributes:
        model: the model's name in models.yaml.
        target: the target's name in models.yaml.
        origin: what the model's manifest must be extracted from.
        trials: the budget of each task or, where it is shared, of all together.
        shared: whether the tasks share one budget.
        seed: the seed of all randomness in tuning.
        lock: the content key of the build's entry in the lock file, which is too long to be an argument;
            None without one.
    """

    model: str
    target: str
    origin: Origin
    preset: str
    trials: int
    shared: bool
    seed: int
    lock: Annotated[Key | None, LATER] = None

    @property
    def model_spec(self) -> ModelSpec:
        """The model as models.yaml describes it."""
        return ModelSpec.from_json(self.model, self.origin.entry)
