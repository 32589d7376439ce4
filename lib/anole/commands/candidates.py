"""Shell completion of arguments: names from models.yaml, presets, and folders of builds.

A shell asks for candidates at every press of the tab key, so these functions import little. They never fail: the
command itself reports mistakes in the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from anole.documents.layout import BUILDS
from anole.search import DEFAULT_PRESET, PRESET_NAMES

Candidates = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _of(names: Callable[[click.Context], Iterable[str]]) -> Candidates:
    """Return a completion that offers the names that start with the typed text; none if listing names fails."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            return [CompletionItem(name) for name in names(context) if name.startswith(incomplete)]
        except Exception:  # a message would appear in the middle of the command line
            return []

    return complete


def _project(context: click.Context) -> dict[str, Any]:
    """Return the content of models.yaml, unchecked."""
    from anole.config.yaml_file import read_yaml

    plain = read_yaml(Path(context.params.get("spec") or "models.yaml"))
    return plain if isinstance(plain, dict) else {}


def _builds(context: click.Context) -> list[str]:
    """Return the names of the project's builds, compiled or not."""
    project = _project(context)
    default = (project.get("tuning") or {}).get("preset", DEFAULT_PRESET)
    given = set(context.params.get("builds") or ())
    entries = project.get("builds") or ()
    names = (
        each.get("name") or f"{each['model']}-{each['target']}-{each.get('preset', default)}"
        for each in entries
        if isinstance(each, dict) and ("name" in each or {"model", "target"} <= each.keys())
    )
    return [str(name) for name in names if name not in given]


builds = _of(_builds)
accelerators = _of(lambda context: _project(context).get("accelerators") or ())
models = _of(lambda context: _project(context).get("models") or ())
targets = _of(lambda context: _project(context).get("targets") or ())
presets = _of(lambda _: PRESET_NAMES)


def build_folders(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the folders of builds, in ``builds`` or in the typed folder; any folders if there is no build."""
    typed = incomplete[: incomplete.rfind("/") + 1]
    try:
        # Keep the typed prefix unchanged, even if it begins with `./`.
        places = (f"{BUILDS}/", typed)
        found = {f"{place}{path.parent.name}" for place in places for path in Path(place or ".").glob("*/build.json")}
    except (OSError, ValueError):
        found = set()
    items = [CompletionItem(folder) for folder in sorted(found) if folder.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="dir")]
