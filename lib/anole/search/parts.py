"""The parts of a tuner by the names that models.yaml calls them: those built in, and those of installed packages.

A package adds parts of its own by entry points in the groups ``anole.explorers``, ``anole.samplers``,
``anole.surrogates`` and ``anole.evaluators``, each under the part's name. They are looked up only where a name is not
built in, so that an installed package cannot change what a built-in name means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from anole.errors import SpecError, cause
from anole.search.evaluators import EVALUATORS
from anole.search.explore import EXPLORERS
from anole.search.sample import SAMPLERS
from anole.search.settings import unknown
from anole.search.surrogate import SURROGATES

BUILT_IN: dict[str, Mapping[str, type[Any]]] = {
    "explorer": EXPLORERS,
    "sampler": SAMPLERS,
    "surrogate": SURROGATES,
    "evaluator": EVALUATORS,
}
"""For every role the settings of its parts by their names."""


def find_part(role: str, name: object, path: str) -> type[Any]:
    """Returns the settings class of a part.

    Args:
        role: explorer, sampler, surrogate or evaluator.
        name: the part's name in models.yaml.
        path: where in models.yaml the name stands.

    Raises:
        SpecError: there is no such part, or the package that brings it is broken.
    """
    if isinstance(name, str) and name in BUILT_IN[role]:
        return BUILT_IN[role][name]
    outside = entry_points(group=f"anole.{role}s")
    if not isinstance(name, str) or name not in outside.names:
        raise SpecError(path, unknown(role, name, [*BUILT_IN[role], *sorted(outside.names)]))
    return _load(role, outside[name], path)


def _load(role: str, found: EntryPoint, path: str) -> type[Any]:
    """Returns what an entry point of a package points to, once it is sure to be a part of its name."""
    where = f"{role} {found.name!r}, which is {found.value}"
    try:
        part = found.load()
    except Exception as error:
        raise SpecError(path, f"{where}, cannot be imported: {cause(error)}") from error
    if not isinstance(part, type) or not is_dataclass(part):
        raise SpecError(path, f"{where}, is no dataclass of settings")
    if getattr(part, "name", None) != found.name:
        raise SpecError(
            path, f"{where}, calls itself {getattr(part, 'name', None)!r}; its `name` must be that of the entry point"
        )
    return part
