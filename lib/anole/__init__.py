"""Declarative auto-tuning of deep networks: `compile` and `load` for a single network, models.yaml for many."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anole.api import compile as compile
    from anole.api import load as load
    from anole.api.compiled import Compiled as Compiled
    from anole.errors import AnoleError as AnoleError

_HOMES = {"AnoleError": "anole.errors", "Compiled": "anole.api.compiled", "compile": "anole.api", "load": "anole.api"}
"""The module of each public name. They are imported at their first use: commands start without torch and TVM."""

__all__ = ["AnoleError", "Compiled", "compile", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'anole' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
