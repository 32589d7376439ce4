"""Shell completion of arguments: names from models.yaml, presets, and folders of builds.

A shell asks for completions whenever the tab key is pressed, so these functions import little. They never fail: the
command itself reports mistakes in the project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from anole.documents.layout import BUILDS
from anole.search import DEFAULT_PRESET, PRESET_NAMES


def _complete(
    names: Callable[[click.Context], Iterable[str]], context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the typed text to names; return nothing if listing names fails."""
    try:
        return [CompletionItem(name) for name in names(context) if name.startswith(incomplete)]
    except Exception:  # a message would appear in the middle of the command line
        return []


def _project(context: click.Context) -> dict[str, Any]:
    """Return the content of models.yaml, unchecked."""
    from anole.config.yaml_file import read_yaml

    content = read_yaml(Path(context.params.get("spec") or "models.yaml"))
    return content if isinstance(content, dict) else {}


def _builds(context: click.Context) -> list[str]:
    """Return the names of the project's builds, compiled or not."""
    project = _project(context)
    default = (project.get("tuning") or {}).get("preset", DEFAULT_PRESET)
    typed_before = set(context.params.get("builds") or ())
    entries = project.get("builds") or ()
    names = (
        entry.get("name") or f"{entry['model']}-{entry['target']}-{entry.get('preset', default)}"
        for entry in entries
        if isinstance(entry, dict) and ("name" in entry or {"model", "target"} <= entry.keys())
    )
    return [str(name) for name in names if name not in typed_before]


builds = partial(_complete, _builds)
accelerators = partial(_complete, lambda context: _project(context).get("accelerators") or ())
models = partial(_complete, lambda context: _project(context).get("models") or ())
targets = partial(_complete, lambda context: _project(context).get("targets") or ())
presets = partial(_complete, lambda _: PRESET_NAMES)


def build_folders(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the build folders in ``builds`` and in the typed folder; any folders if there is no build."""
    typed = incomplete[: incomplete.rfind("/") + 1]
    try:
        # Keep the typed prefix unchanged, even if it begins with `./`.
        prefixes = (f"{BUILDS}/", typed)
        folders = {
            f"{prefix}{path.parent.name}" for prefix in prefixes for path in Path(prefix or ".").glob("*/build.json")
        }
    except (OSError, ValueError):
        folders = set()
    items = [CompletionItem(folder) for folder in sorted(folders) if folder.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="dir")]
