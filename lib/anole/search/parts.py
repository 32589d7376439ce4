"""Finds the parts of a tuner by their names in models.yaml: built-in parts and parts of installed packages.

A package adds its own parts through entry points in the groups ``anole.explorers``, ``anole.samplers``,
``anole.surrogates`` and ``anole.evaluators``, each under the part's name. They are looked up only for names that are
not built in, so that an installed package cannot change the meaning of a built-in name.
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
"""For every role, the settings classes of its built-in parts by name."""


def find_part(role: str, name: object, path: str) -> type[Any]:
    """Returns the settings class of a part.

    Args:
        role: explorer, sampler, surrogate or evaluator.
        name: the part's name in models.yaml.
        path: the YAML path of the name in models.yaml.

    Raises:
        SpecError: there is no such part, or the package that provides it is broken.
    """
    if isinstance(name, str) and name in BUILT_IN[role]:
        return BUILT_IN[role][name]
    outside = entry_points(group=f"anole.{role}s")
    if not isinstance(name, str) or name not in outside.names:
        raise SpecError(path, unknown(role, name, [*BUILT_IN[role], *sorted(outside.names)]))
    return _load(role, outside[name], path)


def _load(role: str, found: EntryPoint, path: str) -> type[Any]:
    """Loads the settings class of an entry point and checks that it is a part with the entry point's name."""
    where = f"{role} {found.name!r}, which is {found.value}"
    try:
        part = found.load()
    except Exception as error:
        raise SpecError(path, f"{where}, cannot be imported: {cause(error)}") from error
    if not isinstance(part, type) or not is_dataclass(part):
        raise SpecError(path, f"{where}, is not a dataclass of settings")
    if getattr(part, "name", None) != found.name:
        raise SpecError(
            path, f"{where}, calls itself {getattr(part, 'name', None)!r}; its `name` must be that of the entry point"
        )
    return part
