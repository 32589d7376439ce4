"""The settings of a tuner and its parts, and their conversion from plain values and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar

from anole.codec import DecodeError, decode_present
from anole.codec import Range as Range
from anole.errors import SpecError, suggestion
from anole.search.roles import Evaluator, Explorer, Sampler, Surrogate
from anole.space.space import Space


class Settings(Protocol):
    """A frozen dataclass whose fields can be set in models.yaml.

    A field is an int, float, bool or str, or one of the values of a `Literal`; a number may have a `Range`;
    any field may be ``| None``. ``later_settings`` may name new fields, whose defaults mean what older versions did.
    """

    name: ClassVar[str]
    """The part's name in models.yaml."""
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Role_co = TypeVar("Role_co", covariant=True)


class Part(Settings, Protocol[Role_co]):
    """The settings of an explorer, a sampler or a surrogate, and its factory."""

    def start(self, space: Space) -> Role_co:
        """Return the part, ready to tune one task."""


class Stateless:
    """Base class for the settings of a part without state: the settings are the part itself."""

    def start(self, space: Space) -> Self:
        """Return the part."""
        return self


class EvaluatorSettings(Settings, Evaluator, Protocol):
    """The settings of an evaluator. An evaluator has no state, so its settings are the evaluator itself."""


@dataclass(frozen=True)
class TunerSettings:
    """Everything that determines which configs a tuner proposes, except the seed and the number of trials.

    Attributes:
        preset: name of the preset that the settings are based on.
        batch: trials per iteration of the loop.
        batch_without_merit: the same in a space without merit, where each fit teaches more; None is `batch`.
        n_confirm: number of the fastest configs that are measured again at the end.
        min_gain: the search stops when the next `trials_ahead` are expected to save less than this share of the best
            latency; None spends the entire budget.
        warm_start: whether to learn first from the trials of similar tasks on the same target; see
            `learns_from_others`.
        max_iterations: the search stops after this many iterations (the papers' iteration_opt); None sets no limit.
    """

    preset: str
    explorer: Part[Explorer]
    sampler: Part[Sampler]
    surrogate: Part[Surrogate]
    evaluator: EvaluatorSettings
    batch: Annotated[int, Range(1, 256)] = 64
    n_confirm: Annotated[int, Range(0, 64)] = 16
    min_gain: Annotated[float, Range(0, 1)] | None = None
    warm_start: bool = False
    max_iterations: Annotated[int, Range(1)] | None = None
    batch_without_merit: Annotated[int, Range(1, 256)] | None = None

    def batch_in(self, space: Space) -> int:
        """Return the trials per iteration in a space."""
        return self.batch if space.merit else self.batch_without_merit or self.batch

    def trials_ahead(self, space: Space) -> int:
        """Return the trials whose gain `min_gain` limits: a batch, or 24 without merit, where gains come in jumps."""
        return self.batch_in(space) if space.merit else max(24, self.batch_in(space))

    def learns_from_others(self, space: Space) -> bool:
        """Whether a search starts from the trials of other tasks: not if its surrogate is fitted from the start."""
        return self.warm_start and not self.surrogate.start(space).fitted

    def to_json(self) -> dict[str, Any]:
        """Return all settings as plain values; they are stored with a run and are part of its key."""
        return dict(self._plain)

    @cached_property
    def _plain(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.batch_without_merit is None:
            del values["batch_without_merit"]  # which keeps old run keys
        parts = {role: values.pop(role) for role in ("explorer", "sampler", "surrogate", "evaluator")}
        return values | {role: {"name": part.name, **_describe(part)} for role, part in parts.items()}


def _describe(part: Any) -> dict[str, Any]:
    """Return the settings of a part, without `later_settings` that have their defaults, which keeps old run keys."""
    later, defaults = getattr(part, "later_settings", ()), {field.name: field.default for field in fields(part)}
    return {name: value for name, value in asdict(part).items() if name not in later or value != defaults[name]}


def read_fields(cls: type[Settings] | type[TunerSettings], plain: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return keyword arguments for a settings class from plain values at a YAML path of models.yaml.

    Raises:
        SpecError: a field is unknown or its value is not allowed.
    """
    try:
        return decode_present(cls, plain)
    except DecodeError as error:
        raise SpecError(f"{path}.{error.place}", error.problem) from None


def describe_unknown(what: str, name: object, allowed: Iterable[str]) -> str:
    """Return the message for an unknown name: the allowed names, and the one that was probably meant."""
    return f"unknown {what} {name!r}; {suggestion(str(name), list(allowed))}"
